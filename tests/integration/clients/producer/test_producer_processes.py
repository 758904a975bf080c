"""The producer and the process it lives in: exit, forks, pickles, garbage collection."""

import gc
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import pytest

from kalda import AsyncProducer, Producer

TopicName = Callable[[str], str]


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program with warnings shown; it fails the test when it hangs."""
    return subprocess.run(
        [sys.executable, "-W", "always", "-c", textwrap.dedent(code), *arguments],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_program_that_forgets_to_close_exits_and_is_warned(bootstrap: str, topic_name: TopicName) -> None:
    done = run(
        """
        import sys
        from kalda import Producer
        producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=20_000)
        producer.partitions_for(sys.argv[2])
        producer.send(sys.argv[2], b"lost")
        print("end")
        """,
        bootstrap,
        topic_name("exit"),
    )
    assert (0, "end\n") == (done.returncode, done.stdout)
    assert "ResourceWarning: a Producer was not closed and drops records" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_program_without_a_broker_exits(topic_name: TopicName) -> None:
    done = run(
        """
        from kalda import Producer
        producer = Producer(bootstrap_servers="127.0.0.1:1")
        """
    )
    assert 0 == done.returncode
    assert "Traceback" not in done.stderr
    assert "ResourceWarning" not in done.stderr


def test_a_fork_cannot_use_the_parents_producer(bootstrap: str, topic_name: TopicName) -> None:
    """Also while other threads of the parent hold the producer's locks; the parent goes on."""
    done = run(
        """
        import os, sys, threading
        from kalda import Producer, ProducerRecord
        topic = sys.argv[2]
        producer = Producer(bootstrap_servers=sys.argv[1])
        producer.send(topic, b"parent").result(20)
        stop = threading.Event()
        def send():
            while not stop.is_set():
                producer.send(topic, b"x")
        thread = threading.Thread(target=send)
        thread.start()
        for _ in range(5):
            child = os.fork()
            if child == 0:
                record = ProducerRecord(topic=topic)
                calls = [
                    lambda: producer.send(topic, b"child"),
                    lambda: producer.send_record(record),
                    lambda: producer.partitions_for(topic),
                    producer.flush,
                ]
                for call in calls:
                    try:
                        call()
                    except RuntimeError as error:
                        assert "cannot be used in its fork" in str(error), error
                    else:
                        os._exit(1)
                producer.close()
                with Producer(bootstrap_servers=sys.argv[1]) as own:
                    own.send(topic, b"own").result(20)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status))
        stop.set()
        thread.join()
        producer.send(topic, b"parent").result(20)
        producer.close()
        """,
        bootstrap,
        topic_name("fork"),
    )
    assert (0, ["0"] * 5, "") == (done.returncode, done.stdout.split(), done.stderr)


def test_a_producer_that_is_dropped_ends_its_thread(bootstrap: str, topic_name: TopicName) -> None:
    before = set(threading.enumerate())
    producer = Producer(bootstrap_servers=bootstrap)
    producer.send(topic_name("dropped"), b"v").result(20)
    (thread,) = set(threading.enumerate()) - before
    del producer
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()


def test_producers_cannot_be_pickled(bootstrap: str) -> None:
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        pytest.raises(TypeError, match="one in each process"),
    ):
        pickle.dumps(producer)
    with pytest.raises(TypeError, match="one in each process"):
        pickle.dumps(AsyncProducer(bootstrap_servers=bootstrap))

"""The producer and the process it lives in: exit, forks, pickles, garbage collection."""

import gc
import pickle
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable

import pytest

from kalda import AsyncProducer, Consumer, Producer, TopicPartition

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


def test_a_program_that_forgets_to_close_sends_its_records_and_exits(
    bootstrap: str, topic_name: TopicName
) -> None:
    topic = topic_name("exit")
    done = run(
        """
        import sys
        from kalda import Producer
        producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=20_000)
        producer.send(sys.argv[2], b"sent at the end")
        print("end")
        """,
        bootstrap,
        topic,
    )
    assert (0, "end\n", "") == (done.returncode, done.stdout, done.stderr)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert [b"sent at the end"] == [record.value for record in consumer.poll(20)]


def test_records_that_come_while_the_last_ones_are_sent_are_not_lost_yet(
    bootstrap: str, topic_name: TopicName
) -> None:
    """A handler of the root logger gets what the producer's own thread logs, and is closed later."""
    topic = topic_name("exit")
    done = run(
        """
        import atexit, sys
        atexit.register(lambda: producer.close(20))
        from kalda import Producer
        producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=20_000)
        producer.send(sys.argv[2], b"first")
        flush = producer.flush

        def flush_and_send(timeout_s):
            flush(timeout_s)
            producer.send(sys.argv[2], b"later")

        producer.flush = flush_and_send
        """,
        bootstrap,
        topic,
    )
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found: list[bytes | None] = []
        while len(found) < 2:
            found += [record.value for record in consumer.poll(20)]
    assert [b"first", b"later"] == found


def test_a_program_that_forgets_to_close_is_warned_of_what_was_not_sent(
    bootstrap: str, topic_name: TopicName
) -> None:
    done = run(
        """
        import sys, time
        from kalda import Producer
        producer = Producer(bootstrap_servers=sys.argv[1], linger_ms=20_000)
        producer.partitions_for(sys.argv[2])
        producer._thread.call_soon(time.sleep, 20)
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
        producer.send(topic, b"parent").result(60)
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
                    own.send(topic, b"own").result(60)
                os._exit(0)
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status))
        stop.set()
        thread.join()
        producer.send(topic, b"parent").result(60)
        producer.close()
        """,
        bootstrap,
        topic_name("fork"),
    )
    assert (0, ["0"] * 5, "") == (done.returncode, done.stdout.split(), done.stderr)


def test_a_producer_that_is_dropped_ends_its_thread(bootstrap: str, topic_name: TopicName) -> None:
    before = set(threading.enumerate())
    producer = Producer(bootstrap_servers=bootstrap)
    producer.send(topic_name("dropped"), b"v").result(60)
    (thread,) = set(threading.enumerate()) - before
    del producer
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_producers_cannot_be_pickled(bootstrap: str) -> None:
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        pytest.raises(TypeError, match="one in each process"),
    ):
        pickle.dumps(producer)
    with pytest.raises(TypeError, match="one in each process"):
        pickle.dumps(AsyncProducer(bootstrap_servers=bootstrap))


LOGS_TO_KAFKA = """
import faulthandler, logging, logging.config, sys
faulthandler.dump_traceback_later(25, exit=True)
from kalda import Admin, Consumer, Producer
bootstrap, topic = sys.argv[1:]

class KafkaHandler(logging.Handler):
    def __init__(self, **options):
        super().__init__()
        self.producer = Producer(bootstrap_servers=bootstrap, **options)

    def emit(self, record):
        try:
            self.producer.send(topic, self.format(record).encode())
        except Exception:
            self.handleError(record)

    def close(self):
        self.producer.close(5)
        super().close()

def listen(level):
    handler = KafkaHandler()
    logging.getLogger().addHandler(handler)
    logging.getLogger().setLevel(level)
    return handler
"""


@pytest.mark.parametrize(
    "body",
    [
        # Flushed before: at the exit of a busy machine the time of an open producer may not be enough.
        pytest.param(
            "handler = listen('DEBUG'); logging.info('mine'); handler.producer.flush(20)",
            id="closed by logging.shutdown",
        ),
        pytest.param("handler = listen('INFO'); logging.info('mine'); handler.close()", id="closed"),
        pytest.param(
            """
settings = {
    "version": 1,
    "handlers": {"kafka": {"()": KafkaHandler}},
    "root": {"handlers": ["kafka"], "level": "DEBUG"},
}
logging.config.dictConfig(settings)
logging.info("mine")
logging.config.dictConfig(settings)
            """,
            id="closed by dictConfig",
        ),
        pytest.param(
            """
listen("DEBUG")
with Admin(bootstrap_servers=bootstrap) as admin, Consumer(
    topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest"
) as consumer:
    logging.info("mine")
    admin.list_topics()
    while not any(b"mine" == record.value for record in consumer.poll(1)):
        pass
            """,
            id="with other clients",
        ),
    ],
)
def test_the_root_logger_may_send_to_kafka(bootstrap: str, topic_name: TopicName, body: str) -> None:
    """The producer's own thread logs, too, and must not wait for the handler's lock: a caller holds it."""
    topic = topic_name("logs")
    done = run(LOGS_TO_KAFKA + body, bootstrap, topic)
    assert (0, "") == (done.returncode, done.stderr)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert b"mine" in [record.value for record in consumer.poll(20)]


def test_a_handler_whose_broker_is_gone_gets_its_time_out() -> None:
    body = """
KafkaHandler.handleError = lambda self, record: print(type(sys.exc_info()[1]).__name__)
handler = KafkaHandler(max_block_ms=200)
logging.getLogger().addHandler(handler)
logging.warning("mine")
"""
    done = run(LOGS_TO_KAFKA + body, "127.0.0.1:1", "t")
    assert (0, "") == (done.returncode, done.stderr)
    assert "RequestTimedOutError" in done.stdout


def test_a_fork_may_leave_the_block_of_a_transaction_by_an_exit(
    bootstrap: str, topic_name: TopicName
) -> None:
    """The transaction is the parent's: the child's exit does not become an error, nor ends it."""
    topic = topic_name("fork-transaction")
    done = run(
        """
        import os, sys
        from kalda import Producer
        with Producer(bootstrap_servers=sys.argv[1], transactional_id=sys.argv[2]) as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send(sys.argv[2], b"1")
                child = os.fork()
                if child == 0:
                    sys.exit(7)
                print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                producer.send(sys.argv[2], b"2")
        """,
        bootstrap,
        topic,
    )
    assert (0, "7\n", "") == (done.returncode, done.stdout, done.stderr)
    with Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        assert [b"1", b"2"] == [record.value for record in consumer.poll(20)]

"""An exception out of a signal handler, at every step of a call, leaves no client unusable."""

import contextlib
import functools
import itertools
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from kalda import Admin, Consumer, ConsumerRebalanceListener, Producer, TopicPartition
from kalda.clients.errors import ClientError, IllegalStateError
from tests.integration.clients.consumer.records import create_topic, produce, read
from tests.interrupts import InterruptionError, interrupted_at

TopicName = Callable[[str], str]
# A call that was interrupted before it reached the loop's thread.
pytestmark = pytest.mark.filterwarnings(
    "ignore:coroutine .* was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning"
)
SIGNALS = 1000
WAIT_SECONDS = 30.0


def interrupt_everywhere(call: Callable[[], object], check: Callable[[], object]) -> int:
    """Interrupt a call at one step after the other, with a check after each; return how often."""
    count = 0
    while interrupted_at(count, call):
        check()
        count += 1
        assert count < 10_000, "the call does not end"
    return count


@pytest.fixture
def consumer(bootstrap: str, topic_name: TopicName) -> Iterator[Consumer]:
    topic = topic_name("interrupts")
    create_topic(bootstrap, topic)
    with Consumer(
        topic, bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", max_poll_records=1
    ) as made:
        produce(bootstrap, topic, [b"%d" % number for number in range(2000)])
        read(made, 1)
        yield made


def from_another_thread(call: Callable[[], object]) -> None:
    """Check that no thread still owns the consumer."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive()
    assert [] == errors


@pytest.mark.parametrize("name", ["poll", "next", "commit", "position", "seek", "committed", "end_offsets"])
def test_a_consumer_is_usable_after_an_interrupt_anywhere(consumer: Consumer, name: str) -> None:
    (partition,) = consumer.assignment()
    calls: dict[str, Callable[[], object]] = {
        "poll": lambda: consumer.poll(10),
        "next": lambda: next(consumer),
        "commit": consumer.commit,
        "position": lambda: consumer.position(partition),
        "seek": lambda: consumer.seek(partition, 0),
        "committed": lambda: consumer.committed([partition]),
        "end_offsets": lambda: consumer.end_offsets([partition]),
    }
    call = calls[name]

    def check() -> None:
        from_another_thread(call)
        if consumer.position(partition) > 1500:
            consumer.seek(partition, 0)

    assert interrupt_everywhere(call, check) > 10
    consumer.seek(partition, 0)
    assert b"0" == read(consumer, 1)[0].value


def test_a_rebalance_goes_on_after_an_interrupt_of_its_listener(
    bootstrap: str, topic_name: TopicName
) -> None:
    """The loop waits for the listener that the user's thread was to call."""
    topic = topic_name("interrupts")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"x"])
    for step in range(0, 400, 20):
        with Consumer(bootstrap_servers=bootstrap, group_id=topic, group_protocol="consumer") as consumer:
            consumer.subscribe([topic], ConsumerRebalanceListener())
            deadline = time.monotonic() + WAIT_SECONDS
            with contextlib.suppress(ClientError):
                interrupted_at(step, lambda: consumer.poll(2))
            while not consumer.assignment():
                assert time.monotonic() < deadline, f"no assignment after an interrupt at step {step}"
                with contextlib.suppress(ClientError):
                    consumer.poll(0.1)


def test_a_producer_sends_after_an_interrupt_anywhere(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("interrupts")
    create_topic(bootstrap, topic)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(topic, b"first").result(WAIT_SECONDS)
        for call in (
            lambda: producer.send(topic, b"x"),
            lambda: producer.send(topic, b"x", headers=[("h", b"v")]).result(WAIT_SECONDS),
            lambda: producer.flush(WAIT_SECONDS),
            lambda: producer.partitions_for(topic),
        ):
            interrupt_everywhere(call, lambda: None)
            producer.send(topic, b"after").result(WAIT_SECONDS)
            producer.flush(WAIT_SECONDS)


def test_an_admin_client_is_usable_after_an_interrupt_anywhere(bootstrap: str) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        assert interrupt_everywhere(admin.list_topics, admin.list_topics) > 10


@pytest.mark.parametrize("kind", ["consumer", "producer", "admin"])
def test_closing_again_after_an_interrupt_ends_the_thread(
    bootstrap: str, topic_name: TopicName, kind: str
) -> None:
    topic = topic_name("interrupts")
    create_topic(bootstrap, topic)
    makers: dict[str, Callable[[], Consumer | Producer | Admin]] = {
        "consumer": lambda: Consumer(topic, bootstrap_servers=bootstrap, group_id=topic),
        "producer": lambda: Producer(bootstrap_servers=bootstrap),
        "admin": lambda: Admin(bootstrap_servers=bootstrap),
    }
    for step in itertools.count():
        client = makers[kind]()
        if not interrupted_at(step * 7, functools.partial(client.close, 5)):
            return
        client.close(5)


@pytest.mark.parametrize("kind", ["consumer", "producer", "admin"])
def test_signals_leave_a_client_usable(
    bootstrap: str, topic_name: TopicName, consumer: Consumer, kind: str
) -> None:
    """At moments that only a real signal finds, such as within a call of the interpreter's own code."""
    assert threading.current_thread() is threading.main_thread()
    is_armed = False
    numbers = random.Random(7)

    def interrupt(*_: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise InterruptionError

    topic = topic_name("signals")
    create_topic(bootstrap, topic)
    with Producer(bootstrap_servers=bootstrap) as producer, Admin(bootstrap_servers=bootstrap) as admin:
        calls: dict[str, Callable[[], object]] = {
            "consumer": lambda: consumer.poll(0.001),
            "producer": lambda: producer.send(topic, b"x").result(WAIT_SECONDS),
            "admin": lambda: admin.list_topics(),
        }
        call = calls[kind]
        call()
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            for _ in range(SIGNALS):
                try:
                    is_armed = True
                    signal.setitimer(signal.ITIMER_REAL, numbers.uniform(0.0001, 0.003))
                    # The interpreter ignores the exception in a callback of the garbage collector.
                    while is_armed:
                        call()
                except InterruptionError:
                    pass
                signal.setitimer(signal.ITIMER_REAL, 0)
                call()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)


def test_a_consumer_that_a_signal_handler_closes_ends_its_loop(consumer: Consumer) -> None:
    (partition,) = consumer.assignment()
    consumer.seek_to_end()
    consumer.position(partition)
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.close())
    waits = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    waits.start()
    try:
        assert [] == list(consumer)
    finally:
        waits.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_poll_ends_when_a_signal_handler_closes_the_consumer(consumer: Consumer) -> None:
    consumer.seek_to_end()
    consumer.position(TopicPartition(*next(iter(consumer.assignment()))))
    before = signal.signal(signal.SIGUSR1, lambda *_: consumer.close())
    waits = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    waits.start()
    try:
        with pytest.raises(IllegalStateError, match="closed"):
            consumer.poll(3600)
    finally:
        waits.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_signal_handler_that_commits_does_not_take_the_wake_up_of_the_loop(
    bootstrap: str, consumer: Consumer
) -> None:
    (partition,) = consumer.assignment()
    consumer.seek_to_end()
    consumer.position(partition)

    def commit_when_records_come(*_: object) -> None:
        produce(bootstrap, partition.topic, [b"new"])
        consumer.commit()

    before = signal.signal(signal.SIGUSR1, commit_when_records_come)
    waits = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGUSR1))
    waits.start()
    try:
        assert b"new" == next(consumer).value
    finally:
        waits.join()
        signal.signal(signal.SIGUSR1, before)


def test_a_handler_that_closes_the_consumer_never_waits_for_its_own_thread(
    bootstrap: str, topic_name: TopicName
) -> None:
    """Also where it interrupts a method whose lock the loop needs: then the next poll closes."""
    topic = topic_name("closing-handler")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"%d" % number for number in range(50)])
    for step in itertools.count(0, 37):
        with Consumer(
            bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="earliest", max_poll_records=1
        ) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            consumer.poll(10)
            with contextlib.suppress(IllegalStateError):
                if not interrupted_at(step, lambda: consumer.poll(10), consumer.close):
                    return
            with pytest.raises(IllegalStateError, match="closed"):
                consumer.poll(0)

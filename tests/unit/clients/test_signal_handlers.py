"""A signal handler that calls the client that it interrupted never waits for its own thread.

CPython runs a handler in the main thread between two instructions, so that this thread may hold any lock.
"""

import itertools
import threading
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from kalda.clients.consumer.fetch_buffer import FetchBuffer
from kalda.clients.consumer.offset_reset import EARLIEST
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.errors import IllegalStateError
from kalda.clients.legacy.producer.event_queue import EventQueue
from kalda.clients.metadata import Metadata
from kalda.clients.metrics.registry import ClientMetrics
from kalda.clients.metrics.sensor import PENDING_MAX, SampleConfig, Sensor
from kalda.clients.producer.record_future import BatchResult
from kalda.common.types import TopicPartition
from tests.interrupts import interrupted_at

WAIT_SECONDS = 60.0
STEPS_MAX = 2_000


def at_every_step(begin: Callable[[], tuple[Callable[[], object], Callable[[], object]]]) -> int:
    """Run a handler at every step of a call, each time with new objects; return how many steps there are.

    `begin` returns the call and the handler.
    """
    for step in itertools.count():
        if not has_interrupted(step, *begin()):
            return step
        assert step < STEPS_MAX
    raise AssertionError


def has_interrupted(step: int, call: Callable[[], object], handler: Callable[[], object]) -> bool:
    ended: list[bool] = []
    thread = threading.Thread(target=lambda: ended.append(interrupted_at(step, call, handler)), daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert ended, f"the handler at step {step} failed, or waits for its own thread"
    return ended[0]


def in_another_thread(call: Callable[[], object]) -> None:
    """Wait for a call of another thread, as a handler does that needs the loop."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(WAIT_SECONDS)
    assert not thread.is_alive(), "the loop would wait for the thread that waits for it"


def test_topics_can_be_added_within_an_addition() -> None:
    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        metadata = Metadata()

        def handler() -> None:
            metadata.add_topic("other", 0.0)
            assert metadata.wanted_topics is not None
            metadata.next_request(0.0)

        return lambda: metadata.add_topic("topic", 0.0), handler

    assert at_every_step(begin) > 3


def test_metrics_can_be_read_while_they_are_recorded() -> None:
    """A handler that prints them, as on SIGUSR1."""

    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        sensor = Sensor(SampleConfig())

        def call() -> None:
            for number in range(PENDING_MAX):
                sensor.record(1.0, float(number))

        def handler() -> None:
            sensor.record(1.0, 5.0)
            assert sensor.total >= 0
            assert sensor.rate(100.0) >= 0

        return call, handler

    assert at_every_step(begin) > PENDING_MAX


def test_metrics_can_be_registered_and_read_within_each_other() -> None:
    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        metrics = ClientMetrics({"client-id": "c"})
        metrics.add("group", "kept", "", lambda now: now)

        def call() -> None:
            metrics.add("group", "gone", "", lambda now: now, tags={"topic": "t"})
            metrics.values()
            metrics.remove({"topic": "t"})

        def handler() -> None:
            metrics.add("group", "new", "", lambda now: now, tags={"topic": "t"})
            metrics.values()
            metrics.remove({"topic": "t"})

        return call, handler

    assert at_every_step(begin) > 10


def test_the_loop_adds_fetches_while_a_handler_interrupts_a_take() -> None:
    """The handler commits, for example, and waits for the loop."""

    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        subscription = SubscriptionState(EARLIEST)
        buffer = FetchBuffer(subscription)

        def stale() -> Any:
            return SimpleNamespace(
                partition=TopicPartition("t", 0), generation=0, unread_bytes=1, count_consumed=lambda: None
            )

        buffer.add(stale())

        def handler() -> None:
            in_another_thread(partial(buffer.add, stale()))
            in_another_thread(buffer.unread_bytes)

        return buffer.next_fetch, handler

    assert at_every_step(begin) > 2


def test_a_batch_completes_while_a_handler_waits_for_it() -> None:
    """The handler waits for the record that its thread is about to wait for."""

    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        result = BatchResult("t", 0)
        result.add_record(1, 1, 1)

        def handler() -> None:
            loop = threading.Thread(target=result.complete, args=(0,), daemon=True)
            loop.start()
            assert result.wait(WAIT_SECONDS)

        def call() -> None:
            result.add_callback(0, lambda: None)
            result.wait(0.0)

        return call, handler

    assert at_every_step(begin) > 5


def test_a_consumer_is_refused_where_the_loop_would_wait_for_its_subscription() -> None:
    refused: list[IllegalStateError] = []

    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        subscription = SubscriptionState(EARLIEST)

        def handler() -> None:
            try:
                subscription.check_not_inside()
            except IllegalStateError as error:
                refused.append(error)
            else:
                in_another_thread(subscription.assigned)

        return lambda: subscription.assign_from_user([TopicPartition("t", 0)]), handler

    assert at_every_step(begin) > 5
    assert "a signal handler or a finalizer called the consumer" in str(refused[0])


@pytest.mark.parametrize("is_full", [False, True])
def test_a_legacy_producer_closes_or_is_refused_within_a_send(is_full: bool) -> None:
    """Where `send` waits for room, the close ends its wait."""
    refused: list[IllegalStateError] = []

    def begin() -> tuple[Callable[[], object], Callable[[], object]]:
        queue: EventQueue[int] = EventQueue(1)
        if is_full:
            queue.put(1, 0)

        def call() -> None:
            queue.put(2, 0)

        def handler() -> None:
            try:
                queue.check_not_inside()
            except IllegalStateError as error:
                refused.append(error)
            else:
                in_another_thread(lambda: queue.take(1, 0.0))

        return call, handler

    at_every_step(begin)
    assert refused


def test_an_interrupted_handler_of_no_client_changes_nothing() -> None:
    """The harness itself: the handler runs once in a call, at the step that was asked for."""
    calls: list[Any] = []
    metadata = Metadata()
    assert interrupted_at(0, lambda: metadata.add_topic("topic", 0.0), lambda: calls.append(1))
    assert [1] == calls

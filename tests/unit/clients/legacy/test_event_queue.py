"""The queue of an async producer is bounded, and closes without losing what is in it."""

import threading

import pytest

from kalda.clients.legacy import QueueClosedError
from kalda.clients.legacy.producer.event_queue import EventQueue


def test_events_leave_in_order_and_at_most_so_many() -> None:
    queue = EventQueue[int](10)
    for number in range(5):
        assert queue.put(number, 0)
    assert [0, 1, 2] == queue.take(3, 0.0)
    assert [3, 4] == queue.take(3, 0.0)
    assert [] == queue.take(3, 0.0)


@pytest.mark.parametrize("timeout_ms", [0, 1])
def test_full_queue_takes_no_event_after_the_time_is_up(timeout_ms: int) -> None:
    queue = EventQueue[int](2)
    assert [True, True, False] == [queue.put(number, timeout_ms) for number in range(3)]
    assert 2 == len(queue)


@pytest.mark.parametrize("timeout_ms", [-1, 60_000])
def test_writer_waits_for_room(timeout_ms: int) -> None:
    queue = EventQueue[int](1)
    assert queue.put(0, timeout_ms)
    added: list[bool] = []
    writer = threading.Thread(target=lambda: added.append(queue.put(1, timeout_ms)))
    writer.start()
    assert [0] == queue.take(1, 60.0)
    writer.join()
    assert [True] == added
    assert [1] == queue.take(1, 0.0)


def test_closed_queue_returns_what_it_has_and_takes_nothing() -> None:
    queue = EventQueue[int](5)
    queue.put(0, 0)
    queue.close()
    with pytest.raises(QueueClosedError):
        queue.put(1, -1)
    assert [0] == queue.take(5, 60.0)
    assert queue.take(5, 60.0) is None


def test_writer_that_waits_is_woken_by_the_close() -> None:
    queue = EventQueue[int](1)
    queue.put(0, 0)
    failures: list[type[Exception]] = []

    def write() -> None:
        try:
            queue.put(1, -1)
        except QueueClosedError as error:
            failures.append(type(error))

    writer = threading.Thread(target=write)
    writer.start()
    queue.close()
    writer.join()
    assert [QueueClosedError] == failures

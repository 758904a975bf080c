"""Batches end at batch.size or queue.time, and callbacks see them at the stages that the documents name."""

import logging
from collections.abc import Sequence

import pytest

from kalda.clients.legacy import CallbackHandler, QueueItem
from kalda.clients.legacy.producer.send_thread import ProducerSendThread
from kalda.runtime.clock import ManualClock


class ScriptedQueue:
    """Returns events at the times of a script; ends the queue behind it."""

    def __init__(self, clock: ManualClock, *events: tuple[float, int]) -> None:
        self._clock = clock
        self._events = list(events)

    def take(self, count_max: int, timeout_s: float) -> list[QueueItem] | None:
        if not self._events:
            return None
        due, _ = self._events[0]
        if due > self._clock.monotonic() + timeout_s:
            self._clock.advance(timeout_s)
            return []
        self._clock.advance(max(due - self._clock.monotonic(), 0.0))
        taken: list[QueueItem] = []
        while self._events and len(taken) < count_max and self._events[0][0] <= self._clock.monotonic():
            taken.append(item(self._events.pop(0)[1]))
        return taken


def item(number: int) -> QueueItem:
    return QueueItem(number, "t", 0)


def batches(
    *events: tuple[float, int], callbacks: CallbackHandler | None = None, batch_size: int = 3
) -> list[tuple[float, list[object]]]:
    """Return the batches with their times, for a queue.time of 5 s."""
    clock = ManualClock()
    handled: list[tuple[float, list[object]]] = []

    def handle(items: Sequence[QueueItem]) -> None:
        handled.append((clock.monotonic(), [each.data for each in items]))
        if [each.data for each in items] == ["bad"]:
            raise ValueError("refused")

    queue = ScriptedQueue(clock, *events)
    ProducerSendThread("t", queue, handle, callbacks or CallbackHandler(), batch_size, 5_000, clock).run()
    return handled


def test_batch_ends_when_it_is_full() -> None:
    assert [(1.0, [1, 2, 3]), (2.0, [4])] == batches((0.0, 1), (0.5, 2), (1.0, 3), (2.0, 4))


def test_batch_ends_when_queue_time_is_over() -> None:
    """The time counts from the batch before it."""
    found = batches((1.0, 1), (4.0, 2), (6.0, 3), (12.0, 4))
    assert [(5.0, [1, 2]), (10.0, [3]), (12.0, [4])] == found


def test_many_events_at_once_make_full_batches() -> None:
    found = batches(*((0.0, number) for number in range(8)))
    assert [(0.0, [0, 1, 2]), (0.0, [3, 4, 5]), (0.0, [6, 7])] == found


class Doubling(CallbackHandler):
    """Doubles events, keeps one back until queue.time is over, and adds some at the end."""

    def __init__(self) -> None:
        self.kept: list[QueueItem] = []

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
        if item is None:
            kept, self.kept = self.kept, []
            return kept
        if item.data == 1:
            self.kept.append(item)
            return []
        return [item, item]

    def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
        return list(reversed(items))

    def last_batch_before_close(self) -> Sequence[QueueItem]:
        return [item(99)]


def test_callbacks_change_the_batches() -> None:
    found = batches((0.0, 1), (1.0, 2), (6.0, 3), callbacks=Doubling())
    assert [(5.0, [1, 2, 2]), (6.0, [99, 3, 3])] == found


class Broken(CallbackHandler):
    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
        if item is not None and item.data == 2:
            raise ValueError("no 2")
        if item is not None and item.data == 4:
            return None  # type: ignore[return-value]  # a handler that forgets to return
        return super().after_dequeuing_existing_data(item)

    def last_batch_before_close(self) -> Sequence[QueueItem]:
        raise ValueError("no end")


def test_error_of_a_callback_costs_its_event_only(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        found = batches((0.0, 1), (0.0, 2), (0.0, 3), (0.0, 4), (0.0, 5), callbacks=Broken())
        assert [(0.0, [1, 3, 5])] == found
    assert 3 == len(caplog.records)


def test_failed_batch_is_logged_and_the_next_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    class Bad(CallbackHandler):
        def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
            return [QueueItem("bad", "t", 0)] if items[0].data == 1 else items

    with caplog.at_level(logging.ERROR):
        assert [["bad"], [4]] == [
            data for _, data in batches((0.0, 1), (0.0, 2), (0.0, 3), (0.0, 4), callbacks=Bad())
        ]
    assert "A batch of 3 events was dropped: refused" in caplog.text

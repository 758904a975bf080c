"""The purgatory: a delayed operation is completed exactly once, by an event or by time."""

import logging
import weakref

import pytest

from kalda.common.purgatory import DelayedOperation, DelayedOperationPurgatory
from kalda.common.timing_wheel import TimingWheel
from kalda.runtime.clock import ManualClock


class Waiting(DelayedOperation):
    """Waits until it is told that it may complete, and keeps a record of its calls."""

    __slots__ = ("calls", "is_ready")

    def __init__(self, delay_ms: int = 1000) -> None:
        super().__init__(delay_ms)
        self.is_ready = False
        self.calls: list[str] = []

    def try_complete(self) -> bool:
        return self.is_ready and self.force_complete()

    def on_complete(self) -> None:
        self.calls.append("complete")

    def on_expiration(self) -> None:
        self.calls.append("expire")


class Failing(Waiting):
    """Has a bug."""

    __slots__ = ()

    def on_complete(self) -> None:
        raise RuntimeError("on purpose")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def wheel(clock: ManualClock) -> TimingWheel[DelayedOperation]:
    return TimingWheel[DelayedOperation](clock)


@pytest.fixture
def purgatory(wheel: TimingWheel[DelayedOperation]) -> DelayedOperationPurgatory:
    return DelayedOperationPurgatory("test", wheel)


def expire(wheel: TimingWheel[DelayedOperation], clock: ManualClock, milliseconds: int) -> None:
    clock.advance(milliseconds / 1000)
    for operation in wheel.advance():
        operation.expire()


def test_operation_that_is_ready_never_waits(purgatory: DelayedOperationPurgatory) -> None:
    operation = Waiting()
    operation.is_ready = True
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert ["complete"] == operation.calls
    assert (0, 0) == (len(purgatory), purgatory.watched_count)


def test_event_completes_what_is_ready_and_leaves_the_rest(purgatory: DelayedOperationPurgatory) -> None:
    ready, waiting, elsewhere = Waiting(), Waiting(), Waiting()
    for operation, keys in ((ready, ["a", "b"]), (waiting, ["a"]), (elsewhere, ["c"])):
        assert not purgatory.try_complete_else_watch(operation, keys)
    ready.is_ready = elsewhere.is_ready = True
    assert 1 == purgatory.check_and_complete("a")
    assert (["complete"], [], []) == (ready.calls, waiting.calls, elsewhere.calls)
    assert (2, 2) == (len(purgatory), purgatory.watched_count)


class Watched(Waiting):
    """Can be watched by a weak reference."""


@pytest.mark.parametrize("expires", [False, True])
def test_a_completed_operation_leaves_nothing_for_the_garbage_collector(
    purgatory: DelayedOperationPurgatory,
    wheel: TimingWheel[DelayedOperation],
    clock: ManualClock,
    expires: bool,
) -> None:
    operation = Watched()
    purgatory.try_complete_else_watch(operation, ["a"])
    if expires:
        expire(wheel, clock, 1001)
    else:
        operation.is_ready = True
        purgatory.check_and_complete("a")
    assert "complete" == operation.calls[0]
    watched = weakref.ref(operation)
    del operation
    assert watched() is None


def test_event_after_completion_does_nothing(
    purgatory: DelayedOperationPurgatory, wheel: TimingWheel[DelayedOperation], clock: ManualClock
) -> None:
    """Neither a second event on another key nor the end of its time completes an operation again."""
    operation = Waiting(100)
    purgatory.try_complete_else_watch(operation, ["a", "b"])
    operation.is_ready = True
    assert 1 == purgatory.check_and_complete("b")
    assert 0 == purgatory.check_and_complete("a")
    expire(wheel, clock, 200)
    assert not operation.force_complete()
    assert ["complete"] == operation.calls
    assert 0 == len(wheel)


def test_time_completes_what_no_event_did(
    purgatory: DelayedOperationPurgatory, wheel: TimingWheel[DelayedOperation], clock: ManualClock
) -> None:
    operation = Waiting(100)
    purgatory.try_complete_else_watch(operation, ["a"])
    expire(wheel, clock, 99)
    assert [] == operation.calls
    expire(wheel, clock, 1)
    assert ["complete", "expire"] == operation.calls
    assert 1 == purgatory.expired_count
    operation.is_ready = True
    assert 0 == purgatory.check_and_complete("a")
    assert 0 == purgatory.watched_count


def test_completion_may_complete_others_on_the_same_key(purgatory: DelayedOperationPurgatory) -> None:
    """A reply can set off a flush, an append, another event: the purgatory is entered again meanwhile."""

    class Chain(Waiting):
        __slots__ = ()

        def on_complete(self) -> None:
            super().on_complete()
            purgatory.check_and_complete("a")

    operations = [Chain() for _ in range(5)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.is_ready = True
    purgatory.check_and_complete("a")
    assert [["complete"]] * 5 == [operation.calls for operation in operations]
    assert 0 == len(purgatory)


def test_operation_added_during_an_event_waits_for_the_next(purgatory: DelayedOperationPurgatory) -> None:
    """A consumer whose fetch is answered asks again at once; that must not loop within one event."""
    added = Waiting()

    class AsksAgain(Waiting):
        __slots__ = ()

        def on_complete(self) -> None:
            super().on_complete()
            purgatory.try_complete_else_watch(added, ["a"])

    first = AsksAgain()
    purgatory.try_complete_else_watch(first, ["a"])
    first.is_ready = True
    assert 1 == purgatory.check_and_complete("a")
    assert not added.is_completed
    assert 1 == len(purgatory)


def test_failure_of_one_operation_is_logged_and_spares_the_others(
    purgatory: DelayedOperationPurgatory, caplog: pytest.LogCaptureFixture
) -> None:
    """The event is somebody else's produce request, which did nothing wrong."""
    failing, sound = Failing(), Waiting()
    for operation in (failing, sound):
        purgatory.try_complete_else_watch(operation, ["a"])
        operation.is_ready = True
    with caplog.at_level(logging.ERROR):
        assert 1 == purgatory.check_and_complete("a")
    assert ["complete"] == sound.calls
    assert 0 == len(purgatory)
    assert "Failing failed" in caplog.text


def test_close_completes_everything(
    purgatory: DelayedOperationPurgatory, wheel: TimingWheel[DelayedOperation]
) -> None:
    operations = [Waiting() for _ in range(3)]
    for index, operation in enumerate(operations):
        purgatory.try_complete_else_watch(operation, [index])
    purgatory.close()
    assert [["complete"]] * 3 == [operation.calls for operation in operations]
    assert (0, 0) == (len(purgatory), len(wheel))

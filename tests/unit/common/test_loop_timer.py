"""A wheel driven by calls of a loop: as few calls as can be, and no fault stops it."""

import logging
from collections.abc import Callable

import pytest

from kalda.common.loop_timer import LoopTimer
from kalda.common.timing_wheel import TimingWheel
from kalda.runtime.clock import ManualClock


class Call:
    """One call asked of the loop."""

    def __init__(self, when: float, callback: Callable[[], object]) -> None:
        self.when = when
        self.callback = callback
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Bench:
    """A timer whose loop is the test."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.calls: list[Call] = []
        self.expired: list[str] = []
        self.timer: LoopTimer[str] = LoopTimer(TimingWheel(self.clock), self, self._expire)

    def call_at(self, when: float, callback: Callable[[], object], /) -> Call:
        self.calls.append(Call(when, callback))
        return self.calls[-1]

    def wake(self) -> None:
        """Let time pass to the call that is asked for, and make it."""
        (call,) = (each for each in self.calls if not each.is_cancelled)
        self.calls.clear()
        self.clock.advance(max(0.0, call.when - self.clock.monotonic()))
        call.callback()

    def _expire(self, task: str) -> None:
        if task == "faulty":
            raise ZeroDivisionError
        self.expired.append(task)


def test_one_call_at_a_time_for_the_earliest() -> None:
    bench = Bench()
    bench.timer.add("late", 300)
    bench.timer.add("later", 400)
    assert 1 == len(bench.calls)
    bench.timer.add("soon", 5)
    assert [True, False] == [call.is_cancelled for call in bench.calls]

    bench.wake()
    assert ["soon"] == bench.expired
    while bench.timer:
        bench.wake()
    assert ["soon", "late", "later"] == bench.expired
    assert not bench.calls


def test_what_is_cancelled_costs_a_wake_up_at_most() -> None:
    """Heartbeats prolong sessions all the time: the alarm is not set anew for each."""
    bench = Bench()
    bench.timer.add("a", 10).cancel()
    bench.timer.add("b", 20)
    assert 1 == len(bench.calls)
    while bench.timer:
        bench.wake()
    assert ["b"] == bench.expired


def test_a_fault_stops_no_other_task(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.timer.add("faulty", 5)
    bench.timer.add("well", 5)
    with caplog.at_level(logging.ERROR):
        bench.wake()
    assert ["well"] == bench.expired
    assert "a str failed when its time was up" in caplog.text


def test_nothing_is_called_after_closing() -> None:
    bench = Bench()
    bench.timer.add("a", 5)
    bench.timer.close()
    assert [True] == [call.is_cancelled for call in bench.calls]

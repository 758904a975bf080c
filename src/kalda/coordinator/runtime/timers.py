"""Runs the timers of all shards of a runtime on one timing wheel, with one call of the event loop.

Every heartbeat prolongs a session, so setting and cancelling a timer costs O(1), and the loop is called only
when the earliest deadline moves forward.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from kalda.common.loop_timer import LoopTimer
from kalda.common.timing_wheel import TimerEntry, TimingWheel
from kalda.coordinator.runtime.coordinator_shard import Loop
from kalda.runtime.clock import Clock

TICK_MS: Final = 5
"""Timeouts of groups and transactions are seconds, and coarse ticks move between wheels less often."""

Timer: TypeAlias = TimerEntry[Callable[[], None]]
Timers: TypeAlias = LoopTimer[Callable[[], None]]


def make_timers(clock: Clock, loop: Loop) -> Timers:
    """Return the timers of a runtime, whose loop must use the given clock."""
    return LoopTimer(TimingWheel(clock, TICK_MS), loop, _call)


def _call(callback: Callable[[], None]) -> None:
    callback()

"""Timers of all shards of a runtime: one wheel, woken by one call of the loop.

Sessions are prolonged with every heartbeat, so setting and forgetting a timer costs O(1), and the loop is
asked for a call only when the earliest deadline moves forward.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from kalda.common.clock import Clock
from kalda.common.loop_timer import LoopTimer
from kalda.common.timing_wheel import TimerEntry, TimingWheel
from kalda.coordinator.runtime.coordinator_shard import Loop

TICK_MS: Final = 5
"""Time-outs of groups and transactions are seconds; coarser ticks are moved between wheels less often."""

Timer: TypeAlias = TimerEntry[Callable[[], None]]
Timers: TypeAlias = LoopTimer[Callable[[], None]]


def make_timers(clock: Clock, loop: Loop) -> Timers:
    """Return the timers of a runtime; the loop's clock is the one given."""
    return LoopTimer(TimingWheel(clock, TICK_MS), loop, _call)


def _call(callback: Callable[[], None]) -> None:
    callback()

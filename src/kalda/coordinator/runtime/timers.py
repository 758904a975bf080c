"""Timers of all shards of a runtime: one wheel, woken by one call of the loop.

Sessions are prolonged with every heartbeat, so setting and forgetting a timer costs O(1), and the loop is
asked for a call only when the earliest deadline moves forward.
"""

import logging
from collections.abc import Callable
from typing import Final

from kalda.common.clock import Clock
from kalda.common.timing_wheel import TimerEntry, TimingWheel
from kalda.coordinator.runtime.ports import Cancellable, Loop

logger: Final = logging.getLogger(__name__)

TICK_MS: Final = 5
"""Time-outs of groups and transactions are seconds; coarser ticks are moved between wheels less often."""

_WAKE_LATER_SECONDS: Final = 1e-6
"""The loop and the wheel round differently; a hair later saves waking up twice."""

Timer = TimerEntry[Callable[[], None]]


class Timers:
    """Calls that are made later; the loop's clock is the one given."""

    def __init__(self, clock: Clock, loop: Loop) -> None:
        self._wheel: Final[TimingWheel[Callable[[], None]]] = TimingWheel(clock, TICK_MS)
        self._loop: Final = loop
        self._wake: Cancellable | None = None
        self._wake_at = 0.0

    def __len__(self) -> int:
        return len(self._wheel)

    def add(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        """Call `callback` after `delay_ms`; the entry returned can be cancelled."""
        entry = self._wheel.add(callback, delay_ms)
        self._arm()
        return entry

    def close(self) -> None:
        """Make no more calls."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def _arm(self) -> None:
        deadline = self._wheel.next_deadline()
        if deadline is None:
            return
        if self._wake is not None:
            if self._wake_at <= deadline:
                return
            self._wake.cancel()
        self._wake_at = deadline
        self._wake = self._loop.call_at(deadline + _WAKE_LATER_SECONDS, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        for callback in self._wheel.advance():
            try:
                callback()
            except Exception:
                # The fault of one shard must not stop the timers of the others.
                logger.exception("A timer of a coordinator failed")
        self._arm()

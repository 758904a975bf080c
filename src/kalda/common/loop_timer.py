"""Drives a timing wheel from the event loop with one ``call_at``, for the earliest deadline.

The wheel must use the loop's clock: `kalda.runtime.system.clock.SystemClock`, or in tests one clock for both.
"""

import logging
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from kalda.common.timing_wheel import TimerEntry, TimingWheel

T = TypeVar("T")

_WAKE_LATER_SECONDS: Final = 1e-6
"""The loop and the wheel round differently; a hair later saves waking up twice."""

logger: Final = logging.getLogger(__name__)


class Cancellable(Protocol):
    """A call that was asked for and has not been made yet."""

    def cancel(self) -> None:
        """Forget the call."""
        ...


class Caller(Protocol):
    """Schedules calls; an asyncio event loop does."""

    def call_at(self, when: float, callback: Callable[[], object], /) -> Cancellable:
        """Call at a monotonic second."""
        ...


class LoopTimer(Generic[T]):
    """Calls `expire` with each task when its delay has passed, unless its entry was cancelled."""

    def __init__(self, wheel: TimingWheel[T], loop: Caller, expire: Callable[[T], None]) -> None:
        self._wheel: Final = wheel
        self._loop: Final = loop
        self._expire: Final = expire
        self._wake: Cancellable | None = None
        self._wake_at = 0.0

    def __len__(self) -> int:
        return len(self._wheel)

    def add(self, task: T, delay_ms: int) -> TimerEntry[T]:
        """Have the task expire after `delay_ms`; the entry returned can be cancelled."""
        entry = self._wheel.add(task, delay_ms)
        self._arm()
        return entry

    def close(self) -> None:
        """Stop waking up."""
        if self._wake is not None:
            self._wake.cancel()
            self._wake = None

    def _arm(self) -> None:
        deadline = self._wheel.next_deadline()
        if deadline is None:
            return
        if self._wake is not None:
            if self._wake_at <= deadline:
                # Most tasks are cancelled, or put off, before their time, so waking up for a cancelled one is
                # rarer, and cheaper in all, than moving the call for each.
                return
            self._wake.cancel()
        self._wake_at = deadline
        self._wake = self._loop.call_at(deadline + _WAKE_LATER_SECONDS, self._on_wake)

    def _on_wake(self) -> None:
        self._wake = None
        for task in self._wheel.advance():
            try:
                self._expire(task)
            except Exception:
                # The failure of one task must not stop the others.
                logger.exception("a %s failed when its time was up", type(task).__name__)
        self._arm()

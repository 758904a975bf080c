"""Holds the responses of one partition back until the high watermark has passed what they depend on.

A response is given when everything that its operation could have seen is committed. So the queue is first in,
first out: a read that came after a write is answered after it, although the read wrote nothing.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.runtime.timers import Timer, Timers

logger: Final = logging.getLogger(__name__)


class _Waiting:
    """A response that waits; `pending` is done early if its time ran out."""

    __slots__ = ("deadline", "end_offset", "give", "pending")

    def __init__(
        self, end_offset: int, deadline: float, pending: Pending[Any], give: Callable[[], None]
    ) -> None:
        self.end_offset: Final = end_offset
        self.deadline: Final = deadline
        self.pending: Final = pending
        self.give: Final = give


class CommitQueue:
    """The waiting responses of one partition."""

    def __init__(self, timers: Timers, monotonic: Callable[[], float]) -> None:
        self._timers: Final = timers
        self._monotonic: Final = monotonic
        self._waiting: Final[deque[_Waiting]] = deque()
        self._timer: Timer | None = None
        self._wake_at = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, end_offset: int, timeout_ms: int, pending: Pending[Any], give: Callable[[], None]) -> None:
        """Call `give` when the high watermark reaches `end_offset`; fail `pending` if that takes too long."""
        waiting = self._waiting
        assert not waiting or waiting[-1].end_offset <= end_offset, (
            f"a response that waits for offset {end_offset} is queued behind offset {waiting[-1].end_offset}"
        )
        deadline = self._monotonic() + timeout_ms / 1000
        self._waiting.append(_Waiting(end_offset, deadline, pending, give))
        self._arm(deadline)

    def advance(self, high_watermark: int) -> None:
        """Give the responses that the high watermark has passed."""
        waiting = self._waiting
        while waiting and waiting[0].end_offset <= high_watermark:
            entry = waiting.popleft()
            if not entry.pending.is_done:
                try:
                    entry.give()
                except Exception:
                    # A callback of this response failed; the responses behind it go on.
                    logger.exception("The response for offset %d could not be given", entry.end_offset)

    def fail_all(self, error: ApiError) -> None:
        """Fail all waiting responses."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            entry = self._waiting.popleft()
            if not entry.pending.is_done:
                entry.pending.fail(error)

    def _arm(self, deadline: float) -> None:
        """Arm the timer for the earliest deadline; one timer for all is cheaper than one for each."""
        if self._timer is not None and self._timer.is_waiting:
            if self._wake_at <= deadline:
                return
            self._timer.cancel()
        self._wake_at = deadline
        self._timer = self._timers.add(self._on_time, round((deadline - self._monotonic()) * 1000))

    def _on_time(self) -> None:
        self._timer = None
        now = self._monotonic()
        error = ApiError(ErrorCode.REQUEST_TIMED_OUT, "The records were not replicated in time.")
        for entry in tuple(self._waiting):
            if entry.deadline <= now and not entry.pending.is_done:
                entry.pending.fail(error)
        while self._waiting and self._waiting[0].pending.is_done:
            self._waiting.popleft()
        left = [entry.deadline for entry in self._waiting if not entry.pending.is_done]
        if left:
            self._arm(min(left))

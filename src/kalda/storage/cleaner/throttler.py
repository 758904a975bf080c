"""Bounds the bytes that a cleaner reads and writes per second, so that it leaves disk time to others."""

from collections.abc import Callable
from typing import Final

from kalda.runtime.system.clock import monotonic, sleep
from kalda.storage.cleaner.cleaner_config import UNLIMITED

_AHEAD_SECONDS: Final = 0.05
"""Shorter pauses are skipped: a process cannot sleep so briefly with precision."""


class Throttler:
    """Pauses a caller that reports bytes faster than the rate; unused bytes are not saved for later."""

    def __init__(
        self,
        bytes_per_second: float,
        now: Callable[[], float] = monotonic,
        sleep: Callable[[float], None] = sleep,
    ) -> None:
        self._rate: Final = bytes_per_second
        self._now = now
        self._sleep = sleep
        # When the rate allows the bytes reported so far.
        self._paid_until = 0.0

    def take(self, size: int) -> None:
        """Report `size` bytes; pauses until the rate allows them."""
        if self._rate == UNLIMITED:
            return
        now = self._now()
        self._paid_until = max(self._paid_until, now) + size / self._rate
        ahead = self._paid_until - now
        if ahead > _AHEAD_SECONDS:
            self._sleep(ahead)

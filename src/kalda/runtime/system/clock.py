"""The machine's clocks."""

import functools
import time
from collections.abc import Callable
from typing import Final

monotonic: Final[Callable[[], float]] = (
    functools.partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    if hasattr(time, "clock_gettime")
    else time.monotonic
)
"""`time.monotonic`, which goes on where freezegun lets the time of a program's tests stand still."""


class SystemClock:
    """The machine's clocks."""

    def time_ms(self) -> int:
        """Return wall-clock milliseconds."""
        now_ms = time.time_ns() // 1_000_000
        return now_ms if now_ms > 0 else 0

    monotonic = staticmethod(monotonic)
    """Returns monotonic seconds; not a method, whose frame every request would pay for."""

"""The machine's clocks: `SystemClock`, and readings for what never decides anything.

The functions of this module are for the durations that logs and metrics show, and for threads and processes
of their own, which wait in real time. Everything else takes a `Clock`, or the time of its event loop.
"""

import functools
import time
from collections.abc import Callable
from time import time_ns
from typing import Final

from kalda.runtime.system.portable import PORTABLE

monotonic: Final[Callable[[], float]] = (
    functools.partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    if hasattr(time, "clock_gettime")
    else time.monotonic
)
"""`time.monotonic`, which goes on where freezegun lets the time of a program's tests stand still."""

sleep: Final = time.sleep
"""Blocks the calling thread."""

thread_time: Final = time.thread_time
"""Returns the processor seconds of the calling thread."""


def thread_clock(thread_id: int) -> Callable[[], float] | None:
    """Return a function for the processor seconds of a thread, or None where threads have no clocks (macOS).

    The function raises `OSError` once the thread has ended.
    """
    if PORTABLE or not hasattr(time, "pthread_getcpuclockid"):
        return None
    return functools.partial(time.clock_gettime, time.pthread_getcpuclockid(thread_id))


class SystemClock:
    """The machine's clocks."""

    def time_ms(self) -> int:
        """Return wall-clock milliseconds."""
        now_ms = time_ns() // 1_000_000
        return now_ms if now_ms > 0 else 0

    def time_ns(self) -> int:
        """Return wall-clock nanoseconds; callers for which a method is too slow use the module's function."""
        return time_ns()

    # No method, whose frame every request would pay for.
    monotonic = staticmethod(monotonic)

"""Measures the share of time in which a thread is busy; an event loop near 100 % is a broker at its limit.

The kernel counts the time, so the measurement costs nothing while the thread works. Reading a clock twice in
each turn of the loop would cost a tenth of a small request over one connection, and would count waits for a
disk.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from kalda.runtime.system.clock import monotonic, thread_time
from kalda.runtime.system.proc import proc_file

WINDOW_SECONDS: Final = 30.0
"""Kafka's default window of a rate: ``metrics.sample.window.ms``."""

_MARK_SECONDS_MIN: Final = 1.0
"""Readings that follow each other faster share a mark, so that many scrapers do not make the list long."""


def busy_seconds() -> float:
    """Return the seconds in which the calling thread ran, or was ready to and did not get a processor.

    Where the kernel does not say how long threads waited for a processor, it is the processor time alone.
    """
    try:
        ran_ns, waited_ns, _ = proc_file("thread-self/schedstat").split()
    except (OSError, ValueError):
        return thread_time()
    return (int(ran_ns) + int(waited_ns)) / 1e9


class IdleShare:
    """The share of the recent past in which the calling thread was not busy, from 0 to 1.

    It is measured between readings, from the youngest one that is at least `WINDOW_SECONDS` old, or else from
    the oldest: no timer runs for it.
    """

    def __init__(self, busy: Callable[[], float] = busy_seconds) -> None:
        self._busy: Final = busy
        self._marks: Final = deque([(monotonic(), busy())])

    def read(self, now: float | None = None) -> float:
        """Return the share up to `now`, which is the time of the call."""
        now = monotonic() if now is None else now
        busy = self._busy()
        marks = self._marks
        while len(marks) > 1 and now - marks[1][0] >= WINDOW_SECONDS:
            marks.popleft()
        since, busy_before = marks[0]
        if now - marks[-1][0] >= _MARK_SECONDS_MIN:
            marks.append((now, busy))
        return min(1.0, max(0.0, 1.0 - (busy - busy_before) / (now - since))) if now > since else 1.0

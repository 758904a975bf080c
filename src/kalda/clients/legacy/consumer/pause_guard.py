"""Notices that the process did not run for a while, as after SIGSTOP.

ZooKeeper may have ended the session meanwhile, and the partitions may be another consumer's. The queues of
this one still have their messages when it goes on. Only the connector's loop beats, and after a pause only
when it knows who owns the partitions.
"""

from collections.abc import Callable
from typing import Final

from kalda.runtime.system.clock import monotonic

_BEATS_PER_PAUSE: Final = 4
_PAUSES_PER_SESSION: Final = 3
"""A server ends a session that is silent for its time-out; a client writes every third of that at least."""


class PauseGuard:
    """Detects pauses of the process; the loop of a connector and its streams share one."""

    def __init__(self, session_timeout_s: float, *, monotonic: Callable[[], float] = monotonic) -> None:
        self._pause_s: Final = session_timeout_s / _PAUSES_PER_SESSION
        self.interval_s: Final = self._pause_s / _BEATS_PER_PAUSE
        """Between two beats, seconds."""
        self._monotonic: Final = monotonic
        self._last = monotonic()

    def beat(self) -> None:
        """Note that the loop runs and knows its session."""
        self._last = self._monotonic()

    def is_paused(self) -> bool:
        """Return whether the last beat is so long ago that the session may have ended."""
        return self._monotonic() - self._last > self._pause_s

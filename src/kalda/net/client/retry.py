"""Computes how long an operation may be retried and how long to wait between two attempts.

The computation is pure. A blocking client sleeps for the seconds that `RetrySchedule.next_wait` returns; an
asynchronous client would await them.
"""

import random
from typing import Final

_JITTER: Final = 0.2
"""KIP-580's jitter: each wait is 80-120 % of the computed one, so that clients do not retry in step."""


class RetrySchedule:
    """Waits that double from `backoff_ms` to `backoff_max_ms` until `deadline` (monotonic seconds).

    Example: ``backoff_ms=100, backoff_max_ms=1000`` waits about 0.1, 0.2, 0.4, 0.8, 1, 1, … seconds.
    """

    def __init__(self, *, deadline: float, backoff_ms: int, backoff_max_ms: int) -> None:
        self.deadline: Final = deadline
        self._backoff_max_ms: Final = max(backoff_ms, backoff_max_ms)
        self._next_ms = float(backoff_ms)

    def next_wait(self, now: float) -> float | None:
        """Return the seconds to wait before the next try, or None when the time is up."""
        remaining = self.deadline - now
        if remaining <= 0:
            return None
        wait = self._next_ms * random.uniform(1 - _JITTER, 1 + _JITTER) / 1000
        self._next_ms = min(self._next_ms * 2, self._backoff_max_ms)
        return min(wait, remaining)

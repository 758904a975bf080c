"""Computes waits between attempts: exponential back-off with jitter (KIP-580). Pure but for the random
number."""

import random
from collections.abc import Callable
from typing import Final

_JITTER: Final = 0.2
"""KIP-580's jitter: each wait is 80-120 % of the computed one, so that clients do not retry in step."""

_DOUBLINGS_MAX: Final = 32
"""Bounds the exponent, since a client may fail for years."""


class ExponentialBackoff:
    """Waits that double from `initial_ms` to `max_ms`.

    Example: ``ExponentialBackoff(100, 1000)`` waits about 0.1, 0.2, 0.4, 0.8, 1, 1, … seconds.
    """

    __slots__ = ("_initial_ms", "_max_ms", "_uniform")

    def __init__(
        self, initial_ms: int, max_ms: int, uniform: Callable[[float, float], float] = random.uniform
    ) -> None:
        self._initial_ms: Final = initial_ms
        self._max_ms: Final = max(initial_ms, max_ms)
        self._uniform: Final = uniform

    def seconds(self, failures: int) -> float:
        """Return the wait before the next attempt, after `failures` attempts in a row (1 or more) failed."""
        assert failures >= 1, f"no wait after {failures} failures"
        wait_ms = min(self._initial_ms * 2 ** min(failures - 1, _DOUBLINGS_MAX), self._max_ms)
        return float(wait_ms) * self._uniform(1 - _JITTER, 1 + _JITTER) / 1000

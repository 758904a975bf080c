"""Computes waits between attempts: exponential back-off with jitter (KIP-580). Pure but for the
random number.

Every loop that talks to a peer waits between its turns, whatever the peer answers. `ExponentialBackoff` is
for attempts that fail. `Pacer` is for loops where one turn may follow another at once, such as a join after
the coordinator gave a member id: a peer that gives the same answer for ever must not keep the loop turning.
"""

from collections.abc import Callable
from typing import Final

from kalda.runtime.random import Random

_JITTER: Final = 0.2
"""KIP-580's jitter: each wait is 80-120 % of the computed one, so that clients do not retry in step."""

_DOUBLINGS_MAX: Final = 32
"""Bounds the exponent, since a client may fail for years."""


def jittered(seconds: float, random: Random) -> float:
    """Return a wait of `seconds` with jitter: 80-120 % of it."""
    return seconds * random.uniform(1 - _JITTER, 1 + _JITTER)


class ExponentialBackoff:
    """Waits that double from `initial_ms` to `max_ms`.

    Example: ``ExponentialBackoff(100, 1000)`` waits about 0.1, 0.2, 0.4, 0.8, 1, 1, … seconds.
    """

    __slots__ = ("_initial_ms", "_max_ms", "_uniform")

    def __init__(self, initial_ms: int, max_ms: int, uniform: Callable[[float, float], float]) -> None:
        """`uniform` is that of a `Random`."""
        self._initial_ms: Final = initial_ms
        self._max_ms: Final = max(initial_ms, max_ms)
        self._uniform: Final = uniform

    def seconds(self, failures: int) -> float:
        """Return the wait before the next attempt, after `failures` attempts in a row (1 or more) failed."""
        assert failures >= 1, f"no wait after {failures} failures"
        wait_ms = min(self._initial_ms * 2 ** min(failures - 1, _DOUBLINGS_MAX), self._max_ms)
        wait_seconds: float = wait_ms / 1000
        return wait_seconds * self._uniform(1 - _JITTER, 1 + _JITTER)


class Pacer:
    """Lets a few turns of a loop follow each other at once, and makes further ones wait longer and longer.

    Example: with 3 free turns, ``seconds()`` returns 0, 0, 0, then the waits of `backoff` for 1, 2, 3, …
    failures, until `reset` says that the peer answered usefully.
    """

    __slots__ = ("_backoff", "_free", "_turns")

    def __init__(self, backoff: ExponentialBackoff, free: int) -> None:
        self._backoff: Final = backoff
        self._free: Final = free
        self._turns = 0

    def seconds(self) -> float:
        """Return the wait before the next turn, and count that turn."""
        self._turns += 1
        return 0.0 if self._turns <= self._free else self._backoff.seconds(self._turns - self._free)

    def reset(self) -> None:
        """Let the next turns follow at once again."""
        self._turns = 0

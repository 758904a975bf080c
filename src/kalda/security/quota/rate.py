"""Measures how fast something is used with a `SampledRate`, and bounds it with a `TokenBucket`.

A `SampledRate` counts in samples of fixed length as in Kafka, of which the last few are kept, and divides by
the time that they cover. While there are few samples, they count as if all of them but one had passed, so
that a burst at the beginning does not look like an enormous rate.
"""

from collections import deque
from math import inf
from typing import Final, NamedTuple


class Window(NamedTuple):
    """How long a rate looks back: `samples` of `seconds` each."""

    samples: int = 11
    seconds: float = 1.0

    @property
    def length(self) -> float:
        """Seconds in all."""
        return self.samples * self.seconds


class SampledRate:
    """A rate over the last samples."""

    __slots__ = ("_samples", "_total", "_window")

    def __init__(self, window: Window) -> None:
        self._window: Final = window
        self._samples: Final[deque[list[float]]] = deque()
        """Start and count of each sample, the oldest first."""
        self._total = 0.0

    def record(self, value: float, now: float) -> None:
        """Count `value` at `now`, in monotonic seconds; negative values take back."""
        samples = self._samples
        if not samples or now - samples[-1][0] >= self._window.seconds:
            self._forget(now)
            samples.append([now, 0.0])
        samples[-1][1] += value
        self._total += value

    def per_second(self, now: float) -> float:
        """Return the rate."""
        self._forget(now)
        samples, window = self._samples, self._window
        elapsed = now - samples[0][0] if samples else 0.0
        missing = window.samples - 1 - int(elapsed / window.seconds)
        return self._total / (elapsed + max(0, missing) * window.seconds or window.seconds)

    def is_idle(self, now: float) -> bool:
        """Whether nothing was counted in the whole window."""
        self._forget(now)
        return not self._samples

    def _forget(self, now: float) -> None:
        samples, oldest = self._samples, now - self._window.length
        while samples and samples[0][0] <= oldest:
            self._total -= samples.popleft()[1]
        if not samples:
            # Sums of floats that came and went leave a remainder.
            self._total = 0.0


class TokenBucket:
    """A budget that fills at a rate up to the budget of a whole window, and may be overdrawn (KIP-599)."""

    __slots__ = ("_filled_at", "_tokens", "_window")

    def __init__(self, window: Window) -> None:
        self._window: Final = window
        self._tokens: float | None = None
        """None before the first use: the bucket is full then."""
        self._filled_at = 0.0

    def take(self, tokens: float, rate: float, now: float, debt_max: float = inf) -> None:
        """Take tokens out, even if there are not so many; `debt_max` bounds by how many it is overdrawn."""
        self._tokens = max(self.left(rate, now) - tokens, -debt_max)

    def left(self, rate: float, now: float) -> float:
        """Return the tokens that are left; below 0 if the bucket is overdrawn."""
        full = rate * self._window.length
        tokens = self._tokens
        if tokens is None:
            tokens = full
        else:
            tokens = min(full, tokens + rate * (now - self._filled_at))
        self._tokens, self._filled_at = tokens, now
        return tokens

    def wait_seconds(self, rate: float, now: float) -> float:
        """Return after how many seconds the bucket is no longer overdrawn; 0 if it is not."""
        left = self.left(rate, now)
        return max(0.0, -left / rate) if rate > 0 else self._window.length if left <= 0 else 0.0

    def is_idle(self, rate: float, now: float) -> bool:
        """Whether the bucket is full."""
        return self.left(rate, now) >= rate * self._window.length

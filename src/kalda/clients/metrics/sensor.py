"""Records values into windows that roll, as Kafka's `SampledStat` does, so that old values drop out in steps.

One `record` feeds all figures of a sensor: rates, average, extremes and totals. It reads no clock; `now` is
in monotonic seconds. Any thread may record. A request takes a dozen of these calls, so `record` only notes
the value; the values go into their windows when a figure is read, or `PENDING_MAX` at a time.

A rate divides by at least all full windows but one. A client that has just started would otherwise show its
first request as hundreds a second.
"""

import math
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

PENDING_MAX: Final = 64
"""Values that wait for their windows; with more, `record` gains nothing and each sensor holds more memory."""


@dataclass(frozen=True, slots=True)
class SampleConfig:
    """How long values count: `count` samples of `window_s` seconds each (``metrics.num.samples``)."""

    window_s: float = 30.0
    count: int = 2


class _Sample:
    __slots__ = ("count", "largest", "last", "smallest", "start", "sum")

    def __init__(self, now: float) -> None:
        self.reset(now)

    def reset(self, now: float) -> None:
        self.start = self.last = now
        self.count = 0
        self.sum = 0.0
        self.largest = -math.inf
        self.smallest = math.inf


class Sensor:
    """The values of one thing, e.g. the sizes of batches sent."""

    __slots__ = (
        "_config",
        "_current",
        "_last",
        "_lock",
        "_pending",
        "_sample",
        "_samples",
        "_total",
        "_total_count",
        "_window_s",
    )

    def __init__(self, config: SampleConfig) -> None:
        self._config: Final = config
        self._samples: list[_Sample] = []
        self._current = 0
        self._window_s: Final = config.window_s
        self._sample: _Sample | None = None
        """The sample that takes values now."""
        # Reentrant: a signal handler may read or record what its thread is about to.
        self._lock: Final = threading.RLock()
        # Times and values in order. Any thread appends; only `_drain` removes, with the lock held.
        self._pending: Final[deque[tuple[float, float]]] = deque()
        self._total = 0.0
        self._total_count = 0
        self._last = math.nan

    def record(self, value: float, now: float) -> None:
        """Add one value."""
        pending = self._pending
        pending.append((now, value))
        if len(pending) >= PENDING_MAX:
            with self._lock:
                self._drain()

    @property
    def total(self) -> float:
        """The sum of all values."""
        with self._lock:
            self._drain()
            return self._total

    @property
    def total_count(self) -> int:
        """The number of recorded values."""
        with self._lock:
            self._drain()
            return self._total_count

    @property
    def last(self) -> float:
        """The last value, NaN if there is none."""
        with self._lock:
            self._drain()
            return self._last

    def rate(self, now: float) -> float:
        """Return the sum of values for each second."""
        with self._lock:
            live = self._live(now)
            return sum(sample.sum for sample in live) / self._elapsed(live, now)

    def count_rate(self, now: float) -> float:
        """Return the number of values for each second."""
        with self._lock:
            live = self._live(now)
            return sum(sample.count for sample in live) / self._elapsed(live, now)

    def average(self, now: float) -> float:
        """Return the mean of the values, NaN if there are none."""
        with self._lock:
            live = self._live(now)
            count = sum(sample.count for sample in live)
            return sum(sample.sum for sample in live) / count if count else math.nan

    def largest(self, now: float) -> float:
        """Return the largest value, NaN if there are none."""
        with self._lock:
            found = max((sample.largest for sample in self._live(now)), default=-math.inf)
            return found if found > -math.inf else math.nan

    def smallest(self, now: float) -> float:
        """Return the smallest value, NaN if there are none."""
        with self._lock:
            found = min((sample.smallest for sample in self._live(now)), default=math.inf)
            return found if found < math.inf else math.nan

    def sum_total(self, _: float) -> float:
        """Return the sum of all values since the start."""
        return self.total

    def count_total(self, _: float) -> float:
        """Return the number of values since the start."""
        return self.total_count

    def last_value(self, _: float) -> float:
        """Return the last value, NaN if there is none."""
        return self.last

    def _drain(self) -> None:
        """Move the values that wait into their windows."""
        pending = self._pending
        taken: list[tuple[float, float]] = []
        take = pending.popleft
        try:
            while True:
                taken.append(take())
        except IndexError:
            pass
        if not taken:
            return
        sample = self._sample
        if sample is not None and taken[-1][0] - sample.start < self._window_s:
            self._add(sample, [value for _, value in taken], taken[-1][0])
            return
        for now, value in taken:
            if sample is None or now - sample.start >= self._window_s:
                sample = self._sample = self._next_sample(now)
            self._add(sample, (value,), now)

    def _add(self, sample: _Sample, values: Sequence[float], now: float) -> None:
        total = sum(values)
        sample.last = now
        sample.count += len(values)
        sample.sum += total
        sample.largest = max(sample.largest, *values)
        sample.smallest = min(sample.smallest, *values)
        self._total += total
        self._total_count += len(values)
        self._last = values[-1]

    def _next_sample(self, now: float) -> _Sample:
        """Return the sample that takes values from now on; one more than `count` overlap the period."""
        samples = self._samples
        if len(samples) <= self._config.count:
            samples.append(_Sample(now))
            self._current = len(samples) - 1
            return samples[-1]
        current = self._current = (self._current + 1) % (self._config.count + 1)
        samples[current].reset(now)
        return samples[current]

    def _live(self, now: float) -> list[_Sample]:
        """Return the samples with a value in the period; older ones start again."""
        self._drain()
        expiry = self._config.window_s * self._config.count
        for sample in self._samples:
            if now - sample.last >= expiry:
                sample.reset(now)
        return self._samples

    def _elapsed(self, live: list[_Sample], now: float) -> float:
        """Return the seconds that the samples stand for: all windows but one are taken as full."""
        window = self._config.window_s
        elapsed = now - min((sample.start for sample in live), default=now)
        full = int(elapsed / window) if window else 0
        missing = self._config.count - 1 - full
        return max(elapsed + max(missing, 0) * window, 0.001)

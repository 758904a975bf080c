"""Records values into windows that roll, as Kafka's `SampledStat` does, so that old values drop out in steps.

One `record` feeds all figures of a sensor: rates, average, extremes and totals. It reads no clock; `now` is
in monotonic seconds. Any thread may record.

What a maintainer must not break: a rate divides by at least all full windows but one. A client that has just
started would otherwise show its first request as hundreds a second.
"""

import math
import threading
from dataclasses import dataclass
from typing import Final


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
        "_lock",
        "_sample",
        "_samples",
        "_window_s",
        "last",
        "total",
        "total_count",
    )

    def __init__(self, config: SampleConfig) -> None:
        self._config: Final = config
        self._samples: list[_Sample] = []
        self._current = 0
        self._window_s: Final = config.window_s
        self._sample: _Sample | None = None
        """The sample that takes values now."""
        self._lock: Final = threading.Lock()
        self.total = 0.0
        """The sum of all values."""
        self.total_count = 0
        """How many values there were."""
        self.last = math.nan
        """The last value."""

    def record(self, value: float, now: float) -> None:
        """Add one value."""
        with self._lock:
            sample = self._sample
            if sample is None or now - sample.start >= self._window_s:
                sample = self._sample = self._next_sample(now)
            sample.last = now
            sample.count += 1
            sample.sum += value
            if value > sample.largest:
                sample.largest = value
            if value < sample.smallest:
                sample.smallest = value
            self.total += value
            self.total_count += 1
            self.last = value

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

    def _next_sample(self, now: float) -> _Sample:
        """Return the sample that takes values from now on; one more than `count` overlap the period."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now))
            return samples[0]
        self._current = (self._current + 1) % (self._config.count + 1)
        if self._current == len(samples):
            samples.append(_Sample(now))
        else:
            samples[self._current].reset(now)
        return samples[self._current]

    def _live(self, now: float) -> list[_Sample]:
        """Return the samples with a value in the period; older ones start again."""
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

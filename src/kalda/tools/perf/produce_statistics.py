"""Counts what a producer sends and how long acknowledgements take, as ``kafka-producer-perf-test`` does.

Times are monotonic seconds given by the caller; latencies are milliseconds. At most `_SAMPLES_MAX` latencies
are kept for the percentiles, evenly over the run.
"""

from dataclasses import dataclass
from typing import Final

from kalda.tools.bytes_text import JsonValue

_SAMPLES_MAX: Final = 500_000
_MB: Final = 1024 * 1024

PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)


@dataclass(frozen=True, slots=True)
class ProduceReport:
    """The figures of a window or of the whole run; `percentiles_ms` belong to `PERCENTILES`."""

    count: int
    records_per_second: float
    mb_per_second: float
    latency_average_ms: float
    latency_max_ms: float
    percentiles_ms: tuple[float, ...] | None = None

    @property
    def line(self) -> str:
        """The line of Kafka's tool."""
        digits = 1 if self.percentiles_ms is None else 2
        head = (
            f"{self.count} records sent, {self.records_per_second:.1f} records/sec "
            f"({self.mb_per_second:.2f} MB/sec), {self.latency_average_ms:.{digits}f} ms avg latency, "
            f"{self.latency_max_ms:.{digits}f} ms max latency"
        )
        if self.percentiles_ms is None:
            return f"{head}."
        names = ("50th", "95th", "99th", "99.9th")
        shown = (f"{round(each)} ms {name}" for each, name in zip(self.percentiles_ms, names, strict=True))
        return f"{head}, {', '.join(shown)}."

    @property
    def json(self) -> dict[str, JsonValue]:
        """The same figures, not rounded to whole milliseconds."""
        fields: dict[str, JsonValue] = {
            "records": self.count,
            "recordsPerSecond": round(self.records_per_second, 1),
            "mbPerSecond": round(self.mb_per_second, 3),
            "latencyAverageMs": round(self.latency_average_ms, 3),
            "latencyMaxMs": round(self.latency_max_ms, 3),
        }
        if self.percentiles_ms is not None:
            for share, value in zip(PERCENTILES, self.percentiles_ms, strict=True):
                fields[f"latencyP{100 * share:g}Ms"] = round(value, 3)
        return fields


class ProduceStatistics:
    """The counts of one run. `record` runs once for each record, so it only adds to the window's counts."""

    def __init__(self, record_count: int, start_s: float, interval_s: float) -> None:
        self._interval_s: Final = interval_s
        self._every: Final = max(1, record_count // min(max(record_count, 1), _SAMPLES_MAX))
        self._latencies: Final[list[float]] = []
        self._start_s: Final = start_s
        # The counts of the windows that are over.
        self._before_count = 0
        self._before_size = 0
        self._before_sum_ms = 0.0
        self._before_max_ms = 0.0
        # The counts of the present window.
        self._window_start_s = start_s
        self._window_end_s = start_s + interval_s
        self._count = 0
        self._size = 0
        self._sum_ms = 0.0
        self._max_ms = 0.0

    def record(self, latency_ms: float, size: int, now_s: float) -> ProduceReport | None:
        """Count an acknowledged record; return the report of a window that is over."""
        count = self._count
        self._count = count + 1
        self._size += size
        self._sum_ms += latency_ms
        if latency_ms > self._max_ms:
            self._max_ms = latency_ms
        if self._every == 1 or (self._before_count + count) % self._every == 0:
            self._latencies.append(latency_ms)
        return None if now_s < self._window_end_s else self._end_window(now_s)

    def total(self, now_s: float) -> ProduceReport:
        """Return the report of the whole run."""
        ordered = sorted(self._latencies)
        found = tuple(_percentile(ordered, share) for share in PERCENTILES)
        return _report(
            now_s - self._start_s,
            self._before_count + self._count,
            self._before_size + self._size,
            self._before_sum_ms + self._sum_ms,
            max(self._before_max_ms, self._max_ms),
            found,
        )

    def _end_window(self, now_s: float) -> ProduceReport:
        seconds = now_s - self._window_start_s
        report = _report(seconds, self._count, self._size, self._sum_ms, self._max_ms)
        self._before_count += self._count
        self._before_size += self._size
        self._before_sum_ms += self._sum_ms
        self._before_max_ms = max(self._before_max_ms, self._max_ms)
        self._count = self._size = 0
        self._sum_ms = self._max_ms = 0.0
        self._window_start_s = now_s
        self._window_end_s = now_s + self._interval_s
        return report


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)] if ordered else 0.0


def _report(
    seconds: float,
    count: int,
    size: int,
    latency_sum_ms: float,
    latency_max_ms: float,
    percentiles: tuple[float, ...] | None = None,
) -> ProduceReport:
    seconds = max(seconds, 1e-9)
    return ProduceReport(
        count,
        count / seconds,
        size / seconds / _MB,
        latency_sum_ms / count if count else 0.0,
        latency_max_ms,
        percentiles,
    )


class Throttle:
    """Limits records a second: says how long to sleep before the next record."""

    def __init__(self, records_per_second: float, start_s: float) -> None:
        """A limit of 0 or below is none."""
        self._rate: Final = records_per_second
        self._start_s: Final = start_s

    def delay_s(self, sent: int, now_s: float) -> float:
        """Return how long the caller is ahead of the rate after `sent` records, in seconds."""
        if self._rate <= 0:
            return 0.0
        return max(0.0, self._start_s + sent / self._rate - now_s)

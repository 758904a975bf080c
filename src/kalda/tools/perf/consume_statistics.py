"""Counts what a consumer reads, as ``kafka-consumer-perf-test`` does; times are given by the caller."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from kalda.tools.bytes_text import JsonValue

_MB: Final = 1024 * 1024

_COLUMNS: Final = (
    "data.consumed.in.MB",
    "MB.sec",
    "data.consumed.in.nMsg",
    "nMsg.sec",
    "rebalance.time.ms",
    "fetch.time.ms",
    "fetch.MB.sec",
    "fetch.nMsg.sec",
)

HEADER: Final = ", ".join(("start.time", "end.time", *_COLUMNS))
"""The heading above the one line of a run."""

DETAILED_HEADER: Final = ", ".join(("time", "threadId", *_COLUMNS))
"""The heading above the lines of intervals."""


@dataclass(frozen=True, slots=True)
class ConsumeReport:
    """The figures of an interval or of the whole run.

    `size` and `count` are what the columns of totals show; the rates are those of the interval.
    """

    start_ms: int
    end_ms: int
    size: int
    count: int
    interval_size: int
    interval_count: int
    rebalance_ms: int

    @property
    def fetch_ms(self) -> int:
        """The time without that of rebalances."""
        return self.end_ms - self.start_ms - self.rebalance_ms

    @property
    def figures(self) -> tuple[float, float, int, float, int, int, float, float]:
        """The values of the columns that both headings have."""
        seconds = (self.end_ms - self.start_ms) / 1000
        fetch_seconds = self.fetch_ms / 1000
        interval_mb = self.interval_size / _MB
        return (
            self.size / _MB,
            _rate(interval_mb, seconds),
            self.count,
            _rate(self.interval_count, seconds),
            self.rebalance_ms,
            self.fetch_ms,
            _rate(interval_mb, fetch_seconds),
            _rate(self.interval_count, fetch_seconds),
        )

    @property
    def line(self) -> str:
        """The line of a run."""
        return f"{_time(self.start_ms)}, {_time(self.end_ms)}, {self._columns}"

    @property
    def detailed_line(self) -> str:
        """The line of an interval."""
        return f"{_time(self.end_ms)}, 0, {self._columns}"

    @property
    def _columns(self) -> str:
        return ", ".join(str(each) if isinstance(each, int) else f"{each:.4f}" for each in self.figures)

    @property
    def json(self) -> dict[str, JsonValue]:
        """The figures under the names of the columns, and the times in milliseconds since the epoch."""
        named: dict[str, JsonValue] = {"start.time": self.start_ms, "end.time": self.end_ms}
        for name, value in zip(_COLUMNS, self.figures, strict=True):
            named[name] = value if isinstance(value, int) else round(value, 4)
        return named


class ConsumeStatistics:
    """The counts of one run; times are wall-clock milliseconds."""

    def __init__(self, start_ms: int, interval_ms: int) -> None:
        self._start_ms: Final = start_ms
        self._interval_ms: Final = interval_ms
        self._report_ms = start_ms
        self._reported_size = 0
        self._reported_count = 0
        self._reported_rebalance_ms = 0
        self._rebalance_start_ms: int | None = start_ms
        self._rebalance_ms = 0
        self._size = 0
        self.count = 0
        """Records read."""

    def on_revoked(self, now_ms: int) -> None:
        """Note that a rebalance begins."""
        if self._rebalance_start_ms is None:
            self._rebalance_start_ms = now_ms

    def on_assigned(self, now_ms: int) -> None:
        """Note that a rebalance has ended."""
        if self._rebalance_start_ms is not None:
            self._rebalance_ms += now_ms - self._rebalance_start_ms
            self._rebalance_start_ms = None

    def add(self, count: int, size: int, now_ms: int) -> ConsumeReport | None:
        """Count records of `size` bytes in all; return the report of an interval that is over."""
        self.count += count
        self._size += size
        if now_ms - self._report_ms < self._interval_ms:
            return None
        report = ConsumeReport(
            self._report_ms,
            now_ms,
            self._size,
            self.count,
            self._size - self._reported_size,
            self.count - self._reported_count,
            self._rebalance_ms - self._reported_rebalance_ms,
        )
        self._report_ms = now_ms
        self._reported_size, self._reported_count = self._size, self.count
        self._reported_rebalance_ms = self._rebalance_ms
        return report

    def total(self, now_ms: int) -> ConsumeReport:
        """Return the report of the whole run."""
        return ConsumeReport(
            self._start_ms, now_ms, self._size, self.count, self._size, self.count, self._rebalance_ms
        )


def _rate(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else 0.0


def _time(wall_ms: int) -> str:
    """Write a local time as Kafka's tool does: ``2026-11-22 14:30:00:123``."""
    time = datetime.fromtimestamp(wall_ms / 1000).astimezone()
    return f"{time:%Y-%m-%d %H:%M:%S}:{wall_ms % 1000:03d}"

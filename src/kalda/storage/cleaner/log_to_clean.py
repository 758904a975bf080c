"""Measures which part of a log may be cleaned and how dirty it is; reads only a few batch headers.

Three parts of a log are never cleaned: the active segment, everything from the last stable offset on (and so
above the high watermark), and records younger than ``min.compaction.lag.ms``.
"""

from dataclasses import dataclass
from typing import Final

from kalda.storage.log_config import INT64_MAX
from kalda.storage.log_segment import LogSegment
from kalda.storage.unified_log import UnifiedLog

_FIRST_TIMESTAMPS_MAX: Final = 50
"""Segments whose first timestamp is read: after a start each costs a read, and later ones are younger."""


@dataclass(frozen=True, slots=True)
class LogToClean:
    """A compacted log with the measures by which the cleaner chooses."""

    log: UnifiedLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    """The base offset of the first segment that is not cleaned."""
    clean_bytes: int
    cleanable_bytes: int
    compaction_delay_ms: int
    """How long the log is overdue by ``max.compaction.lag.ms``; 0 if it is not."""

    @property
    def ratio(self) -> float:
        """The share of dirty bytes in the bytes that a cleaning reads."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether the log is dirty enough or overdue."""
        return self.cleanable_bytes > 0 and (
            self.compaction_delay_ms > 0 or self.ratio > self.log.config.min_cleanable_dirty_ratio
        )


def measure_log(log: UnifiedLog, checkpoint: int | None, now_ms: int) -> LogToClean:
    """Measure a compacted log, which is clean below `checkpoint`. Raises `OSError`."""
    first_dirty = first_dirty_offset(log, checkpoint)
    segments = log.segments
    closed = segments[:-1]
    active_base = segments[-1].base_offset
    dirty = _from(closed, first_dirty, active_base)
    uncleanable = min(log.last_stable_offset, active_base)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in dirty:
            if segment.largest_timestamp > now_ms - lag_ms:
                uncleanable = min(uncleanable, segment.base_offset)
                break
    uncleanable = max(uncleanable, first_dirty)
    kept = _from(closed, uncleanable, active_base)
    first_uncleanable = kept[0].base_offset if kept else active_base
    return LogToClean(
        log,
        first_dirty,
        first_uncleanable,
        sum(segment.size for segment in closed if segment.base_offset < first_dirty),
        sum(segment.size for segment in dirty if segment.base_offset < first_uncleanable),
        _compaction_delay_ms(log, dirty, now_ms),
    )


def first_dirty_offset(log: UnifiedLog, checkpoint: int | None) -> int:
    """Return where the dirty part begins: at the checkpoint, if that lies within the log."""
    start = log.log_start_offset
    if checkpoint is None or checkpoint > log.log_end_offset:
        return start
    return max(checkpoint, start)


def _from(closed: tuple[LogSegment, ...], offset: int, end: int) -> tuple[LogSegment, ...]:
    """Return the closed segments from the one for `offset` on; they end at `end`."""
    if offset >= end:
        return ()
    first = len(closed)
    while first and closed[first - 1].base_offset > offset:
        first -= 1
    return closed[max(0, first - 1) :]


def _compaction_delay_ms(log: UnifiedLog, dirty: tuple[LogSegment, ...], now_ms: int) -> int:
    lag_ms = log.config.max_compaction_lag_ms
    if lag_ms == INT64_MAX:
        return 0
    timestamps = [
        first for segment in dirty[:_FIRST_TIMESTAMPS_MAX] if (first := segment.first_timestamp) > 0
    ]
    return max(0, now_ms - lag_ms - min(timestamps, default=INT64_MAX))

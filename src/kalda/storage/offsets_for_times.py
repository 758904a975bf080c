"""Finds offsets of a log by timestamp, for ListOffsets requests."""

from collections.abc import Sequence

from kalda.storage.log_types import TimestampAndOffset
from kalda.storage.unified_log import UnifiedLog


def offset_for_timestamp(log: UnifiedLog, timestamp: int) -> TimestampAndOffset | None:
    """Find the first record whose time is `timestamp` or later; ``None`` if there is none.

    Raises:
        LogStorageError: the disk failed.
    """
    with log.disk_errors.raised("read"):
        for segment in log.segments:
            if segment.largest.timestamp >= timestamp:
                found = segment.find_timestamp(timestamp, log.log_start_offset)
                if found is not None:
                    return TimestampAndOffset(*found)
    return None


def offset_for_max_timestamp(log: UnifiedLog) -> TimestampAndOffset | None:
    """Find the first record that has the largest timestamp of the log (KIP-734).

    Raises:
        LogStorageError: the disk failed.
    """
    with log.disk_errors.raised("read"):
        newest = max(log.segments, key=lambda segment: segment.largest.timestamp)
        found = newest.find_largest_timestamp()
    return None if found is None else TimestampAndOffset(*found)


def offsets_before(log: UnifiedLog, timestamp: int, now_ms: int, count_max: int) -> list[int]:
    """Return segment starts that were written at `timestamp` or before, newest first.

    What ListOffsets version 0 asks for: -1 means up to the log's end, -2 the log's start.
    """
    starts = [(max(each.base_offset, log.log_start_offset), each.modified_ms) for each in log.segments]
    if log.segments[-1].size:
        starts.append((log.log_end_offset, now_ms))
    return _starts_until(starts, timestamp, count_max)


def _starts_until(starts: Sequence[tuple[int, int]], timestamp: int, count_max: int) -> list[int]:
    """Choose among offsets with the times they were written at, both ascending; newest first.

    Starts 0, 30, 70 at 1, 2, 3 ms: until 2 ms they are 30 and 0.
    """
    if timestamp == -1:
        chosen = starts
    elif timestamp == -2:
        chosen = starts[:1]
    else:
        last = max((at for at, (_, written_ms) in enumerate(starts) if written_ms <= timestamp), default=-1)
        chosen = starts[: last + 1]
    return sorted((offset for offset, _ in chosen), reverse=True)[:count_max]

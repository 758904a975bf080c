"""Finds offsets of a log by timestamp, for ListOffsets requests."""

from collections.abc import Sequence

from kalda.storage.log_types import TimestampAndOffset
from kalda.storage.unified_log import UnifiedLog


def offset_for_timestamp(log: UnifiedLog, timestamp: int) -> TimestampAndOffset | None:
    """Return the first record with `timestamp` or a later one; ``None`` if there is none.

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
    """Return the first record with the largest timestamp of the log (KIP-734).

    Raises:
        LogStorageError: the disk failed.
    """
    with log.disk_errors.raised("read"):
        newest = max(log.segments, key=lambda segment: segment.largest.timestamp)
        found = newest.find_largest_timestamp()
    return None if found is None else TimestampAndOffset(*found)


def offsets_before(log: UnifiedLog, timestamp: int, now_ms: int, count_max: int) -> list[int]:
    """Return the base offsets of segments written at `timestamp` or before, newest first.

    ListOffsets version 0 uses this: -1 means up to the log end offset, -2 the log start offset.
    """
    starts = [(max(each.base_offset, log.log_start_offset), each.modified_ms) for each in log.segments]
    if log.segments[-1].size:
        starts.append((log.log_end_offset, now_ms))
    return _starts_until(starts, timestamp, count_max)


def _starts_until(starts: Sequence[tuple[int, int]], timestamp: int, count_max: int) -> list[int]:
    """Return the offsets that were written at `timestamp` or before, newest first.

    `starts` are offsets with their times, both ascending. Starts 0, 30, 70 at 1, 2, 3 ms: for 2 ms, 30 and 0.
    """
    if timestamp == -1:
        chosen = starts
    elif timestamp == -2:
        chosen = starts[:1]
    else:
        last = max((at for at, (_, written_ms) in enumerate(starts) if written_ms <= timestamp), default=-1)
        chosen = starts[: last + 1]
    return sorted((offset for offset, _ in chosen), reverse=True)[:count_max]

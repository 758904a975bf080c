"""Offsets by time: what ListOffsets asks of a log. Each raises `OSError` where the disk fails."""

from collections.abc import Iterable, Sequence

from kalda.storage.log_types import TimestampAndOffset
from kalda.storage.segment import Segment


def first_since(
    segments: Iterable[Segment], timestamp: int, log_start_offset: int
) -> TimestampAndOffset | None:
    """Find the first record whose time is `timestamp` or later."""
    for segment in segments:
        if segment.largest.timestamp >= timestamp:
            found = segment.find_timestamp(timestamp, log_start_offset)
            if found is not None:
                return TimestampAndOffset(*found)
    return None


def first_of_newest(segments: Iterable[Segment]) -> TimestampAndOffset | None:
    """Find the first record that has the largest timestamp of all (KIP-734)."""
    newest = max(segments, key=lambda segment: segment.largest.timestamp)
    found = newest.find_largest_timestamp()
    return None if found is None else TimestampAndOffset(*found)


def starts_of(segments: Iterable[Segment], log_start_offset: int) -> list[tuple[int, int]]:
    """Return where each segment begins for readers, and when it was last written."""
    return [(max(each.base_offset, log_start_offset), each.modified_ms) for each in segments]


def starts_until(starts: Sequence[tuple[int, int]], timestamp: int, count_max: int) -> list[int]:
    """Choose among offsets with the times they were written at, both ascending; newest first.

    What ListOffsets version 0 asks for: -1 means all, -2 the first. Starts 0, 30, 70 at 1, 2, 3 ms:
    until 2 ms they are 30 and 0.
    """
    if timestamp == -1:
        chosen = starts
    elif timestamp == -2:
        chosen = starts[:1]
    else:
        last = max((at for at, (_, written_ms) in enumerate(starts) if written_ms <= timestamp), default=-1)
        chosen = starts[: last + 1]
    return sorted((offset for offset, _ in chosen), reverse=True)[:count_max]

"""Finds the bytes of segment files that hold a range of offsets, for clients that read them in place.

It does not open or identify files for the client, and it grants nothing: `kalda.broker.leases` does.

An extent ends at a batch boundary that the log has passed, so that a reader of the file never sees a batch
that is being written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Final

from kalda.storage.errors import OffsetOutOfRangeError, RecordsMissingError
from kalda.storage.log_segment import LogSegment
from kalda.storage.transaction_index import AbortedTransaction
from kalda.storage.unified_log import UnifiedLog

_NOTHING: Final = (0, 0)


@dataclass(frozen=True, slots=True)
class SegmentExtent:
    """The part of one segment's file with batches of a range of offsets."""

    segment: LogSegment
    start_position: int
    end_position: int
    end_offset: int
    """Where the range goes on behind this segment."""
    flushed_position: int
    """The bytes below are on the device, as far as the log knows."""
    is_sealed: bool
    """Whether nothing is appended to the segment any more."""


def locate(log: UnifiedLog, start_offset: int, end_offset: int, segments_max: int) -> list[SegmentExtent]:
    """Return where the batches with offsets of ``[start_offset, end_offset)`` lie, oldest first.

    Segments [0,10)[10,30)[30,…), range [5,20): the batches from the one with 5 on to the end of the first,
    and of the second those up to the one with 19. A segment without a batch of the range has no extent.
    After `segments_max` extents the rest of the range is left out. `end_offset` is at most the log end
    offset.

    Raises:
        OffsetOutOfRangeError: `start_offset` is outside [log_start_offset, log_end_offset].
        RecordsMissingError: records of the range are being fetched from other replicas.
        LogStorageError: the disk failed.
    """
    if not log.log_start_offset <= start_offset <= log.log_end_offset:
        raise OffsetOutOfRangeError(
            f"offset {start_offset} of {log.topic_partition} is outside "
            f"[{log.log_start_offset}, {log.log_end_offset}]"
        )
    if log.missing.is_withheld and log.missing.overlaps(start_offset, end_offset):
        raise RecordsMissingError(
            f"{log.topic_partition}: offsets of [{start_offset}, {end_offset}) are being fetched from "
            "other replicas"
        )
    with log.disk_errors.raised("read"):
        return _extents(log.segments, log.recovery_point, start_offset, end_offset, segments_max)


def aborted_transactions(log: UnifiedLog, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
    """Return the aborted transactions that overlap ``[start_offset, end_offset)``.

    Raises:
        LogStorageError: the disk failed.
    """
    found: list[AbortedTransaction] = []
    with log.disk_errors.raised("read"):
        for segment, following in zip_longest(log.segments, log.segments[1:]):
            if following is not None and following.base_offset <= start_offset:
                continue
            if segment.transaction_index.collect(start_offset, end_offset, found):
                break
    return found


def _extents(
    segments: Sequence[LogSegment],
    recovery_point: int,
    start_offset: int,
    end_offset: int,
    segments_max: int,
) -> list[SegmentExtent]:
    found: list[SegmentExtent] = []
    last = len(segments) - 1
    for index, segment in enumerate(segments):
        next_base = segments[index + 1].base_offset if index < last else None
        if segment.base_offset >= end_offset or len(found) == segments_max:
            break
        if next_base is not None and next_base <= start_offset:
            continue
        start, end = _positions(segment, start_offset, end_offset, next_base)
        if start < end:
            is_flushed = next_base is not None and next_base <= recovery_point
            found.append(
                SegmentExtent(
                    segment,
                    start,
                    end,
                    end_offset if next_base is None else min(next_base, end_offset),
                    end if is_flushed else min(_position_of(segment, recovery_point), end),
                    next_base is not None,
                )
            )
    return found


def _positions(
    segment: LogSegment, start_offset: int, end_offset: int, next_base: int | None
) -> tuple[int, int]:
    start = 0
    if start_offset > segment.base_offset:
        first = segment.find_batch(start_offset)
        if first is None or first.base_offset >= end_offset:
            return _NOTHING
        start = first.position
    if next_base is not None and next_base <= end_offset:
        return start, segment.size
    behind = segment.find_batch(end_offset)
    if behind is None:
        return start, segment.size
    # The batch with the end offset may have offsets of the range as well.
    return start, behind.position + (behind.size if behind.base_offset < end_offset else 0)


def _position_of(segment: LogSegment, offset: int) -> int:
    """Return the position of the batch with `offset` or of the first one behind it; 0 if all lie behind."""
    if offset <= segment.base_offset:
        return 0
    found = segment.find_batch(offset)
    return segment.size if found is None else found.position

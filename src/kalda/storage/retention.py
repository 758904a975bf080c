"""Decides which segments retention deletes; `UnifiedLog` deletes. All functions but `unleased` are pure.

All rules share three limits: segments are deleted oldest first and without a gap, never one with offsets at
or above the high watermark, and never an empty active segment.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from kalda.common.types import TopicPartition
from kalda.storage.log_config import LogConfig
from kalda.storage.log_resources import ReadLeasesPort
from kalda.storage.log_segment import LogSegment


class SegmentFacts(NamedTuple):
    """A segment as the rules see it; `end_offset` is the next segment's base, or the log end offset."""

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int
    is_active: bool


def facts_of(segments: Sequence[LogSegment], log_end_offset: int) -> list[SegmentFacts]:
    """Return the facts of all segments; the last one is the active segment."""
    ends = [*(segment.base_offset for segment in segments[1:]), log_end_offset]
    return [
        SegmentFacts(
            segment.base_offset, end, segment.size, segment.largest_timestamp, segment is segments[-1]
        )
        for segment, end in zip(segments, ends, strict=True)
    ]


Rule: TypeAlias = tuple[Callable[[Sequence[SegmentFacts]], int], str]
"""A function that counts the leading segments to delete, and the reason for the log line."""


def rules(config: LogConfig, log_start_offset: int, high_watermark: int, now_ms: int) -> list[Rule]:
    """Return the rules of a log; each applies to the segments that earlier rules left.

    The first one is that of the log start offset.
    """
    found: list[Rule] = [
        (
            lambda segments: count_before_start_offset(segments, log_start_offset, high_watermark),
            "they lie below the log start offset",
        )
    ]
    if config.is_deleted:
        size, age_ms = config.retention_bytes, config.retention_ms
        found += [
            (
                lambda segments: count_beyond_size(segments, size, high_watermark),
                f"the log exceeds retention.bytes={size}",
            ),
            (
                lambda segments: count_beyond_time(segments, now_ms, age_ms, high_watermark),
                f"they are older than retention.ms={age_ms}",
            ),
        ]
    return found


def count_before_start_offset(
    segments: Sequence[SegmentFacts], log_start_offset: int, high_watermark: int
) -> int:
    """Count the leading segments below the log start offset: with [0,10)[10,20) and 10, one."""
    return _count_leading(
        segments,
        high_watermark,
        lambda segment: not segment.is_active and segment.end_offset <= log_start_offset,
    )


def count_beyond_time(
    segments: Sequence[SegmentFacts], now_ms: int, retention_ms: int, high_watermark: int
) -> int:
    """Count the leading segments whose newest record is older than `retention_ms`; -1 keeps all."""
    if retention_ms < 0:
        return 0
    return _count_leading(
        segments, high_watermark, lambda segment: now_ms - segment.largest_timestamp > retention_ms
    )


def count_beyond_size(segments: Sequence[SegmentFacts], retention_bytes: int, high_watermark: int) -> int:
    """Count the leading segments without which the log still holds `retention_bytes`; -1 keeps all."""
    excess = sum(segment.size for segment in segments) - retention_bytes
    if retention_bytes < 0 or excess < 0:
        return 0
    count = 0
    for segment in segments[: _count_leading(segments, high_watermark, lambda _: True)]:
        excess -= segment.size
        if excess < 0:
            break
        count += 1
    return count


def _count_leading(
    segments: Sequence[SegmentFacts], high_watermark: int, is_expired: Callable[[SegmentFacts], bool]
) -> int:
    count = 0
    for segment in segments:
        if segment.is_active and segment.size == 0:
            break
        if segment.end_offset > high_watermark or not is_expired(segment):
            break
        count += 1
    return count


def unleased(
    segments: Sequence[SegmentFacts], count: int, name: TopicPartition, leases: ReadLeasesPort | None
) -> int:
    """Return how many of the `count` oldest segments no client reads in place."""
    if not count or leases is None:
        return count
    removable = leases.removable_below(name, segments[count - 1].end_offset)
    return sum(each.end_offset <= removable for each in segments[:count])

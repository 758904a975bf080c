"""Divides a batch into the offset ranges that its tasks read.

The ranges are a pure function of start, end and options, so that a batch which Spark runs again has the same
tasks.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from kalda.common.types import ZERO_UUID, TopicPartition

JOINED_OFFSETS_MAX: Final = 8_000
"""Short ranges are read by one task as long as they span no more offsets together. Starting a task takes as
long as reading 20,000 to 40,000 small records; the limit is below that because records can be large."""


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """Offsets ``[start, end)`` of one partition; the record count may be less (compaction, markers)."""

    topic_partition: TopicPartition
    start: int
    end: int
    is_start_open: bool = False
    """Whether the query reads the log from its beginning, wherever that is: what retention removes before the
    range is read is no loss then."""
    topic_id: UUID = ZERO_UUID
    """The topic that the offsets were looked up in; zero if the cluster has no ids."""

    @property
    def offset_count(self) -> int:
        """How many offsets the range spans."""
        return self.end - self.start

    @property
    def topic_id_text(self) -> str | None:
        """The topic's id as text; None if the cluster has no ids."""
        return None if self.topic_id == ZERO_UUID else str(self.topic_id)


@dataclass(frozen=True, slots=True)
class ByteLimit:
    """`maxBytesPerPartition`, and what it means in offsets."""

    bytes_max: int
    bytes_per_offset: Mapping[TopicPartition, float]
    """Estimates; a partition without one is not cut by bytes."""

    def pieces(self, each: OffsetRange) -> int:
        """Return into how many pieces of at most so many bytes the range is cut."""
        size = each.offset_count * self.bytes_per_offset.get(each.topic_partition, 0.0)
        return min(max(math.ceil(size / self.bytes_max), 1), each.offset_count)


def plan_ranges(
    ranges: Iterable[OffsetRange],
    *,
    partitions_min: int | None = None,
    records_max: int | None = None,
    byte_limit: ByteLimit | None = None,
) -> list[OffsetRange]:
    """Leave out empty ranges and cut long ones.

    Args:
        ranges: at most one for each partition.
        partitions_min: `minPartitions`: cut to *about* so many ranges, the longest first, by their share of
            the offsets. Rounding may give a few more or fewer.
        records_max: `maxRecordsPerPartition`: no range spans more offsets than this.
        byte_limit: `maxBytesPerPartition`: no range is estimated to have more bytes than this.

    Example: with ``partitions_min=10``, a range of 900 becomes nine of 100, and one of 100 stays whole.
    """
    planned = [each for each in ranges if each.offset_count > 0]
    if records_max is not None:
        planned = [piece for each in planned for piece in _cut(each, -(-each.offset_count // records_max))]
    if byte_limit is not None:
        planned = [piece for each in planned for piece in _cut(each, byte_limit.pieces(each))]
    if partitions_min is None or len(planned) >= partitions_min:
        return planned
    total = sum(each.offset_count for each in planned)
    # Ranges too short to be cut are set aside first: they use up one task each and no more.
    whole = {each for each in planned if _piece_count(each, total, partitions_min) == 1}
    cut_total = total - sum(each.offset_count for each in whole)
    cut_count = max(partitions_min - len(whole), 1)
    result: list[OffsetRange] = []
    for each in planned:
        result += [each] if each in whole else _cut(each, _piece_count(each, cut_total, cut_count))
    assert sum(each.offset_count for each in result) == total, f"{result} does not have {total} offsets"
    return result


def _piece_count(each: OffsetRange, total: int, count: int) -> int:
    """Round the range's share of `count` half up, as Spark does (Python's own round would go to even)."""
    return max((2 * each.offset_count * count + total) // (2 * total), 1)


def _cut(each: OffsetRange, count: int) -> list[OffsetRange]:
    assert count >= 1, f"{each} cannot be cut into {count} pieces"
    pieces = []
    start = each.start
    for index in range(count):
        end = start + (each.end - start) // (count - index)
        if end > start:
            pieces.append(replace(each, start=start, end=end))
        start = end
    assert start == each.end, f"the pieces of {each} end at {start}"
    return pieces


def join_ranges(
    ranges: Iterable[OffsetRange], *, offsets_max: int = JOINED_OFFSETS_MAX
) -> list[tuple[OffsetRange, ...]]:
    """Group neighbours into tasks of at most `offsets_max` offsets; a longer range has a task of its own.

    Example: with ``offsets_max=100``, ranges of 40, 50, 30 and 200 become (40, 50), (30) and (200).
    """
    tasks: list[tuple[OffsetRange, ...]] = []
    task: list[OffsetRange] = []
    task_offsets = 0
    for each in ranges:
        if task and task_offsets + each.offset_count > offsets_max:
            tasks.append(tuple(task))
            task, task_offsets = [], 0
        task.append(each)
        task_offsets += each.offset_count
    if task:
        tasks.append(tuple(task))
    return tasks

"""Finds the position of a group in the copy of a partition. Pure, over the records of two logs.

A group goes on with the first record at or behind its offset. The runs of the mirror say where that record
lies in the copy. Where they leave records out (a transaction records a limited number of runs, and the oldest
are forgotten), the records between two known places are counted on both sides, which have the same order, and
the record that is found is compared with the original.
"""

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.journal import Cut
from kalda.pipelines.cutover.log_rows import Row
from kalda.pipelines.mirror.offset_syncs import Run


class How(StrEnum):
    """How a place was found."""

    EXACT = "exact"
    """The next record is the same on both sides."""
    END = "end"
    """The group has read everything before the cut."""
    COMPACTED = "compacted"
    """The next record was compacted away or deleted in the copy; what follows it is next."""
    EARLIER = "earlier"
    """The next record was not found in the copy; the place is before it, so that records may come twice."""
    DIFFERENT = "different"
    """Another record is at the place where the next one belongs."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a group goes on in a copy."""

    target: int
    how: How


class Rows(Protocol):
    """The committed records of a cluster's partitions, as `LogRows` reads them."""

    def first(self, partition: TopicPartition, start: int, end: int) -> Row | None:
        """Return the first record of a range."""
        ...

    def offsets(self, partition: TopicPartition, start: int, end: int) -> npt.NDArray[np.int64]:
        """Return the offsets of the records of a range."""
        ...

    def rows(self, partition: TopicPartition, start: int, end: int) -> Iterator[Row]:
        """Yield the records of a range."""
        ...


class Locator:
    """Finds places in the copy of one partition."""

    def __init__(
        self,
        partition: TopicPartition,
        runs: Sequence[Run],
        cut: Cut,
        source: Rows,
        target: Rows,
        *,
        source_begin: int,
        target_begin: int,
    ) -> None:
        """Take the runs in order, and where both logs begin; the names are the same on both sides."""
        self._partition: Final = partition
        self._runs: Final = runs
        self._cut: Final = cut
        self._source: Final = source
        self._target: Final = target
        self._source_begin: Final = source_begin
        self._target_begin: Final = target_begin

    def place(self, offset: int) -> Place:
        """Return where a group goes on that has committed an offset of the source.

        Raises:
            ClientError, RecordsError: a log cannot be read.
        """
        begin = max(offset, self._source_begin)
        following = self._source.first(self._partition, begin, self._cut.source)
        if following is None:
            return Place(self._cut.target, How.END)
        index = bisect.bisect_right(self._runs, following.offset, key=lambda run: run.source) - 1
        before = self._runs[index] if index >= 0 else None
        if before is not None and following.offset < before.source + before.count:
            return self._within(before, following)
        after = self._runs[index + 1] if index + 1 < len(self._runs) else None
        return self._between(before, after, following)

    def _within(self, run: Run, following: Row) -> Place:
        target = run.target + following.offset - run.source
        if target < self._target_begin:
            return Place(self._target_begin, How.COMPACTED)
        found = self._target.first(self._partition, target, self._cut.target)
        if found is None or found.offset > target:
            return Place(target, How.COMPACTED)
        return Place(target, How.EXACT if found.digest == following.digest else How.DIFFERENT)

    def _between(self, before: Run | None, after: Run | None, following: Row) -> Place:
        low = self._target_begin if before is None else before.target + before.count
        high = self._cut.target if after is None else after.target
        low = max(low, self._target_begin)
        there = self._target.offsets(self._partition, low, high)
        if before is not None:
            start = max(before.source + before.count, self._source_begin)
            index = len(self._source.offsets(self._partition, start, following.offset))
        else:
            end = self._cut.source if after is None else after.source
            index = len(there) - len(self._source.offsets(self._partition, following.offset, end))
        if 0 <= index < len(there):
            target = int(there[index])
            found = self._target.first(self._partition, target, self._cut.target)
            if found is not None and found.digest == following.digest:
                return Place(target, How.EXACT)
        for row in self._target.rows(self._partition, low, high):
            if row.digest == following.digest:
                return Place(row.offset, How.EXACT)
        return Place(low, How.EARLIER)


def inverted(runs: Sequence[Run]) -> list[Run]:
    """Return the runs from the copy to the original; records keep their order, so the runs do, too."""
    return [Run(each.target, each.source, each.count) for each in runs]

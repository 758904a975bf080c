"""Holds the segments of one log as an immutable value, so that a reader never sees half a change."""

from bisect import bisect_right
from collections.abc import Iterator
from operator import lt

from kalda.storage.log_segment import LogSegment


class LogSegments:
    """At least one segment, ascending by base offset. The last one is the active segment."""

    __slots__ = ("_base_offsets", "active", "items")

    def __init__(self, items: tuple[LogSegment, ...]) -> None:
        assert items, "a log has at least one segment"
        self.items = items
        self.active = items[-1]
        offsets = self._base_offsets = tuple(segment.base_offset for segment in items)
        assert all(map(lt, offsets, offsets[1:])), f"segments do not ascend: {offsets}"

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[LogSegment]:
        return iter(self.items)

    @property
    def size(self) -> int:
        """Bytes of records in all segments."""
        return sum(segment.records.size for segment in self.items)

    def floor_index(self, offset: int) -> int:
        """Return the index of the segment for `offset`, or -1; with base offsets 0 and 30, 29 is in 0."""
        return bisect_right(self._base_offsets, offset) - 1

    def following(self, offset: int) -> tuple[LogSegment, ...]:
        """Return the segment for `offset` and all after it."""
        return self.items[max(0, self.floor_index(offset)) :]

    def with_added(self, segment: LogSegment) -> "LogSegments":
        """Return the segments with one added at the end."""
        return LogSegments((*self.items, segment))

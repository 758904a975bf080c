"""Appends to, reads, rolls and truncates the segments of one partition, by offset.

High watermark, producers, leader epochs and validation belong to `unified_log`. Methods take offsets and
return positions in files.
"""

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Final

from kalda.common.types import TopicPartition
from kalda.records.batch import BatchHeader
from kalda.runtime.filesystem import Buffer
from kalda.storage.file_records import EMPTY_SLICE, FileSlice
from kalda.storage.log_config import LogConfig
from kalda.storage.log_resources import LogResources
from kalda.storage.log_segment import LogSegment
from kalda.storage.log_segments import LogSegments
from kalda.storage.transaction_index import AbortedTransaction

# Batches at the tail whose positions are kept: reads by a consumer without lag need neither index nor scan.
# 64 batches are some milliseconds of a busy partition and 8 KiB of memory.
TAIL_POSITIONS_MAX: Final = 64


class LocalLog:
    """Segments, the log end offset and the recovery point of one directory."""

    __slots__ = (
        "_bound",
        "_resources",
        "_tail",
        "_unchecked",
        "config",
        "directory",
        "is_renamed",
        "log_end_offset",
        "recovery_point",
        "segments",
        "topic_partition",
    )

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        resources: LogResources,
        segments: LogSegments,
        log_end_offset: int,
        recovery_point: int,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.config = config
        self._resources = resources
        self.segments = segments
        self.log_end_offset = log_end_offset
        # Everything below is on the device.
        self.recovery_point = recovery_point
        # Whether the directory was renamed, so that its name may not be on the device.
        self.is_renamed = False
        # Base offset -> position of the last batches, all in the active segment.
        self._tail: dict[int, int] = {}
        # Checks of invariants since the last one of all segments.
        self._unchecked = 0
        # The last read bound that was searched for: offset, segment, position.
        self._bound: tuple[int, LogSegment | None, int] = (-1, None, 0)

    def append(
        self,
        data: Buffer,
        size: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        timestamp_offset: int,
        batches: Sequence[tuple[int, BatchHeader]] = (),
    ) -> int:
        """Append to the active segment and move the log end offset; returns the position.

        The arguments are those of `LogSegment.append`.

        Raises:
            OSError: nothing was appended.
        """
        position = self.segments.active.append(data, size, last_offset, timestamp, timestamp_offset, batches)
        tail = self._tail
        tail[first_offset] = position
        if len(tail) > TAIL_POSITIONS_MAX:
            del tail[next(iter(tail))]
        self.log_end_offset = last_offset + 1
        return position

    def read(
        self, offset: int, max_bytes: int, bound_offset: int, min_one_batch: bool, want_upper: bool
    ) -> tuple[FileSlice, int]:
        """Return records from `offset` on, and an upper bound of their offsets, tight if `want_upper`.

        The slice begins with the batch that contains `offset`, ends before the batch that contains
        `bound_offset`, and stays inside one segment. It has at most `max_bytes`, or one batch if
        `min_one_batch`; it may end inside a batch, but not inside the first.
        """
        position = self._tail.get(offset)
        if position is not None:
            segment = self.segments.active
            end = (
                segment.records.size
                if bound_offset >= self.log_end_offset
                else self._position(segment, bound_offset)
            )
            upper = bound_offset
            batch_size = 0
        else:
            found = self._find(offset, bound_offset)
            if found is None:
                return EMPTY_SLICE, bound_offset
            segment, position, batch_size, end, upper = found
        size = end - position
        if size <= 0:
            return EMPTY_SLICE, upper
        if size > max_bytes:
            first = batch_size or segment.records.batch_size_at(position)
            if first <= max_bytes:
                size = max_bytes
            elif min_one_batch:
                size = min(first, size)
            else:
                return EMPTY_SLICE, upper
            if want_upper:
                entry = segment.offset_index.first_at_position(position + size)
                if entry is not None:
                    upper = min(upper, entry.offset + 1)
        return segment.records.slice(position, size), upper

    def collect_aborted(self, fetch_offset: int, upper_bound_offset: int) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap [fetch_offset, upper_bound_offset)."""
        found: list[AbortedTransaction] = []
        for segment in self.segments.following(fetch_offset):
            if segment.transaction_index.collect(fetch_offset, upper_bound_offset, found):
                break
        return found

    def roll(self, base_offset: int) -> LogSegment:
        """Begin a new active segment at `base_offset`, unless an empty one begins there already.

        Raises:
            OSError: the old segment is still the active one.
        """
        active = self.segments.active
        if active.base_offset == base_offset and not active.records.size:
            return active
        assert base_offset >= self.log_end_offset, f"roll to {base_offset} below end {self.log_end_offset}"
        active.finish_indexes()
        active.modified_ms = self._resources.clock.time_ms()
        if self.config.preallocate:
            active.records.trim_to_size()
        segment = self._create(base_offset)
        self.segments = self.segments.with_added(segment)
        self.log_end_offset = base_offset
        self._forget_positions()
        return segment

    def truncate_to(self, offset: int) -> list[LogSegment]:
        """Truncate the log to end at `offset`; return the removed segments.

        Segments [10,30)[30,50): `truncate_to(40)` keeps [10,30)[30,40), `truncate_to(30)` keeps [10,30) and
        an empty one at 30, `truncate_to(20)` keeps [10,20).

        Raises:
            OSError: the log may be truncated in part; calling again completes it.
        """
        assert self.segments.items[0].base_offset <= offset, f"{offset} lies before {self.segments.items[0]}"
        gone = [segment for segment in self.segments if segment.base_offset > offset]
        if gone:
            self.segments = LogSegments(self.segments.items[: -len(gone)])
            self._mark_deleted(gone)
        self._forget_positions()
        self.segments.active.truncate_to(offset)
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        return gone

    def truncate_fully_and_start_at(self, offset: int) -> list[LogSegment]:
        """Remove all segments and begin an empty one at `offset`; return the removed ones."""
        gone = list(self.segments)
        self._mark_deleted(gone)
        self.segments = LogSegments((self._create(offset),))
        self._forget_positions()
        self.log_end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        return gone

    def drop_first(self, count: int) -> list[LogSegment]:
        """Remove the oldest segments, but not the active one; return them."""
        assert 0 < count < len(self.segments), f"cannot drop {count} of {len(self.segments)} segments"
        gone = list(self.segments.items[:count])
        self.segments = LogSegments(self.segments.items[count:])
        self._bound = (-1, None, 0)
        self._mark_deleted(gone)
        return gone

    def replace_segments(self, segment: LogSegment, base_offsets: Collection[int]) -> list[LogSegment]:
        """Replace the segments that begin at `base_offsets` with `segment`; return them, with their files.

        Segments [0,10)[10,20)[20,30): replacing 0 and 10 gives [0,20)[20,30). The active segment stays.
        """
        gone = list(self.segments.following(segment.base_offset)[: len(base_offsets)])
        assert [each.base_offset for each in gone] == sorted(base_offsets), f"{gone} are not {base_offsets}"
        assert gone[0].base_offset == segment.base_offset, f"{segment} does not begin where {gone[0]} does"
        assert self.segments.active not in gone, f"{segment} replaces the active segment"
        kept = [each for each in self.segments if each.base_offset not in base_offsets]
        self.segments = LogSegments(tuple(sorted((*kept, segment), key=_base_offset)))
        self._bound = (-1, None, 0)
        return gone

    def insert(self, segment: LogSegment, end_offset: int) -> None:
        """Insert `segment`, with missing records up to `end_offset`, before the active segment.

        Segments [0,10)[30,40): inserting [10,30) gives [0,10)[10,30)[30,40). Empty segments that it covers
        are replaced; the caller removes their files.
        """
        assert segment.base_offset < self.segments.active.base_offset, f"{segment} is behind {self.segments}"
        kept = [each for each in self.segments if not segment.base_offset <= each.base_offset < end_offset]
        self.segments = LogSegments(tuple(sorted((*kept, segment), key=_base_offset)))
        self._bound = (-1, None, 0)

    def configure(self, config: LogConfig) -> None:
        """Apply new settings to later appends."""
        self.config = config
        for segment in self.segments:
            segment.configure(config, self._resources.random_fraction())

    def relocate(self, directory: str, resources: LogResources) -> None:
        """Note that the directory was renamed; from now on the log uses `resources`."""
        self.directory = directory
        self.is_renamed = True
        self._resources = resources
        for segment in self.segments:
            segment.relocate(directory)

    def close(self) -> None:
        """Complete the indexes on disk and close all files; raises `OSError`."""
        if self.config.preallocate:
            self.segments.active.records.trim_to_size()
        for segment in self.segments:
            if segment is self.segments.active:
                segment.close()
            else:
                segment.forget()

    def forget(self) -> None:
        """Close all files without writing."""
        for segment in self.segments:
            segment.forget()

    def check_invariants(self) -> None:
        """Assert that segments and offsets agree, without reading files; many segments now and then only."""
        segments, end = self.segments.items, self.log_end_offset
        active = segments[-1]
        assert active.base_offset <= end, f"{active} begins above the log end offset {end}"
        assert 0 <= self.recovery_point <= end, f"recovery point {self.recovery_point}, log end offset {end}"
        self._unchecked += 1
        if self._unchecked >= len(segments):
            self._unchecked = 0
            for segment, following in pairwise(segments):
                segment.check_invariants(following.base_offset)
        active.check_invariants(end)
        if tail := self._tail:
            first, last, position = min(tail), max(tail), max(tail.values())
            assert active.base_offset <= first, f"tail offset {first} is below {active}"
            assert last < end, f"tail offset {last} is not below the log end offset {end}"
            assert position < active.size, f"tail position {position} is behind {active}"

    def _find(self, offset: int, bound_offset: int) -> tuple[LogSegment, int, int, int, int] | None:
        """Return segment, position, size of the batch there, end position and an upper bound offset."""
        segments = self.segments
        index = max(0, segments.floor_index(offset))
        while index < len(segments.items):
            segment = segments.items[index]
            found = segment.find_batch(offset)
            index += 1
            if found is None:
                continue
            if found.base_offset >= bound_offset:
                return None
            is_last = index == len(segments.items)
            limit = self.log_end_offset if is_last else segments.items[index].base_offset
            if bound_offset >= limit:
                return segment, found.position, found.size, segment.records.size, limit
            return segment, found.position, found.size, self._position(segment, bound_offset), bound_offset
        return None

    def _position(self, segment: LogSegment, offset: int) -> int:
        """Return the position of the batch that contains `offset`, or the segment's end."""
        if segment is self.segments.active:
            position = self._tail.get(offset)
            if position is not None:
                return position
        bound = self._bound
        if bound[0] == offset and bound[1] is segment:
            return bound[2]
        found = segment.find_batch(offset)
        position = segment.records.size if found is None else found.position
        if found is not None:
            self._bound = (offset, segment, position)
        return position

    def _create(self, base_offset: int) -> LogSegment:
        return LogSegment.create(self.directory, base_offset, self.config, self._resources)

    def _mark_deleted(self, segments: list[LogSegment]) -> None:
        for segment in segments:
            for path in segment.mark_deleted():
                self._resources.delete_later(path, self.config.file_delete_delay_ms)

    def _forget_positions(self) -> None:
        self._tail = {}
        self._bound = (-1, None, 0)


def _base_offset(segment: LogSegment) -> int:
    return segment.base_offset

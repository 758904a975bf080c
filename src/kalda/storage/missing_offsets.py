"""Keeps the offset ranges whose records recovery cut off because they were damaged on disk.

A log with missing offsets keeps the records that follow them. Readers skip the ranges, as they skip what
compaction removed, unless the ranges are withheld: while another replica may still return the records, reads
there are refused, since a consumer that has skipped them never comes back.

The ranges are stored in the file ``missing-offsets`` of the partition's directory, which exists only where
offsets are missing. Kafka's loader ignores a file of that name.
"""

import os
from collections.abc import Iterable
from typing import NamedTuple

from kalda.runtime.filesystem import FileSystem
from kalda.storage.checkpoints import format_leader_epochs, parse_leader_epochs
from kalda.storage.errors import CorruptCheckpointError, NewerFormatError
from kalda.storage.file_names import MISSING_OFFSETS_FILE


class OffsetRange(NamedTuple):
    """The offsets [first, end)."""

    first: int
    end: int

    def __str__(self) -> str:
        return f"{self.first} to {self.end - 1}"


class MissingOffsets:
    """The ranges of one log, ascending and not adjacent, in memory and on disk."""

    __slots__ = ("_file_system", "is_given_up", "is_withheld", "path", "ranges")

    def __init__(self, file_system: FileSystem, directory: str) -> None:
        self._file_system = file_system
        self.path = os.path.join(directory, MISSING_OFFSETS_FILE)
        self.ranges: tuple[OffsetRange, ...] = ()
        # Whether reads in a range are refused; set while the records are fetched from other replicas.
        self.is_withheld = False
        # Whether the search at other replicas was given up.
        self.is_given_up = False

    @property
    def count(self) -> int:
        """The number of missing offsets."""
        return sum(each.end - each.first for each in self.ranges)

    def holds(self, offset: int) -> bool:
        """Return whether `offset` is missing."""
        return any(first <= offset < end for first, end in self.ranges)

    def overlaps(self, first: int, end: int) -> bool:
        """Return whether an offset of [first, end) is missing."""
        return any(each.first < end and first < each.end for each in self.ranges)

    def covers(self, first: int, end: int) -> bool:
        """Return whether everything in [first, end) is missing."""
        return any(each.first <= first and end <= each.end for each in self.ranges)

    def load(self) -> None:
        """Read the file; raises `CorruptCheckpointError`, `NewerFormatError`."""
        data = self._file_system.read(self.path)
        if not data:
            raise CorruptCheckpointError(f"{self.path} is empty")
        try:
            self.ranges = _merged(parse_leader_epochs(data))
        except NewerFormatError as error:
            raise error.at(self.path) from None

    def add(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Add missing offsets. Raises `OSError`, and then changes nothing."""
        self._set(_merged((*self.ranges, *ranges)))

    def remove(self, first: int, end: int) -> None:
        """Remove [first, end) from the missing offsets. Raises `OSError`, and then changes nothing.

        Ranges [10,20)[30,40): `remove(15, 35)` leaves [10,15)[35,40).
        """
        parts = [
            part
            for each in self.ranges
            for part in ((each.first, min(each.end, first)), (max(each.first, end), each.end))
        ]
        self._set(_merged(parts))

    def keep_between(self, start_offset: int, end_offset: int) -> None:
        """Drop offsets outside [start_offset, end_offset). Raises `OSError`, and then changes nothing."""
        if self.ranges and (self.ranges[0].first < start_offset or self.ranges[-1].end > end_offset):
            clipped = [(max(first, start_offset), min(end, end_offset)) for first, end in self.ranges]
            self._set(_merged(clipped))

    def relocate(self, directory: str) -> None:
        """Note that the log's directory was renamed."""
        self.path = os.path.join(directory, MISSING_OFFSETS_FILE)

    def check_invariants(self, log_end_offset: int) -> None:
        """Assert that the ranges ascend, do not touch, and lie within the log."""
        if not self.ranges:
            return
        assert self.ranges == _merged(self.ranges), f"missing ranges are not in order: {self.ranges}"
        for last in self.ranges[-1:]:
            assert last.end <= log_end_offset, f"{last} missing above the log end offset {log_end_offset}"

    def _set(self, ranges: tuple[OffsetRange, ...]) -> None:
        if ranges == self.ranges:
            return
        if ranges:
            # Two numbers per line, as for leader epochs.
            self._file_system.replace(self.path, format_leader_epochs(ranges), sync=True)
        else:
            self._file_system.remove(self.path)
            self.is_withheld = False
        self.ranges = ranges


def _merged(ranges: Iterable[tuple[int, int]]) -> tuple[OffsetRange, ...]:
    """Return the same offsets as ranges that ascend and do not touch; empty ones are left out."""
    merged: list[OffsetRange] = []
    for first, end in sorted(each for each in ranges if each[0] < each[1]):
        if merged and first <= merged[-1].end:
            merged[-1] = OffsetRange(merged[-1].first, max(end, merged[-1].end))
        else:
            merged.append(OffsetRange(first, end))
    return tuple(merged)

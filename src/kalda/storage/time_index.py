"""Maps a timestamp to an offset below which all records are older, in the sparse ``.timeindex`` file.

Entries are 12 bytes, big-endian: a timestamp (int64) and a relative offset (int32). An entry (t, o) means
that t is the largest timestamp of the segment up to the batch that ends with o, so both numbers ascend.
"""

import struct
from typing import Final, NamedTuple

from kalda.common.overriding import override
from kalda.runtime.filesystem import FileSystem
from kalda.storage.errors import CorruptIndexError
from kalda.storage.log_caches import FifoCache
from kalda.storage.offset_index import SparseIndex

NO_TIMESTAMP: Final = -1
ENTRY: Final = struct.Struct(">qi")


class TimestampOffset(NamedTuple):
    """The largest timestamp so far and the last offset of its batch."""

    timestamp: int
    offset: int


class TimeIndex(SparseIndex):
    """The ``.timeindex`` file of a segment: timestamps to offsets."""

    __slots__ = ("_last_timestamp",)

    def __init__(
        self, file_system: FileSystem, path: str, base_offset: int, file_size: int, indexes: FifoCache
    ) -> None:
        super().__init__(file_system, path, base_offset, file_size, ENTRY, indexes)
        self._last_timestamp: int | None = None

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if `timestamp` is above the last one's; `offset` is never below the last one's."""
        last = self._last_timestamp
        if last is None:
            last = self.last().timestamp
        if timestamp > last:
            self._append(timestamp, offset - self.base_offset)
            self._last_timestamp = timestamp
        else:
            self._last_timestamp = last

    def last(self) -> TimestampOffset:
        """Return the last entry, or no timestamp at the segment's start."""
        fields = self.last_fields()
        if fields is None:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampOffset(fields[0], self.base_offset + fields[1])

    def lookup(self, timestamp: int) -> TimestampOffset:
        """Return the last entry whose timestamp is at most `timestamp`, or the segment's start."""
        slot = self.slot_at_or_below(timestamp, 0)
        if slot < 0:
            return TimestampOffset(NO_TIMESTAMP, self.base_offset)
        found, relative = self.fields(slot)
        return TimestampOffset(found, self.base_offset + relative)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at `offset` and above."""
        self.keep_entries(self.slot_at_or_below(offset - self.base_offset - 1, 1) + 1)

    @override
    def keep_entries(self, count: int) -> None:
        super().keep_entries(count)
        self._last_timestamp = None

    def check_invariants(self, end_offset: int) -> None:
        """Assert that pending entries point into a log that ends at `end_offset`."""
        for _, relative in self.pending_fields()[-1:]:
            offset = self.base_offset + relative
            assert offset < end_offset, f"{self.path}: entry for offset {offset}, log end offset {end_offset}"

    def check(self, log_size: int) -> None:
        """Check the last entry; raises `CorruptIndexError` if it cannot belong to the log."""
        fields = self.last_fields()
        if fields is not None and (fields[1] < 0 or fields[0] < 0 or log_size == 0):
            raise CorruptIndexError(
                f"{self.path}: last entry is time {fields[0]} at offset +{fields[1]}, "
                f"the log has {log_size} bytes"
            )

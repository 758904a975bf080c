"""Maps an offset to the position of a batch at or before it, in the sparse ``.index`` file.

Entries are 8 bytes, big-endian: the offset relative to the segment's base (int32) and the position in the
``.log`` file (int32), both ascending. An entry names the *last* offset of the batch at its position.

An index is a hint. It lags the log by design (entries are collected in memory and written in groups), it is
rebuilt after a crash for every segment that was not flushed, and it never decides what is in the log.
"""

import struct
from itertools import pairwise
from typing import Final, NamedTuple

from kalda.runtime.filesystem import FileSystem
from kalda.storage.errors import CorruptIndexError
from kalda.storage.log_caches import FifoCache

_INT32_MAX: Final = 2**31 - 1
# Entries collected in memory before a write; at the usual 4 KiB between entries, one write per 256 KiB.
PENDING_ENTRIES_MAX: Final = 64
# A search reads single entries until this many bytes remain, and keeps these bytes for the next search:
# readers move forward, so the next search usually reads nothing.
WINDOW_BYTES: Final = 4096


class OffsetPosition(NamedTuple):
    """An entry: the batch that ends with `offset` starts at `position`."""

    offset: int
    position: int


class SparseIndex:
    """The base of offset and time index: ascending entries of fixed size, written in groups.

    The file holds the first `written` entries, `_pending` the rest. `_window` is a copy of a part of the
    file, from slot `_window_slot` on, that may be dropped at any time.
    """

    __slots__ = (
        "_file_system",
        "_indexes",
        "_pending",
        "_window",
        "_window_slot",
        "base_offset",
        "entries",
        "entry",
        "path",
        "written",
    )

    def __init__(
        self,
        file_system: FileSystem,
        path: str,
        base_offset: int,
        file_size: int,
        entry: struct.Struct,
        indexes: FifoCache,
    ) -> None:
        self._file_system = file_system
        self._indexes = indexes
        self.path = path
        self.base_offset = base_offset
        self.entry = entry
        # Entries in the file, without a torn entry at the end.
        self.written = file_size // entry.size
        self.entries = self.written
        """All of them: those in the file and the pending ones. Counted, because every append asks for it."""
        self._pending = bytearray()
        self._window = b""
        self._window_slot = 0

    @property
    def has_pending(self) -> bool:
        """Whether entries wait to be written."""
        return bool(self._pending)

    def write_pending(self) -> None:
        """Write the pending entries; raises `OSError` and keeps them if the write fails."""
        pending = self._pending
        if not pending:
            return
        file = self._file_system.open(self.path, create=True)
        position = self.written * self.entry.size
        view = memoryview(pending)
        while view:
            taken = file.write_at(view, position)
            position += taken
            view = view[taken:]
        view.release()
        self.written += len(pending) // self.entry.size
        self._pending = bytearray()

    def trim(self) -> None:
        """Write the pending entries and truncate the file to its entries, for an inactive segment."""
        self.write_pending()
        file = self._file_system.open(self.path, create=True)
        if file.size() != self.written * self.entry.size:
            file.truncate(self.written * self.entry.size)

    def reset(self) -> None:
        """Drop all entries, in the file too."""
        self.keep_entries(0)

    def keep_entries(self, count: int) -> None:
        """Keep the first `count` entries and drop the others."""
        self.entries = min(count, self.entries)
        self._pending = self._pending[: max(0, count - self.written) * self.entry.size]
        if count < self.written or count == 0:
            self.written = min(count, self.written)
            self._file_system.open(self.path, create=True).truncate(self.written * self.entry.size)
            self.forget()

    def release(self) -> None:
        """Drop the cached part of the file."""
        self._window = b""

    def close(self) -> None:
        """Write the pending entries and leave the cache."""
        self.write_pending()
        self.forget()

    def forget(self) -> None:
        """Leave the cache without writing."""
        self._indexes.forget(self)
        self._window = b""

    def sync(self) -> None:
        """Sync the file to the device, without the pending entries."""
        self._file_system.sync_file(self.path)

    def fields(self, slot: int) -> tuple[int, int]:
        """Return the two numbers of an entry."""
        entry = self.entry
        if slot >= self.written:
            first, second = entry.unpack_from(self._pending, (slot - self.written) * entry.size)
            return first, second
        at = (slot - self._window_slot) * entry.size
        if not 0 <= at < len(self._window):
            self._read_window(slot)
            at = (slot - self._window_slot) * entry.size
        first, second = entry.unpack_from(self._window, at)
        return first, second

    def last_fields(self) -> tuple[int, int] | None:
        """Return the last entry's numbers without loading the whole file; ``None`` if there is none."""
        entry = self.entry
        if self._pending:
            first, second = entry.unpack_from(self._pending, len(self._pending) - entry.size)
            return first, second
        if self.written == 0:
            return None
        tail = self._file_system.open(self.path).read_at(entry.size, (self.written - 1) * entry.size)
        if len(tail) < entry.size:
            raise CorruptIndexError(f"{self.path} is shorter than its {self.written} entries")
        first, second = entry.unpack(tail)
        return first, second

    def slot_at_or_below(self, target: int, field: int) -> int:
        """Return the last slot whose `field` is at most `target`, or -1."""
        entry, pending = self.entry, self._pending
        if pending and target >= entry.unpack_from(pending, 0)[field]:
            return self.written + last_at_or_below(pending, entry, target, field)
        if not self.written:
            return -1
        window = self._window
        if window:
            end = self._window_slot + len(window) // entry.size
            if target >= entry.unpack_from(window, 0)[field] and (
                end == self.written or target < entry.unpack_from(window, len(window) - entry.size)[field]
            ):
                return self._window_slot + last_at_or_below(window, entry, target, field)
        slot = self._find_window(target, field)
        if slot < 0:
            return -1
        self._read_window(slot)
        return self._window_slot + last_at_or_below(self._window, entry, target, field)

    def pending_fields(self) -> list[tuple[int, int]]:
        """Return the pending entries, after asserting that they ascend."""
        if not self._pending:
            return []
        found = list(self.entry.iter_unpack(self._pending))
        for before, after in pairwise(found):
            assert before[0] < after[0], f"{self.path}: {after} follows {before}"
            assert before[1] <= after[1], f"{self.path}: {after} follows {before}"
        return found

    def _find_window(self, target: int, field: int) -> int:
        """Return the first slot of the window that holds the answer, or -1 if all entries are above."""
        entry = self.entry
        count = WINDOW_BYTES // entry.size
        if self.written <= count:
            return 0 if target >= self.fields(0)[field] else -1
        file = self._file_system.open(self.path)
        low, high = 0, (self.written + count - 1) // count
        while low < high:
            middle = (low + high) >> 1
            found = file.read_at(entry.size, middle * count * entry.size)
            if len(found) < entry.size:
                raise CorruptIndexError(f"{self.path} is shorter than its {self.written} entries")
            if entry.unpack(found)[field] <= target:
                low = middle + 1
            else:
                high = middle
        return (low - 1) * count

    def _read_window(self, slot: int) -> None:
        entry = self.entry
        count = WINDOW_BYTES // entry.size
        first = slot - slot % count
        size = min(count, self.written - first) * entry.size
        window = self._file_system.open(self.path).read_at(size, first * entry.size)
        if len(window) < size:
            raise CorruptIndexError(f"{self.path} is shorter than its {self.written} entries")
        self._window, self._window_slot = window, first
        self._indexes.hold(self, WINDOW_BYTES)

    def _append(self, first: int, second: int) -> None:
        self._pending += self.entry.pack(first, second)
        self.entries += 1
        if len(self._pending) >= PENDING_ENTRIES_MAX * self.entry.size:
            try:
                self.write_pending()
            except OSError:
                # A full disk fails the append of records, but not of index entries; the next group retries.
                return


def last_at_or_below(entries: bytes | bytearray, entry: struct.Struct, target: int, field: int) -> int:
    """Return the last slot of ascending entries whose `field` is at most `target`, or -1."""
    unpack_from, size = entry.unpack_from, entry.size
    low, high = 0, len(entries) // size
    while low < high:
        middle = (low + high) >> 1
        if unpack_from(entries, middle * size)[field] <= target:
            low = middle + 1
        else:
            high = middle
    return low - 1


ENTRY: Final = struct.Struct(">ii")


class OffsetIndex(SparseIndex):
    """The ``.index`` file of a segment: offsets to positions."""

    __slots__ = ()

    def __init__(
        self, file_system: FileSystem, path: str, base_offset: int, file_size: int, indexes: FifoCache
    ) -> None:
        super().__init__(file_system, path, base_offset, file_size, ENTRY, indexes)

    def append(self, offset: int, position: int) -> None:
        """Add an entry; both numbers must be above the last entry's."""
        relative = offset - self.base_offset
        assert 0 <= relative <= _INT32_MAX, f"offset {offset} does not fit a segment at {self.base_offset}"
        self._append(relative, position)

    def lookup(self, offset: int) -> OffsetPosition:
        """Return the last entry at or below `offset`, or the segment's start."""
        slot = self.slot_at_or_below(offset - self.base_offset, 0)
        if slot < 0:
            return OffsetPosition(self.base_offset, 0)
        relative, position = self.fields(slot)
        return OffsetPosition(self.base_offset + relative, position)

    def last(self) -> OffsetPosition:
        """Return the last entry, or the segment's start."""
        fields = self.last_fields()
        if fields is None:
            return OffsetPosition(self.base_offset, 0)
        return OffsetPosition(self.base_offset + fields[0], fields[1])

    def first_at_position(self, position: int) -> OffsetPosition | None:
        """Return the first entry at or after `position`: an upper bound for a read that ends there."""
        slot = self.slot_at_or_below(position - 1, 1) + 1
        if slot >= self.entries:
            return None
        relative, found = self.fields(slot)
        return OffsetPosition(self.base_offset + relative, found)

    def truncate_to(self, offset: int) -> None:
        """Drop the entries at `offset` and above."""
        self.keep_entries(self.slot_at_or_below(offset - self.base_offset - 1, 0) + 1)

    def check_invariants(self, end_offset: int, log_size: int) -> None:
        """Assert that entries in memory point into a log of `log_size` bytes that ends at `end_offset`."""
        for relative, position in self.pending_fields()[-1:]:
            offset = self.base_offset + relative
            assert offset < end_offset, f"{self.path}: entry for offset {offset}, log end offset {end_offset}"
            assert position < log_size, f"{self.path}: entry at {position}, log has {log_size} bytes"

    def check(self, log_size: int) -> None:
        """Check the last entry; raises `CorruptIndexError` if a log of `log_size` bytes cannot have it."""
        fields = self.last_fields()
        if fields is not None and (fields[0] < 0 or not 0 <= fields[1] < max(log_size, 1)):
            raise CorruptIndexError(
                f"{self.path}: last entry is offset +{fields[0]} at {fields[1]}, log has {log_size} bytes"
            )

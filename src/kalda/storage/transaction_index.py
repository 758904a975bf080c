"""Keeps the aborted transactions whose markers lie in one segment, in its ``.txnindex`` file.

Entries are 34 bytes, big-endian: version (int16, 0), producer id, first offset, last offset (the marker's),
and the last stable offset when the marker was written (int64 each). The file exists only where a transaction
was aborted. A read_committed fetch returns the entries that overlap its range, so that clients skip the
aborted records.
"""

import contextlib
import struct
from typing import Final, NamedTuple

from kalda.runtime.filesystem import FileSystem
from kalda.storage.errors import CorruptIndexError

ENTRY: Final = struct.Struct(">hqqqq")
_VERSION: Final = 0


class AbortedTransaction(NamedTuple):
    """An aborted transaction: readers skip records of `producer_id` in [first_offset, last_offset]."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class TransactionIndex:
    """The entries of one segment, loaded on first use; aborts are rare, so they stay in memory."""

    __slots__ = ("_entries", "_file_system", "path", "size")

    def __init__(self, file_system: FileSystem, path: str, file_size: int) -> None:
        self._file_system = file_system
        self.path = path
        self.size = file_size
        self._entries: list[AbortedTransaction] | None = None if file_size else []

    def append(self, aborted: AbortedTransaction) -> None:
        """Add an entry and write it at once; after a failed write, `write_pending` tries again."""
        entries = self.entries()
        assert not entries or entries[-1].last_offset <= aborted.last_offset, (
            f"aborted transactions ascend: {aborted} after {entries[-1]}"
        )
        entries.append(aborted)
        with contextlib.suppress(OSError):
            self.write_pending()

    def write_pending(self) -> None:
        """Write the entries that the file lacks; raises `OSError` and keeps them if the write fails."""
        if self._entries is None or self.size == len(self._entries) * ENTRY.size:
            return
        pending = self._entries[self.size // ENTRY.size :]
        data = b"".join(ENTRY.pack(_VERSION, *aborted) for aborted in pending)
        written = self._file_system.open(self.path, create=True).write_at(data, self.size)
        self.size += written - written % ENTRY.size
        if written != len(data):
            raise OSError(f"write of {len(data)} bytes to {self.path} stopped after {written}")

    def entries(self) -> list[AbortedTransaction]:
        """Return all entries, ascending by `last_offset`.

        Raises:
            CorruptIndexError: the file has other content than entries of version 0.
        """
        entries = self._entries
        if entries is None:
            data = self._file_system.read(self.path)
            if len(data) % ENTRY.size:
                raise CorruptIndexError(f"{self.path} has {len(data)} bytes, no multiple of {ENTRY.size}")
            entries = []
            for version, *fields in ENTRY.iter_unpack(data):
                if version > _VERSION or version < 0:
                    raise CorruptIndexError(f"{self.path} holds version {version}; expected {_VERSION}")
                entries.append(AbortedTransaction(*fields))
            self._entries = entries
        return entries

    def ends_before(self, offset: int) -> bool:
        """Return whether all markers are below `offset`."""
        entries = self.entries()
        return not entries or entries[-1].last_offset < offset

    def collect(self, fetch_offset: int, upper_bound_offset: int, found: list[AbortedTransaction]) -> bool:
        """Add to `found` the entries that overlap [fetch_offset, upper_bound_offset).

        Returns True if no later segment can have more: a marker here was written when everything below the
        bound was already stable.
        """
        for aborted in self.entries():
            if aborted.last_offset >= fetch_offset and aborted.first_offset < upper_bound_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= upper_bound_offset:
                return True
        return False

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose marker is at `offset` or above."""
        entries = self.entries()
        kept = [entry for entry in entries if entry.last_offset < offset]
        if len(kept) != len(entries):
            self._entries = kept
            if self.size > len(kept) * ENTRY.size:
                self._cut(len(kept) * ENTRY.size)

    def remove_between(self, first: int, end: int) -> None:
        """Drop the entries whose marker is in [first, end). Raises `OSError`."""
        entries = self.entries()
        kept = [entry for entry in entries if not first <= entry.last_offset < end]
        if len(kept) != len(entries):
            self.reset()
            self._entries = kept
            self.write_pending()

    def reset(self) -> None:
        """Drop all entries."""
        if self.size:
            self._cut(0)
        self._entries = []

    def sync(self) -> None:
        """Sync the file, if there is one."""
        if self.size:
            self._file_system.sync_file(self.path)

    def _cut(self, size: int) -> None:
        self._file_system.open(self.path).truncate(size)
        self.size = size

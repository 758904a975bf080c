"""Writes the segment that replaces others, in files that end in ``.cleaned`` until they are synced."""

import os
from typing import Final

from kalda.records.batch import Buffer
from kalda.records.implementation import is_built
from kalda.runtime.filesystem import FileSystem
from kalda.storage.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from kalda.storage.file_records import FileRecords
from kalda.storage.log_caches import LogCaches
from kalda.storage.offset_index import OffsetIndex
from kalda.storage.time_index import NO_TIMESTAMP, TimeIndex
from kalda.storage.transaction_index import AbortedTransaction, TransactionIndex

if is_built:
    from kalda.records import _records

_WRITE_BYTES: Final = 1024 * 1024
"""Bytes collected for one write; larger writes are not faster."""


class CleanedSegment:
    """The files that replace one group of segments, appended to in offset order."""

    def __init__(
        self, file_system: FileSystem, directory: str, base_offset: int, index_interval_bytes: int
    ) -> None:
        """Create the files; files of an earlier attempt are emptied. Raises `OSError`."""

        def path(suffix: str) -> str:
            return os.path.join(directory, offset_file_name(base_offset, suffix + CLEANED_SUFFIX))

        caches = LogCaches()
        self._file_system = file_system
        self.base_offset: Final = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._records = FileRecords(file_system, path(LOG_SUFFIX), 0, caches.files)
        self._offset_index = OffsetIndex(
            file_system, path(OFFSET_INDEX_SUFFIX), base_offset, 0, caches.indexes
        )
        self._time_index = TimeIndex(file_system, path(TIME_INDEX_SUFFIX), base_offset, 0, caches.indexes)
        file_system.remove(path(TRANSACTION_INDEX_SUFFIX))
        self._transaction_index = TransactionIndex(file_system, path(TRANSACTION_INDEX_SUFFIX), 0)
        self._records.create()
        self._offset_index.reset()
        self._time_index.reset()
        self._parts: list[Buffer] = []
        self._parts_size = 0
        self._position = 0
        self._last_entry = 0
        self._largest_timestamp = NO_TIMESTAMP
        self._largest_offset = base_offset

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Bytes of the log and of its offset, time and transaction index, once finished."""
        offsets, times = self._offset_index, self._time_index
        return (
            self._position,
            offsets.entries * offsets.entry.size,
            times.entries * times.entry.size,
            self._transaction_index.size,
        )

    def note(self, last_offset: int, size: int, max_timestamp: int) -> None:
        """Add a batch of `size` bytes to the indexes; `write` gets its bytes later, in the same order."""
        position = self._position
        if max_timestamp > self._largest_timestamp:
            self._largest_timestamp, self._largest_offset = max_timestamp, last_offset
        if position - self._last_entry > self._index_interval_bytes:
            self._offset_index.append(last_offset, position)
            self._time_index.maybe_append(self._largest_timestamp, self._largest_offset)
            self._last_entry = position
        self._position = position + size

    def note_batches(self, chunk: bytes, spans: list[tuple[int, int]]) -> None:
        """Do what `note` does for each of the plain batches in `spans`, in compiled code."""
        self._position, self._last_entry, self._largest_timestamp, self._largest_offset, entries = (
            _records.index_batches(
                chunk,
                spans,
                self._position,
                self._last_entry,
                self._index_interval_bytes,
                self._largest_timestamp,
                self._largest_offset,
            )
        )
        for last_offset, position, timestamp, timestamp_offset in entries:
            self._offset_index.append(last_offset, position)
            self._time_index.maybe_append(timestamp, timestamp_offset)

    def write(self, data: Buffer) -> int:
        """Append whole batches; return the bytes written to the file now. Raises `OSError`."""
        self._parts.append(data)
        self._parts_size += len(data)
        return self._write_parts() if self._parts_size >= _WRITE_BYTES else 0

    def finish(self, aborted: list[AbortedTransaction], modified_ms: int | None) -> int:
        """Complete and sync the files; return the bytes written now.

        The log file gets the modification time of the last file that it replaces, which retention and old
        clients use. Raises `OSError`.
        """
        written = self._write_parts()
        assert self._records.size == self._position, f"{self._records.size} bytes written of {self._position}"
        for entry in aborted:
            self._transaction_index.append(entry)
        self._time_index.maybe_append(self._largest_timestamp, self._largest_offset)
        self._offset_index.trim()
        self._time_index.trim()
        self._transaction_index.write_pending()
        if modified_ms is not None:
            self._file_system.set_modified(self._records.path, modified_ms)
        self._records.sync()
        for index in (self._offset_index, self._time_index, self._transaction_index):
            index.sync()
        self._records.close()
        return written

    def _write_parts(self) -> int:
        size = self._parts_size
        if size:
            self._records.append(b"".join(self._parts), size)
            self._parts = []
            self._parts_size = 0
        return size

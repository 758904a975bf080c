"""Appends to and reads one segment's ``.log`` file, and searches it by walking batch headers.

Indexes and rolling are the work of `log_segment`.

Invariant: `size` is where the valid bytes end. It moves only after a whole append was written, readers never
look past it, and bytes behind it in the file are overwritten by the next append or removed by recovery.
"""

import errno
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from kalda.records.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, read_header
from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.runtime.filesystem import Buffer, File, FileSystem
from kalda.storage.log_caches import FifoCache

# Base offset, batch length, magic, last offset delta: enough to find the next.
_HOP: Final = struct.Struct(">qi4xb6xi")
_HOP_SIZE: Final = 27
_LENGTH: Final = struct.Struct(">qi")
# A message of format 0 without key and value, the smallest entry of a log.
_ENTRY_SIZE_MIN: Final = 26
# Headers are read in chunks of this size; one covers the usual distance between two index entries.
_SCAN_CHUNK: Final = 4096
# Recovery reads the whole file, so it reads larger chunks.
_RECOVERY_CHUNK: Final = 1024 * 1024


class BatchPosition(NamedTuple):
    """The place of a batch: `position` and `size` in bytes, `base_offset` and `last_offset` logical.

    Of a message that wraps others (formats 0 and 1), both are the offset of the last one.
    """

    base_offset: int
    last_offset: int
    position: int
    size: int


class FileSlice:
    """A range of a file for `os.sendfile`; stays readable after a roll, truncation or deletion."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File | None, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def fileno(self) -> int:
        """Return the descriptor; must not be called on an empty slice, which has none."""
        assert self.file is not None, "an empty slice has no file"
        return self.file.fileno()

    def read(self) -> bytes:
        """Return the bytes; fewer than `size` if the file was truncated meanwhile."""
        return self.read_part(0, self.size)

    def read_part(self, start: int, size: int) -> bytes:
        """Return up to `size` bytes from `start`, counted from the front of the slice."""
        size = min(size, self.size - start)
        if self.file is None or size <= 0:
            return b""
        return self.file.read_at(size, self.position + start)

    def __repr__(self) -> str:
        return f"FileSlice(position={self.position}, size={self.size})"


EMPTY_SLICE: Final = FileSlice(None, 0, 0)


class FileRecords:
    """The batches of one file, which is opened on first use and may be closed while idle."""

    __slots__ = ("_file", "_file_system", "_files", "path", "size")

    def __init__(self, file_system: FileSystem, path: str, size: int, files: FifoCache) -> None:
        self._file_system = file_system
        self._files = files
        self._file: File | None = None
        self.path = path
        # Bytes of whole batches; never counts a torn write.
        self.size = size

    def create(self, preallocate_bytes: int = 0) -> None:
        """Create the file, empty or with `preallocate_bytes` zeros (setting ``preallocate``)."""
        file = self._open(create=True)
        file.truncate(0)
        if preallocate_bytes:
            file.truncate(preallocate_bytes)
        self._file = file
        self._files.hold(self)

    def file(self) -> File:
        """Return the open file."""
        file = self._file
        if file is None:
            file = self._file = self._open()
            self._files.hold(self)
        return file

    def _open(self, *, create: bool = False) -> File:
        try:
            return self._file_system.open(self.path, create=create)
        except OSError as error:
            # Connections may use every other descriptor, so one of the logs' own is released.
            if error.errno not in (errno.EMFILE, errno.ENFILE) or not self._files.release_oldest():
                raise
        return self._file_system.open(self.path, create=create)

    def release(self) -> None:
        """Close the file unless a slice in flight still needs it."""
        self._file = None

    def close(self) -> None:
        """Close the file and leave the cache."""
        self._files.forget(self)
        self._file = None

    def append(self, data: Buffer, size: int) -> int:
        """Write `data` (of `size` bytes) at the end in one call; return the position it got.

        Raises:
            OSError: nothing was appended. Bytes of a torn write are removed. If that fails too, they stay
                behind `size`, where no reader looks and the next append overwrites them.
        """
        file = self._file
        if file is None:
            file = self.file()
        position = self.size
        try:
            written = file.write_at(data, position)
            if written != size:
                self._write_rest(file, data, position, written, size)
        except OSError:
            self._cut_torn_write(file, position)
            raise
        self.size = position + size
        return position

    def slice(self, position: int, size: int) -> FileSlice:
        """Return a part of the file without reading it."""
        return FileSlice(self._file or self.file(), position, size)

    def truncate_to(self, size: int) -> int:
        """Truncate the file to `size` bytes, if it is longer; return the removed bytes."""
        removed = self.size - size
        if removed <= 0:
            return 0
        self.file().truncate(size)
        self.size = size
        return removed

    def trim_to_size(self) -> None:
        """Remove the bytes behind `size`: preallocated space, or the rest of a torn write."""
        file = self.file()
        if file.size() > self.size:
            file.truncate(self.size)

    def sync(self) -> None:
        """Sync the file to the device."""
        self.file().sync()

    def search_offset(self, offset: int, start_position: int) -> BatchPosition | None:
        """Find the first batch that ends at or after `offset`, walking headers from `start_position`.

        Raises:
            CorruptRecordError: the headers do not reach the end of the file: one of them is damaged, or
                no batch starts at `start_position`.
        """
        end = start_position
        for found in self.iter_positions(start_position):
            if found.last_offset >= offset:
                return found
            end = found.position + found.size
        if end != self.size:
            # Readers would take this for the end of the segment, and skip the records behind.
            raise CorruptRecordError(f"{self.path}: no batch starts at byte {end}")
        return None

    def batch_size_at(self, position: int) -> int:
        """Return the size of the batch at `position`, or 0 at the end of the file."""
        if position + _ENTRY_SIZE_MIN > self.size:
            return 0
        _, batch_length = _LENGTH.unpack(self.file().read_at(LOG_OVERHEAD, position))
        return int(batch_length) + LOG_OVERHEAD

    def iter_positions(self, position: int) -> Iterator[BatchPosition]:
        """Yield the place of each batch from `position` on, reading only headers; stops at an invalid one."""
        file, end = self.file(), self.size
        chunk, chunk_position = b"", position
        while position + _ENTRY_SIZE_MIN <= end:
            at = position - chunk_position
            if at + _HOP_SIZE > len(chunk):
                chunk = file.read_at(min(_SCAN_CHUNK, end - position), position)
                chunk_position, at = position, 0
                if len(chunk) < _ENTRY_SIZE_MIN:
                    return
                chunk = chunk.ljust(_HOP_SIZE, b"\0")
            base_offset, batch_length, magic, last_offset_delta = _HOP.unpack_from(chunk, at)
            size = batch_length + LOG_OVERHEAD
            if magic != MAGIC:
                # A message, or a wrapper, whose offset is its last.
                last_offset_delta, size_min = 0, _ENTRY_SIZE_MIN
            else:
                size_min = HEADER_SIZE
            if size < size_min or position + size > end:
                return
            yield BatchPosition(base_offset, base_offset + last_offset_delta, position, size)
            position += size

    def iter_headers(self, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
        """Yield position and header of each batch from `position` on.

        The CRC is not checked. A partial batch at the end is left out.

        Raises:
            CorruptRecordError: a header is invalid.
        """
        file, end = self.file(), self.size
        chunk, chunk_position = b"", position
        while position + _ENTRY_SIZE_MIN <= end:
            at = position - chunk_position
            if at + HEADER_SIZE > len(chunk):
                chunk = file.read_at(min(_SCAN_CHUNK, end - position), position)
                chunk_position, at = position, 0
            try:
                header = read_header(chunk, at)
            except NeedMoreBytes:
                return
            if position + header.size > end:
                return
            yield position, header
            position += header.size

    def iter_batches(self) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield position, header and bytes of every batch, for recovery.

        A partial batch at the end is left out. The bytes are valid until the next step. Raises as
        `iter_headers` does.
        """
        file, end = self.file(), self.size
        position = chunk_position = 0
        chunk = memoryview(b"")
        while position + _ENTRY_SIZE_MIN <= end:
            at = position - chunk_position
            if at + HEADER_SIZE > len(chunk):
                chunk = memoryview(file.read_at(min(_RECOVERY_CHUNK, end - position), position))
                chunk_position, at = position, 0
            try:
                header = read_header(chunk, at)
            except NeedMoreBytes:
                return
            size = header.size
            if position + size > end:
                return
            if at + size > len(chunk):
                chunk = memoryview(file.read_at(max(size, min(_RECOVERY_CHUNK, end - position)), position))
                chunk_position, at = position, 0
                if len(chunk) < size:
                    return
            yield position, header, chunk[at : at + size]
            position += size

    def read_batch(self, position: int, size: int) -> bytes:
        """Return the bytes of one batch."""
        return self.file().read_at(size, position)

    @staticmethod
    def _write_rest(file: File, data: Buffer, position: int, written: int, size: int) -> None:
        view = memoryview(data)
        while written < size:
            taken = file.write_at(view[written:], position + written)
            if taken <= 0:
                raise OSError(f"write of {size} bytes stopped after {written}")
            written += taken

    @staticmethod
    def _cut_torn_write(file: File, position: int) -> None:
        try:
            if file.size() > position:
                file.truncate(position)
        except OSError:
            # The caller raises the first error; see `append` for why the remaining bytes are harmless.
            return

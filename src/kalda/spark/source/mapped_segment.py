"""Maps the leased part of a segment file and hands out windows of whole, checked batches.

A mapped page behind the end of a file kills the process (SIGBUS). The file is checked before each window, and
the window's pages are brought in by one system call that returns an error instead (MADV_POPULATE_READ); what
is read afterwards is in memory.

Pages behind the reader are given back after each window, so that memory does not grow with the file. The
page cache keeps them for other readers.
"""

import errno
import mmap
import os
from dataclasses import dataclass
from typing import Final

from kalda.clients.range_reader.read_lease import LeasedFile
from kalda.records.batch import HEADER_SIZE, LOG_OVERHEAD, iter_headers, read_header, validate
from kalda.records.errors import RecordsError
from kalda.runtime.system.regular_file import open_regular

WINDOW_BYTES: Final = 2 * 1024 * 1024
"""Bytes of one window: some 20,000 records of 100 B, which is more than an Arrow batch of Spark has, and
little enough to stay in a processor's cache between the check and the decoder."""
READ_AHEAD_BYTES: Final = 8 * 1024 * 1024
"""What the kernel reads from a cold disk while a window is decoded."""

_POPULATE_READ: Final = 22
"""MADV_POPULATE_READ of Linux 5.14 and later; Python's `mmap` has no name for it."""
_INT64_MASK: Final = 2**63 - 1


class InPlaceError(Exception):
    """A range cannot be read in place from here on; `reason` is that of the metric."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason: Final = reason


@dataclass(frozen=True, slots=True)
class Window:
    """Whole batches of a segment file, in the order of their offsets."""

    records: memoryview
    next_offset: int
    """The offset behind the last of them."""


class MappedSegment:
    """One file under a lease; `close` unmaps it."""

    def __init__(self, leased: LeasedFile, *, is_same_host: bool) -> None:
        """Open and map the file.

        `is_same_host` is whether the broker runs on this kernel: the device is compared then, and what is not
        synced can be read.

        Raises:
            InPlaceError: the file is not there, may not be read, is another one or too short.
        """
        self.path: Final = leased.path
        self._end: Final = leased.end_position if is_same_host else leased.flushed_position
        if self._end <= leased.start_position:
            raise InPlaceError("unflushed", f"{self.path} is not synced at byte {leased.start_position}")
        self._is_partial: Final = self._end < leased.end_position
        self._descriptor = open_leased(leased.path)
        try:
            self._check_identity(leased, is_same_host)
            # A mapping begins at a page.
            self._map_start: Final = (
                leased.start_position - leased.start_position % mmap.ALLOCATIONGRANULARITY
            )
            self._map = mmap.mmap(
                self._descriptor,
                self._end - self._map_start,
                flags=mmap.MAP_SHARED,
                prot=mmap.PROT_READ,
                offset=self._map_start,
            )
        except InPlaceError:
            os.close(self._descriptor)
            raise
        except (OSError, ValueError) as error:
            os.close(self._descriptor)
            raise InPlaceError("truncated", f"{self.path} cannot be mapped: {error}") from error
        self._view: Final = memoryview(self._map)
        self._position = leased.start_position
        self._released = 0
        self._can_populate = True

    def next_window(self, offset: int, end_offset: int, *, check_crc: bool) -> Window | None:
        """Return the batches from `offset` up to `end_offset` that fit a window; None at the end.

        The good batches before a bad one are a window; the next call then raises.

        Raises:
            InPlaceError: the file was truncated, or the next batch is corrupt; or the rest is not synced yet.
        """
        self._release_before(self._position)
        if self._position >= self._end:
            if self._is_partial:
                raise InPlaceError("unflushed", f"{self.path} is not synced from byte {self._end} on")
            return None
        size = min(WINDOW_BYTES, self._end - self._position)
        self._bring_in(size)
        window = self._batches(size, offset, end_offset, check_crc=check_crc)
        if window is None:
            # The first batch is larger than a window.
            size = self._first_batch_size(size)
            self._bring_in(size)
            window = self._batches(size, offset, end_offset, check_crc=check_crc)
        if window is None:
            raise InPlaceError("corrupt", f"{self.path} ends inside a batch, at byte {self._end}")
        self._position += len(window.records)
        assert self._position <= self._end, f"byte {self._position} of {self._end} was read"
        assert window.next_offset > offset, f"a window goes back from {offset} to {window.next_offset}"
        return window

    def close(self) -> None:
        """Unmap the file, as soon as no caller holds a part of it, and close it."""
        assert self._descriptor >= 0, "closing twice would close another file"
        os.close(self._descriptor)
        self._descriptor = -1
        self._view.release()
        try:
            self._map.close()
        except BufferError:
            # Arrays point into it; it is unmapped with the last of them.
            return

    def _batches(self, size: int, offset: int, end_offset: int, *, check_crc: bool) -> Window | None:
        """Return the whole batches of the next `size` bytes; None if there is not one."""
        start = self._position - self._map_start
        part = self._view[start : start + size]
        used, next_offset = 0, offset
        try:
            for position, header in iter_headers(part):
                if header.base_offset >= end_offset:
                    break
                # The first batch may begin below the offset, which lies inside it.
                is_next = header.base_offset >= next_offset if used else header.last_offset >= offset
                if not is_next:
                    raise InPlaceError(
                        "corrupt",
                        f"{self.path}: the batch at byte {self._position + position} has the offsets "
                        f"{header.base_offset} to {header.last_offset}, expected {next_offset} or later",
                    )
                if check_crc:
                    validate(part, position, header)
                used, next_offset = position + header.size, header.next_offset
        except RecordsError as error:
            if not used:
                raise InPlaceError("corrupt", f"{self.path}, byte {self._position}: {error}") from error
        except InPlaceError:
            if not used:
                raise
        return Window(part[:used], next_offset) if used else None

    def _first_batch_size(self, size: int) -> int:
        start = self._position - self._map_start
        try:
            header = read_header(self._view[start : start + max(size, HEADER_SIZE)])
        except RecordsError as error:
            raise InPlaceError("corrupt", f"{self.path}, byte {self._position}: {error}") from error
        return min(header.batch_length + LOG_OVERHEAD, self._end - self._position)

    def _bring_in(self, size: int) -> None:
        """Have the next `size` bytes in memory, and the kernel read ahead of them.

        Raises:
            InPlaceError: the file has become shorter, or its disk failed.
        """
        try:
            length = os.fstat(self._descriptor).st_size
            if length < self._position + size:
                raise InPlaceError("truncated", f"{self.path} has {length} bytes, {self._end} were leased")
            start = self._position - self._map_start
            aligned = start - start % mmap.PAGESIZE
            if self._can_populate:
                self._populate(aligned, start + size - aligned)
            ahead = start + size - (start + size) % mmap.PAGESIZE
            ahead_size = min(READ_AHEAD_BYTES, self._end - self._map_start - ahead)
            if ahead_size > 0:
                self._map.madvise(mmap.MADV_WILLNEED, ahead, ahead_size)
        except OSError as error:
            raise InPlaceError("truncated", f"{self.path} cannot be read: {error}") from error

    def _populate(self, start: int, size: int) -> None:
        try:
            self._map.madvise(_POPULATE_READ, start, size)
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            # An older kernel; the check of the size is what remains.
            self._can_populate = False

    def _release_before(self, position: int) -> None:
        end = position - self._map_start
        end -= end % mmap.PAGESIZE
        if end > self._released:
            self._map.madvise(mmap.MADV_DONTNEED, self._released, end - self._released)
            self._released = end

    def _check_identity(self, leased: LeasedFile, is_same_host: bool) -> None:
        found = os.fstat(self._descriptor)
        is_same = found.st_ino & _INT64_MASK == leased.inode
        if is_same_host:
            is_same = is_same and found.st_dev & _INT64_MASK == leased.device
        if not is_same:
            raise InPlaceError("not_same_files", f"{self.path} is not the file that the broker has")
        if found.st_size < self._end:
            raise InPlaceError("truncated", f"{self.path} has {found.st_size} bytes, expected {self._end}")


def open_leased(path: str) -> int:
    """Open a file that a broker has named; return its descriptor.

    Raises:
        InPlaceError: it cannot be seen or read, or it is no regular file.
    """
    try:
        return open_regular(path, os.O_RDONLY)
    except PermissionError as error:
        raise InPlaceError("access_denied", f"{path} may not be read by this process") from error
    except OSError as error:
        raise InPlaceError("not_visible", f"{path} cannot be opened: {error.strerror}") from error

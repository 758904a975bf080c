"""The operating system's files: the port of `kalda.runtime.filesystem`."""

import contextlib
import errno
import os
import struct
import sys
from collections.abc import Callable, Iterator
from typing import Final

from kalda.runtime.filesystem import (
    TEMPORARY_SUFFIX,
    Buffer,
    DirectoryEntry,
    DirectoryLock,
    File,
    FileKindError,
)
from kalda.runtime.system.portable import PORTABLE
from kalda.runtime.system.regular_file import open_regular

_sync_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)
"""macOS has no fdatasync."""


READ_BYTES_MAX: Final = 1 << 30
"""The size of the largest file that is read as a whole: a snapshot of 23 million producers. A damaged size of
a terabyte would otherwise end the process without a message."""


class OsFile:
    """A file of the operating system. The descriptor closes with the last reference.

    A fetch in flight holds the object, so deleting or rolling a segment never closes the descriptor of a
    running `sendfile`.
    """

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._descriptor

    def read_at(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes at `position`."""
        return os.pread(self._descriptor, size, position)

    if hasattr(os, "preadv") and not PORTABLE:

        def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
            """Read from `position` without a copy in between."""
            return os.preadv(self._descriptor, [buffer], position)

    else:

        def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
            """Read from `position` and copy."""
            data = os.pread(self._descriptor, len(buffer), position)
            buffer[: len(data)] = data
            return len(data)

    def write_at(self, data: Buffer, position: int) -> int:
        """Write at `position`; may write fewer bytes than given."""
        return os.pwrite(self._descriptor, data, position)

    def truncate(self, size: int) -> None:
        """Set the file's size."""
        os.ftruncate(self._descriptor, size)

    def size(self) -> int:
        """Return the file's size."""
        return os.fstat(self._descriptor).st_size

    def sync(self) -> None:
        """Flush data (and size) to the device."""
        _sync_data(self._descriptor)


class OsDirectoryLock:
    """An flock and a record lock on a file, which contains this process's pid for a second process's message.

    The two kinds of locks do not exclude each other on Linux. Apache Kafka's brokers hold a record lock on
    the same file, so that one of them and Kalda never use a directory at the same time. A record lock of the
    open file, as here, outlives that the process opens and closes the file again.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Close the descriptor, which drops the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class OsFileSystem:
    """The operating system's files; with `is_private` only their owner can read them."""

    def __init__(self, *, is_private: bool = False) -> None:
        self._file_mode = 0o600 if is_private else 0o644
        self._directory_mode = 0o700 if is_private else 0o777

    def open(self, path: str, *, create: bool = False) -> File:
        """Open `path`; see `FileSystem`."""
        return OsFile(open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0), self._file_mode))

    def read(self, path: str) -> bytes:
        """Read all of `path`."""
        with open(open_regular(path, os.O_RDONLY), "rb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size > READ_BYTES_MAX:
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
            return file.readall()

    def replace(self, path: str, data: Buffer, *, sync: bool, is_private: bool = False) -> None:
        """Write beside `path`, then rename over it."""
        temporary = path + TEMPORARY_SUFFIX
        try:
            # A new file: a link may have been placed under the temporary name.
            self.remove(temporary)
            descriptor = os.open(
                temporary,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
                0o600 if is_private else self._file_mode,
            )
            try:
                _write_all(descriptor, data)
                if sync:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)
            os.replace(temporary, path)
        except OSError:
            self.remove(temporary)
            raise
        if sync:
            self.sync_directory(os.path.dirname(path))

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Scan `path`; names that vanish meanwhile are left out."""
        return list(_scan(path))

    def exists(self, path: str) -> bool:
        """Return whether `path` exists."""
        return os.path.exists(path)

    def make_directory(self, path: str) -> None:
        """Create `path` and its parents."""
        if os.path.islink(path):
            raise FileKindError(path, "a symbolic link", "a directory")
        os.makedirs(path, self._directory_mode, exist_ok=True)
        if self._directory_mode == 0o700 and os.stat(path).st_mode & 0o077:
            # Made by an earlier release. Another owner has decided who may enter.
            with contextlib.suppress(PermissionError):
                os.chmod(path, 0o700)

    def rename(self, source: str, target: str) -> None:
        """Rename `source` to `target`."""
        os.replace(source, target)

    def remove(self, path: str) -> None:
        """Remove `path` if it is there."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """Remove the files of `path`, then `path`."""
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                _remove_entries(descriptor)
            finally:
                os.close(descriptor)
            os.rmdir(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the file's times."""
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000), follow_symlinks=False)

    def sync_file(self, path: str) -> None:
        """Fsync `path`."""
        with contextlib.suppress(FileNotFoundError):
            _sync(open_regular(path, os.O_RDONLY))

    def sync_directory(self, path: str) -> None:
        """Fsync the directory `path`."""
        _sync(os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

    def lock(self, path: str) -> DirectoryLock | int:
        """Try an flock and a record lock on `path`."""
        import fcntl  # Windows lacks it, and tools that lock nothing import this module there

        descriptor = open_regular(path, os.O_RDWR | os.O_CREAT, self._file_mode)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, 20, 0)
            os.close(descriptor)
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            return int(holder) if holder.strip().isdigit() else 0
        if (other := _take_record_lock(descriptor)) is not None:
            os.close(descriptor)
            return other
        # The pid is only for another process's error message: a full disk must not stop the start.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        return OsDirectoryLock(descriptor)


_RECORD_LOCK: Final = "hhqqi0q"
"""Linux's `struct flock` on 64 bits: type, whence, start, length, process."""


def _take_record_lock(descriptor: int) -> int | None:
    """Take a record lock on a whole file; return the process that has one, 0 if it is not known, or None."""
    if PORTABLE or sys.platform != "linux" or sys.maxsize <= 2**32:
        return None
    import fcntl

    wanted = struct.pack(_RECORD_LOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, wanted)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            # Not every file system has such locks; the flock is held.
            return None
    else:
        return None
    kind, _, _, _, process = struct.unpack(_RECORD_LOCK, fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, wanted))
    return max(process, 0) if kind != fcntl.F_UNLCK else 0


def _write_all(descriptor: int, data: Buffer) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def _sync(descriptor: int) -> None:
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _remove_entries(directory: int) -> None:
    """Remove what is in an open directory, so that no name is looked up twice."""
    with os.scandir(directory) as entries:
        for entry in list(entries):
            with contextlib.suppress(FileNotFoundError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=directory)
                    continue
                flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
                child = os.open(entry.name, flags, dir_fd=directory)
                try:
                    _remove_entries(child)
                finally:
                    os.close(child)
                os.rmdir(entry.name, dir_fd=directory)


def _scan(path: str) -> Iterator[DirectoryEntry]:
    with os.scandir(path) as entries:
        for entry in entries:
            try:
                is_directory = entry.is_dir(follow_symlinks=False)
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue
            yield DirectoryEntry(entry.name, is_directory, status.st_size, status.st_mtime_ns // 1_000_000)

"""A file system that fails after a simulated crash, and as a full, failing or read-only disk.

A broker in the test's process uses it in place of the operating system's. Data written before a crash stays,
as it stays in the page cache when a process is killed. Nothing is synced: the data of a test need not survive
a loss of power.
"""

import errno
import os
import weakref
from enum import Enum
from typing import Final

from kalda.common.overriding import override
from kalda.runtime.filesystem import Buffer, DirectoryLock, File
from kalda.runtime.system.filesystem import OsFile, OsFileSystem
from kalda.runtime.system.regular_file import open_regular


class DiskFault(Enum):
    """What is wrong with a disk. The value is the error of its calls."""

    FULL = errno.ENOSPC
    """Writes and new files fail; reads, renames and deletions succeed."""
    READ_ONLY = errno.EROFS
    """All changes fail; reads succeed."""
    FAILING = errno.EIO
    """All calls fail."""


class CrashableFileSystem(OsFileSystem):
    """The operating system's files; after `crash` every change raises `OSError`."""

    def __init__(self) -> None:
        super().__init__()
        self._is_crashed = False
        self.fault: DiskFault | None = None
        """What is wrong with the disk."""
        self._locks: Final[weakref.WeakSet[_Lock]] = weakref.WeakSet()

    def crash(self) -> None:
        """Fail all later changes, and release the locks, as the end of a process does."""
        self._is_crashed = True
        for lock in list(self._locks):
            lock.release()

    def check(self) -> None:
        """Check that the owner has not crashed.

        Raises:
            OSError: it has crashed.
        """
        if self._is_crashed:
            raise OSError(errno.EIO, "the broker was killed")

    def check_read(self, path: str) -> None:
        """Check that the disk can be read.

        Raises:
            OSError: it fails.
        """
        if self.fault is not None:
            self._check_fault(path, DiskFault.FAILING)

    def check_change(self, path: str) -> None:
        """Check that the owner has not crashed and that the disk takes changes that need no room.

        Raises:
            OSError: it has crashed, or the disk fails or is read-only.
        """
        self.check()
        if self.fault is not None:
            self._check_fault(path, DiskFault.FAILING, DiskFault.READ_ONLY)

    def check_space(self, path: str) -> None:
        """Check that the owner has not crashed and that the disk takes changes that need room.

        Raises:
            OSError: it has crashed, or something is wrong with the disk.
        """
        self.check()
        if self.fault is not None:
            self._check_fault(path, *DiskFault)

    def _check_fault(self, path: str, *faults: DiskFault) -> None:
        if self.fault in faults:
            raise OSError(self.fault.value, os.strerror(self.fault.value), path)

    @override
    def open(self, path: str, *, create: bool = False) -> File:
        self.check()
        self.check_read(path)
        if create and self.fault is not None and not self.exists(path):
            self.check_space(path)
        return _CrashableFile(open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0)), self, path)

    @override
    def replace(self, path: str, data: Buffer, *, sync: bool, is_private: bool = False) -> None:
        self.check_space(path)
        super().replace(path, data, sync=False, is_private=is_private)

    @override
    def make_directory(self, path: str) -> None:
        self.check()
        if self.fault is not None and not self.exists(path):
            self.check_space(path)
        super().make_directory(path)

    @override
    def rename(self, source: str, target: str) -> None:
        self.check_change(source)
        super().rename(source, target)

    @override
    def remove(self, path: str) -> None:
        self.check_change(path)
        super().remove(path)

    @override
    def remove_tree(self, path: str) -> None:
        self.check_change(path)
        super().remove_tree(path)

    def sync_file(self, path: str) -> None:
        """Sync nothing; see the module."""
        self.check_change(path)

    def sync_directory(self, path: str) -> None:
        """Sync nothing; see the module."""
        self.check_change(path)

    def lock(self, path: str) -> DirectoryLock | int:
        """Try to lock `path`; `crash` releases the lock."""
        self.check()
        taken = super().lock(path)
        if isinstance(taken, int):
            return taken
        lock = _Lock(taken)
        self._locks.add(lock)
        return lock


class _Lock:
    """A lock that `crash` releases too; a second release does nothing."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self, lock: DirectoryLock) -> None:
        self._lock: Final = lock

    def release(self) -> None:
        self._lock.release()


class _CrashableFile(OsFile):
    __slots__ = ("_owner", "_path")

    def __init__(self, descriptor: int, owner: CrashableFileSystem, path: str) -> None:
        super().__init__(descriptor)
        self._owner = owner
        self._path = path

    def write_at(self, data: Buffer, position: int) -> int:
        self._owner.check_space(self._path)
        return super().write_at(data, position)

    def read_at(self, size: int, position: int) -> bytes:
        self._owner.check_read(self._path)
        return super().read_at(size, position)

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        self._owner.check_read(self._path)
        return super().read_into(buffer, position)

    def truncate(self, size: int) -> None:
        self._owner.check_change(self._path)
        super().truncate(size)

    def sync(self) -> None:
        self._owner.check_change(self._path)

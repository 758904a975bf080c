"""A file system that fails writes after a simulated crash or on a simulated full disk.

A broker in the test's process uses it in place of the operating system's. Data written before a crash stays,
as it stays in the page cache when a process is killed. Nothing is synced: the data of a test need not survive
a loss of power.
"""

import errno
import os
import weakref
from typing import Final

from kalda.common.overriding import override
from kalda.runtime.filesystem import Buffer, DirectoryLock, File
from kalda.runtime.system.filesystem import OsFile, OsFileSystem
from kalda.runtime.system.regular_file import open_regular


class CrashableFileSystem(OsFileSystem):
    """The operating system's files; after `crash` every change raises `OSError`."""

    def __init__(self) -> None:
        super().__init__()
        self._is_crashed = False
        self.is_full = False
        """Whether writes and new files fail as on a full disk; reads, renames and deletions succeed."""
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

    def check_space(self, path: str) -> None:
        """Check that the owner has not crashed and that the disk has room.

        Raises:
            OSError: it has crashed, or the disk is full.
        """
        self.check()
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    @override
    def open(self, path: str, *, create: bool = False) -> File:
        self.check()
        if create and self.is_full and not self.exists(path):
            self.check_space(path)
        return _CrashableFile(open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0)), self, path)

    @override
    def replace(self, path: str, data: Buffer, *, sync: bool, is_private: bool = False) -> None:
        self.check_space(path)
        super().replace(path, data, sync=False, is_private=is_private)

    @override
    def make_directory(self, path: str) -> None:
        self.check()
        if self.is_full and not self.exists(path):
            self.check_space(path)
        super().make_directory(path)

    @override
    def rename(self, source: str, target: str) -> None:
        self.check()
        super().rename(source, target)

    @override
    def remove(self, path: str) -> None:
        self.check()
        super().remove(path)

    @override
    def remove_tree(self, path: str) -> None:
        self.check()
        super().remove_tree(path)

    def sync_file(self, path: str) -> None:
        """Sync nothing; see the module."""
        self.check()

    def sync_directory(self, path: str) -> None:
        """Sync nothing; see the module."""
        self.check()

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

    def truncate(self, size: int) -> None:
        self._owner.check()
        super().truncate(size)

    def sync(self) -> None:
        self._owner.check()

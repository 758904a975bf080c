"""Implements a broker's files in the test's process, which fail after a simulated crash.

Data written before a crash stays, as it stays in the page cache when a process is killed. Nothing is synced:
the data of a test need not survive a loss of power.
"""

import errno
import weakref
from typing import Final

from kalda.broker.process.faulty_disk import FaultyFileSystem
from kalda.common.overriding import override
from kalda.runtime.filesystem import DirectoryLock, File


class CrashableFileSystem(FaultyFileSystem):
    """The operating system's files; after `crash` every change raises `OSError`."""

    def __init__(self) -> None:
        super().__init__(syncs=False)
        self._is_crashed = False
        self._locks: Final[weakref.WeakSet[_Lock]] = weakref.WeakSet()

    def crash(self) -> None:
        """Fail all later changes, and release the locks, as the end of a process does."""
        self._is_crashed = True
        for lock in list(self._locks):
            lock.release()

    @override
    def check_change(self, path: str) -> None:
        self._check_alive()
        super().check_change(path)

    @override
    def check_space(self, path: str) -> None:
        self._check_alive()
        super().check_space(path)

    @override
    def open(self, path: str, *, create: bool = False) -> File:
        self._check_alive()
        return super().open(path, create=create)

    @override
    def make_directory(self, path: str) -> None:
        self._check_alive()
        super().make_directory(path)

    @override
    def lock(self, path: str) -> DirectoryLock | int:
        """Try to lock `path`; `crash` releases the lock."""
        self._check_alive()
        taken = super().lock(path)
        if isinstance(taken, int):
            return taken
        lock = _Lock(taken)
        self._locks.add(lock)
        return lock

    def _check_alive(self) -> None:
        if self._is_crashed:
            raise OSError(errno.EIO, "the broker was killed")


class _Lock:
    """A lock that `crash` releases too; a second release does nothing."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self, lock: DirectoryLock) -> None:
        self._lock: Final = lock

    def release(self) -> None:
        self._lock.release()

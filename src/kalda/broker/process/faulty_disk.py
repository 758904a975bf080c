"""Implements a file system that fails on demand as if full, broken or read-only: `FaultyFileSystem`."""

import errno
import os
from typing import Final

from kalda.common.overriding import override
from kalda.faults import BrokerEffect
from kalda.runtime.filesystem import Buffer, File
from kalda.runtime.system.filesystem import OsFile, OsFileSystem
from kalda.runtime.system.regular_file import open_regular

_ERRORS: Final = {
    BrokerEffect.FULL_DISK: errno.ENOSPC,
    BrokerEffect.READ_ONLY_DISK: errno.EROFS,
    BrokerEffect.FAILING_DISK: errno.EIO,
}


class FaultyFileSystem(OsFileSystem):
    """The operating system's files, whose calls fail while there is a fault.

    With a full disk, writes and new files fail; with a read-only one, all changes; with a failing one, all
    calls.
    """

    def __init__(self, *, syncs: bool = True) -> None:
        """Without `syncs` nothing is synced: data need not survive a loss of power."""
        super().__init__()
        self._syncs: Final = syncs
        self.fault: BrokerEffect | None = None
        """What is wrong with the disk."""

    def check_read(self, path: str) -> None:
        """Check that the disk can be read.

        Raises:
            OSError: it fails.
        """
        if self.fault is not None:
            self._check_fault(path, BrokerEffect.FAILING_DISK)

    def check_change(self, path: str) -> None:
        """Check that the disk takes changes that need no room.

        Raises:
            OSError: it fails or is read-only.
        """
        if self.fault is not None:
            self._check_fault(path, BrokerEffect.FAILING_DISK, BrokerEffect.READ_ONLY_DISK)

    def check_space(self, path: str) -> None:
        """Check that the disk takes changes that need room.

        Raises:
            OSError: something is wrong with it.
        """
        if self.fault is not None:
            self._check_fault(path, *_ERRORS)

    def _check_fault(self, path: str, *faults: BrokerEffect) -> None:
        if self.fault in faults:
            number = _ERRORS[self.fault]
            raise OSError(number, os.strerror(number), path)

    @override
    def open(self, path: str, *, create: bool = False) -> File:
        self.check_read(path)
        if create and self.fault is not None and not self.exists(path):
            self.check_space(path)
        descriptor = open_regular(path, os.O_RDWR | (os.O_CREAT if create else 0))
        return _FaultyFile(descriptor, self, path, syncs=self._syncs)

    @override
    def replace(self, path: str, data: Buffer, *, sync: bool, is_private: bool = False) -> None:
        self.check_space(path)
        super().replace(path, data, sync=sync and self._syncs, is_private=is_private)

    @override
    def make_directory(self, path: str) -> None:
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

    @override
    def sync_file(self, path: str) -> None:
        self.check_change(path)
        if self._syncs:
            super().sync_file(path)

    @override
    def sync_directory(self, path: str) -> None:
        self.check_change(path)
        if self._syncs:
            super().sync_directory(path)


class _FaultyFile(OsFile):
    __slots__ = ("_owner", "_path", "_syncs")

    def __init__(self, descriptor: int, owner: FaultyFileSystem, path: str, *, syncs: bool) -> None:
        super().__init__(descriptor)
        self._syncs = syncs
        self._owner = owner
        self._path = path

    @override
    def write_at(self, data: Buffer, position: int) -> int:
        self._owner.check_space(self._path)
        return super().write_at(data, position)

    @override
    def read_at(self, size: int, position: int) -> bytes:
        self._owner.check_read(self._path)
        return super().read_at(size, position)

    @override
    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        self._owner.check_read(self._path)
        return super().read_into(buffer, position)

    @override
    def truncate(self, size: int) -> None:
        self._owner.check_change(self._path)
        super().truncate(size)

    @override
    def sync(self) -> None:
        self._owner.check_change(self._path)
        if self._syncs:
            super().sync()

"""Simulates the disk of one machine: `SimulatedDisk` and, for each process, `SimulatedFileSystem`.

The end of a process loses nothing that it wrote. A loss of power may lose everything that was not synced, in
the way of a journaling file system: of the changes of names since the last sync a prefix survives; of the
writes to a file since its last sync a prefix survives, and the write after these may be torn.
`kalda.simulation.damage` flips bits at rest.
"""

import errno
import os
import posixpath
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from kalda.runtime.filesystem import Buffer, DirectoryEntry, DirectoryLock, File, FileKindError
from kalda.runtime.random import Random

_split: Final = lru_cache(maxsize=4096)(posixpath.split)


class _Inode:
    """The content of a file, and how to undo what was not synced."""

    __slots__ = ("data", "modified_ms", "undo")

    def __init__(self, modified_ms: int) -> None:
        self.data = bytearray()
        self.modified_ms = modified_ms
        self.undo: list[tuple[int, bytes, int, int]] = []
        """For each write that was not synced: position, bytes replaced, size before, bytes written."""


class SimulatedDisk:
    """The files of a machine, over all of its processes.

    Args:
        random: Decides what a loss of power loses.
        now_ms: Returns the time of changes, in wall-clock milliseconds.
    """

    def __init__(self, random: Random, now_ms: Callable[[], int]) -> None:
        self.random: Final = random
        self.now_ms: Final = now_ms
        self.directories: Final[dict[str, dict[str, _Inode | None]]] = {"/": {}}
        """By path; a name's value is its file, or None for a directory."""
        self.locks: Final[dict[str, SimulatedFileSystem]] = {}
        self._name_changes: Final[list[Callable[[], None]]] = []
        """Undoes each change of a name since the last sync."""
        self._dirty: Final[dict[_Inode, None]] = {}
        self.is_full = False
        self.is_failing = False
        """Whether reads and writes fail with EIO."""
        self.is_read_only = False
        self.power_losses = 0

    # Files.

    def file(self, path: str) -> _Inode | None:
        """Return the file of a name, or None.

        Raises:
            OSError: a directory has the name.
        """
        directory, name = _split(path)
        entries = self.directories.get(directory)
        if entries is None or name not in entries:
            return None
        found = entries[name]
        if found is None:
            raise FileKindError(path, "a directory", "a regular file")
        return found

    def create(self, path: str) -> _Inode:
        """Make an empty file."""
        self.check_writable(path)
        directory, name = _split(path)
        entries = self._entries(directory, path)
        inode = entries[name] = _Inode(self.now_ms())
        self._changed(lambda: _undo_name(entries, name, inode, None))
        return inode

    def rename(self, source: str, target: str) -> None:
        """Give a file or a directory another name."""
        self.check_writable(source, needs_space=False)
        source_directory, source_name = _split(source)
        target_directory, target_name = _split(target)
        sources, targets = (
            self._entries(source_directory, source),
            self._entries(target_directory, target),
        )
        if source_name not in sources:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        node = sources[source_name]
        before = targets.get(target_name)
        had_target = target_name in targets
        if had_target and (node is None) != (before is None):
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), target)
        del sources[source_name]
        targets[target_name] = node
        if node is None:
            self._move_tree(source, target)

        def undo() -> None:
            if node is None:
                self._move_tree(target, source)
            targets.pop(target_name, None)
            if had_target:
                targets[target_name] = before
            sources[source_name] = node

        self._changed(undo)

    def remove(self, path: str) -> None:
        """Remove the name of a file, if it is there."""
        inode = self.file(path)
        if inode is None:
            return
        self.check_writable(path, needs_space=False)
        directory, name = _split(path)
        entries = self.directories[directory]
        del entries[name]
        self._changed(lambda: entries.__setitem__(name, inode))

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents."""
        if path in self.directories or path in ("", "/"):
            return
        directory, name = _split(path)
        self.make_directory(directory)
        self.check_writable(path)
        entries = self.directories[directory]
        if entries.get(name) is not None:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        entries[name] = None
        self.directories[path] = {}

        def undo() -> None:
            self.directories.pop(path, None)
            entries.pop(name, None)

        self._changed(undo)

    def remove_directory(self, path: str) -> None:
        """Remove a directory and all in it, if it is there."""
        entries = self.directories.get(path)
        if entries is None:
            return
        self.check_writable(path, needs_space=False)
        for name, node in list(entries.items()):
            if node is None:
                self.remove_directory(posixpath.join(path, name))
            else:
                self.remove(posixpath.join(path, name))
        directory, name = _split(path)
        parent = self.directories[directory]
        del parent[name]
        del self.directories[path]

        def undo() -> None:
            self.directories[path] = {}
            parent[name] = None

        self._changed(undo)

    def write(self, inode: _Inode, data: Buffer, position: int) -> int:
        """Write to a file."""
        size, before = len(data), len(inode.data)
        if position > before:
            inode.data.extend(bytes(position - before))
        inode.undo.append((position, bytes(inode.data[position : position + size]), before, size))
        inode.data[position : position + size] = data
        inode.modified_ms = self.now_ms()
        self._dirty[inode] = None
        return size

    def truncate(self, inode: _Inode, size: int) -> None:
        """Set a file's size."""
        before = len(inode.data)
        if size < before:
            inode.undo.append((size, bytes(inode.data[size:]), before, 0))
            del inode.data[size:]
        elif size > before:
            inode.undo.append((before, b"", before, size - before))
            inode.data.extend(bytes(size - before))
        self._dirty[inode] = None

    def sync(self, inode: _Inode | None) -> None:
        """Make a file durable, and with it every change of a name so far."""
        self.check()
        self._name_changes.clear()
        if inode is not None:
            inode.undo.clear()
            self._dirty.pop(inode, None)

    # Faults.

    def check(self) -> None:
        """Raise `OSError` where the device fails."""
        if self.is_failing:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def check_writable(self, path: str, *, needs_space: bool = True) -> None:
        """Raise `OSError` where a change fails."""
        self.check()
        if self.is_read_only:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        if self.is_full and needs_space:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def synced_sizes(self) -> list[tuple[str, int]]:
        """Return the files with synced content, and how many bytes from the start are synced."""
        found: list[tuple[str, int]] = []
        for directory, entries in self.directories.items():
            for name, inode in entries.items():
                if inode is None:
                    continue
                size = min([len(inode.data), *(position for position, _, _, _ in inode.undo)])
                if size:
                    found.append((posixpath.join(directory, name), size))
        return found

    def content(self, path: str) -> bytes:
        """Return what is in a file; nothing if there is none."""
        inode = self.file(path)
        return b"" if inode is None else bytes(inode.data)

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Flip a bit of a file at rest."""
        inode = self.file(path)
        assert inode is not None, f"{path} does not exist"
        inode.data[position] ^= 1 << bit

    def lose_power(self) -> None:
        """Lose a part of what was not synced; the locks are gone as well."""
        self.locks.clear()
        self.power_losses += 1
        kept = self.random.randrange(len(self._name_changes) + 1)
        while len(self._name_changes) > kept:
            self._name_changes.pop()()
        self._name_changes.clear()
        for inode in list(self._dirty):
            self._lose_writes(inode)
        self._dirty.clear()

    def _lose_writes(self, inode: _Inode) -> None:
        undo, random = inode.undo, self.random
        kept = random.randrange(len(undo) + 1)
        while len(undo) > kept + 1:
            _undo_last(inode)
        if len(undo) > kept:
            position, _, _, size = undo[-1]
            left = bytes(inode.data[position : position + random.randrange(size + 1)])
            _undo_last(inode)
            if left and position <= len(inode.data):
                inode.data[position : position + len(left)] = left
        undo.clear()

    # Internals.

    def _entries(self, directory: str, path: str) -> dict[str, _Inode | None]:
        entries = self.directories.get(directory)
        if entries is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return entries

    def _changed(self, undo: Callable[[], None]) -> None:
        self._name_changes.append(undo)

    def _move_tree(self, source: str, target: str) -> None:
        inside = [path for path in self.directories if path == source or path.startswith(source + "/")]
        for path in inside:
            self.directories[target + path[len(source) :]] = self.directories.pop(path)


def _undo_last(inode: _Inode) -> None:
    """Undo the last write to a file."""
    position, replaced, before, size = inode.undo.pop()
    inode.data[position : position + size] = replaced
    del inode.data[before:]


def _undo_name(entries: dict[str, _Inode | None], name: str, inode: _Inode, before: _Inode | None) -> None:
    if entries.get(name) is inode:
        del entries[name]
        if before is not None:
            entries[name] = before


class SimulatedFile:
    """An open file: the port of `kalda.runtime.filesystem`."""

    __slots__ = ("_inode", "_owner", "_path")

    def __init__(self, owner: "SimulatedFileSystem", path: str, inode: _Inode) -> None:
        self._owner = owner
        self._path = path
        self._inode = inode

    def fileno(self) -> int:
        """A simulated file has no descriptor; nothing watches it."""
        return -1

    def read_at(self, size: int, position: int) -> bytes:
        """Read; see `File`."""
        self._owner.disk.check()
        return bytes(self._inode.data[position : position + size])

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Read into a buffer; see `File`."""
        data = self.read_at(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def write_at(self, data: Buffer, position: int) -> int:
        """Write; see `File`."""
        self._owner.check_alive()
        self._owner.disk.check_writable(self._path)
        return self._owner.disk.write(self._inode, data, position)

    def truncate(self, size: int) -> None:
        """Set the size; see `File`."""
        self._owner.check_alive()
        self._owner.disk.check_writable(self._path, needs_space=size > len(self._inode.data))
        self._owner.disk.truncate(self._inode, size)

    def size(self) -> int:
        """Return the size."""
        return len(self._inode.data)

    def sync(self) -> None:
        """Make the file's content durable."""
        self._owner.check_alive()
        self._owner.disk.sync(self._inode)


class SimulatedFileSystem:
    """The disk as one process sees it: the port of `kalda.runtime.filesystem`."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk: Final = disk
        self._is_ended = False

    def end(self) -> None:
        """Release the locks of the process, which is gone."""
        self._is_ended = True
        for path in [path for path, holder in self.disk.locks.items() if holder is self]:
            del self.disk.locks[path]

    def check_alive(self) -> None:
        """Raise `OSError` where the process has ended; nothing of it should run any more."""
        if self._is_ended:
            raise OSError(errno.EIO, "the process has ended")

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file; see `FileSystem`."""
        self.disk.check()
        inode = self.disk.file(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            inode = self.disk.create(path)
        return SimulatedFile(self, path, inode)

    def read(self, path: str) -> bytes:
        """Return a file's content."""
        return self.open(path).read_at(2**62, 0)

    def replace(self, path: str, data: Buffer, *, sync: bool, is_private: bool = False) -> None:
        """Write beside the file and rename; see `FileSystem`."""
        temporary = path + ".tmp"
        self.disk.remove(temporary)
        inode = self.disk.create(temporary)
        self.disk.write(inode, data, 0)
        if sync:
            self.disk.sync(inode)
        self.disk.rename(temporary, path)
        if sync:
            self.disk.sync(None)

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Return what is in a directory."""
        self.disk.check()
        entries = self.disk.directories.get(path)
        if entries is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return [
            DirectoryEntry(name, True, 0, 0)
            if node is None
            else DirectoryEntry(name, False, len(node.data), node.modified_ms)
            for name, node in entries.items()
        ]

    def exists(self, path: str) -> bool:
        """Return whether the name exists."""
        directory, name = _split(path)
        return path in self.disk.directories or name in self.disk.directories.get(directory, {})

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents."""
        self.disk.make_directory(path)

    def rename(self, source: str, target: str) -> None:
        """Rename."""
        self.disk.rename(source, target)

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        self.disk.remove(path)

    def remove_tree(self, path: str) -> None:
        """Remove a directory if it exists."""
        self.disk.remove_directory(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the time of the last write."""
        inode = self.disk.file(path)
        if inode is not None:
            inode.modified_ms = modified_ms

    def sync_file(self, path: str) -> None:
        """Sync a file by name if it exists."""
        inode = self.disk.file(path)
        if inode is not None:
            self.disk.sync(inode)

    def sync_directory(self, path: str) -> None:
        """Make names durable."""
        self.disk.sync(None)

    def lock(self, path: str) -> DirectoryLock | int:
        """Take a lock, or return the pid of its holder."""
        if path in self.disk.locks:
            return 1
        if self.disk.file(path) is None:
            self.disk.create(path)
        self.disk.locks[path] = self
        return _Lock(self, path)


class _Lock:
    """A lock that the process holds until it releases it or ends."""

    def __init__(self, owner: SimulatedFileSystem, path: str) -> None:
        self._owner: Final = owner
        self._path: Final = path

    def release(self) -> None:
        """Release the lock."""
        if self._owner.disk.locks.get(self._path) is self._owner:
            del self._owner.disk.locks[self._path]

"""A file system in memory that fills up, fails to sync, and crashes: what was not synced is lost or torn."""

import bisect
import errno
from collections.abc import Callable

from kalda.runtime.filesystem import Buffer, DirectoryEntry, DirectoryLock, File


class Crash(BaseException):
    """The machine stops in the middle of a call to the file system."""


def common_size(one: bytes, other: bytes) -> int:
    """How many bytes the two begin with in common."""
    size = min(len(one), len(other))
    return bisect.bisect_left(range(size), True, key=lambda end: one[: end + 1] != other[: end + 1])


class Inode:
    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""


class MemoryFile:
    def __init__(self, filesystem: "MemoryFileSystem", inode: Inode) -> None:
        self._filesystem = filesystem
        self._inode = inode

    def fileno(self) -> int:
        raise NotImplementedError("a file in memory has no descriptor")

    def read_at(self, size: int, position: int) -> bytes:
        return bytes(self._inode.data[position : position + size])

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        data = self.read_at(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def write_at(self, data: Buffer, position: int) -> int:
        self._filesystem.on_change("write")
        # Only what makes the file longer takes room.
        growth = max(0, position + len(data) - len(self._inode.data))
        raw = bytes(data)[: len(data) - growth + self._filesystem.take_room(growth)]
        end = position + len(raw)
        if len(self._inode.data) < end:
            self._inode.data.extend(bytes(end - len(self._inode.data)))
        self._inode.data[position:end] = raw
        return len(raw)

    def truncate(self, size: int) -> None:
        self._filesystem.on_change("truncate")
        if size < len(self._inode.data):
            self._filesystem.give_room(len(self._inode.data) - size)
            del self._inode.data[size:]
        else:
            self._inode.data.extend(bytes(size - len(self._inode.data)))

    def size(self) -> int:
        return len(self._inode.data)

    def sync(self) -> None:
        self._filesystem.on_change("sync")
        self._inode.durable = bytes(self._inode.data)


class MemoryLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held = held
        self._path = path

    def release(self) -> None:
        self._held.discard(self._path)


class MemoryFileSystem:
    """Fills `kalda.runtime.filesystem.FileSystem`."""

    def __init__(self) -> None:
        self.inodes: dict[str, Inode] = {}
        self._durable_names: dict[str, Inode] = {}
        self._locks: set[str] = set()
        self.room: int | None = None
        """Bytes that writes may still take; None for no limit."""
        self.failures: dict[str, OSError] = {}
        """By kind of call ("write", "sync", "truncate"): what it raises until it is removed."""
        self.changes = 0
        self.crash_at = -1
        """The number of the change at which the machine stops."""

    def on_change(self, kind: str) -> None:
        self.changes += 1
        if self.changes == self.crash_at:
            raise Crash
        if kind in self.failures:
            raise self.failures[kind]

    def take_room(self, wanted: int) -> int:
        if self.room is None or not wanted:
            return wanted
        if not self.room:
            raise OSError(errno.ENOSPC, "no space left on device")
        taken = min(wanted, self.room)
        self.room -= taken
        return taken

    def give_room(self, size: int) -> None:
        if self.room is not None:
            self.room += size

    def crash(self, survivors: Callable[[int], int]) -> None:
        """Lose what was not synced, save a part: of n bytes written, the first `survivors(n)` are there."""
        self.crash_at = -1
        self._locks.clear()
        names = dict(self._durable_names)
        for name, inode in self.inodes.items():
            # A name that was not synced may have made it all the same.
            if name not in names and survivors(1):
                names[name] = inode
        for inode in set(names.values()):
            same = common_size(bytes(inode.data), inode.durable)
            kept = same + survivors(len(inode.data) - same)
            inode.data = bytearray(bytes(inode.data[:kept]) + inode.durable[kept:])
            inode.durable = bytes(inode.data)
        self.inodes = names
        self._durable_names = dict(names)

    def open(self, path: str, *, create: bool = False) -> File:
        if path not in self.inodes:
            if not create:
                raise FileNotFoundError(path)
            self.on_change("create")
            self.inodes[path] = Inode()
        return MemoryFile(self, self.inodes[path])

    def read(self, path: str) -> bytes:
        if path not in self.inodes:
            raise FileNotFoundError(path)
        return bytes(self.inodes[path].data)

    def replace(self, path: str, data: Buffer, *, sync: bool, is_private: bool = False) -> None:
        self.on_change("write")
        if self.take_room(len(data)) < len(data):
            raise OSError(errno.ENOSPC, "no space left on device")
        inode = Inode()
        inode.data = bytearray(data)
        inode.durable = bytes(data) if sync else b""
        self.inodes[path] = inode
        if sync:
            self._durable_names[path] = inode

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        prefix = path + "/"
        return [
            DirectoryEntry(name[len(prefix) :], False, len(inode.data), 0)
            for name, inode in self.inodes.items()
            if name.startswith(prefix)
        ]

    def exists(self, path: str) -> bool:
        return path in self.inodes

    def make_directory(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        self.inodes[target] = self.inodes.pop(source)

    def remove(self, path: str) -> None:
        self.on_change("remove")
        inode = self.inodes.pop(path, None)
        self.give_room(len(inode.data) if inode is not None else 0)
        self._durable_names.pop(path, None)

    def remove_tree(self, path: str) -> None:
        raise NotImplementedError("no directories here")

    def set_modified(self, path: str, modified_ms: int) -> None:
        raise NotImplementedError("no times here")

    def sync_file(self, path: str) -> None:
        raise NotImplementedError("files are synced when open")

    def sync_directory(self, path: str) -> None:
        self.on_change("sync")
        for name, inode in self.inodes.items():
            self._durable_names.setdefault(name, inode)

    def lock(self, path: str) -> DirectoryLock | int:
        if path in self._locks:
            return 4711
        self._locks.add(path)
        return MemoryLock(self._locks, path)

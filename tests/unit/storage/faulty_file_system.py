"""A file system in memory that fills up, tears writes, fails on demand and loses what was not synced."""

import errno
import os
from collections.abc import Callable

from kalda.runtime.filesystem import Buffer, DirectoryEntry, DirectoryLock, File


class Node:
    """A file's content as processes see it, and as the device has it."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = bytearray(content)
        self.durable = b""
        self.modified_ms: int | None = None


class FaultyFile:
    """An open file; survives the removal of its name."""

    def __init__(self, system: "FaultyFileSystem", node: Node, path: str) -> None:
        self._system = system
        self._node = node
        self._path = path

    def fileno(self) -> int:
        raise OSError(errno.EBADF, "a file in memory has no descriptor")

    def read_at(self, size: int, position: int) -> bytes:
        self._system.act("read", self._path)
        return bytes(self._node.content[position : position + size])

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        data = self.read_at(len(buffer), position)
        buffer[: len(data)] = data
        return len(data)

    def write_at(self, data: Buffer, position: int) -> int:
        self._system.act("write", self._path)
        taken = self._system.take_space(len(data), max(0, position + len(data) - len(self._node.content)))
        content = self._node.content
        if len(content) < position:
            content.extend(bytes(position - len(content)))
        content[position : position + taken] = memoryview(data)[:taken]
        return taken

    def truncate(self, size: int) -> None:
        self._system.act("truncate", self._path)
        content = self._node.content
        if size < len(content):
            self._system.free_space(len(content) - size)
            del content[size:]
        else:
            content.extend(bytes(size - len(content)))

    def size(self) -> int:
        return len(self._node.content)

    def sync(self) -> None:
        self._system.act("sync", self._path)
        self._node.durable = bytes(self._node.content)


class FaultyLock:
    def __init__(self, system: "FaultyFileSystem", path: str) -> None:
        self._system = system
        self._path = path

    def release(self) -> None:
        self._system.locks.discard(self._path)


def move_files(names: dict[str, Node], source: str, target: str) -> None:
    for path in [path for path in names if os.path.dirname(path) == source]:
        names[os.path.join(target, os.path.basename(path))] = names.pop(path)


class FaultyFileSystem:
    """Names and nodes in two states: as processes see them and as the device has them.

    `space_left` bounds the bytes that writes may add (None: no bound); a write that meets the bound takes
    what fits, the next one fails with ENOSPC. `fault`, if set, sees every operation and path first and may
    raise.
    """

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.durable_names: dict[str, Node] = {}
        self.directories: set[str] = {"/"}
        self.renamed: dict[str, str] = {}
        """Directories whose new name is not on the device, with the name that is there."""
        self.locks: set[str] = set()
        self.space_left: int | None = None
        self.fault: Callable[[str, str], None] | None = None
        self.now_ms = 1_700_000_000_000

    def act(self, operation: str, path: str) -> None:
        if self.fault is not None:
            self.fault(operation, path)

    def take_space(self, size: int, grown: int) -> int:
        if self.space_left is None:
            return size
        if grown > self.space_left:
            if self.space_left <= 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            taken = size - (grown - self.space_left)
            self.space_left = 0
            return taken
        self.space_left -= grown
        return size

    def free_space(self, size: int) -> None:
        if self.space_left is not None:
            self.space_left += size

    def crash(self) -> "FaultyFileSystem":
        """Return what the next process finds after ``kill -9``: everything that was written."""
        return self._restart(self.nodes, durable=False)

    def cut_power(self) -> "FaultyFileSystem":
        """Return what is found after a power cut: synced content under synced names, nothing else."""
        return self._restart(self.durable_names, durable=True)

    def _restart(self, names: dict[str, Node], *, durable: bool) -> "FaultyFileSystem":
        after = FaultyFileSystem()
        after.directories = {self.renamed.get(path, path) if durable else path for path in self.directories}
        for path, node in names.items():
            fresh = Node(node.durable if durable else bytes(node.content))
            fresh.durable = bytes(fresh.content)
            fresh.modified_ms = node.modified_ms
            after.nodes[path] = after.durable_names[path] = fresh
        return after

    def open(self, path: str, *, create: bool = False) -> File:
        self.act("open", path)
        node = self.nodes.get(path)
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, "no such file", path)
            self.take_space(1, 1)
            node = self.nodes[path] = Node()
        return FaultyFile(self, node, path)

    def read(self, path: str) -> bytes:
        self.act("read", path)
        if path not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return bytes(self.nodes[path].content)

    def replace(self, path: str, data: Buffer, *, sync: bool, is_private: bool = False) -> None:
        self.act("replace", path)
        if self.take_space(len(data), len(data)) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        node = self.nodes[path] = Node(bytes(data))
        if sync:
            node.durable = bytes(data)
            directory, name = os.path.split(path)
            self.durable_names[os.path.join(self.renamed.get(directory, directory), name)] = node

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        self.act("list", path)
        entries = [
            DirectoryEntry(os.path.basename(name), False, len(node.content), node.modified_ms or self.now_ms)
            for name, node in self.nodes.items()
            if os.path.dirname(name) == path
        ]
        entries += [
            DirectoryEntry(os.path.basename(name), True, 0, self.now_ms)
            for name in self.directories
            if os.path.dirname(name) == path and name != path
        ]
        return entries

    def exists(self, path: str) -> bool:
        return path in self.nodes or path in self.directories

    def make_directory(self, path: str) -> None:
        self.act("mkdir", path)
        while path not in self.directories:
            self.directories.add(path)
            path = os.path.dirname(path)

    def rename(self, source: str, target: str) -> None:
        self.act("rename", source)
        if source in self.directories:
            if any(os.path.dirname(path) == target for path in self.nodes):
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
            self.directories.remove(source)
            self.directories.add(target)
            self.renamed[target] = self.renamed.pop(source, source)
            move_files(self.nodes, source, target)
            return
        if source not in self.nodes:
            raise FileNotFoundError(errno.ENOENT, "no such file", source)
        self.nodes[target] = self.nodes.pop(source)

    def remove(self, path: str) -> None:
        self.act("remove", path)
        node = self.nodes.pop(path, None)
        if node is not None:
            self.free_space(len(node.content))

    def remove_tree(self, path: str) -> None:
        for name in [name for name in self.nodes if os.path.dirname(name) == path]:
            self.remove(name)
        self.directories.discard(path)

    def set_modified(self, path: str, modified_ms: int) -> None:
        self.act("utime", path)
        self.nodes[path].modified_ms = modified_ms

    def sync_file(self, path: str) -> None:
        self.act("sync", path)
        if path in self.nodes:
            self.nodes[path].durable = bytes(self.nodes[path].content)

    def sync_directory(self, path: str) -> None:
        self.act("sync", path)
        if path not in self.directories:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        for target in [target for target in self.renamed if os.path.dirname(target) == path]:
            move_files(self.durable_names, self.renamed.pop(target), target)
        durable = self.renamed.get(path, path)
        for name in [name for name in self.durable_names if os.path.dirname(name) == durable]:
            del self.durable_names[name]
        for name, node in self.nodes.items():
            if os.path.dirname(name) == path:
                self.durable_names[os.path.join(durable, os.path.basename(name))] = node

    def lock(self, path: str) -> DirectoryLock | int:
        if path in self.locks:
            return os.getpid()
        self.locks.add(path)
        self.nodes.setdefault(path, Node())
        return FaultyLock(self, path)

"""Defines the port through which storage uses files.

Everything that storage does to a disk goes through `FileSystem` and `File`, so that tests can tear
writes, fill the disk and drop what was not synced. A file has no cursor: each call names its position, so
readers and the writer share one descriptor.

The names in a data directory are those of regular files and directories. No operation follows a symbolic link
that stands for one of them, and none waits for a FIFO; parents in a path may be links.
"""

import errno
from typing import Final, NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview

TEMPORARY_SUFFIX: Final = ".tmp"


class FileKindError(OSError):
    """Something else than expected has the name; `errno` is EINVAL: that says nothing about the device."""

    def __init__(self, path: str, kind: str, expected: str) -> None:
        super().__init__(errno.EINVAL, f"Is {kind}, not {expected}", path)


class DirectoryEntry(NamedTuple):
    """One name in a directory; `modified_ms` is wall-clock time."""

    name: str
    is_directory: bool
    size: int
    modified_ms: int


class File(Protocol):
    """An open file, read and written at explicit positions. Errors are `OSError`."""

    def fileno(self) -> int:
        """Return the descriptor, for a stream's `send_file`; valid as long as this object lives."""
        ...

    def read_at(self, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer at the end of the file."""
        ...

    def read_into(self, buffer: bytearray | memoryview, position: int) -> int:
        """Read as much as the buffer takes; return the number of bytes, fewer at the end of the file."""
        ...

    def write_at(self, data: Buffer, position: int) -> int:
        """Write and return the number of bytes written, which may be fewer than given."""
        ...

    def truncate(self, size: int) -> None:
        """Truncate the file, or extend it with zeros."""
        ...

    def size(self) -> int:
        """Return the file's size in bytes."""
        ...

    def sync(self) -> None:
        """Return when the data is on the device."""
        ...


class DirectoryLock(Protocol):
    """A held lock; releasing twice is harmless."""

    def release(self) -> None:
        """Release the lock."""
        ...


class FileSystem(Protocol):
    """The operations that storage needs of a file system. Errors are `OSError`."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes an empty file if none exists."""
        ...

    def read(self, path: str) -> bytes:
        """Return a small file's content; a file of more than 1 GiB raises `OSError`."""
        ...

    def replace(self, path: str, data: Buffer, *, sync: bool, is_private: bool = False) -> None:
        """Write a file so that a reader or a crash finds the old content or the new, never a mix.

        With `sync` the new content and its name are on the device on return. With `is_private` only its owner
        can read it.
        """
        ...

    def list_directory(self, path: str) -> list[DirectoryEntry]:
        """Return the directory's entries in no particular order."""
        ...

    def exists(self, path: str) -> bool:
        """Return whether the name exists."""
        ...

    def make_directory(self, path: str) -> None:
        """Create the directory and its parents, unless they exist; a private one is closed to others."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing a target file."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file if it exists."""
        ...

    def remove_tree(self, path: str) -> None:
        """Remove a directory and its files if it exists."""
        ...

    def set_modified(self, path: str, modified_ms: int) -> None:
        """Set the time of a file's last write."""
        ...

    def sync_file(self, path: str) -> None:
        """Sync a file by name if it exists."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in the directory durable."""
        ...

    def lock(self, path: str) -> DirectoryLock | int:
        """Take an exclusive lock, or return the pid that the holder left in the file (0 if none)."""
        ...

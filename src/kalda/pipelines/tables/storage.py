"""Accesses files of a table by path relative to its location, on file systems of pyarrow or fsspec.

It is picklable: the file system is opened in each process. It is not a cache and keeps nothing. Do not break:
no reader ever sees half of what `replace` writes.
"""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.fs as pafs

from kalda.pipelines.tables.errors import TableSpecError
from kalda.pipelines.tables.object_store import arrow_filesystem, is_s3
from kalda.runtime.system.regular_file import open_regular

HIDDEN_PREFIXES: Final = ("_", ".")
"""Names that begin so are not for readers of a directory, by the convention of Hive and Spark."""

_DECORATION: Final = re.compile(r"\x1b\[[0-9;]*m|↳")


@contextmanager
def errors_that_name(location: str) -> Iterator[None]:
    """Name the place in errors of a file system, in one line: pyarrow's and Delta's leave it out."""
    try:
        yield
    except OSError as error:
        if error.filename is not None or location in str(error):
            raise
        if error.errno:
            raise OSError(error.errno, os.strerror(error.errno), location) from error
        raise OSError(f"{' '.join(_DECORATION.sub('', str(error)).split())}: '{location}'") from error


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file of a listing: its relative path, size, and time of the last change in seconds since the
    epoch."""

    path: str
    size_bytes: int
    changed_s: float


class TableStorage:
    """The directory of one table."""

    def __init__(self, location: str, options: Mapping[str, str] | None = None) -> None:
        """Take a URI (`file:///…`, `s3://bucket/…`) or a path, and options of the object store."""
        self.location = location.rstrip("/")
        self.options = dict(options or {})
        self._opened: tuple[pafs.FileSystem, str] | None = None

    def __getstate__(self) -> tuple[str, dict[str, str]]:
        return self.location, self.options

    def __setstate__(self, state: tuple[str, dict[str, str]]) -> None:
        self.location, self.options = state
        self._opened = None

    @property
    def is_local(self) -> bool:
        """Whether files are on a file system of the machine, where a link is atomic."""
        return isinstance(self._filesystem, pafs.LocalFileSystem)

    @property
    def filesystem(self) -> pafs.FileSystem:
        """The file system, for pyarrow's readers."""
        return self._filesystem

    def full_path(self, path: str) -> str:
        """Return the path of a file in the file system."""
        return f"{self._root}/{path}" if path else self._root

    def open_output(self, path: str) -> pa.NativeFile:
        """Return a new file to write; directories on the way are made."""
        self._make_parent(path)
        return self._filesystem.open_output_stream(self.full_path(path))

    def open_input(self, path: str) -> pa.NativeFile:
        """Return a file to read at any place."""
        return self._filesystem.open_input_file(self.full_path(path))

    def read(self, path: str) -> bytes | None:
        """Return a file's bytes, None when there is none."""
        try:
            with self._filesystem.open_input_stream(self.full_path(path)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory."""
        found: pafs.FileInfo = self._filesystem.get_file_info(self.full_path(path))
        return bool(found.type != pafs.FileType.NotFound)

    def list(self, path: str) -> Iterator[FoundFile]:
        """Return the files below a directory at any depth; none when it does not exist."""
        selector = pafs.FileSelector(self.full_path(path), allow_not_found=True, recursive=True)
        for found in self._filesystem.get_file_info(selector):
            if found.type == pafs.FileType.File:
                yield self._found(found)

    def list_visible(self) -> Iterator[FoundFile]:
        """Return the files that engines take for a table's: no name on the way begins with `_` or `.`."""
        # Hidden directories are not listed: files in them may vanish meanwhile, which fails a listing.
        selector = pafs.FileSelector(self._root, allow_not_found=True)
        for found in self._filesystem.get_file_info(selector):
            if found.base_name.startswith(HIDDEN_PREFIXES):
                continue
            below = [self._found(found)] if found.type == pafs.FileType.File else self.list(found.base_name)
            for file in below:
                if not any(part.startswith(HIDDEN_PREFIXES) for part in file.path.split("/")):
                    yield file

    def _found(self, found: pafs.FileInfo) -> FoundFile:
        changed = found.mtime_ns / 1e9 if found.mtime_ns is not None else 0.0
        return FoundFile(found.path[len(self._root) + 1 :], found.size, changed)

    def replace(self, path: str, data: bytes) -> None:
        """Write a file at once, in place of one with this path."""
        if not self.is_local:
            self._write(path, data)
            return
        staged = f"{path}.{secrets.token_hex(4)}.tmp"
        try:
            self._write(staged, data)
            os.replace(self.full_path(staged), self.full_path(path))
        except OSError:
            self.delete(staged)
            raise

    def move(self, source: str, target: str) -> bool:
        """Rename a file, by copy where the file system cannot; return False when there is no source."""
        self._make_parent(target)
        try:
            self._filesystem.move(self.full_path(source), self.full_path(target))
        except FileNotFoundError:
            return False
        return True

    @contextmanager
    def locked(self, path: str, *, is_shared: bool = False) -> Iterator[None]:
        """Hold the lock of a file, for one process alone or shared; a local directory alone has locks.

        The kernel releases it however the process ends. It counts for each call, so that a second call by
        the holder waits for ever. A shared lock needs no right to write: without the file, no process has
        ever locked.
        """
        descriptor: int | None = None
        if self.is_local:
            if not is_shared:
                self._make_parent(path)
            with suppress(*((FileNotFoundError,) if is_shared else ())):
                flags = os.O_RDONLY if is_shared else os.O_RDWR | os.O_CREAT
                descriptor = open_regular(self.full_path(path), flags)
        try:
            if descriptor is not None:
                # Some network file systems have no locks; several writers are not supported there.
                with suppress(OSError):
                    fcntl.flock(descriptor, fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX)
            yield
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def delete(self, path: str) -> bool:
        """Delete a file; return False when there is none."""
        try:
            self._filesystem.delete_file(self.full_path(path))
        except FileNotFoundError:
            return False
        return True

    def delete_directory(self, path: str) -> None:
        """Delete a directory with all below it, if there is one."""
        try:
            self._filesystem.delete_dir(self.full_path(path))
        except FileNotFoundError:
            return

    def _write(self, path: str, data: bytes) -> None:
        with errors_that_name(f"{self.location}/{path}"), self.open_output(path) as stream:
            stream.write(data)

    def _make_parent(self, path: str) -> None:
        self._filesystem.create_dir(self.full_path(path.rpartition("/")[0]), recursive=True)

    @property
    def _filesystem(self) -> pafs.FileSystem:
        return self._open()[0]

    @property
    def _root(self) -> str:
        return self._open()[1]

    def _open(self) -> tuple[pafs.FileSystem, str]:
        if self._opened is None:
            self._opened = open_filesystem(self.location, self.options)
        return self._opened


def open_filesystem(location: str, options: Mapping[str, str]) -> tuple[pafs.FileSystem, str]:
    """Return the file system of a URI or path, and the path in it without a slash at the end."""
    scheme, separator, _ = location.partition("://")
    if not separator:
        return pafs.LocalFileSystem(), os.path.abspath(location.removeprefix("file:"))
    if is_s3(location) and (options or scheme != "s3"):
        return arrow_filesystem(options), location.partition("://")[2].rstrip("/")
    if options and scheme != "file":
        import fsspec

        opened, path = fsspec.core.url_to_fs(location, **options)
        return pafs.PyFileSystem(pafs.FSSpecHandler(opened)), path.rstrip("/")
    try:
        filesystem, path = pafs.FileSystem.from_uri(location)
    except (pa.ArrowInvalid, NotImplementedError):
        import fsspec

        try:
            opened, path = fsspec.core.url_to_fs(location)
        except (ValueError, ImportError) as error:
            raise TableSpecError(f"{location} cannot be reached: {error}") from error
        filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(opened))
    return filesystem, path.rstrip("/")

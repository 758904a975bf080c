"""Takes back what a start made on the disk where it failed, so that a mistyped option leaves no directories.

Only what was not there before goes: directories that were missing, and new entries of directories that
existed. The one thing not to break: records are never removed. A directory that already was a broker's log
directory is left alone, and so is every entry in which a log has a byte.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kalda.storage.file_names import META_PROPERTIES_FILE
from kalda.storage.filesystem import OsFileSystem

_LOG_LOCK: Final = ".lock"
"""The process that uses a log directory holds this lock in it."""


@dataclass(frozen=True, slots=True)
class _Before:
    """A directory before a start. `entries` is empty where the directory was missing."""

    path: Path
    missing: tuple[Path, ...]
    """What has to be made for the directory to exist, the deepest first: itself and missing parents."""
    entries: frozenset[str]


class StartUndo:
    """Remembers what directories hold before a start, and takes back what a failed one added.

    `own` is the process's directory, `others` are those that it may make besides.
    """

    def __init__(self, own: Path, others: Iterable[Path] = ()) -> None:
        self._own = _before(own)
        self._others: Final = [_before(path) for path in others if path != own]
        self._locks_made: frozenset[str] | set[str] = frozenset()

    def on_locked(self, lock_name: str) -> None:
        """Look again at the process's own directory, now that no other process can add to it."""
        self._locks_made = {lock_name} - self._own.entries
        self._own = replace(self._own, entries=_entries(self._own.path) - self._locks_made)

    def remove_if_empty(self) -> None:
        """Remove the process's directory and parents that were made for it, as far as they are empty."""
        _remove_made(self._own)

    def restore(self) -> None:
        """Take back everything; the process's own directory must still be locked."""
        for before in self._others:
            _restore_unlocked(before)
        for name in self._locks_made:
            with contextlib.suppress(OSError):
                (self._own.path / name).unlink()
        _restore(self._own)


def _before(path: Path) -> _Before:
    missing = tuple(each for each in (path, *path.parents) if not os.path.lexists(each))
    return _Before(path, missing, _entries(path))


def _entries(path: Path) -> frozenset[str]:
    try:
        return frozenset(os.listdir(path))
    except OSError:
        return frozenset()


def _restore_unlocked(before: _Before) -> None:
    """Restore a directory that another process may have begun to use."""
    if not before.path.is_dir():
        return
    with contextlib.suppress(OSError):
        lock = OsFileSystem().lock(str(before.path / _LOG_LOCK))
        if isinstance(lock, int):
            return
        try:
            _restore(before)
        finally:
            lock.release()


def _restore(before: _Before) -> None:
    if META_PROPERTIES_FILE in before.entries:
        return
    with contextlib.suppress(OSError):
        for entry in list(before.path.iterdir()):
            if entry.name in before.entries or _has_records(entry):
                continue
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)
    _remove_made(before)


def _remove_made(before: _Before) -> None:
    for path in before.missing:
        with contextlib.suppress(OSError):
            path.rmdir()


def _has_records(entry: Path) -> bool:
    return any(log.stat().st_size for log in entry.rglob("*.log"))

"""Removes the files that a failed start made, so that a mistyped option leaves no directories behind.

It removes only what did not exist before: new directories, and new entries of existing ones. A maintainer
must make sure that no records are ever removed: a directory that was a broker's log directory before is left
alone, and so is every entry with a log that is not empty.
"""

import contextlib
import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from kalda.runtime.system.filesystem import OsFileSystem
from kalda.storage.file_names import META_PROPERTIES_FILE

_LOG_LOCK: Final = ".lock"
"""The lock that the user of a log directory holds in it."""


@dataclass(frozen=True, slots=True)
class _Before:
    """A directory before a start; `entries` is empty if it did not exist."""

    path: Path
    missing: tuple[Path, ...]
    """The directories that a start has to create, the deepest first: this one and missing parents."""
    entries: frozenset[str]


class StartUndo:
    """Records the entries of directories before a start, and removes the entries that a failed start added.

    `own` is the process's directory, `others` are further directories that it may create.
    """

    def __init__(self, own: Path, others: Iterable[Path] = ()) -> None:
        self._own = _before(own)
        self._others: Final = [_before(path) for path in others if path != own]
        self._locks_made: frozenset[str] | set[str] = frozenset()

    def on_locked(self, lock_name: str) -> None:
        """Record the process's own directory again, now that no other process can add to it."""
        self._locks_made = {lock_name} - self._own.entries
        self._own = replace(self._own, entries=_entries(self._own.path) - self._locks_made)

    def remove_if_empty(self) -> None:
        """Remove the process's directory and the parents created for it, as far as they are empty."""
        _remove_made(self._own)

    def restore(self) -> None:
        """Remove everything that was added; the process's own directory must still be locked."""
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
    """Restore a directory, unless another process has locked it."""
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

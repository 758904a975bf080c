"""Who waits for which change: ZooKeeper's watches, of all three modes.

A standard watch fires once and is gone. A persistent one stays. A persistent recursive one stays and reports
on every znode below its path too, but never that a list of children changed: each child speaks for itself.
One watcher (by equality) is told of an event once, however many of its watches the event meets.

Data watches (of reads and of existence) and child watches are two tables, because a change of data must not
fire the latter. Sans-IO: it says who is to be told what, and in which order; telling them is the final
processor's work. The one thing to keep: an event costs what its own path's watchers cost, and with recursive
watches about also its ancestors', never a walk through all that is watched.
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, Protocol

from kalda.common import invariants
from kalda.zk.client.port import EventType, WatchEvent


class Watcher(Protocol):
    """Whoever is told of a change: a callback in this process, or a client's connection."""

    def __hash__(self) -> int: ...

    @property
    def session_id(self) -> int:
        """The session whose end drops the watches."""
        ...

    def process(self, event: WatchEvent) -> None:
        """Take the event; must not block and must not raise."""
        ...


class WatchKind(IntEnum):
    """Which watches of a path are meant when they are looked for or removed; the numbers are ZooKeeper's."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


_STANDARD: Final = 1
_PERSISTENT: Final = 2
_RECURSIVE: Final = 4
_ALL_MODES: Final = 7

_CHECKED_PER_CHANGE: Final = 64
"""Watched paths whose check one change may cost on average."""

# Of each watcher of a path, the modes of its watches as bits. The inner dicts also keep the order in which
# watchers came, in which they are told.
_Table = dict[str, dict[Watcher, int]]


class WatchTable:
    """All watches of one server. Invariant: `_paths` holds exactly the paths of each watcher's entries."""

    def __init__(self) -> None:
        self._data: _Table = {}
        self._children: _Table = {}
        self._paths: dict[Watcher, set[str]] = {}
        self._watchers: dict[int, set[Watcher]] = {}
        """By session, those with an entry."""
        self._unchecked_changes = 0
        self._recursive_count = 0
        """Without recursive watches an event need not look at its path's ancestors."""

    def __len__(self) -> int:
        return sum(map(len, self._data.values())) + sum(map(len, self._children.values()))

    def add_data(self, path: str, watcher: Watcher) -> None:
        """Report the next creation, change of data or deletion of `path`."""
        self._add(self._data, path, watcher, _STANDARD)

    def add_children(self, path: str, watcher: Watcher) -> None:
        """Report the next creation or deletion of a child of `path`, or the deletion of `path`."""
        self._add(self._children, path, watcher, _STANDARD)

    def add_persistent(self, path: str, watcher: Watcher, recursive: bool) -> None:
        """Report every such change of `path` until removed; `recursive`: of all znodes below it, too."""
        if recursive:
            self._add(self._data, path, watcher, _RECURSIVE)
        else:
            self._add(self._data, path, watcher, _PERSISTENT)
            self._add(self._children, path, watcher, _PERSISTENT)

    def has(self, path: str, watcher: Watcher, kind: WatchKind) -> bool:
        """Return whether a watcher has a watch of this kind on the path."""
        return any(table.get(path, {}).get(watcher, 0) & modes for table, modes in self._places(kind))

    def remove_watch(self, path: str, watcher: Watcher, kind: WatchKind) -> bool:
        """Drop a watcher's watches of this kind on the path; return whether there was one."""
        was_there = False
        for table, modes in self._places(kind):
            if table.get(path, {}).get(watcher, 0) & modes:
                was_there = True
                self._drop_modes(table, path, watcher, modes)
        if was_there:
            self._forget(watcher, path)
        return was_there

    def fire(self, events: Iterable[WatchEvent]) -> list[tuple[Watcher, WatchEvent]]:
        """Return, in order, the watchers that the events concern, and take their standard watches out."""
        fired: list[tuple[Watcher, WatchEvent]] = []
        if not self._paths:
            return fired
        for event in events:
            path = event.path
            watchers: dict[Watcher, None] = {}
            if event.type is not EventType.CHILDREN_CHANGED:
                self._collect(self._data, path, watchers)
                if self._recursive_count:
                    self._collect_recursive(path, watchers)
            if event.type in (EventType.CHILDREN_CHANGED, EventType.DELETED):
                self._collect(self._children, path, watchers)
            fired.extend([(watcher, event) for watcher in watchers])
        if invariants.enabled:
            self._unchecked_changes += 1
            if self._unchecked_changes * _CHECKED_PER_CHANGE >= len(self._data) + len(self._children):
                self.check_invariants()
        return fired

    def remove_session(self, session_id: int) -> None:
        """Drop all watches of a session; nobody is told."""
        for watcher in list(self._watchers.get(session_id, ())):
            self.remove(watcher)

    def remove(self, watcher: Watcher) -> None:
        """Drop all watches of a watcher."""
        for path in list(self._paths.get(watcher, ())):
            self.remove_watch(path, watcher, WatchKind.ANY)

    def paths_by_session(self) -> dict[int, set[str]]:
        """Return which paths each session watches, for operators."""
        return {
            session_id: {path for watcher in watchers for path in self._paths[watcher]}
            for session_id, watchers in self._watchers.items()
        }

    def check_invariants(self) -> None:
        """Assert that the tables agree with each other; walks over all watches."""
        self._unchecked_changes = 0
        paths: dict[Watcher, set[str]] = {}
        recursive_count = 0
        for table in (self._data, self._children):
            for path, watchers in table.items():
                assert watchers, f"{path} has an entry, but no watcher"
                for watcher, modes in watchers.items():
                    assert 0 < modes <= _ALL_MODES, f"{path} has a watch of modes {modes}"
                    paths.setdefault(watcher, set()).add(path)
                    recursive_count += bool(modes & _RECURSIVE)
        assert paths == self._paths, "the paths by watcher are not the watchers by path"
        assert recursive_count == self._recursive_count, f"{recursive_count} recursive watches"
        sessions: dict[int, set[Watcher]] = {}
        for watcher in paths:
            sessions.setdefault(watcher.session_id, set()).add(watcher)
        assert sessions == self._watchers, "the watchers by session are not those with a path"

    def _places(self, kind: WatchKind) -> tuple[tuple[_Table, int], ...]:
        if kind is WatchKind.CHILDREN:
            return ((self._children, _STANDARD),)
        if kind is WatchKind.DATA:
            return ((self._data, _STANDARD),)
        if kind is WatchKind.PERSISTENT:
            return ((self._children, _PERSISTENT), (self._data, _PERSISTENT))
        if kind is WatchKind.PERSISTENT_RECURSIVE:
            return ((self._data, _RECURSIVE),)
        return ((self._children, _ALL_MODES), (self._data, _ALL_MODES))

    def _add(self, table: _Table, path: str, watcher: Watcher, mode: int) -> None:
        watchers = table.setdefault(path, {})
        modes = watchers.get(watcher, 0)
        if mode == _RECURSIVE and not modes & _RECURSIVE:
            self._recursive_count += 1
        watchers[watcher] = modes | mode
        paths = self._paths.get(watcher)
        if paths is None:
            paths = self._paths[watcher] = set()
            self._watchers.setdefault(watcher.session_id, set()).add(watcher)
        paths.add(path)

    def _collect(self, table: _Table, path: str, found: dict[Watcher, None]) -> None:
        watchers = table.get(path)
        if watchers is None:
            return
        for watcher, modes in list(watchers.items()):
            found[watcher] = None
            if modes & _STANDARD:
                self._drop_modes(table, path, watcher, _STANDARD)
                self._forget(watcher, path)

    def _collect_recursive(self, path: str, found: dict[Watcher, None]) -> None:
        while path != "/":
            path = path[: path.rindex("/")] or "/"
            for watcher, modes in self._data.get(path, _NOBODY).items():
                if modes & _RECURSIVE:
                    found[watcher] = None

    def _drop_modes(self, table: _Table, path: str, watcher: Watcher, modes: int) -> None:
        watchers = table[path]
        before = watchers[watcher]
        left = before & ~modes
        if before & ~left & _RECURSIVE:
            self._recursive_count -= 1
        if left:
            watchers[watcher] = left
            return
        del watchers[watcher]
        if not watchers:
            del table[path]

    def _forget(self, watcher: Watcher, path: str) -> None:
        if watcher in self._data.get(path, _NOBODY) or watcher in self._children.get(path, _NOBODY):
            return
        paths = self._paths[watcher]
        paths.discard(path)
        if not paths:
            del self._paths[watcher]
            same_session = self._watchers[watcher.session_id]
            same_session.discard(watcher)
            if not same_session:
                del self._watchers[watcher.session_id]


_NOBODY: Final[dict[Watcher, int]] = {}

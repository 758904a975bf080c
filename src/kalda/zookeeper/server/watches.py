"""Tracks ZooKeeper's watches of all sessions, and returns the watchers that a change triggers.

A standard watch fires once and is removed. A persistent watch stays. A persistent recursive watch stays and
also fires for every znode below its path, but never with CHILDREN_CHANGED: each child has its own event. A
watcher (compared by equality) gets an event once, even if it has several matching watches.

Data watches (of reads and of existence) and child watches are in two tables, because a change of data must
not fire a child watch. Sans-IO: `fire` returns watchers and events in order, and the final processor delivers
them. An event must cost no more than the watchers of its own path and, with recursive watches, of its
ancestors; it must never walk over all watches.
"""

from collections.abc import Iterable
from enum import IntEnum
from itertools import islice
from typing import Final, Protocol

from kalda.common import invariants
from kalda.zookeeper.port import EventType, WatchEvent


class Watcher(Protocol):
    """A receiver of watch events: a callback in this process, or a client's connection."""

    def __hash__(self) -> int: ...

    @property
    def session_id(self) -> int:
        """The session whose end removes the watches."""
        ...

    def process(self, event: WatchEvent) -> None:
        """Deliver the event; must not block and must not raise."""
        ...


class WatchKind(IntEnum):
    """The kind of watches to look up or remove; the numbers are ZooKeeper's."""

    CHILDREN = 1
    DATA = 2
    ANY = 3
    PERSISTENT = 4
    PERSISTENT_RECURSIVE = 5


_STANDARD: Final = 1
_PERSISTENT: Final = 2
_RECURSIVE: Final = 4
_ALL_MODES: Final = 7

WATCH_BYTES: Final = 300
"""What the watches of one watcher on a path take beside the path's own bytes."""

_CHECKED_PER_CHANGE: Final = 64
"""Watched paths whose check one change may cost on average."""

# By path and watcher: the modes of the watches as bits. The inner dicts keep the order in which watchers were
# added, which is the order of delivery.
_Table = dict[str, dict[Watcher, int]]


class WatchTable:
    """All watches of one server. Invariant: `_paths` holds exactly the paths of each watcher's entries."""

    def __init__(self) -> None:
        self._data: _Table = {}
        self._children: _Table = {}
        self._paths: dict[Watcher, set[str]] = {}
        self._watchers: dict[int, set[Watcher]] = {}
        """By session, the watchers with an entry."""
        self._held_bytes: dict[Watcher, int] = {}
        self.total_bytes = 0
        """What all watches take, of memory."""
        self._unchecked_changes = 0
        self._recursive_count = 0
        """At 0 an event need not look at its path's ancestors."""

    def __len__(self) -> int:
        return sum(map(len, self._data.values())) + sum(map(len, self._children.values()))

    def add_data(self, path: str, watcher: Watcher) -> None:
        """Add a standard watch for the next creation, change of data or deletion of `path`."""
        self._add(self._data, path, watcher, _STANDARD)

    def add_children(self, path: str, watcher: Watcher) -> None:
        """Add a standard watch for the next creation or deletion of a child, or the deletion of `path`."""
        self._add(self._children, path, watcher, _STANDARD)

    def add_persistent(self, path: str, watcher: Watcher, recursive: bool) -> None:
        """Add a watch for every such change of `path`; with `recursive`, of all znodes below it too."""
        if recursive:
            self._add(self._data, path, watcher, _RECURSIVE)
        else:
            self._add(self._data, path, watcher, _PERSISTENT)
            self._add(self._children, path, watcher, _PERSISTENT)

    def has(self, path: str, watcher: Watcher, kind: WatchKind) -> bool:
        """Return whether a watcher has a watch of this kind on the path."""
        return any(table.get(path, {}).get(watcher, 0) & modes for table, modes in self._places(kind))

    def remove_watch(self, path: str, watcher: Watcher, kind: WatchKind) -> bool:
        """Remove a watcher's watches of this kind on the path; return whether there was one."""
        was_there = False
        for table, modes in self._places(kind):
            if table.get(path, {}).get(watcher, 0) & modes:
                was_there = True
                self._drop_modes(table, path, watcher, modes)
        if was_there:
            self._forget(watcher, path)
        return was_there

    def fire(self, events: Iterable[WatchEvent]) -> list[tuple[Watcher, WatchEvent]]:
        """Return, in order, the watchers that the events trigger, and remove their standard watches."""
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
        """Remove all watches of a session without an event."""
        for watcher in list(self._watchers.get(session_id, ())):
            self.remove(watcher)

    def remove(self, watcher: Watcher, count_max: int | None = None) -> bool:
        """Remove the watches of a watcher, on at most `count_max` paths; return whether none is left."""
        for path in list(islice(self._paths.get(watcher, ()), count_max)):
            self.remove_watch(path, watcher, WatchKind.ANY)
        return watcher not in self._paths

    def held_bytes(self, watcher: Watcher) -> int:
        """Return the bytes of memory that the watches of a watcher take."""
        return self._held_bytes.get(watcher, 0)

    @property
    def watcher_count(self) -> int:
        """How many watchers have a watch."""
        return len(self._paths)

    def paths_by_session(self) -> dict[int, set[str]]:
        """Return the watched paths of each session, for operators."""
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
        held = {watcher: sum(WATCH_BYTES + len(path) for path in found) for watcher, found in paths.items()}
        assert held == self._held_bytes, f"watches take {held}, counted were {self._held_bytes}"
        assert sum(held.values()) == self.total_bytes, f"all watches take {self.total_bytes}"
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
        if path not in paths:
            paths.add(path)
            size = WATCH_BYTES + len(path)
            self._held_bytes[watcher] = self._held_bytes.get(watcher, 0) + size
            self.total_bytes += size

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
        if path in paths:
            paths.remove(path)
            size = WATCH_BYTES + len(path)
            self._held_bytes[watcher] -= size
            self.total_bytes -= size
        if not paths:
            del self._paths[watcher]
            del self._held_bytes[watcher]
            same_session = self._watchers[watcher.session_id]
            same_session.discard(watcher)
            if not same_session:
                del self._watchers[watcher.session_id]


_NOBODY: Final[dict[Watcher, int]] = {}

"""Who waits for which change. One-shot, as ZooKeeper's: a watch that fires is gone.

The same watcher (by equality) set twice on a path fires once. Data watches (of reads and
of existence) and child watches are two tables, because a change of data must not fire the latter. Sans-IO: it
says who is to be told what, and in which order; telling them is the final processor's work.
"""

from collections.abc import Iterable
from typing import Protocol

from kalda.coordination.port import EventType, WatchEvent


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


class WatchTable:
    """All watches of one server. Invariant: `_paths` holds exactly the paths of each watcher's entries."""

    def __init__(self) -> None:
        # Inner dicts are ordered sets: watchers are told in the order in which they came.
        self._data: dict[str, dict[Watcher, None]] = {}
        self._children: dict[str, dict[Watcher, None]] = {}
        self._paths: dict[Watcher, set[str]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._data.values())) + sum(map(len, self._children.values()))

    def add_data(self, path: str, watcher: Watcher) -> None:
        """Report the next creation, change of data or deletion of `path`."""
        self._data.setdefault(path, {})[watcher] = None
        self._paths.setdefault(watcher, set()).add(path)

    def add_children(self, path: str, watcher: Watcher) -> None:
        """Report the next creation or deletion of a child of `path`, or the deletion of `path`."""
        self._children.setdefault(path, {})[watcher] = None
        self._paths.setdefault(watcher, set()).add(path)

    def fire(self, events: Iterable[WatchEvent]) -> list[tuple[Watcher, WatchEvent]]:
        """Take out and return, in order, the watchers that the events concern.

        A watcher with both kinds of watch on a deleted znode is told once.
        """
        fired: list[tuple[Watcher, WatchEvent]] = []
        for event in events:
            path = event.path
            watchers: dict[Watcher, None] = {}
            if event.type is not EventType.CHILDREN_CHANGED:
                watchers |= self._data.pop(path, {})
            if event.type in (EventType.CHILDREN_CHANGED, EventType.DELETED):
                watchers |= self._children.pop(path, {})
            for watcher in watchers:
                self._forget(watcher, path)
                fired.append((watcher, event))
        return fired

    def remove_session(self, session_id: int) -> None:
        """Drop all watches of a session; nobody is told."""
        for watcher in [watcher for watcher in self._paths if watcher.session_id == session_id]:
            self.remove(watcher)

    def remove(self, watcher: Watcher) -> None:
        """Drop all watches of a watcher."""
        for path in self._paths.pop(watcher, ()):
            for table in (self._data, self._children):
                watchers = table.get(path)
                if watchers is not None and watcher in watchers:
                    del watchers[watcher]
                    if not watchers:
                        del table[path]

    def _forget(self, watcher: Watcher, path: str) -> None:
        if watcher in self._data.get(path, ()) or watcher in self._children.get(path, ()):
            return
        paths = self._paths[watcher]
        paths.discard(path)
        if not paths:
            del self._paths[watcher]

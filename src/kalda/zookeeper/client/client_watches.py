"""Tracks the watches of one client session and returns the callbacks that a change triggers. Sans-IO.

A server drops a session's watches when the connection is lost, and znodes may change until it is back. So
each watched path has the zxid that the read which set the watch saw; after a reconnect the client reads the
path again, and a different zxid means a missed change.
"""

from collections.abc import Iterator
from typing import Final

from kalda.zookeeper.port import EventType, Stat, WatchCallback, WatchEvent

ABSENT: Final = 0
"""The zxid recorded for a znode that does not exist; no transaction has this number."""


class _Armed:
    """The callbacks of one path. Invariant: all saw the same zxid, because a change removes them all."""

    __slots__ = ("callbacks", "seen")

    def __init__(self) -> None:
        # A dict as an ordered set: callbacks run in the order in which they were added.
        self.callbacks: dict[WatchCallback, None] = {}
        self.seen = ABSENT


class ClientWatches:
    """One-shot watches by path; data watches (of reads and of existence) and child watches are two tables."""

    def __init__(self) -> None:
        self._data: dict[str, _Armed] = {}
        self._children: dict[str, _Armed] = {}

    def __len__(self) -> int:
        return sum(len(armed.callbacks) for table in (self._data, self._children) for armed in table.values())

    def add_data(self, path: str, stat: Stat | None, callback: WatchCallback) -> None:
        """Add a watch of a znode that a read found as `stat`, or did not find (None)."""
        armed = self._data.setdefault(path, _Armed())
        armed.callbacks[callback] = None
        armed.seen = ABSENT if stat is None else stat.mzxid

    def add_children(self, path: str, stat: Stat, callback: WatchCallback) -> None:
        """Add a watch for the next creation or deletion of a child, or the znode's own deletion."""
        armed = self._children.setdefault(path, _Armed())
        armed.callbacks[callback] = None
        armed.seen = stat.pzxid

    def data_paths(self) -> Iterator[str]:
        """Return the paths with data watches."""
        return iter(self._data)

    def child_paths(self) -> Iterator[str]:
        """Return the paths with child watches."""
        return iter(self._children)

    def fire(self, event: WatchEvent) -> list[WatchCallback]:
        """Remove and return, in order, the callbacks that the event triggers, each one once."""
        fired: dict[WatchCallback, None] = {}
        if event.type is not EventType.CHILDREN_CHANGED:
            fired |= self._take(self._data, event.path)
        if event.type in (EventType.CHILDREN_CHANGED, EventType.DELETED):
            fired |= self._take(self._children, event.path)
        return list(fired)

    def missed_on_data(self, path: str, stat: Stat | None) -> EventType | None:
        """Return the missed change of a znode whose current metadata is `stat`, or None.

        A znode that was deleted and created again counts as changed, as in ZooKeeper.
        """
        armed = self._data.get(path)
        now = ABSENT if stat is None else stat.mzxid
        if armed is None or armed.seen == now:
            return None
        if armed.seen == ABSENT:
            return EventType.CREATED
        return EventType.DELETED if now == ABSENT else EventType.DATA_CHANGED

    def missed_on_children(self, path: str, stat: Stat | None) -> EventType | None:
        """Return the missed change of the children of a znode whose current metadata is `stat`, or None."""
        armed = self._children.get(path)
        if armed is None:
            return None
        if stat is None:
            return EventType.DELETED
        return None if armed.seen == stat.pzxid else EventType.CHILDREN_CHANGED

    def clear(self) -> None:
        """Remove all watches without an event."""
        self._data.clear()
        self._children.clear()

    @staticmethod
    def _take(table: dict[str, _Armed], path: str) -> dict[WatchCallback, None]:
        armed = table.pop(path, None)
        return {} if armed is None else armed.callbacks

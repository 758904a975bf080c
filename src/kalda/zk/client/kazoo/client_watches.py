"""The watches of one session, as its client keeps them: who waits for what, and what was last seen there.

The server forgets a session's watches when its connection is lost, and changes go on meanwhile. So with each
watched path stands the transaction that the read which armed the watch saw last; after a reconnect the client
reads again and whatever differs has changed. Sans-IO: the engine reads, and calls whom `fire` returns.
"""

from collections.abc import Iterator
from typing import Final

from kalda.zk.client.port import EventType, Stat, WatchCallback, WatchEvent

ABSENT: Final = 0
"""Seen where there was no znode; no transaction has this number."""


class _Armed:
    """Those who watch one path. Invariant: all saw the same, for a change takes every callback out."""

    __slots__ = ("callbacks", "seen")

    def __init__(self) -> None:
        # A dict as an ordered set: callbacks are told in the order in which they came.
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
        """Report what happens to a znode that a read found as `stat` (None: not at all)."""
        armed = self._data.setdefault(path, _Armed())
        armed.callbacks[callback] = None
        armed.seen = ABSENT if stat is None else stat.mzxid

    def add_children(self, path: str, stat: Stat, callback: WatchCallback) -> None:
        """Report the next creation or deletion of a child, or the znode's own deletion."""
        armed = self._children.setdefault(path, _Armed())
        armed.callbacks[callback] = None
        armed.seen = stat.pzxid

    def data_paths(self) -> Iterator[str]:
        """The paths with data watches."""
        return iter(self._data)

    def child_paths(self) -> Iterator[str]:
        """The paths with child watches."""
        return iter(self._children)

    def fire(self, event: WatchEvent) -> list[WatchCallback]:
        """Take out and return, in order, those whom the event concerns; each callback stands there once."""
        fired: dict[WatchCallback, None] = {}
        if event.type is not EventType.CHILDREN_CHANGED:
            fired |= self._take(self._data, event.path)
        if event.type in (EventType.CHILDREN_CHANGED, EventType.DELETED):
            fired |= self._take(self._children, event.path)
        return list(fired)

    def missed_on_data(self, path: str, stat: Stat | None) -> EventType | None:
        """Say what happened, unseen, to a znode that is now found as `stat`; None: nothing.

        A znode that was deleted and created again counts as changed, as it does for ZooKeeper itself.
        """
        armed = self._data.get(path)
        now = ABSENT if stat is None else stat.mzxid
        if armed is None or armed.seen == now:
            return None
        if armed.seen == ABSENT:
            return EventType.CREATED
        return EventType.DELETED if now == ABSENT else EventType.DATA_CHANGED

    def missed_on_children(self, path: str, stat: Stat | None) -> EventType | None:
        """Say what happened, unseen, to the children of a znode that is now found as `stat`."""
        armed = self._children.get(path)
        if armed is None:
            return None
        if stat is None:
            return EventType.DELETED
        return None if armed.seen == stat.pzxid else EventType.CHILDREN_CHANGED

    def clear(self) -> None:
        """Drop all; nobody is told."""
        self._data.clear()
        self._children.clear()

    @staticmethod
    def _take(table: dict[str, _Armed], path: str) -> dict[WatchCallback, None]:
        armed = table.pop(path, None)
        return {} if armed is None else armed.callbacks

"""Matches the changes of a cluster's keys with the callbacks that wait for them. Sans-IO.

One stream of etcd reports all changes of the cluster's keys in the order of their revisions. A watch has the
revision of the read that set it and is triggered by the first change behind it. Stream and reads have
connections of their own, so a change may be reported before the response of an earlier read: `EtcdWatches`
keeps the changes since a read was sent and looks there when the watch is set.

If etcd has compacted changes that a stream had still to report, the client reads all watched znodes; the
state that a watch has seen says whether it missed a change.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.etcd.keys import Keys, parent_of
from kalda.etcd.messages import Event, KeyValue
from kalda.zookeeper.port import EventType, WatchCallback, WatchEvent

ABSENT: Final = 0
"""The state of a znode that does not exist."""


@dataclass(slots=True)
class _Armed:
    revision: int
    seen: int
    older: int | None = None
    """The revision of an earlier read that set the watch, if changes behind it are still to be reported."""


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a znode, at its revision."""

    event: WatchEvent
    revision: int


Triggered = tuple[WatchEvent, list[WatchCallback]]
_Table = dict[str, dict[WatchCallback, _Armed]]


class EtcdWatches:
    """One-shot watches by path; those of data (and existence) and those of children are two tables."""

    def __init__(self, keys: Keys) -> None:
        self._keys: Final = keys
        self._data: _Table = {}
        self._children: _Table = {}
        self._recent: list[Change] = []
        self._keeps_recent = False
        self.seen = 0
        """All changes up to this revision have been reported."""

    def __len__(self) -> int:
        return len(self._data) + len(self._children)

    @property
    def data_paths(self) -> list[str]:
        """The paths with watches of data."""
        return list(self._data)

    @property
    def child_paths(self) -> list[str]:
        """The paths with watches of children."""
        return list(self._children)

    def keep_recent(self, keeps: bool) -> None:
        """Keep the changes from now on, for reads that are sent now; or forget them."""
        self._recent.clear()
        self._keeps_recent = keeps

    def add_data(
        self, path: str, kv: KeyValue | None, revision: int, callback: WatchCallback
    ) -> list[Triggered]:
        """Add a watch of a znode that a read at `revision` found so; return what has happened since."""
        seen = ABSENT if kv is None else kv.mod_revision
        before = self._arm(self._data, path, callback, _Armed(revision, seen))
        if before is None:
            return self._since(revision)
        return [(WatchEvent(_kind(before.seen, seen), path), [callback]), *self._since(revision)]

    def add_children(
        self, path: str, kvs: Iterable[KeyValue], revision: int, callback: WatchCallback
    ) -> list[Triggered]:
        """Add a watch for the next creation or deletion of a child; return what has happened since."""
        before = self._arm(self._children, path, callback, _Armed(revision, children_state(kvs)))
        if before is None:
            return self._since(revision)
        return [(WatchEvent(EventType.CHILDREN_CHANGED, path), [callback]), *self._since(revision)]

    def changes(self, events: Sequence[Event]) -> list[Change]:
        """Translate events of the stream; those of other keys than znodes are left out."""
        changes: list[Change] = []
        for event in events:
            path = self._keys.path_of(event.kv.key)
            if path is None:
                continue
            revision = event.kv.mod_revision
            if not event.is_deletion and event.kv.create_revision != revision:
                changes.append(Change(WatchEvent(EventType.DATA_CHANGED, path), revision))
                continue
            kind = EventType.DELETED if event.is_deletion else EventType.CREATED
            changes.append(Change(WatchEvent(kind, path), revision))
            if path != "/":
                changes.append(Change(WatchEvent(EventType.CHILDREN_CHANGED, parent_of(path)), revision))
        return changes

    def report(self, change: Change) -> Triggered | None:
        """Remove and return the callbacks that a change triggers, each one once; None if there are none."""
        if self._keeps_recent:
            self._recent.append(change)
        return self._trigger(change)

    def missed_data(self, path: str, kv: KeyValue | None) -> Triggered | None:
        """Return the event that watches of a znode missed; `kv` is the present state.

        A znode that was deleted and created again counts as changed, as in ZooKeeper.
        """
        now = ABSENT if kv is None else kv.mod_revision
        armed = self._data.get(path, {})
        stale = [callback for callback, each in armed.items() if each.seen != now]
        if not stale:
            return None
        return WatchEvent(_kind(armed[stale[0]].seen, now), path), self._take(self._data, path, stale)

    def missed_children(self, path: str, kv: KeyValue | None, kvs: Iterable[KeyValue]) -> Triggered | None:
        """Return the event that watches of a znode's children missed; `kvs` are the present children."""
        now = children_state(kvs)
        armed = self._children.get(path, {})
        stale = [callback for callback, each in armed.items() if kv is None or each.seen != now]
        if not stale:
            return None
        kind = EventType.DELETED if kv is None else EventType.CHILDREN_CHANGED
        return WatchEvent(kind, path), self._take(self._children, path, stale)

    def caught_up(self, revision: int) -> None:
        """Note that the znodes of all watches were read at this revision."""
        self.seen = revision
        for table in (self._data, self._children):
            for armed in table.values():
                for each in armed.values():
                    each.revision = revision
                    each.older = None

    def clear(self) -> None:
        """Remove all watches without an event."""
        self._data.clear()
        self._children.clear()
        self._recent.clear()

    @staticmethod
    def _arm(table: _Table, path: str, callback: WatchCallback, armed: _Armed) -> _Armed | None:
        """Arm a watch; return what the callback had seen if that has changed and it was not called yet.

        The response of the read is handed out behind the changes up to its revision. Those of a watch that
        the same callback has set before must not get lost because the new one is set first.
        """
        known = table.setdefault(path, {})
        before = known.get(callback)
        known[callback] = armed
        if before is None or before.seen != armed.seen:
            return before
        armed.older = before.revision if before.older is None else before.older
        return None

    def _since(self, revision: int) -> list[Triggered]:
        if revision >= self.seen:
            return []
        found = [self._trigger(change) for change in self._recent if change.revision > revision]
        return [each for each in found if each is not None]

    def _trigger(self, change: Change) -> Triggered | None:
        event = change.event
        callbacks: dict[WatchCallback, None] = {}
        if event.type is not EventType.CHILDREN_CHANGED:
            callbacks |= dict.fromkeys(self._due(self._data, event.path, change.revision))
        if event.type in (EventType.CHILDREN_CHANGED, EventType.DELETED):
            callbacks |= dict.fromkeys(self._due(self._children, event.path, change.revision))
        return (event, list(callbacks)) if callbacks else None

    def _due(self, table: _Table, path: str, revision: int) -> list[WatchCallback]:
        armed = table.get(path)
        if armed is None:
            return []
        due = [callback for callback, each in armed.items() if each.revision < revision]
        again = [
            callback
            for callback, each in armed.items()
            if each.older is not None and each.older < revision <= each.revision
        ]
        for callback in again:
            armed[callback].older = None
        return [*again, *self._take(table, path, due)]

    @staticmethod
    def _take(table: _Table, path: str, callbacks: list[WatchCallback]) -> list[WatchCallback]:
        armed = table[path]
        for callback in callbacks:
            del armed[callback]
        if not armed:
            del table[path]
        return callbacks


def _kind(before: int, now: int) -> EventType:
    """Return the event that leads from one state of a znode to another."""
    if now == ABSENT:
        return EventType.DELETED
    return EventType.CREATED if before == ABSENT else EventType.DATA_CHANGED


def children_state(kvs: Iterable[KeyValue]) -> int:
    """Return a number for a list of children; another list, or one with a new znode, has another one."""
    return hash(tuple((kv.key, kv.create_revision) for kv in kvs))

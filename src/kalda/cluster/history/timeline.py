"""Reads the history: the changes in order, each with what was before it, and the state at a time. Sans-IO."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kalda.cluster.history.changes import Change, Origin, SnapshotMark
from kalda.cluster.history.recorded_state import PathMap
from kalda.cluster.history.subjects import JsonValue

NOT_KNOWN: Final = -1


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One change with what was before."""

    change: Change
    before: Change | None
    """The last change of the znode before; None if it did not exist, or if nothing is known of it."""

    @property
    def before_value(self) -> JsonValue:
        """The recorded data before; None if there was none or it is not known."""
        return None if self.before is None else self.before.value


class Timeline:
    """The fold of the records of the topic, in their order, up to a time."""

    def __init__(self, until_ms: int | None = None) -> None:
        """Changes after `until_ms`, wall-clock milliseconds, are left out; None leaves out nothing."""
        self._until_ms: Final = until_ms
        self.entries: Final[list[HistoryEntry]] = []
        """The changes in the order in which they were recorded."""
        self.state: Final[PathMap[Change]] = PathMap()
        """The last change of each znode that exists."""
        self.known_from_ms = NOT_KNOWN
        """The time from which the state is complete: that of the first complete snapshot; -1 before."""
        self._begun = ""
        self._begun_ms = NOT_KNOWN

    def add(self, record: Change | SnapshotMark) -> None:
        """Apply the next record."""
        if isinstance(record, SnapshotMark):
            if not record.is_end:
                self._begun, self._begun_ms = record.snapshot, record.time_ms
            elif record.snapshot == self._begun and self.known_from_ms == NOT_KNOWN:
                self.known_from_ms = record.time_ms
            return
        if record.origin is Origin.SNAPSHOT:
            if self._until_ms is None or self._begun_ms <= self._until_ms:
                self._apply(record)
            return
        if self._until_ms is not None and record.time_ms > self._until_ms:
            return
        self.entries.append(HistoryEntry(record, self.state.get(record.path)))
        self._apply(record)

    def add_all(self, records: Iterable[Change | SnapshotMark | None]) -> None:
        """Apply records; None stands for one that could not be read."""
        for each in records:
            if each is not None:
                self.add(each)

    def _apply(self, change: Change) -> None:
        if change.is_deleted:
            self.state.delete(change.path)
        else:
            self.state.set(change.path, change)


def differences(before: JsonValue, after: JsonValue) -> list[tuple[str, JsonValue, JsonValue]]:
    """Return what differs between two recorded values: dotted name, before and after, sorted by name.

    >>> differences({"config": {"a": "1", "b": "2"}}, {"config": {"a": "1", "b": "3"}})
    [('config.b', '2', '3')]
    """
    return sorted(_differences("", before, after), key=lambda each: each[0])


def _differences(
    name: str, before: JsonValue, after: JsonValue
) -> Iterable[tuple[str, JsonValue, JsonValue]]:
    if isinstance(before, dict) or isinstance(after, dict):
        old: Mapping[str, JsonValue] = before if isinstance(before, dict) else {}
        new: Mapping[str, JsonValue] = after if isinstance(after, dict) else {}
        for key in {**old, **new}:
            yield from _differences(f"{name}.{key}" if name else key, old.get(key), new.get(key))
    elif before != after:
        yield name, before, after

"""Decides what is recorded in the history: new notes, and what was seen and is not recorded. Sans-IO.

The core keeps the last record of each znode as bytes, as the topic has them. What must not break: a change is
recorded once. A note is known by its name; anything else by the transaction that the engine gives the znode,
or, for the state of a partition, by its version.
"""

from collections import deque
from collections.abc import Mapping
from typing import Final

from kalda.cluster import paths
from kalda.cluster.history.author import Author
from kalda.cluster.history.changes import (
    UNKNOWN,
    Change,
    Origin,
    SnapshotMark,
    decode_record,
    is_deletion,
)
from kalda.cluster.history.recorded_state import PathMap
from kalda.cluster.history.subjects import (
    IsSecret,
    JsonValue,
    has_secret,
    recorded_value,
    subject_of,
)
from kalda.common.types import TopicPartition
from kalda.zookeeper.port import Stat

KNOWN_NOTES_MAX: Final = 30_000
"""Names of recorded notes that are kept: more than may wait (`recording_client.NOTES_MAX`), since a note that
waits may be recorded already, if its recorder died before it deleted the note."""

NO_SNAPSHOT: Final = -1
_TOPICS: Final = f"{paths.TOPICS}/"

Entry = tuple[bytes, Stat]


class RecordCore:
    """The recorded state of the topic that decides which changes are recorded next."""

    def __init__(self, is_secret: IsSecret) -> None:
        self._is_secret: Final = is_secret
        self.latest: Final[PathMap[bytes]] = PathMap()
        """The last record of each znode that exists."""
        self.recorded_since: set[str] | None = None
        """The znodes that were recorded since the recorder began to read: what it reads of them may be older.
        None while nothing is read, as during a load."""
        self.snapshot_ms = NO_SNAPSHOT
        """When the last complete snapshot was written."""
        self._begun_snapshot = ""
        self._begun_ms = NO_SNAPSHOT
        self._notes: Final[deque[str]] = deque()
        self._known_notes: Final[set[str]] = set()

    # Records, as they are appended or loaded.

    def replay(self, key: bytes, value: bytes) -> None:
        """Apply a record of the topic."""
        if not key:
            mark = decode_record(key, value)
            if isinstance(mark, SnapshotMark):
                self._replay_mark(mark)
            return
        path = key.decode(errors="replace")
        if self.recorded_since is not None:
            self.recorded_since.add(path)
            if path.startswith(_TOPICS) and is_deletion(value):
                # It goes with the topic.
                self.recorded_since.add(paths.delete_topic(path[len(_TOPICS) :]))
        note = _note_name(value)
        if note:
            self._note_known(note)
        if is_deletion(value):
            self.latest.delete(path)
        elif subject_of(path) is not None:
            self.latest.set(path, value)

    def _replay_mark(self, mark: SnapshotMark) -> None:
        if not mark.is_end:
            self._begun_snapshot, self._begun_ms = mark.snapshot, mark.time_ms
        elif mark.snapshot == self._begun_snapshot:
            self.snapshot_ms = self._begun_ms

    def _note_known(self, name: str) -> None:
        if name in self._known_notes:
            return
        self._known_notes.add(name)
        self._notes.append(name)
        if len(self._notes) > KNOWN_NOTES_MAX:
            self._known_notes.discard(self._notes.popleft())

    # Decisions.

    def is_known(self, note: str) -> bool:
        """Return whether the changes of a note are recorded."""
        return note in self._known_notes

    def recorded(self, path: str) -> Change | None:
        """Return the last record of a znode; None if it does not exist as far as is recorded."""
        value = self.latest.get(path)
        found = None if value is None else decode_record(path.encode(), value)
        return found if isinstance(found, Change) else None

    def znode_change(
        self, path: str, entry: Entry | None, now_ms: int, origin: Origin, author: Author | None = None
    ) -> Change | None:
        """Return the change that a read shows and that is not recorded, or None.

        `entry` is None if the znode does not exist. All notes that were written before the read must be
        recorded.
        """
        recorded = self.recorded(path)
        if entry is None:
            return None if recorded is None else Change(path, None, now_ms, origin, author, is_deleted=True)
        data, stat = entry
        if recorded is not None and recorded.zxid == stat.mzxid:
            return None
        value = recorded_value(path, data, self._is_secret)
        if recorded is not None and recorded.value == value and not has_secret(value):
            # The same in another engine, or written again: nothing changed.
            return None
        time_ms = stat.mtime if stat.mtime > 0 else now_ms
        return Change(path, value, time_ms, origin, author, version=stat.version, zxid=stat.mzxid)

    def state_change(
        self,
        partition: TopicPartition,
        value: Mapping[str, JsonValue],
        version: int,
        now_ms: int,
        origin: Origin,
        controller: int,
    ) -> Change | None:
        """Return the change of a partition's state that the metadata shows and that is not recorded, or None.

        Leaders change the ISR only; a new leader epoch is the controller's.
        """
        path = paths.partition_state(partition)
        encoded = self.latest.state(partition)
        found = None if encoded is None else decode_record(path.encode(), encoded)
        recorded = found if isinstance(found, Change) else None
        before = recorded.value if recorded is not None and isinstance(recorded.value, dict) else None
        if recorded is not None and before is not None:
            is_older = version != UNKNOWN and recorded.version >= version
            if is_older and origin is not Origin.FOUND:
                # A note was faster than the metadata. A comparison may be the first one in another engine,
                # where versions begin again.
                return None
            if all(before.get(name) == each for name, each in value.items()):
                return None
            if _epoch(before) > _epoch(value):
                return None
        return Change(path, dict(value), now_ms, origin, _author(before, value, controller), version=version)


def _author(
    before: Mapping[str, JsonValue] | None, value: Mapping[str, JsonValue], controller: int
) -> Author:
    leader, epoch = value.get("leader"), value.get("controller_epoch")
    if before is not None and _epoch(before) == _epoch(value) and isinstance(leader, int) and leader >= 0:
        return Author(leader)
    return Author(controller, epoch if isinstance(epoch, int) else UNKNOWN)


def _epoch(value: Mapping[str, JsonValue]) -> int:
    epoch = value.get("leader_epoch")
    return epoch if isinstance(epoch, int) else -1


_NOTE_KEY: Final = b',"note":"'


def _note_name(value: bytes) -> str | None:
    """Return the name of a record's note without decoding the record; None if it has none."""
    at = value.rfind(_NOTE_KEY)
    if at < 0:
        return None
    return value[at + len(_NOTE_KEY) :].partition(b'"')[0].decode(errors="replace")

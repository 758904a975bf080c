"""Changes of metadata, and their two encodings: in a note beside the change, and in a record of the history.

A note is the data of a znode that the transaction of the changes creates, so it exists exactly if they were
made, and its transaction id is theirs. A record of ``__cluster_history`` has a znode's path as its key and a
change as its value; records without a path bound the snapshots. A reader skips what it does not know: a newer
release may have written it.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from kalda.cluster.history.author import Author
from kalda.cluster.history.subjects import JsonValue, is_too_deep, subject_of
from kalda.common.received_json import loads_received

TOPIC: Final = "__cluster_history"

UNKNOWN: Final = -1
"""The version or transaction id of a change where it is not known."""

NOTE_BYTES_MAX: Final = 256 * 1024
"""A note with more leaves the data out, and it is read where the note is recorded. A transaction of ZooKeeper
may have 1 MB, and has the data once already."""

_INT64_MAX: Final = 2**63 - 1
_TIME_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999, the last that can be shown."""

_NOTE_VERSION: Final = 1
_DELETED: Final = b'{"deleted":true'


class Origin(StrEnum):
    """The source of a recorded change."""

    WRITTEN = "written"
    """The broker that made it noted it in the same transaction. Its author and time are exact."""
    SEEN = "seen"
    """It was seen in the metadata or by a watch."""
    FOUND = "found"
    """A comparison found it: it was made while nothing was recorded, or by a program that leaves no notes.
    Changes between may be missing; the time is that of the comparison unless the engine keeps one."""
    SNAPSHOT = "snapshot"
    """It is no change, but part of a copy of the whole state."""


@dataclass(frozen=True, slots=True)
class Change:
    """One znode was created, replaced or deleted."""

    path: str
    value: JsonValue
    """The recorded data (`subjects.recorded_value`); None if it was deleted."""
    time_ms: int
    origin: Origin
    author: Author | None = None
    """None if it is not known."""
    is_deleted: bool = False
    version: int = UNKNOWN
    """The znode's version behind the change."""
    zxid: int = UNKNOWN
    """The engine's transaction."""
    note: str = ""
    """The name of the note that it is from."""
    is_omitted: bool = False
    """Whether the note left the data out."""


@dataclass(frozen=True, slots=True)
class SnapshotMark:
    """The beginning or the end of a copy of the whole state."""

    snapshot: str
    """A name that both ends share."""
    is_end: bool
    time_ms: int


# Notes.


def encode_note(
    author: Author, time_ms: int, changes: Sequence[Change], bytes_max: int = NOTE_BYTES_MAX
) -> bytes:
    """Encode the data of a note; one that would be larger than `bytes_max` leaves the data out."""
    encoded = _note(author, time_ms, changes)
    if len(encoded) > bytes_max:
        omitted = [replace(each, value=None, is_omitted=not each.is_deleted) for each in changes]
        encoded = _note(author, time_ms, omitted)
    return encoded


def _note(author: Author, time_ms: int, changes: Iterable[Change]) -> bytes:
    return _dump(
        {
            "version": _NOTE_VERSION,
            "time": time_ms,
            "author": author.to_json(),
            "changes": [{"path": each.path, **_content(each)} for each in changes],
        }
    )


def decode_note(name: str, data: bytes, zxid: int) -> list[Change]:
    """Return the changes of a note, which was created by transaction `zxid`; none if it is malformed."""
    value = _object(data)
    changes, author = value.get("changes"), value.get("author")
    if not isinstance(changes, list) or not isinstance(author, dict):
        return []
    by = Author.from_json(author)
    time_ms = _time(value.get("time"))
    return [
        replace(_read(path, each), time_ms=time_ms, author=by, zxid=zxid, note=name)
        for each in changes
        if isinstance(each, dict)
        and isinstance(path := each.get("path"), str)
        and subject_of(path) is not None
    ]


# Records.


def encode_record(entry: Change | SnapshotMark) -> tuple[bytes, bytes]:
    """Return key and value of a record."""
    if isinstance(entry, SnapshotMark):
        return b"", _dump(
            {
                "snapshot": entry.snapshot,
                "end": entry.is_end,
                "time": entry.time_ms,
            }
        )
    value: dict[str, object] = {**_content(entry), "time": entry.time_ms, "origin": entry.origin.value}
    if entry.author is not None:
        value["author"] = entry.author.to_json()
    if entry.zxid != UNKNOWN:
        value["zxid"] = entry.zxid
    if entry.note:
        value["note"] = entry.note
    return entry.path.encode(), _dump(value)


def decode_record(key: bytes, value: bytes) -> Change | SnapshotMark | None:
    """Decode a record; None for one that this release does not know."""
    found = _object(value)
    if not key:
        name = found.get("snapshot")
        if not isinstance(name, str):
            return None
        return SnapshotMark(name, found.get("end") is True, _time(found.get("time")))
    try:
        path, origin = key.decode(), Origin(str(found.get("origin")))
    except ValueError:
        return None
    if subject_of(path) is None:
        return None
    author = found.get("author")
    note = found.get("note")
    return replace(
        _read(path, found),
        origin=origin,
        author=Author.from_json(author) if isinstance(author, dict) else None,
        note=note if isinstance(note, str) else "",
    )


def is_deletion(value: bytes) -> bool:
    """Return whether a record's value, as `encode_record` writes it, is of a deletion; nothing is decoded."""
    return value.startswith(_DELETED)


def _content(change: Change) -> dict[str, JsonValue]:
    """Return the fields that notes and records share; a deletion begins as `_DELETED`."""
    if change.is_deleted:
        return {"deleted": True}
    value: dict[str, JsonValue] = {"omitted": True} if change.is_omitted else {"data": change.value}
    if change.version != UNKNOWN:
        value["version"] = change.version
    return value


def _read(path: str, value: Mapping[str, JsonValue]) -> Change:
    data = value.get("data")
    return Change(
        path,
        "data that is nested too deeply" if is_too_deep(data) else data,
        _time(value.get("time")),
        Origin.WRITTEN,
        is_deleted=value.get("deleted") is True,
        version=_int(value.get("version")),
        zxid=_int(value.get("zxid")),
        is_omitted=value.get("omitted") is True,
    )


def _int(value: JsonValue) -> int:
    return value if isinstance(value, int) and 0 <= value <= _INT64_MAX else UNKNOWN


def _time(value: JsonValue) -> int:
    return value if isinstance(value, int) and 0 <= value <= _TIME_MAX else UNKNOWN


def _object(data: bytes) -> dict[str, JsonValue]:
    try:
        value = loads_received(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _dump(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()

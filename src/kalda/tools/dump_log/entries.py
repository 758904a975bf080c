"""Defines the entries of a dump, in the order of the file, and the problems found on the way.

An entry's fields are the JSON object; `entry_text` makes the line of ``kafka-dump-log`` from the same fields,
so the two forms cannot differ in content.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from kalda.tools.bytes_text import JsonValue, readable

RECORD_INDENT: Final = "|"
"""In front of a record's line, below the line of its batch."""

_OPTIONAL_LONGS: Final = frozenset({"deleteHorizonMs", "currentTxnFirstOffset"})
"""Fields that Kafka's tool prints as Java's ``OptionalLong``."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One unit of a file: a batch, a record, an index entry, a producer, a line of a checkpoint.

    `texts` are the fields whose plain form is not derived from the JSON value: bytes.
    """

    kind: str
    fields: Mapping[str, JsonValue]
    texts: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Note:
    """A line about the whole file, such as the offset at which a segment starts."""

    text: str
    fields: Mapping[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Problem:
    """A fault of a file; `position` is in bytes, None where the fault has no place.

    With `is_fault` false it is an observation that a healthy log can cause: compaction leaves gaps.
    """

    path: str
    position: int | None
    message: str
    is_fault: bool = True

    def __str__(self) -> str:
        place = "" if self.position is None else f", position {self.position}"
        return f"{self.path}{place}: {self.message}"


DumpLine: TypeAlias = Entry | Note | Problem


def entry_text(entry: Entry) -> str:
    """Return the plain line of an entry, in the form of ``kafka-dump-log``."""
    fields = entry.fields
    parts: list[str] = [RECORD_INDENT] if entry.kind == "record" else []
    for name, value in fields.items():
        if name == "timestampType":
            parts.append(f"{value}: {fields['timestamp']}")
        elif name == "timestamp" and "timestampType" in fields:
            continue
        elif name in _OPTIONAL_LONGS:
            parts.append(f"{name}: {_optional_long(value)}")
        elif name.removesuffix("Base64") not in entry.texts and value is not None:
            parts.append(f"{name}: {_text(value)}")
    for name, data in entry.texts.items():
        parts.append(f"{name}: {readable(data)}")
    if parts == [RECORD_INDENT]:
        return ""  # a marker without its metadata: an empty line, as Kafka's tool prints it
    return " ".join(parts)


def entry_json(line: Entry | Note, path: str) -> dict[str, JsonValue]:
    """Return the JSON object of an entry or note, with the file and the kind in front."""
    kind = line.kind if isinstance(line, Entry) else "file"
    return {"file": path, "kind": kind, **line.fields}


def problem_json(problem: Problem) -> dict[str, JsonValue]:
    """Return the JSON object of a problem."""
    return {
        "file": problem.path,
        "kind": "problem" if problem.is_fault else "observation",
        "position": problem.position,
        "message": problem.message,
    }


def _text(value: JsonValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return f"[{','.join(_text(each) for each in value)}]"
    return str(value)


def _optional_long(value: JsonValue) -> str:
    """Write an optional number as Java prints an ``OptionalLong``."""
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"

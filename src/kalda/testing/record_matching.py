"""Compares records with what a test expects, and explains how the nearest ones differ.

Pure functions: what a record is, and where it comes from, is decided elsewhere.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from kalda.clients.values import ConsumerRecord
from kalda.common.log_text import counted

Record: TypeAlias = ConsumerRecord[bytes | None, bytes | None]


class Anything(Enum):
    """What an argument stands for that a test does not give; None is a value of records."""

    ANYTHING = "anything"

    def __repr__(self) -> str:
        return "ANYTHING"


ANYTHING: Final = Anything.ANYTHING
"""Matches every key and every value."""

Expected: TypeAlias = object
"""Bytes, None, a text (UTF-8), a value of JSON (a mapping, list, number or truth value), or a predicate."""
ExpectedHeaders: TypeAlias = Mapping[str, object] | Iterable[tuple[str, object]]

_NEAREST_MAX: Final = 3
_DIFFERENCES_MAX: Final = 5
_SHOWN_CHARACTERS_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class RecordPattern:
    """What a record should be like; `ANYTHING` matches every value."""

    key: Expected = ANYTHING
    value: Expected = ANYTHING
    headers: ExpectedHeaders | None = None
    """Headers that the record must have, by name; it may have others."""
    partition: int | None = None

    def differences(self, record: Record) -> list[str]:
        """Return how a record differs from the pattern; empty if it matches."""
        found = []
        if self.partition is not None and record.partition != self.partition:
            found.append(f"the partition is {record.partition}, expected {self.partition}")
        found += _differences("key", self.key, record.key)
        found += _differences("value", self.value, record.value)
        if self.headers is not None:
            found += _header_differences(self.headers, record.headers)
        return found

    def matches(self, record: Record) -> bool:
        """Return whether a record matches."""
        return not self.differences(record)

    def __str__(self) -> str:
        parts = []
        if self.partition is not None:
            parts.append(f"partition={self.partition}")
        for name, expected in (("key", self.key), ("value", self.value)):
            if expected is not ANYTHING:
                parts.append(f"{name}={_expected_text(expected)}")
        if self.headers is not None:
            parts.append(f"headers={_expected_text(self.headers)}")
        return ", ".join(parts) or "any key and value"


def explain_missing(topic: str, pattern: RecordPattern, records: Sequence[Record], waited: str) -> str:
    """Return why no record of a topic matches: how many records it has, and how the nearest ones differ."""
    head = f"no record of {topic!r} has {pattern}{waited}"
    if not records:
        return f"{head}\n  the topic has no records"
    partitions = len({record.partition for record in records})
    lines = [
        head,
        f"  {counted(len(records), 'record')} in {counted(partitions, 'partition')}, the nearest first:",
    ]
    # Of equally near ones the newest, which a test has probably just caused.
    newest_first = records[::-1]
    nearest = sorted(newest_first, key=lambda record: len(pattern.differences(record)))
    for record in nearest[:_NEAREST_MAX]:
        lines.append(f"  {record_text(record)}")
        differences = pattern.differences(record)
        lines += [f"    {difference}" for difference in differences[:_DIFFERENCES_MAX]]
        if len(differences) > _DIFFERENCES_MAX:
            lines.append(f"    and {len(differences) - _DIFFERENCES_MAX} more differences")
    if len(records) > _NEAREST_MAX:
        lines.append(f"  and {len(records) - _NEAREST_MAX} more")
    return "\n".join(lines)


def record_text(record: Record) -> str:
    """Return a record on one line of bounded length."""
    texts = [f"{record.topic}-{record.partition}@{record.offset}"]
    if record.key is not None:
        texts.append(f"key={shown(record.key)}")
    texts.append(f"value={shown(record.value)}")
    if record.headers:
        headers = ", ".join(f"{name}: {shown(value)}" for name, value in record.headers)
        texts.append(f"headers={{{_shortened(headers)}}}")
    return " ".join(texts)


def shown(data: bytes | None) -> str:
    """Return bytes as a person reads them: text where they are UTF-8, of bounded length."""
    if data is None:
        return "None"
    text = text_of(data)
    return _shortened(repr(bytes(data)) if text is None else text)


def text_of(data: bytes) -> str | None:
    """Return bytes as text; None if they are not printable UTF-8."""
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError:
        return None
    return text if text.replace("\n", "").replace("\t", "").isprintable() else None


def json_of(data: bytes) -> object:
    """Return the value of JSON bytes; `ANYTHING` if they are not JSON."""
    try:
        value: object = json.loads(data)
    except ValueError:
        return ANYTHING
    return value


def _differences(name: str, expected: Expected, found: bytes | None) -> list[str]:
    if expected is ANYTHING:
        return []
    if expected is None or isinstance(expected, str | bytes | bytearray | memoryview):
        if found == (expected.encode() if isinstance(expected, str) else expected):
            return []
        return [f"the {name} is {shown(found)}, expected {_expected_text(expected)}"]
    if callable(expected):
        return (
            []
            if expected(found)
            else [f"the {name} {shown(found)} does not satisfy {_expected_text(expected)}"]
        )
    value = ANYTHING if found is None else json_of(found)
    if value is ANYTHING:
        return [f"the {name} is {shown(found)}, which is not JSON; expected {_expected_text(expected)}"]
    return _json_differences(name, expected, value)


def _json_differences(path: str, expected: object, found: object) -> list[str]:
    """Return where two values of JSON differ, by the path of each difference."""
    if isinstance(expected, Mapping) and isinstance(found, dict):
        differences = []
        for name, value in expected.items():
            if name in found:
                differences += _json_differences(f"{path}.{name}", value, found[name])
            else:
                differences.append(f"the {path} has no {name!r}, expected {_expected_text(value)}")
        unexpected = [name for name in found if name not in expected]
        return differences + [
            f"the {path} has {name!r}: {_shortened(repr(found[name]))}" for name in unexpected
        ]
    if isinstance(expected, list | tuple) and isinstance(found, list) and len(expected) == len(found):
        return [
            difference
            for index, (one, other) in enumerate(zip(expected, found, strict=True))
            for difference in _json_differences(f"{path}[{index}]", one, other)
        ]
    if isinstance(expected, tuple):
        expected = list(expected)
    # In JSON true is not 1.
    if expected == found and isinstance(expected, bool) == isinstance(found, bool):
        return []
    return [f"the {path} is {_shortened(repr(found))}, expected {_shortened(repr(expected))}"]


def _header_differences(expected: ExpectedHeaders, found: Sequence[tuple[str, bytes | None]]) -> list[str]:
    differences = []
    for name, value in expected.items() if isinstance(expected, Mapping) else expected:
        values = [each for each_name, each in found if each_name == name]
        if not values:
            differences.append(f"there is no header {name!r}, expected {_expected_text(value)}")
            continue
        nearest = [_differences(f"header {name!r}", value, each) for each in values]
        if all(nearest):
            differences += nearest[0]
    return differences


def _expected_text(expected: object) -> str:
    if isinstance(expected, Callable):  # type: ignore[arg-type]  # an ABC serves isinstance
        return getattr(expected, "__name__", repr(expected))
    return _shortened(repr(expected))


def _shortened(text: str) -> str:
    if len(text) <= _SHOWN_CHARACTERS_MAX:
        return text
    return f"{text[:_SHOWN_CHARACTERS_MAX]}… ({len(text)} characters)"

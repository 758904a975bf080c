"""The file with the tests of pipelines: its keys, its contents as values, and the reader.

A test has records, and the rows and dead letters that a pipeline makes of them. Unlike in a pipeline file,
the contents of records and rows are numbers, texts and so on, as in JSON: what has no quotes and is no
number, `true`, `false` or `null` is text, a date too.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, TypeAlias

import yaml

from kalda.pipelines.spec import values
from kalda.pipelines.spec.errors import FaultList
from kalda.pipelines.spec.model import PipelineFile, PipelineSpec, Place, TopicSource
from kalda.pipelines.spec.nodes import Key, Section, SectionReader, Source, Value, compose
from kalda.pipelines.spec.parser import read_text
from kalda.pipelines.spec.values import ValueType, suggestion

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | None"

_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_WORDS: Final[Mapping[str, bool | None]] = {
    "": None,
    "~": None,
    "null": None,
    "true": True,
    "false": False,
}

_STAGES: Final = ("decode", "transform", "expect")


def _index(text: str) -> int:
    return 0 if text == "0" else values.COUNT.read(text)


def _base64(text: str) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise ValueError(text) from error


def _timestamp(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    moment = datetime.fromisoformat(text)
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return since // timedelta(milliseconds=1)


def _stage(text: str) -> str:
    if text not in _STAGES:
        raise ValueError(text)
    return text


_INDEX: Final = ValueType("an int from 0 to 999999999999", _index, 0)
_BASE64: Final = ValueType("bytes in Base64", _base64, b"")
_TIMESTAMP: Final = ValueType(
    "a date and time such as 2026-11-22T14:30:00Z, or milliseconds since 1970",
    _timestamp,
    _timestamp("2026-01-01"),
)
_STAGE: Final = ValueType("decode, transform or expect", _stage, _STAGES[0], words=_STAGES)

CONTENT: Final = "text, or a mapping or list"
"""What `value` and `key` of a record take."""
RECORDS: Final = "a list of records"
DEAD_LETTERS: Final = "a list of dead letters"
ROWS: Final = "a list of rows, each a mapping of columns to values"
TESTS: Final = "a list of tests"
NAMES: Final = "a list of names"

FILE: Final = Section(
    "the file",
    "The top level of a file of tests.",
    (Key("tests", TESTS, "The tests; see below.", is_required=True),),
)

TEST: Final = Section(
    "a test",
    "Records, and what a pipeline makes of them. A row or dead letter that is not listed is a failure.",
    (
        Key("name", values.TEXT.takes, "What the test shows, for its reports.", is_required=True),
        Key("pipeline", values.NAME.takes, "The pipeline; not needed if the file has only one."),
        Key("records", RECORDS, "What the pipeline reads, in this order.", is_required=True),
        Key(
            "rows",
            ROWS,
            "The rows behind the steps and expectations, in the order of the records. Columns that a row "
            "does not name are not compared.",
            default="none",
        ),
        Key("columns", NAMES, "The names of all columns, in their order; not compared without."),
        Key("dead_letters", DEAD_LETTERS, "The records that become dead letters.", default="none"),
        Key(
            "filtered",
            _INDEX.takes,
            "How many records the steps and expectations drop; not compared without.",
        ),
    ),
)

RECORD: Final = Section(
    "a record",
    "A record of a topic.",
    (
        Key(
            "value",
            CONTENT,
            "The value. Text is its bytes in UTF-8; a mapping or list is written in the format of the "
            "pipeline's values. Without a value, the record is a tombstone.",
        ),
        Key("value_base64", _BASE64.takes, "The value, where it is no text."),
        Key("key", CONTENT, "The key. Text is its bytes in UTF-8; a mapping or list is written as JSON."),
        Key("key_base64", _BASE64.takes, "The key, where it is no text."),
        Key("headers", "a mapping of names to values", "The headers."),
        Key(
            "timestamp",
            _TIMESTAMP.takes,
            "The time of the record.",
            default="`2026-01-01T00:00:00Z`",
        ),
        Key("topic", values.TOPIC.takes, "The topic.", default="the first one of the pipeline"),
        Key("partition", _INDEX.takes, "The partition.", default="`0`"),
        Key("offset", _INDEX.takes, "The offset.", default="that behind the last record"),
    ),
)

DEAD_LETTER: Final = Section(
    "a dead letter",
    "A record that becomes a dead letter. What is not named is not compared.",
    (
        Key(
            "record",
            values.COUNT.takes,
            "The number of the record in the test, from 1.",
            is_required=True,
        ),
        Key("stage", _STAGE.takes, "Where it fails."),
        Key("cause", values.TEXT.takes, "The class of the error, as the header `dlq.error.class` has it."),
        Key("message", values.TEXT.takes, "A part of the message."),
    ),
)

SECTIONS: Final = (
    ("The file of tests", FILE),
    ("A test", TEST),
    ("A record of a test", RECORD),
    ("A dead letter of a test", DEAD_LETTER),
)
"""The sections in the order of the reference page, with their headings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRecord:
    """A record of a test."""

    value: "bytes | Plain"
    """Bytes, None for a tombstone, else what the pipeline's format has to encode."""
    key: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class ExpectedLetter:
    """A dead letter that a test expects; what is None is not compared."""

    record: int
    """The index of the record in the test, from 0."""
    stage: str | None
    cause: str | None
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A test."""

    name: str
    spec: PipelineSpec
    records: tuple[CaseRecord, ...]
    rows: tuple[dict[str, Plain], ...]
    columns: tuple[str, ...]
    """Empty if they are not compared."""
    letters: tuple[ExpectedLetter, ...]
    filtered: int | None
    place: Place


def cases_path(pipeline_file: Path) -> Path:
    """Return where the tests of a pipeline file are: `orders.test.yml` for `orders.yml`."""
    return pipeline_file.with_name(f"{pipeline_file.stem}.test{pipeline_file.suffix}")


def parse_cases(text: str, name: str, file: PipelineFile) -> list[Case]:
    """Read the text of a file of tests for the pipelines of a file.

    Raises:
        PipelineFileError: the file is wrong; the error has every fault.
    """
    faults = FaultList()
    root = compose(Source(name, {}, faults), text)
    faults.check()
    assert root is not None, "the absence of a root is a fault"
    tests = root.section(FILE).get("tests")
    found = [] if tests is None else [_case(each, file) for each in tests.items(TESTS)]
    faults.check()
    return [each for each in found if each is not None]


def read_cases(path: Path, file: PipelineFile) -> list[Case]:
    """Read a file of tests; raises as `parse_cases`, and `OSError` if it cannot be read."""
    return parse_cases(read_text(path), str(path), file)


def _case(value: Value, file: PipelineFile) -> Case | None:
    reader = value.section(TEST)
    spec = _pipeline(reader, file)
    if spec is None:
        return None
    records = _records(reader, spec)
    expected = reader.get("dead_letters")
    letters = [] if expected is None else [_letter(each, len(records)) for each in _items(expected)]
    rows = reader.get("rows")
    columns = reader.get("columns")
    return Case(
        name=reader.required("name", values.TEXT),
        spec=spec,
        records=tuple(records),
        rows=() if rows is None else tuple(_row(each) for each in _items(rows)),
        columns=() if columns is None else columns.many(values.TEXT),
        letters=tuple(letters),
        filtered=reader.optional("filtered", _INDEX),
        place=value.place,
    )


def _items(value: Value) -> list[Value]:
    """Return the entries of a list, which may be empty."""
    is_empty = isinstance(value.node, yaml.SequenceNode) and not value.node.value
    return [] if is_empty else value.items("a list")


def _pipeline(reader: SectionReader, file: PipelineFile) -> PipelineSpec | None:
    known = {each.name: each for each in file.pipelines if isinstance(each.source, TopicSource)}
    given = reader.get("pipeline")
    if given is None:
        if len(known) == 1:
            return next(iter(known.values()))
        reader.value.fault(
            f"a test needs a pipeline: {file.path} has {', '.join(known) or 'none with topics'}"
        )
        return None
    name = given.one(values.NAME)
    if name not in known:
        hint = suggestion(name, list(known))
        given.fault(f"{file.path} has no pipeline {name} that reads topics.{hint}")
    return known.get(name)


def _records(reader: SectionReader, spec: PipelineSpec) -> list[CaseRecord]:
    value = reader.get("records")
    ends: dict[tuple[str, int], int] = {}
    found = []
    for each in [] if value is None else _items(value):
        record = _record(each, spec, ends)
        place = record.topic, record.partition
        if record.offset < ends.get(place, 0):
            each.fault(
                f"the offsets of partition {place[0]}-{place[1]} must rise: {record.offset} is too small"
            )
        ends[place] = record.offset + 1
        found.append(record)
    return found


def _record(value: Value, spec: PipelineSpec, ends: Mapping[tuple[str, int], int]) -> CaseRecord:
    assert isinstance(spec.source, TopicSource), spec.kind
    reader = value.section(RECORD)
    topics = spec.source.topics
    topic = reader.one("topic", values.TOPIC, topics[0] if topics else "")
    if not topic:
        value.fault(f"a record needs a topic: {spec.name} selects topics by a pattern")
    partition = reader.one("partition", _INDEX, 0)
    key = _content(reader, "key")
    headers = reader.texts("headers")
    return CaseRecord(
        value=_content(reader, "value"),
        key=key if isinstance(key, bytes | None) else json.dumps(key).encode(),
        headers=tuple((name, text.encode()) for name, text in headers.items()),
        timestamp_ms=reader.one("timestamp", _TIMESTAMP, _TIMESTAMP.placeholder),
        topic=topic,
        partition=partition,
        offset=reader.one("offset", _INDEX, ends.get((topic, partition), 0)),
    )


def _content(reader: SectionReader, name: str) -> "bytes | Plain":
    encoded = reader.get(f"{name}_base64")
    value = reader.get(name)
    if encoded is not None:
        if value is not None:
            encoded.fault(f"a record has {name} or {name}_base64, not both")
        return encoded.one(_BASE64)
    if value is None:
        return None
    if isinstance(value.node, yaml.ScalarNode):
        is_null = value.node.style is None and _WORDS.get(value.node.value, 0) is None
        return None if is_null else str(value.node.value).encode()
    return plain(value)


def _row(value: Value) -> dict[str, Plain]:
    row = plain(value)
    if not isinstance(row, dict):
        value.refuse("a mapping of columns to values")
        return {}
    return row


def _letter(value: Value, count: int) -> ExpectedLetter:
    reader = value.section(DEAD_LETTER)
    number = reader.required("record", values.COUNT)
    if number > count:
        value.fault(f"record: {number} is not allowed: the test has {count} records")
    return ExpectedLetter(
        number - 1,
        reader.optional("stage", _STAGE),
        reader.optional("cause", values.TEXT),
        reader.optional("message", values.TEXT),
    )


def plain(value: Value) -> Plain:
    """Return a value as JSON would have it."""
    node = value.node
    if isinstance(node, yaml.ScalarNode):
        text = str(node.value)
        if node.style is not None:
            return text
        if text in _WORDS:
            return _WORDS[text]
        if _NUMBER.fullmatch(text) is None:
            return text
        return int(text) if text.lstrip("-").isdecimal() else float(text)
    if value.is_list:
        return [plain(each) for each in _items(value)]
    return {name: plain(each) for name, each in value.entries().items()}

"""Encodes dead letters of records, and reads the headers of dead letters.

Key, value, timestamp and the record's own headers stay as they are, so that replaying a letter is replaying
the record. A record that fails again after a replay keeps the place of the first failure, so that a letter
always names the record of the pipeline's own topic.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, cast

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.records.columnar import ColumnarBatch

PREFIX: Final = "dlq."
PIPELINE: Final = "dlq.pipeline"
TOPIC: Final = "dlq.topic"
PARTITION: Final = "dlq.partition"
OFFSET: Final = "dlq.offset"
STAGE: Final = "dlq.stage"
ERROR_CLASS: Final = "dlq.error.class"
ERROR_MESSAGE: Final = "dlq.error.message"
SCHEMA_ID: Final = "dlq.schema.id"
BATCH: Final = "dlq.batch"
TIME: Final = "dlq.ts"
RETRIES: Final = "dlq.retries"
OMITTED: Final = "dlq.omitted"
"""Bytes of the record, in a letter without its value, which the topic of dead letters has no room for."""
TIMESTAMP: Final = "dlq.timestamp"
"""The record's timestamp in milliseconds, where the topic of dead letters does not take it."""

DECODE: Final = "decode"
TRANSFORM: Final = "transform"
EXPECT: Final = "expect"
TARGET: Final = "target"
STAGES: Final = (DECODE, TRANSFORM, EXPECT, TARGET)

Headers = Sequence[tuple[str, bytes | None]]

_HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_ROW_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS_TYPE),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
    ]
)


class Failure(Protocol):
    """Why a record of a batch is a dead letter; `kalda.formats.DecodeFailure` is one."""

    @property
    def row(self) -> int:
        """The index of the record."""
        ...

    @property
    def error_class(self) -> str:
        """A stable name for the kind of failure."""
        ...

    @property
    def message(self) -> str:
        """What is wrong."""
        ...

    @property
    def schema_id(self) -> int | None:
        """The registry's schema that the value names, or None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Letter:
    """What the headers of a dead letter say; times are milliseconds since 1970."""

    pipeline: str
    topic: str
    partition: int
    offset: int
    stage: str
    error_class: str
    error_message: str
    schema_id: int | None
    batch: int
    time_ms: int
    retries: int
    """How often the record was replayed before it failed this time."""
    omitted: int | None = None
    """Bytes of the record where the letter has it not whole, so that it cannot be replayed; else None."""

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Return the headers; without a schema id and before a replay there are two fewer."""
        texts: dict[str, object] = {
            PIPELINE: self.pipeline,
            TOPIC: self.topic,
            PARTITION: self.partition,
            OFFSET: self.offset,
            STAGE: self.stage,
            ERROR_CLASS: self.error_class,
            ERROR_MESSAGE: self.error_message,
            BATCH: self.batch,
            TIME: self.time_ms,
        }
        if self.schema_id is not None:
            texts[SCHEMA_ID] = self.schema_id
        if self.retries:
            texts[RETRIES] = self.retries
        return [(name, str(value).encode(errors="replace")) for name, value in texts.items()]


def read_letter(headers: Iterable[tuple[str, bytes | None]]) -> Letter | None:
    """Return the place and failure from a record's headers; None if it is not a dead letter."""
    texts = {name: value.decode(errors="replace") for name, value in headers if value is not None}
    try:
        return Letter(
            pipeline=texts[PIPELINE],
            topic=texts[TOPIC],
            partition=int(texts[PARTITION]),
            offset=int(texts[OFFSET]),
            stage=texts[STAGE],
            error_class=texts[ERROR_CLASS],
            error_message=texts[ERROR_MESSAGE],
            schema_id=int(texts[SCHEMA_ID]) if SCHEMA_ID in texts else None,
            batch=int(texts[BATCH]),
            time_ms=int(texts[TIME]),
            retries=int(texts.get(RETRIES, "0")),
            omitted=int(texts[OMITTED]) if OMITTED in texts else None,
        )
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Origin:
    """Which batch of which pipeline makes letters, and when (milliseconds since 1970)."""

    pipeline: str
    batch: int
    now_ms: int
    retry_topic: str
    """Records of this topic are replayed ones."""


def letters_of(
    records: ColumnarBatch, place: TopicPartition, failures: Sequence[Failure], origin: Origin, stage: str
) -> pa.RecordBatch:
    """Return the dead letters of some records, as rows that the sink writes.

    Args:
        records: The records, read with headers.
        place: Their partition.
        failures: Which of them failed, and why.
        origin: The pipeline and its batch.
        stage: One of `STAGES`.
    """
    assert records.headers is not None, "dead letters need the records' headers"
    rows = pa.array([failure.row for failure in failures], pa.int64())
    offsets = records.offsets.take(rows).to_pylist()
    own: list[list[Mapping[str, object]] | None] = records.headers.take(rows).to_pylist()
    headers: list[list[tuple[str, bytes | None]]] = []
    for failure, offset, found in zip(failures, offsets, own, strict=True):
        kept = [(str(each["key"]), _bytes(each["value"])) for each in found or ()]
        letter = Letter(
            pipeline=origin.pipeline,
            topic=place.topic,
            partition=place.partition,
            offset=offset,
            stage=stage,
            error_class=failure.error_class,
            error_message=failure.message,
            schema_id=failure.schema_id,
            batch=origin.batch,
            time_ms=origin.now_ms,
            retries=0,
        )
        if place.topic == origin.retry_topic:
            letter, kept = _again(letter, kept)
        headers.append([*kept, *letter.headers()])
    return pa.RecordBatch.from_arrays(
        [
            records.keys.take(rows).cast(pa.binary()),
            records.values.take(rows).cast(pa.binary()),
            pa.array([[{"key": k, "value": v} for k, v in each] for each in headers], _HEADERS_TYPE),
            records.timestamps_ms.take(rows).view(pa.timestamp("ms", "UTC")),
        ],
        schema=_ROW_SCHEMA,
    )


def without_record(letter: Mapping[str, object], size: int, *, keep: bool) -> dict[str, object]:
    """Return a letter without the value of its record, of `size` bytes; `keep` its key and headers."""
    headers = cast("list[dict[str, object]]", letter["headers"])
    omitted = {"key": OMITTED, "value": str(size).encode()}
    kept = headers if keep else [each for each in headers if str(each["key"]).startswith(PREFIX)]
    key = letter["key"] if keep else None
    return {**letter, "key": key, "value": None, "headers": [*kept, omitted]}


def with_present_times(letters: pa.RecordBatch, rows: Collection[int]) -> pa.RecordBatch:
    """Return letters of which some, by their place, have a header with their timestamp instead of it."""
    changed = letters.to_pylist()
    for row in rows:
        time = {"key": TIMESTAMP, "value": str(changed[row]["timestamp"]).encode()}
        changed[row] |= {"timestamp": None, "headers": [*changed[row]["headers"], time]}
    return pa.RecordBatch.from_pylist(changed, letters.schema)


def _again(letter: Letter, headers: Headers) -> tuple[Letter, list[tuple[str, bytes | None]]]:
    """Return a letter with the place of the first failure, and the record's own headers."""
    earlier = read_letter(headers)
    if earlier is None:
        return letter, list(headers)
    again = replace(
        letter,
        topic=earlier.topic,
        partition=earlier.partition,
        offset=earlier.offset,
        retries=earlier.retries + 1,
    )
    return again, [(name, value) for name, value in headers if not name.startswith(PREFIX)]


def _bytes(value: object) -> bytes | None:
    return value if isinstance(value, bytes) else None

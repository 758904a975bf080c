"""Opening a produced batch to check the records inside: the slow path, for topics that ask for it.

A leader needs it for compacted topics (each record has a key), for bounds on timestamps, and before it
recompresses. What is not here: the checks on the header alone (`batch.validate`, `batch.validate_produced`).
"""

from typing import NamedTuple

from kalda.records.batch import NO_TIMESTAMP, BatchHeader, Buffer, TimestampType
from kalda.records.compression import DECOMPRESSED_SIZE_MAX
from kalda.records.errors import InvalidRecordError, InvalidTimestampError
from kalda.records.record import iter_records


class RecordsSummary(NamedTuple):
    """What the records of one batch say when taken together; times are milliseconds since the epoch."""

    record_count: int
    min_timestamp: int
    max_timestamp: int
    # The first record that carries the maximum, as Kafka reports it.
    offset_of_max_timestamp: int


def validate_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    require_keys: bool = False,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> RecordsSummary:
    """Read every record of a produced batch and check it against its header.

    The offsets must run from the base offset without a gap; with `require_keys` no key may be null. Raises
    `InvalidRecordError`, with the index and reason of each keyless record for the response, or what
    `iter_records` raises for bytes that are no records.
    """
    keyless: list[tuple[int, str]] = []
    min_timestamp = max_timestamp = NO_TIMESTAMP
    offset_of_max_timestamp = header.base_offset
    index = -1
    for index, record in enumerate(iter_records(buffer, position, header, size_max=size_max)):
        if record.offset != header.base_offset + index:
            raise InvalidRecordError(
                f"record {index} has offset {record.offset}; expected {header.base_offset + index}"
            )
        if require_keys and record.key is None:
            keyless.append((index, "a compacted topic takes no record without a key"))
        timestamp = record.timestamp
        if index == 0:
            min_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
            offset_of_max_timestamp = record.offset
        elif timestamp < min_timestamp:
            min_timestamp = timestamp
    if keyless:
        raise InvalidRecordError(
            f"{len(keyless)} of {index + 1} records have no key; a compacted topic takes none such",
            record_errors=tuple(keyless),
        )
    if index != header.last_offset_delta:
        raise InvalidRecordError(
            f"batch holds {index + 1} records but its last offset delta is {header.last_offset_delta}"
        )
    return RecordsSummary(index + 1, min_timestamp, max_timestamp, offset_of_max_timestamp)


def validate_timestamps(
    header: BatchHeader,
    min_timestamp: int,
    max_timestamp: int,
    *,
    now_ms: int,
    before_max_ms: int,
    after_max_ms: int,
) -> None:
    """Check a produced batch's times against ``message.timestamp.before.max.ms`` and ``.after.max.ms``.

    Raises `InvalidTimestampError` if a time lies outside, or if the client claims log-append time. A time of
    -1 says that there is none and passes.
    """
    if header.timestamp_type is TimestampType.LOG_APPEND_TIME:
        raise InvalidTimestampError("a producer may not set the timestamp type to log-append time")
    for timestamp in (min_timestamp, max_timestamp):
        if timestamp == NO_TIMESTAMP:
            continue
        if now_ms - timestamp > before_max_ms or timestamp - now_ms > after_max_ms:
            raise InvalidTimestampError(
                f"timestamp {timestamp} is outside [{now_ms - before_max_ms}, {now_ms + after_max_ms}]"
            )

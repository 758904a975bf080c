"""Checks the records inside a produced batch, which the broker opens only for topics that need it.

A leader opens a batch of a compacted topic (each record needs a key), of a topic with bounds on timestamps,
and before it recompresses. `batch.validate` and `batch.validate_produced` check the header of every batch.
"""

from typing import Final, NamedTuple

from kalda.records.batch import NO_TIMESTAMP, BatchHeader, Buffer
from kalda.records.compression import DECOMPRESSED_SIZE_MAX
from kalda.records.errors import InvalidRecordError, InvalidTimestampError
from kalda.records.record import iter_records

RECORD_ERRORS_MAX: Final = 10_000
"""The refused records that a response names at most: a compressed batch of 1 MB can hold millions."""

INT64_LIMIT: Final = 1 << 63


class RecordsSummary(NamedTuple):
    """The count and the timestamps of a batch's records, in milliseconds since the epoch."""

    record_count: int
    min_timestamp: int
    max_timestamp: int
    # The first record that carries the maximum, as Kafka reports it.
    offset_of_max_timestamp: int


class TimestampBounds(NamedTuple):
    """The range that ``message.timestamp.before.max.ms`` and ``.after.max.ms`` allow, ends included."""

    low: int
    high: int


def validate_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    require_keys: bool = False,
    timestamp_bounds: TimestampBounds | None = None,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> RecordsSummary:
    """Read every record of a produced batch and check it against its header.

    The offsets must run from the base offset without a gap; with `require_keys` no key may be null, with
    `timestamp_bounds` no timestamp may lie outside them. A timestamp of -1 means none and passes.

    Raises:
        InvalidTimestampError: times are outside the bounds; names each refused record, keyless ones too.
        InvalidRecordError: records have no key, each is named; or the offsets are wrong.
        RecordsError: another subclass, from `iter_records`, for bytes that are no records.
    """
    refused = _RefusedRecords()
    min_timestamp = max_timestamp = NO_TIMESTAMP
    offset_of_max_timestamp = header.base_offset
    index = -1
    low, high = timestamp_bounds or (-INT64_LIMIT, INT64_LIMIT)
    for index, record in enumerate(iter_records(buffer, position, header, size_max=size_max)):
        if record.offset != header.base_offset + index:
            raise InvalidRecordError(
                f"record {index} has offset {record.offset}; expected {header.base_offset + index}"
            )
        timestamp = record.timestamp
        if require_keys and record.key is None:
            refused.add_keyless(index)
        elif not low <= timestamp <= high and timestamp != NO_TIMESTAMP:
            refused.add_timestamp(index, f"timestamp {timestamp} is outside [{low}, {high}]")
        if index == 0:
            min_timestamp = max_timestamp = timestamp
        elif timestamp > max_timestamp:
            max_timestamp = timestamp
            offset_of_max_timestamp = record.offset
        elif timestamp < min_timestamp:
            min_timestamp = timestamp
    if refused.count:
        raise refused.error(index + 1)
    if index != header.last_offset_delta:
        raise InvalidRecordError(
            f"batch holds {index + 1} records but its last offset delta is {header.last_offset_delta}"
        )
    return RecordsSummary(index + 1, min_timestamp, max_timestamp, offset_of_max_timestamp)


class _RefusedRecords:
    """The records for which a batch is refused, each with its reason."""

    __slots__ = ("_keyless_count", "_named", "_timestamp_count")

    def __init__(self) -> None:
        self._named: list[tuple[int, str]] = []
        self._keyless_count = 0
        self._timestamp_count = 0

    @property
    def count(self) -> int:
        return self._keyless_count + self._timestamp_count

    def add_keyless(self, index: int) -> None:
        self._keyless_count += 1
        self._name(index, "a compacted topic takes no record without a key")

    def add_timestamp(self, index: int, reason: str) -> None:
        self._timestamp_count += 1
        self._name(index, reason)

    def error(self, record_count: int) -> InvalidRecordError:
        """Return the exception to raise; as in Kafka, one bad timestamp decides the code for the batch."""
        named = tuple(self._named)
        if self._timestamp_count:
            return InvalidTimestampError(
                f"{self._timestamp_count} of {record_count} records have a time outside what the topic "
                f"allows; first: record {named[0][0]}, {named[0][1]}",
                record_errors=named,
            )
        return InvalidRecordError(
            f"{self._keyless_count} of {record_count} records have no key; a compacted topic takes none such",
            record_errors=named,
        )

    def _name(self, index: int, reason: str) -> None:
        if len(self._named) < RECORD_ERRORS_MAX:
            self._named.append((index, reason))

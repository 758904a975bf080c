"""Builds `ConsumerRecord`s straight from the bytes of a batch, many in one call.

`kalda.records.record.iter_records` reads the same bytes one record at a time; a property test compares the
two. A consumer runs this loop once for every record. Compiled code runs it where the package was built with
it, and leaves to the loop here what it does not accept, so that errors have one source. The loop makes no
object but the record and its parts, and calls no function for a record of the usual form.

When a deserializer fails, the records before the failing one are returned and the position stays at the
failing one.
"""

from collections.abc import Callable
from typing import Any, Final

from kalda.clients.consumer.consumer_errors import RecordDeserializationError
from kalda.clients.consumer.deserializers import DeserializerOption, needs_headers, resolve
from kalda.clients.values import ConsumerRecord
from kalda.common.types import TopicPartition
from kalda.records.batch import BatchHeader, TimestampType
from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.implementation import is_built, is_compiled
from kalda.records.record import Header, read_headers
from kalda.records.varint import read_raw_varint, read_raw_varlong, read_varint, read_varlong

if is_built:
    from kalda.records import _records

NO_HEADERS: Final[tuple[Header, ...]] = ()
PART_BYTES: Final = 16 * 1024 * 1024
"""About how many bytes of records one call makes objects of. Headers take a hundred times their bytes."""
_SKIPPED_MAX: Final = 50_000
"""Records that one call passes over, in some 0.1 s. A few kilobytes may hold tens of millions."""


class Deserializers:
    """The functions that make keys and values; None leaves the bytes."""

    __slots__ = ("is_plain", "key", "key_needs_headers", "value", "value_needs_headers")

    def __init__(self, key: DeserializerOption = None, value: DeserializerOption = None) -> None:
        """Resolve what the user passed.

        Raises:
            ClientConfigError: see `deserializers.resolve`.
        """
        self.key: Final[Callable[..., Any] | None] = resolve("key.deserializer", key)
        self.value: Final[Callable[..., Any] | None] = resolve("value.deserializer", value)
        self.key_needs_headers: Final = needs_headers(key)
        self.value_needs_headers: Final = needs_headers(value)
        self.is_plain: Final = self.key is None and self.value is None


class BatchDecoder:
    """The records of one batch that the user has not got yet.

    Args:
        partition: The partition, for the records.
        header: The batch's header.
        data: The batch's records, decompressed.
        deserializers: What to do with keys and values.
    """

    __slots__ = (
        "_at",
        "_constants",
        "_data",
        "_deserializers",
        "_header",
        "_part_count",
        "_partition",
        "_skips_below",
        "next_offset",
        "remaining",
    )

    def __init__(
        self, partition: TopicPartition, header: BatchHeader, data: bytes, deserializers: Deserializers
    ) -> None:
        if header.record_count < 0:
            raise CorruptRecordError(
                f"batch at offset {header.base_offset} counts {header.record_count} records"
            )
        self._partition: Final = partition
        self._header: Final = header
        self._data: Final = data
        self._deserializers: Final = deserializers
        is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        self._constants: Final = (
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if is_appended else None,
            header.timestamp_type,
            header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None,
        )
        self._at = 0
        self._skips_below: int | None = None
        # The records of one call: all, but in a batch of unusual size.
        self._part_count: Final = (
            header.record_count
            if len(data) <= PART_BYTES
            else max(header.record_count * PART_BYTES // len(data), 1)
        )
        self.remaining = header.record_count
        """Records that were not returned yet."""
        self.next_offset = header.base_offset
        """The offset behind the last record that was returned."""

    @property
    def size(self) -> int:
        """The decompressed bytes of the records."""
        return len(self._data)

    def skip_to(self, offset: int) -> None:
        """Let `take` leave out the records below `offset`: a fetch returns whole batches, which may begin
        earlier.
        """
        self._skips_below = offset
        self.next_offset = max(self.next_offset, offset)

    def take(self, count: int) -> list[ConsumerRecord[Any, Any]]:
        """Return up to `count` records; fewer at the batch's end, or before one that cannot be read.

        Of a large batch it returns a part, which is empty while many records are passed over.

        Raises:
            RecordDeserializationError: a deserializer failed for the first record.
            CorruptRecordError: the first record does not fit its batch.
        """
        records: list[ConsumerRecord[Any, Any]] = []
        if self._skips_below is not None and not self._skip(self._skips_below):
            return records
        try:
            at = self._decode(min(count, self.remaining, self._part_count), records)
        except (IndexError, NeedMoreBytes):
            if not records:
                raise self._corrupt("the batch ends inside a record") from None
        except (CorruptRecordError, RecordDeserializationError):
            if not records:
                raise
        else:
            self._at = at
            self.remaining -= len(records)
            if records:
                self.next_offset = records[-1].offset + 1
            return records
        # The records before the one that failed are good; the next call reports the failure.
        return self.take(len(records))

    def check_end(self) -> None:
        """Check that nothing follows the last record, after all have been returned.

        Raises:
            CorruptRecordError: there are more bytes.
        """
        if self._at != len(self._data):
            raise self._corrupt(f"{len(self._data) - self._at} bytes follow the last record")

    def _skip(self, offset: int) -> bool:
        """Pass over records below `offset`; return whether that is done."""
        data, at, delta_min = self._data, self._at, offset - self._header.base_offset
        remaining = self.remaining
        stop_at = max(remaining - _SKIPPED_MAX, 0)
        try:
            while remaining > stop_at:
                size, position = read_varint(data, at)
                _, after = read_varlong(data, position + 1)
                delta, _ = read_varint(data, after)
                if delta >= delta_min:
                    self._skips_below = None
                    break
                if size <= 0:
                    raise self._corrupt("a record without a length")
                at = position + size
                remaining -= 1
        except NeedMoreBytes:
            raise self._corrupt("the batch ends inside a record") from None
        self._at, self.remaining = at, remaining
        if not remaining:
            self._skips_below = None
        return self._skips_below is None

    def _decode(self, count: int, records: list[ConsumerRecord[Any, Any]]) -> int:
        """Add `count` records to `records`; return where the last one ends."""
        deserializers = self._deserializers
        if is_compiled() and not (deserializers.key_needs_headers or deserializers.value_needs_headers):
            base_offset, base_timestamp, append_time, kind, epoch = self._constants
            try:
                end = _records.decode_rows(
                    self._data,
                    self._at,
                    count,
                    ConsumerRecord,
                    *self._partition,
                    kind,
                    epoch,
                    base_offset,
                    base_timestamp,
                    append_time,
                    deserializers.key,
                    deserializers.value,
                    records,
                )
            except Exception:
                # A deserializer failed. It fails again below, which names the record.
                end = -1
            if end >= 0:
                return end
            records.clear()
        return self._decode_in_python(count, records)

    def _decode_in_python(self, count: int, records: list[ConsumerRecord[Any, Any]]) -> int:
        """Add `count` records to `records`; return where the last one ends.

        Varints of one and two bytes are read inline; calls for them took a quarter of the time.
        """
        data = self._data
        topic, number = self._partition
        base_offset, base_timestamp, append_time, kind, epoch = self._constants
        deserializers = None if self._deserializers.is_plain else self._deserializers
        append, new, headers = records.append, tuple.__new__, NO_HEADERS
        key: Any
        value: Any
        at = self._at
        for _ in range(count):
            raw = data[at]
            at += 1
            if raw > 0x7F:
                more = data[at]
                raw, at = (raw & 0x7F | more << 7, at + 1) if more < 0x80 else read_raw_varint(data, at - 1)
            end = -1 if raw & 1 else at + (raw >> 1)
            # The byte of attributes is unused in format 2. Fields are not compared with the end one by one:
            # positions only grow, so the comparison after the last field detects each that passes the end.
            raw = data[at + 1]
            at += 2
            if raw > 0x7F:
                more = data[at]
                raw, at = (raw & 0x7F | more << 7, at + 1) if more < 0x80 else read_raw_varlong(data, at - 1)
            time = base_timestamp + (~(raw >> 1) if raw & 1 else raw >> 1)
            if append_time is not None:
                time = append_time
            raw = data[at]
            at += 1
            if raw > 0x7F:
                more = data[at]
                raw, at = (raw & 0x7F | more << 7, at + 1) if more < 0x80 else read_raw_varint(data, at - 1)
            offset = base_offset + (~(raw >> 1) if raw & 1 else raw >> 1)
            raw = data[at]
            at += 1
            if raw > 0x7F:
                more = data[at]
                raw, at = (raw & 0x7F | more << 7, at + 1) if more < 0x80 else read_raw_varint(data, at - 1)
            key, key_size = None, -1
            if not raw & 1:
                key_size = raw >> 1
                key = data[at : (at := at + key_size)]
            raw = data[at]
            at += 1
            if raw > 0x7F:
                more = data[at]
                raw, at = (raw & 0x7F | more << 7, at + 1) if more < 0x80 else read_raw_varint(data, at - 1)
            value, value_size = None, -1
            if not raw & 1:
                value_size = raw >> 1
                value = data[at : (at := at + value_size)]
            at += 1
            if data[at - 1]:
                found, at = read_headers(data, at - 1, end)
                headers = tuple(found)
            if at != end:
                raise self._corrupt(f"the record at offset {offset} does not end where its length says")
            if deserializers is not None:
                key, value = self._deserialize(offset, time, key, value, headers)
            fields = (topic, number, offset, time, kind, key, value, headers, key_size, value_size, epoch)
            append(new(ConsumerRecord, fields))
            headers = NO_HEADERS
        return at

    def _deserialize(
        self, offset: int, timestamp: int, key: bytes | None, value: bytes | None, headers: tuple[Header, ...]
    ) -> tuple[Any, Any]:
        deserializers = self._deserializers
        topic = self._partition.topic
        part = "key"
        new_key: Any = key
        new_value: Any = value
        try:
            if key is not None and deserializers.key is not None:
                with_topic = deserializers.key_needs_headers
                new_key = deserializers.key(topic, key, headers) if with_topic else deserializers.key(key)
            part = "value"
            if value is not None and deserializers.value is not None:
                with_topic = deserializers.value_needs_headers
                new_value = (
                    deserializers.value(topic, value, headers) if with_topic else deserializers.value(value)
                )
        except Exception as error:
            raise RecordDeserializationError(
                self._partition,
                offset,
                part,
                timestamp_ms=timestamp,
                key=key,
                value=value,
                headers=headers,
                reason=error,
            ) from error
        return new_key, new_value

    def _corrupt(self, what: str) -> CorruptRecordError:
        return CorruptRecordError(f"batch at offset {self._header.base_offset}: {what}")

"""Iterates over the records of a batch (`iter_records`) and builds batches (`RecordBatchBuilder`).

`columnar` reads the same bytes without creating an object per record.

Invariant: iterator, builder and columnar decoder agree on every byte. A property test compares them with each
other, and with the builders and readers of other clients.
"""

from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Final, NamedTuple, TypeVar

from kalda.records.batch import (
    CONTROL_FLAG,
    DELETE_HORIZON_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_PARTITION_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    Buffer,
    TimestampType,
    pack_header,
    read_header,
)
from kalda.records.compression import (
    DECOMPRESSED_SIZE_MAX,
    Compression,
    StreamCompressor,
    compress,
    decompress,
)
from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.implementation import is_built, is_compiled
from kalda.records.varint import (
    read_raw_varint,
    read_raw_varlong,
    read_varint,
    varint,
    varint_size,
    write_varint,
)

if is_built:
    from kalda.records import _records

Header = tuple[str, bytes | None]
T = TypeVar("T")

OFFSET_DELTA_MAX: Final = 0x7FFFFFFF
HEADERS_MAX: Final = 1_000_000
"""In one record that is read. Kafka has no bound, but 8 KB of a compressed batch may hold 100 million."""
_DECODED_AT_ONCE: Final = 256
"""Records that compiled code makes before the first of them is taken: 100 KB of objects."""
_TIMESTAMP_MAX: Final = 0x7FFFFFFFFFFFFFFF
_NO_BASE: Final = -2
_VARINTS_SIZE: Final = 2048
_VARINTS: Final = tuple(varint(number) for number in range(_VARINTS_SIZE))
"""The varints of lengths and offset deltas that nearly all records have; a look-up is a fifth of encoding."""


class Record(NamedTuple):
    """One record as a reader sees it: absolute offset, milliseconds since the epoch."""

    offset: int
    timestamp: int
    timestamp_type: TimestampType
    key: bytes | None
    value: bytes | None
    headers: list[Header]


def record_bytes(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> bytes:
    """Return the batch's records section, decompressed.

    Raises `NeedMoreBytes` if the batch is not whole, `CorruptRecordError`, `DecompressedSizeError` or
    `UnsupportedCompressionTypeError` from the codec.
    """
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(buffer):
        raise NeedMoreBytes(f"batch ends at byte {end}, the buffer at {len(buffer)}")
    return decompress(header.compression, memoryview(buffer)[position + HEADER_SIZE : end], size_max)


def iter_records(
    buffer: Buffer,
    position: int = 0,
    header: BatchHeader | None = None,
    *,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> Iterator[Record]:
    """Yield the records of the batch at `position`; control records too.

    The caller checks the CRC (`batch.validate`). Raises as `record_bytes` does, and
    `CorruptRecordError` at the first record that does not fit its batch.
    """
    if header is None:
        header = read_header(buffer, position)
    data = record_bytes(buffer, position, header, size_max)
    # A faulty client can write invalid records under a correct CRC.
    try:
        end = yield from _iter_records(data, header)
    except (IndexError, NeedMoreBytes):
        raise CorruptRecordError(f"batch at offset {header.base_offset} ends inside a record") from None
    if end != len(data):
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} has {len(data) - end} bytes "
            f"behind its {header.record_count} records"
        )


def iter_decompressed_records(data: bytes, header: BatchHeader) -> Iterator[Record]:
    """Yield the records of a batch whose records section is at hand without compression.

    Raises:
        CorruptRecordError: The section does not have the records that the header counts.
    """
    try:
        yield from _iter_records(data, header)
    except (IndexError, NeedMoreBytes):
        raise CorruptRecordError(f"batch at offset {header.base_offset} ends inside a record") from None


def _iter_records(data: bytes, header: BatchHeader) -> Generator[Record, None, int]:
    """Yield the records in `data`; return where the last one ends.

    Compiled code makes some at a time where the package was built with it, until it does not accept one.
    """
    at = done = 0
    count = header.record_count
    if is_compiled():
        kind = header.timestamp_type
        append_time = header.max_timestamp if kind is TimestampType.LOG_APPEND_TIME else None
        numbers = (header.base_offset, header.base_timestamp, append_time)
        while done < count:
            records: list[Record] = []
            wanted = min(count - done, _DECODED_AT_ONCE)
            end = _records.decode_records(data, at, wanted, Record, kind, *numbers, records)
            if end < 0:
                break
            yield from records
            at, done = end, done + wanted
    return (yield from _iter_in_python(data, header, at, count - done))


def _iter_in_python(data: bytes, header: BatchHeader, at: int, count: int) -> Generator[Record, None, int]:
    """Yield `count` records from `at` on; return where the last one ends.

    Varints of one byte, which nearly all are, are read in place. Fields are not compared with the record's
    end one by one: positions only grow, so the comparison after the last field detects each that passes the
    end.
    """
    base_offset = header.base_offset
    base_timestamp = header.base_timestamp
    timestamp_type = header.timestamp_type
    append_time = header.max_timestamp if timestamp_type is TimestampType.LOG_APPEND_TIME else None
    size = len(data)
    for _ in range(count):
        raw = data[at]
        at += 1
        if raw > 0x7F:
            raw, at = read_raw_varint(data, at - 1)
        end = at + (raw >> 1)
        if raw & 1 or end > size:
            raise CorruptRecordError(f"record at byte {at} of batch {base_offset} passes the batch's end")
        # The attributes byte is unused in format 2 and skipped.
        raw = data[at + 1]
        at += 2
        if raw > 0x7F:
            raw, at = read_raw_varlong(data, at - 1)
        timestamp = base_timestamp + ((raw >> 1) ^ -(raw & 1)) if append_time is None else append_time
        raw = data[at]
        at += 1
        if raw > 0x7F:
            raw, at = read_raw_varint(data, at - 1)
        offset = base_offset + ((raw >> 1) ^ -(raw & 1))
        raw = data[at]
        at += 1
        if raw > 0x7F:
            raw, at = read_raw_varint(data, at - 1)
        key = None
        if not raw & 1:
            start = at
            at += raw >> 1
            key = data[start:at]
        raw = data[at]
        at += 1
        if raw > 0x7F:
            raw, at = read_raw_varint(data, at - 1)
        value = None
        if not raw & 1:
            start = at
            at += raw >> 1
            value = data[start:at]
        raw = data[at]
        at += 1
        headers: list[Header] = []
        if raw:
            headers, at = read_headers(data, at - 1, end)
        if at != end:
            raise CorruptRecordError(f"record at offset {offset} does not end where its length says")
        yield Record(offset, timestamp, timestamp_type, key, value, headers)
    return at


def read_record(data: bytes, header: BatchHeader) -> Record:
    """Return the one record that `data` is, of the batch with `header`; raises `CorruptRecordError`."""
    try:
        (record,) = _iter_in_python(data, header, 0, 1)
    except (IndexError, NeedMoreBytes):
        raise CorruptRecordError(f"batch at offset {header.base_offset} ends inside a record") from None
    return record


def read_headers(data: bytes, position: int, end: int) -> tuple[list[Header], int]:
    """Read the headers that begin with their count at `position`; return them and where they end.

    Raises `CorruptRecordError` or `NeedMoreBytes`; the caller compares the end with the record's end.
    """
    count, position = read_varint(data, position)
    # A header is at least two bytes, so a count beyond the rest is refused before a list grows to it.
    if not 0 <= count <= end - position:
        raise CorruptRecordError(f"{count} headers announced in {end - position} bytes")
    if count > HEADERS_MAX:
        raise CorruptRecordError(f"a record with {count} headers; at most {HEADERS_MAX} are read")
    headers: list[Header] = []
    for _ in range(count):
        size, start = read_varint(data, position)
        if size < 0:
            raise CorruptRecordError(f"header key before byte {start} is null")
        position = start + size
        # Java replaces invalid UTF-8 too; a producer's bad header must not stop a consumer.
        key = data[start:position].decode("utf-8", "replace")
        size, start = read_varint(data, position)
        position = start + max(size, 0)
        headers.append((key, None if size < 0 else data[start:position]))
    return headers, position


class RecordBatchBuilder:
    """Collects records and packs them into one batch, byte for byte as a Java producer does.

    The first record's timestamp becomes the batch's base timestamp; the others are deltas to it::

        builder = RecordBatchBuilder(compression=Compression.LZ4)
        builder.append(b"key", b"value", timestamp=1_700_000_000_000, headers=[("trace", b"1")])
        batch = builder.build()
    """

    def __init__(
        self,
        *,
        base_offset: int = 0,
        compression: Compression = Compression.NONE,
        compression_level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time: int = NO_TIMESTAMP,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        is_transactional: bool = False,
        is_control: bool = False,
        partition_leader_epoch: int = NO_PARTITION_LEADER_EPOCH,
        delete_horizon_ms: int | None = None,
    ) -> None:
        if timestamp_type is TimestampType.LOG_APPEND_TIME and log_append_time < 0:
            raise ValueError("a batch with log-append time needs log_append_time")
        if is_transactional and producer_id < 0:
            raise ValueError("a transactional batch needs a producer_id")
        self._base_offset = base_offset
        self._compression = compression
        self._compression_level = compression_level
        self._log_append_time = (
            log_append_time if timestamp_type is TimestampType.LOG_APPEND_TIME else NO_TIMESTAMP
        )
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        self._partition_leader_epoch = partition_leader_epoch
        self._attributes = (
            int(compression)
            | (LOG_APPEND_TIME_FLAG if timestamp_type is TimestampType.LOG_APPEND_TIME else 0)
            | (TRANSACTIONAL_FLAG if is_transactional else 0)
            | (CONTROL_FLAG if is_control else 0)
            | (DELETE_HORIZON_FLAG if delete_horizon_ms is not None else 0)
        )
        # The records, behind room for the header.
        self._batch = bytearray(HEADER_SIZE)
        self._contents: bytes | None = None
        # What `drain` took out of `_batch`.
        self._drained: StreamCompressor | None = None
        self._drained_bytes = 0
        self._record_count = 0
        self._next_delta = 0
        self._max_timestamp = NO_TIMESTAMP
        # None until the first record sets it, unless a delete horizon takes its place.
        self._base_timestamp = delete_horizon_ms
        # The attributes byte and the timestamp delta of records with `_last_timestamp`: most neighbours are
        # of the same millisecond.
        self._last_timestamp: int | None = None
        self._time_field = b""

    @property
    def record_count(self) -> int:
        """Records appended so far."""
        return self._record_count

    @property
    def size(self) -> int:
        """Bytes of the batch if it were built now without compression."""
        return len(self._batch) + self._drained_bytes

    @property
    def has_append_time(self) -> bool:
        """Whether all records have the batch's log-append time, whatever timestamps are appended."""
        return bool(self._attributes & LOG_APPEND_TIME_FLAG)

    @property
    def next_offset(self) -> int:
        """The offset that the next record gets unless `append` is given another."""
        return self._base_offset + self._next_delta

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp appended so far, -1 without one."""
        return self._max_timestamp

    def move(self, base_offset: int) -> None:
        """Give the first record the offset `base_offset`; the others follow it as before."""
        assert base_offset >= 0, f"base offset {base_offset} is negative"
        self._base_offset = base_offset

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        timestamp: int,
        headers: Sequence[Header] = (),
        *,
        offset: int | None = None,
    ) -> int:
        """Add a record; return its offset.

        `timestamp` is milliseconds since the epoch, or -1 for none. `offset` may leave gaps, as compaction
        does, but never decreases. Raises `ValueError` for a time or an offset that no batch can hold.
        """
        if timestamp != self._last_timestamp:
            self._set_time(timestamp)
        if offset is not None:
            if offset < self._base_offset + self._next_delta:
                raise ValueError(
                    f"offset {offset} does not follow {self._base_offset + self._next_delta - 1}"
                )
            if offset > self._base_offset + OFFSET_DELTA_MAX:
                raise ValueError(
                    f"offset {offset} is more than {OFFSET_DELTA_MAX} above the first, {self._base_offset}"
                )
            self._next_delta = offset - self._base_offset
        self.append_next(key, value, timestamp, headers)
        return self._base_offset + self._next_delta - 1

    def append_next(
        self, key: Buffer | None, value: Buffer | None, timestamp: int, headers: Sequence[Header] = ()
    ) -> int:
        """Add a record at the next offset; return the bytes that the batch has grown by.

        This is the producer's hot path. Compiled code writes the record where the package was built with it;
        else each field is a look-up in a table of varints, and the record is one ``join``. Raises
        `ValueError` as `append` does.
        """
        assert self._contents is None, "the batch is closed for appends"
        time_field = self._time_field if timestamp == self._last_timestamp else self._set_time(timestamp)
        delta = self._next_delta
        header_field = _headers_field(headers) if headers else b"\0"
        size = _append_record(self._batch, time_field, delta, key, value, header_field)
        self._next_delta = delta + 1
        self._record_count += 1
        return size

    def truncate(self, record_count: int, size: int) -> None:
        """Take back an append that an exception ended; the arguments are what the batch had before.

        For batches without gaps between offsets.
        """
        assert self._contents is None, "the batch is closed"
        assert self._drained is None, "records that are compressed cannot be taken back"
        assert HEADER_SIZE <= size <= len(self._batch), f"size {size} is not in {len(self._batch)}"
        assert 0 <= record_count <= self._record_count, f"{record_count} of {self._record_count} records"
        del self._batch[size:]
        self._record_count = self._next_delta = record_count
        # The next append sets it, together with its field.
        self._last_timestamp = None
        if not record_count:
            self._base_timestamp = None

    def extend(self, append: Callable[[bytearray, int, int], tuple[T, int, int, int]]) -> T:
        """Let a function append records to the encoded ones; return the first value that it returns.

        The function gets these records, the base timestamp (-2 where the first record sets it) and the next
        offset delta. It returns a value, how many records it appended, their largest timestamp and the base.
        """
        assert self._contents is None, "the batch is closed for appends"
        base = _NO_BASE if self._base_timestamp is None else self._base_timestamp
        result, count, max_timestamp, base = append(self._batch, base, self._next_delta)
        assert count >= 0, f"{count} records were appended"
        assert not count or base != _NO_BASE, "the first record sets the base timestamp"
        if count:
            self._base_timestamp = base
            self._next_delta += count
            self._record_count += count
            self._max_timestamp = max(self._max_timestamp, max_timestamp)
        return result

    def size_of_next(
        self, key: Buffer | None, value: Buffer | None, timestamp: int, headers: Sequence[Header] = ()
    ) -> int:
        """Return the bytes that `append_next` would add for this record."""
        base = timestamp if self._base_timestamp is None else self._base_timestamp
        return record_size(key, value, timestamp - base, self._next_delta, headers)

    def _set_time(self, timestamp: int) -> bytes:
        if not NO_TIMESTAMP <= timestamp <= _TIMESTAMP_MAX:
            raise ValueError(f"timestamp {timestamp} is outside -1..{_TIMESTAMP_MAX}")
        if self._base_timestamp is None:
            self._base_timestamp = timestamp
        if timestamp - self._base_timestamp > _TIMESTAMP_MAX:
            raise ValueError(f"timestamp {timestamp} is more than {_TIMESTAMP_MAX} above the first, -1")
        field = bytearray(1)
        write_varint(field, timestamp - self._base_timestamp)
        self._last_timestamp = timestamp
        self._time_field = bytes(field)
        self._max_timestamp = max(self._max_timestamp, timestamp)
        return self._time_field

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, *, is_transactional: bool
    ) -> None:
        """Set what a producer knows only when it sends the batch: its id and the first sequence number.

        Raises `ValueError` for a transactional batch without a producer id.
        """
        if is_transactional and producer_id < 0:
            raise ValueError("a transactional batch needs a producer_id")
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._base_sequence = base_sequence
        transactional = TRANSACTIONAL_FLAG if is_transactional else 0
        self._attributes = self._attributes & ~TRANSACTIONAL_FLAG | transactional

    @property
    def packed_bytes(self) -> int:
        """Bytes of the records that are compressed already."""
        return 0 if self._drained is None else self._drained.size

    @property
    def undrained_bytes(self) -> int:
        """Bytes of the records that are not compressed yet."""
        return len(self._batch)

    def drain(self) -> None:
        """Compress what was appended so far, where there is a codec, so that it takes less memory."""
        assert self._contents is None, "the batch is closed"
        if self._compression is Compression.NONE:
            return
        if self._drained is None:
            self._drained = StreamCompressor(self._compression, self._compression_level)
        self._drained.write(memoryview(self._batch)[HEADER_SIZE:])
        self._drained_bytes += len(self._batch) - HEADER_SIZE
        self._batch = bytearray(HEADER_SIZE)

    def close(self) -> int:
        """Compress the records and take no more of them; return the size of the batch in bytes.

        A producer closes a batch in the thread that filled it, before it knows the batch's sequence number.
        Without compression the records stay where they are. Closing twice has no effect.
        """
        if self._contents is None:
            if self._compression is Compression.NONE:
                return len(self._batch)
            self._contents = self._compressed()
            self._batch = bytearray()
        return HEADER_SIZE + len(self._contents)

    def build(self) -> bytearray:
        """Return the batch with its header and CRC, writable for in-place patching; no more records follow.

        Without compression the builder's own memory is the batch. Raises `ValueError` if no record was
        appended.
        """
        if self._record_count == 0 or self._base_timestamp is None:
            raise ValueError("a batch needs at least one record")
        assert self._record_count <= self._next_delta, f"{self._record_count} records, {self._next_delta=}"
        appended = self._attributes & LOG_APPEND_TIME_FLAG
        batch = self._batch
        if self._compression is not Compression.NONE:
            contents = self._compressed() if self._contents is None else self._contents
            batch = bytearray().join((bytes(HEADER_SIZE), contents))
        pack_header(
            batch,
            base_offset=self._base_offset,
            partition_leader_epoch=self._partition_leader_epoch,
            attributes=self._attributes,
            last_offset_delta=self._next_delta - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._log_append_time if appended else self._max_timestamp,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._base_sequence,
            record_count=self._record_count,
        )
        return batch

    def _compressed(self) -> bytes:
        if self._drained is not None:
            self.drain()
            return self._drained.finish()
        return compress(self._compression, memoryview(self._batch)[HEADER_SIZE:], self._compression_level)


_NULL: Final = b"\x01"
"""The length -1 as a zigzag varint."""


def _headers_field(headers: Sequence[Header]) -> bytes:
    parts = [varint(len(headers))]
    for header_key, header_value in headers:
        name = header_key.encode()
        parts += (varint(len(name)), name)
        parts += (_NULL,) if header_value is None else (varint(len(header_value)), header_value)
    return b"".join(parts)


def record_size(
    key: Buffer | None,
    value: Buffer | None,
    timestamp_delta: int,
    offset_delta: int,
    headers: Sequence[Header] = (),
) -> int:
    """Return the uncompressed size of one record, which an accumulator adds up to its batch size."""
    size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + varint_size(len(headers))
    size += _bytes_size(key) + _bytes_size(value)
    for header_key, header_value in headers:
        size += _bytes_size(header_key.encode()) + _bytes_size(header_value)
    return varint_size(size) + size


def _bytes_size(data: Buffer | None) -> int:
    return 1 if data is None else varint_size(len(data)) + len(data)


def _append_in_python(
    records: bytearray,
    time_field: bytes,
    delta: int,
    key: Buffer | None,
    value: Buffer | None,
    header_field: bytes,
) -> int:
    """Append a record to `records`; return its bytes. `_records.append_record` does the same."""
    offset_field = _VARINTS[delta] if delta < _VARINTS_SIZE else varint(delta)
    if key is None:
        key = b""
        key_field = _NULL
    else:
        size = len(key)
        key_field = _VARINTS[size] if size < _VARINTS_SIZE else varint(size)
    if value is None:
        value = b""
        value_field = _NULL
    else:
        size = len(value)
        value_field = _VARINTS[size] if size < _VARINTS_SIZE else varint(size)
    size = (
        len(time_field)
        + len(offset_field)
        + len(key_field)
        + len(key)
        + len(value_field)
        + len(value)
        + len(header_field)
    )
    record = b"".join(
        (
            _VARINTS[size] if size < _VARINTS_SIZE else varint(size),
            time_field,
            offset_field,
            key_field,
            key,
            value_field,
            value,
            header_field,
        )
    )
    records += record
    return len(record)


_append_record = _records.append_record if is_compiled() else _append_in_python

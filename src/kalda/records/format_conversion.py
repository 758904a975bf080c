"""Converts records between the formats: magic 0 and 1 (message sets) and 2 (record batches).

A leader converts what a client sends to the format of the topic's log (`message.format.version`), and what
an old client fetches down to what that client knows (KIP-31, KIP-32, KIP-98). Clients convert up what they
fetch from logs that still hold old segments.
"""

import struct
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from kalda.records.batch import (
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    TimestampType,
    iter_headers,
    validate,
)
from kalda.records.compression import DECOMPRESSED_SIZE_MAX, Compression
from kalda.records.errors import CorruptRecordError, RecordsError, UnsupportedCompressionTypeError
from kalda.records.implementation import is_built, is_compiled
from kalda.records.message_set import iter_messages
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import OFFSET_DELTA_MAX, Record, RecordBatchBuilder, iter_records, record_bytes

if is_built:
    from kalda.records import _columns

_RUN_BYTES_MAX: Final = 1024 * 1024
"""Uncompressed messages in a row become one batch until it has this size."""

_EVERY_OFFSET: Final = -(1 << 63)

UP_CONVERTED_BYTES_MAX: Final = 4 * 1024 * 1024

Builder = RecordBatchBuilder | MessageSetBuilder


def iter_any_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    size_max: int = DECOMPRESSED_SIZE_MAX,
    check_inner_crcs: bool = False,
) -> Iterator[Record]:
    """Yield the records of the batch or message at `position`, whatever its format.

    Raises as `record.iter_records` or `message_set.iter_messages` does.
    """
    if header.magic == MAGIC:
        return iter_records(buffer, position, header, size_max=size_max)
    return iter_messages(buffer, position, header, size_max=size_max, check_inner_crcs=check_inner_crcs)


def new_builder(
    magic: int,
    *,
    base_offset: int,
    compression: Compression,
    compression_level: int | None = None,
    timestamp_type: TimestampType,
    log_append_time: int = NO_TIMESTAMP,
) -> Builder:
    """Return the builder of format `magic`."""
    if magic == MAGIC:
        return RecordBatchBuilder(
            base_offset=base_offset,
            compression=compression,
            compression_level=compression_level,
            timestamp_type=timestamp_type,
            log_append_time=log_append_time,
        )
    return MessageSetBuilder(
        magic,
        base_offset=base_offset,
        compression=compression,
        compression_level=compression_level,
        timestamp_type=timestamp_type,
        log_append_time=log_append_time,
    )


class DownConverted(NamedTuple):
    """Message sets, and how many bytes of batches they were made from."""

    messages: bytes
    consumed_bytes: int
    record_count: int
    """The records that had a newer format."""


def down_convert(buffer: Buffer, magic: int, first_offset: int = 0) -> DownConverted:
    """Return the whole batches at the front of `buffer` in format `magic` (0 or 1) at most.

    Batches that are old enough are taken as they are. Transaction markers and barriers have no equivalent
    and are left out, as are headers. A client that asks for `first_offset` gets no uncompressed record below
    it; old clients drop only what precedes it inside a wrapper. The conversion stops before a batch that
    cannot be converted; what is wrong with the first one is raised.

    Raises:
        UnsupportedCompressionTypeError: the batch is compressed with zstd, which old formats do not have.
        RecordsError: another subclass, for bytes that are no batch.
    """
    parts: list[Buffer] = []
    consumed_bytes = record_count = 0
    view = memoryview(buffer)
    try:
        for position, header in iter_headers(buffer):
            end = position + header.size
            if header.magic <= magic:
                parts.append(view[position:end])
            elif not header.is_control:
                builder = _down_converted(buffer, position, header, magic, first_offset)
                if builder is not None:
                    parts.append(builder.build())
                    record_count += builder.record_count
            consumed_bytes = end
    except RecordsError:
        if not consumed_bytes:
            raise
    return DownConverted(b"".join(parts), consumed_bytes, record_count)


def _down_converted(
    buffer: Buffer, position: int, header: BatchHeader, magic: int, first_offset: int
) -> MessageSetBuilder | None:
    compression = header.compression
    if compression is Compression.ZSTD:
        raise UnsupportedCompressionTypeError(
            f"batch at offset {header.base_offset} is compressed with zstd, which format {magic} "
            "does not have; expected none, gzip, snappy or lz4"
        )
    new_builder = partial(
        MessageSetBuilder,
        magic,
        compression=compression,
        timestamp_type=header.timestamp_type,
        log_append_time=header.max_timestamp,
    )
    if header.magic == MAGIC and is_compiled():
        whole = new_builder()
        if whole.extend(partial(_append_records, buffer, position, header, magic, first_offset)):
            return whole if whole.record_count else None
    builder: MessageSetBuilder | None = None
    for record in iter_any_records(buffer, position, header):
        if compression is Compression.NONE and record.offset < first_offset:
            continue
        if builder is None:
            builder = new_builder(base_offset=record.offset)
        _append(builder, record)
    return builder


def _append_records(
    buffer: Buffer, position: int, header: BatchHeader, magic: int, first_offset: int, messages: bytearray
) -> tuple[int, int, int] | None:
    is_compressed = header.compression is not Compression.NONE
    is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    return _columns.append_records_as_messages(
        messages,
        record_bytes(buffer, position, header),
        header.record_count,
        magic,
        # Inside a wrapper of magic 1, offsets are relative to the first one.
        bool(magic) and is_compressed,
        header.base_offset,
        header.base_timestamp,
        header.max_timestamp if is_appended else None,
        _EVERY_OFFSET if is_compressed else first_offset,
    )


def is_message_set(buffer: Buffer) -> bool:
    """Whether the entry at the front of `buffer` is a message of format 0 or 1."""
    return len(buffer) > MAGIC_POSITION and buffer[MAGIC_POSITION] in (0, 1)


class UpConverted(NamedTuple):
    """Record batches, and how many bytes of message sets they were made from."""

    batches: bytes
    consumed_bytes: int


def up_convert(
    buffer: Buffer,
    *,
    check_crc: bool = True,
    bytes_max: int = UP_CONVERTED_BYTES_MAX,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> UpConverted:
    """Return the messages at the front of `buffer` as batches, with the same offsets, times and codecs.

    It stops at the first batch of format 2, at a partial message, before one that cannot be read, and after
    `bytes_max` of messages; at least one message is converted. Messages of format 0 get no timestamp (-1).
    Raises a `RecordsError` if the first message cannot be read.
    """
    run = _Run()
    consumed_bytes = 0
    try:
        for position, header in iter_headers(buffer):
            if header.magic == MAGIC or consumed_bytes >= bytes_max:
                break
            if check_crc:
                validate(buffer, position, header)
            run.add(header, list(iter_messages(buffer, position, header, size_max=size_max)))
            consumed_bytes = position + header.size
    except RecordsError:
        if not consumed_bytes:
            raise
    return UpConverted(run.finish(), consumed_bytes)


class _Run:
    """Batches made of messages: one of each wrapper, and one of uncompressed messages in a row."""

    def __init__(self) -> None:
        self._batches: list[Buffer] = []
        self._builder: RecordBatchBuilder | None = None
        self._kind: tuple[TimestampType, int] | None = None
        self._start = 0

    def add(self, header: BatchHeader, records: list[Record]) -> None:
        """Add what one message of the set holds."""
        if header.compression is not Compression.NONE:
            builder = _batch_builder(records[0].offset, header)
            for record in records:
                _append(builder, record)
            self._close()
            self._batches.append(builder.build())
            return
        (record,) = records
        # With log-append time a batch has one timestamp for all its records.
        is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        kind = header.timestamp_type, header.max_timestamp if is_appended else NO_TIMESTAMP
        if self._builder is not None and (
            kind != self._kind
            or self._builder.size > _RUN_BYTES_MAX
            or record.offset - self._start > OFFSET_DELTA_MAX
        ):
            self._close()
        if self._builder is None:
            self._builder, self._kind, self._start = (
                _batch_builder(record.offset, header),
                kind,
                record.offset,
            )
        _append(self._builder, record)

    def finish(self) -> bytes:
        """Return the batches."""
        self._close()
        return b"".join(self._batches)

    def _close(self) -> None:
        builder, self._builder = self._builder, None
        if builder is not None and builder.record_count:
            self._batches.append(builder.build())


def _append(builder: Builder, record: Record) -> None:
    try:
        builder.append(record.key, record.value, record.timestamp, offset=record.offset)
    except (ValueError, struct.error) as error:
        # The delta of a faulty producer can lead beyond the 64 bits of a timestamp.
        raise CorruptRecordError(f"record at offset {record.offset} cannot be converted: {error}") from None


def _batch_builder(base_offset: int, header: BatchHeader) -> RecordBatchBuilder:
    return RecordBatchBuilder(
        base_offset=base_offset,
        compression=header.compression,
        timestamp_type=header.timestamp_type,
        log_append_time=header.max_timestamp,
    )

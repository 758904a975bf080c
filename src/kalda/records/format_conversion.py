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
    HEADER_SIZE,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    TimestampType,
    iter_headers,
    read_header,
    validate,
)
from kalda.records.compression import (
    DECOMPRESSED_SIZE_MAX,
    GATHERED_BYTES_MAX,
    PIECE_BYTES,
    Checkpoint,
    Compression,
    go_on,
    iter_decompressed,
    memory_bytes,
)
from kalda.records.errors import (
    CorruptRecordError,
    DecompressedSizeError,
    InvalidRecordError,
    NeedMoreBytes,
    RecordsError,
    UnsupportedCompressionTypeError,
)
from kalda.records.implementation import is_built, is_compiled
from kalda.records.message_set import (
    SLOW_MESSAGES_MAX,
    absolute_base,
    append_wrapped_messages,
    iter_messages,
)
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import OFFSET_DELTA_MAX, Record, RecordBatchBuilder, iter_records, read_record
from kalda.records.varint import read_varint

if is_built:
    from kalda.records import _records

_RUN_BYTES_MAX: Final = 1024 * 1024
"""Uncompressed messages in a row become one batch until it has this size."""

_EVERY_OFFSET: Final = -(1 << 63)
_OFFSET_MAX: Final = (1 << 63) - 1

_RECORDS_PER_CHECKPOINT: Final = 32
"""Where they are read in Python, which takes some 0.1 to 0.2 ms."""

_PLAIN_BYTES_MAX: Final = 16 * 1024 * 1024
"""A wrapper with more becomes a compressed batch, which is decompressed piece by piece."""

UP_CONVERTED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Of messages as they are, and of what they hold: a few kilobytes may hold hundreds of megabytes."""

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


def down_convert(
    buffer: Buffer, magic: int, first_offset: int = 0, checkpoint: Checkpoint = go_on
) -> DownConverted:
    """Return the whole batches at the front of `buffer` in format `magic` (0 or 1) at most.

    Batches that are old enough are taken as they are. Transaction markers and barriers have no equivalent
    and are left out, as are headers. A client that asks for `first_offset` gets no uncompressed record below
    it; old clients drop only what precedes it inside a wrapper. The conversion stops before a batch that
    cannot be converted; what is wrong with the first one is raised. Records are decompressed in pieces.

    Raises:
        DecompressedSizeError: a record is larger than `GATHERED_BYTES_MAX`, or a wrapper too many messages.
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
                builder = _down_converted(buffer, position, header, magic, first_offset, checkpoint)
                if builder is not None:
                    parts.append(builder.build())
                    record_count += builder.record_count
            consumed_bytes = end
    except RecordsError:
        if not consumed_bytes:
            raise
    return DownConverted(b"".join(parts), consumed_bytes, record_count)


def _down_converted(
    buffer: Buffer, position: int, header: BatchHeader, magic: int, first_offset: int, checkpoint: Checkpoint
) -> MessageSetBuilder | None:
    compression = header.compression
    if compression is Compression.ZSTD:
        raise UnsupportedCompressionTypeError(
            f"batch at offset {header.base_offset} is compressed with zstd, which format {magic} "
            "does not have; expected none, gzip, snappy or lz4"
        )
    if header.last_offset > _OFFSET_MAX:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} ends at {header.last_offset}; "
            f"expected at most {_OFFSET_MAX}"
        )
    builder = MessageSetBuilder(
        magic,
        base_offset=None,
        compression=compression,
        timestamp_type=header.timestamp_type,
        log_append_time=header.max_timestamp,
    )
    if compression is not Compression.NONE:
        first_offset = _EVERY_OFFSET
    if header.magic != MAGIC and compression is not Compression.NONE:
        dense = batch_of_wrapper(buffer, position, header, compression=compression, checkpoint=checkpoint)
        if dense is None:
            _append_sparse(builder, buffer, position, header, checkpoint=checkpoint)
            return builder
        # By way of a batch, because compiled code converts both ways.
        buffer, position = dense.build(), 0
        header = read_header(buffer)
    if header.magic == MAGIC:
        section = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
        _RecordsAsMessages(builder, header, magic, first_offset, checkpoint).append(section)
    else:
        for record in iter_messages(buffer, position, header):
            if record.offset >= first_offset:
                _append(builder, record)
    return builder if builder.record_count else None


def batch_of_wrapper(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    compression: Compression,
    size_max: int = DECOMPRESSED_SIZE_MAX,
    checkpoint: Checkpoint = go_on,
) -> RecordBatchBuilder | None:
    """Return a batch of the messages that the one at `position` wraps, with the same offsets and times.

    Returns None where that cannot be done piece by piece: the offsets have gaps, as after compaction, or the
    messages are not valid, or their offsets are none of a log.

    Raises:
        DecompressedSizeError: they are larger than `size_max`, or one is larger than `GATHERED_BYTES_MAX`.
    """
    builder = _batch_builder(header, compression)
    try:
        first, last = append_wrapped_messages(
            builder, buffer, position, header, size_max=size_max, checkpoint=checkpoint
        )
        base = absolute_base(header, last) if header.magic else 0
    except DecompressedSizeError:
        raise
    except (RecordsError, ValueError):
        return None
    if last - first + 1 != builder.record_count or base + first < 0:
        return None
    builder.move(base + first)
    return builder


def _append_sparse(
    builder: Builder,
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    size_max: int = DECOMPRESSED_SIZE_MAX,
    checkpoint: Checkpoint = go_on,
) -> None:
    """Append the messages that the one at `position` wraps with the offsets that they have.

    Raises:
        DecompressedSizeError: they are more than `SLOW_MESSAGES_MAX`, or larger than `size_max`.
        InvalidRecordError: the offset of one is negative, or as `iter_messages`.
        RecordsError: another subclass, as `iter_messages`.
    """
    for record in iter_messages(
        buffer,
        position,
        header,
        size_max=size_max,
        checkpoint=checkpoint,
        count_max=SLOW_MESSAGES_MAX,
    ):
        if record.offset < 0:
            raise InvalidRecordError(
                f"compressed message at offset {header.base_offset} wraps one at offset {record.offset}; "
                "expected 0 or more"
            )
        if not builder.record_count and isinstance(builder, RecordBatchBuilder):
            builder.move(record.offset)
        _append(builder, record)
        if builder.undrained_bytes >= PIECE_BYTES:
            builder.drain()


class _RecordsAsMessages:
    """Appends the records of one batch to a message set, piece by piece."""

    def __init__(
        self,
        builder: MessageSetBuilder,
        header: BatchHeader,
        magic: int,
        first_offset: int,
        checkpoint: Checkpoint,
    ) -> None:
        self._builder: Final = builder
        self._header: Final = header
        self._magic: Final = magic
        self._first_offset: Final = first_offset
        self._checkpoint: Final = checkpoint
        self._left = header.record_count

    def append(self, section: memoryview) -> None:
        """Append all records of a batch's compressed section.

        Raises:
            DecompressedSizeError: one is larger than `GATHERED_BYTES_MAX`.
            RecordsError: another subclass, for bytes that are no records.
        """
        header, builder = self._header, self._builder
        if self._left < 0:
            raise CorruptRecordError(f"batch at offset {header.base_offset} has {self._left} records")
        decoder_bytes = memory_bytes(header.compression, section)
        self._checkpoint(decoder_bytes)
        data = bytearray()
        wanted = 0
        for piece in iter_decompressed(header.compression, section):
            data += piece
            if len(data) >= min(wanted, GATHERED_BYTES_MAX):
                done, wanted = self._append_whole(data)
                del data[:done]
                if len(data) > GATHERED_BYTES_MAX:
                    raise DecompressedSizeError(
                        f"the batch at offset {header.base_offset} holds a record of {wanted} bytes; at most "
                        f"{GATHERED_BYTES_MAX} are allowed in a record that is converted"
                    )
                if builder.undrained_bytes >= PIECE_BYTES:
                    builder.drain()
            # The record that is gathered is copied when it is whole.
            self._checkpoint(decoder_bytes + 2 * len(data) + builder.undrained_bytes)
        if self._left:
            raise CorruptRecordError(f"batch at offset {header.base_offset} ends inside a record")
        if data:
            raise CorruptRecordError(
                f"batch at offset {header.base_offset} has bytes behind its {header.record_count} records"
            )

    def _append_whole(self, data: bytearray) -> tuple[int, int]:
        """Append the records in `data` that are whole.

        Returns where the last one ends, and the size of the next one, 0 if it is unknown.
        """
        at = count = 0
        while self._left:
            if is_compiled():
                at, read = self._builder.extend(partial(self._extend, data, at))
                self._left -= read
                if not self._left:
                    break
            try:
                size, start = read_varint(data, at)
            except NeedMoreBytes:
                return at, 0
            if size < 0:
                raise CorruptRecordError(
                    f"a record of the batch at offset {self._header.base_offset} has {size} bytes"
                )
            end = start + size
            if end > len(data):
                return at, end - at
            # What compiled code does not accept, or all records without it.
            record = read_record(bytes(memoryview(data)[at:end]), self._header)
            if record.offset >= self._first_offset:
                _append(self._builder, record)
            self._left -= 1
            at = end
            count += 1
            if count % _RECORDS_PER_CHECKPOINT == 0:
                self._checkpoint(len(data) + self._builder.undrained_bytes)
        return at, 0

    def _extend(
        self, data: bytearray, at: int, messages: bytearray, base_offset: int | None, last_offset: int
    ) -> tuple[int, int, int, int, int, int]:
        header = self._header
        is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        return _records.append_records_as_messages(
            messages,
            data,
            at,
            self._left,
            self._magic,
            # Inside a wrapper of magic 1, offsets are relative to the first one.
            bool(self._magic) and header.compression is not Compression.NONE,
            header.base_offset,
            header.base_timestamp,
            header.max_timestamp if is_appended else None,
            self._first_offset,
            base_offset,
            last_offset,
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
    keeps_codecs: bool = True,
) -> UpConverted:
    """Return the messages at the front of `buffer` as batches, with the same offsets, times and codecs.

    It stops at the first batch of format 2, at a partial message, before one that cannot be read, and after
    `bytes_max` of messages, compressed or not; at least one message is converted. Messages of format 0 get no
    timestamp (-1). Batches that are decoded at once need no codec: `keeps_codecs` False. Raises a
    `RecordsError` if the first message cannot be read.
    """
    run = _Run(keeps_codecs=keeps_codecs)
    consumed_bytes = 0
    try:
        for position, header in iter_headers(buffer):
            if header.magic == MAGIC or max(consumed_bytes, run.content_bytes) >= bytes_max:
                break
            if check_crc:
                validate(buffer, position, header)
            run.add(buffer, position, header, size_max)
            consumed_bytes = position + header.size
    except RecordsError:
        if not consumed_bytes:
            raise
    return UpConverted(run.finish(), consumed_bytes)


class _Run:
    """Batches made of messages: one of each wrapper, and one of uncompressed messages in a row."""

    def __init__(self, *, keeps_codecs: bool) -> None:
        self.content_bytes = 0
        """The size of all messages without a codec."""
        self._keeps_codecs: Final = keeps_codecs
        self._batches: list[Buffer] = []
        self._builder: RecordBatchBuilder | None = None
        self._kind: tuple[TimestampType, int] | None = None
        self._start = 0

    def add(self, buffer: Buffer, position: int, header: BatchHeader, size_max: int) -> None:
        """Add what one message of the set holds, at most `size_max` bytes."""
        if header.compression is not Compression.NONE:
            builder = self._batch(buffer, position, header, size_max)
            self.content_bytes += builder.size
            self._close()
            self._batches.append(builder.build())
            return
        (record,) = iter_messages(buffer, position, header)
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
                _batch_builder(header, Compression.NONE, record.offset),
                kind,
                record.offset,
            )
        _append(self._builder, record)
        self.content_bytes += header.size

    def finish(self) -> bytes:
        """Return the batches."""
        self._close()
        return b"".join(self._batches)

    def _close(self) -> None:
        builder, self._builder = self._builder, None
        if builder is not None and builder.record_count:
            self._batches.append(builder.build())

    def _batch(self, buffer: Buffer, position: int, header: BatchHeader, size_max: int) -> RecordBatchBuilder:
        """Return a batch of what the message at `position` wraps; what is large keeps its codec."""
        attempts = [(header.compression, size_max)]
        if not self._keeps_codecs:
            attempts.insert(0, (Compression.NONE, min(_PLAIN_BYTES_MAX, size_max)))
        codec = header.compression
        for codec, codec_size_max in attempts:
            try:
                dense = batch_of_wrapper(buffer, position, header, compression=codec, size_max=codec_size_max)
            except DecompressedSizeError:
                continue
            if dense is not None:
                return dense
            break
        builder = _batch_builder(header, codec)
        _append_sparse(builder, buffer, position, header, size_max=size_max)
        return builder


def _batch_builder(header: BatchHeader, compression: Compression, base_offset: int = 0) -> RecordBatchBuilder:
    try:
        return RecordBatchBuilder(
            base_offset=base_offset,
            compression=compression,
            timestamp_type=header.timestamp_type,
            log_append_time=header.max_timestamp,
        )
    except ValueError as error:
        raise CorruptRecordError(
            f"message at offset {header.base_offset} cannot be converted: {error}"
        ) from None


def _append(builder: Builder, record: Record) -> None:
    try:
        builder.append(record.key, record.value, record.timestamp, offset=record.offset)
    except (ValueError, struct.error) as error:
        # The delta of a faulty producer can lead beyond the 64 bits of a timestamp.
        raise CorruptRecordError(f"record at offset {record.offset} cannot be converted: {error}") from None

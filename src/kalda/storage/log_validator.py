"""Checks a batch that a leader is about to append, and patches its timestamps and compression.

Only the 61-byte header is read, plus the CRC over the whole batch. Records are opened for three kinds of
topics: compacted ones (every record needs a key), ones with bounds on timestamps, and ones with a
`compression.type` of their own.
"""

import time
from functools import partial
from typing import Final, NamedTuple

from kalda.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    iter_headers,
    read_header,
    read_plain,
    set_base_offset_and_leader_epoch,
    set_log_append_time,
    set_max_timestamp,
    validate,
    validate_bytes,
    validate_produced,
)
from kalda.records.compression import Compression
from kalda.records.control import check_barrier
from kalda.records.conversion import recompress
from kalda.records.errors import (
    CorruptRecordError,
    InvalidRecordError,
    InvalidTimestampError,
    NeedMoreBytes,
    RecordsError,
)
from kalda.records.format_conversion import down_convert, is_message_set
from kalda.records.message_set import append_plain_messages, append_wrapped_messages, iter_messages
from kalda.records.record import Record, RecordBatchBuilder, iter_records
from kalda.records.validation import TimestampBounds, validate_records
from kalda.storage.checked_batches import CheckedBatches, describe
from kalda.storage.errors import (
    MessageTooLargeError,
    RecordListTooLargeError,
    StorageError,
    UnsupportedForMessageFormatError,
)
from kalda.storage.log_config import INT64_MAX, LogConfig, TimestampTypeConfig
from kalda.storage.producer_state_manager import AppendOrigin

WritableBuffer = bytearray | memoryview

_PRODUCER: Final = "producer"


class UnpackedMessages:
    """A message set as batches that a client could have sent: offsets from 0, no gaps."""

    __slots__ = ("batches", "error", "memory_bytes", "seconds")

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.memory_bytes = 0
        """Bytes of the batches without compression."""
        self.seconds = 0.0
        self.error: Exception | None = None
        """Why the messages cannot be unpacked; `LogValidator.convert` raises it."""

    def add(self, builder: RecordBatchBuilder) -> None:
        """Add the batch that a builder holds."""
        self.memory_bytes += builder.size
        self.batches.append(builder.build())


class Converted(NamedTuple):
    """What a client sent, in the log's format."""

    records: memoryview
    batches: CheckedBatches
    seconds: float
    memory_bytes: int
    """Bytes that the conversion made, before compression."""


class LogValidator:
    """Checks appends to one log by its settings; replaced when the settings change."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_bounds_timestamps",
        "_bytes_max",
        "_compression",
        "_is_compacted",
        "_level",
        "_opens_records",
        "_segment_bytes",
        "_untouched_bytes_max",
        "magic",
        "uses_log_append_time",
    )

    def __init__(self, config: LogConfig) -> None:
        self._bytes_max = config.max_message_bytes
        self.magic = config.message_magic
        self._segment_bytes = config.segment_bytes
        self._is_compacted = config.is_compacted
        self.uses_log_append_time = config.message_timestamp_type is TimestampTypeConfig.LOG_APPEND_TIME
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        # With log-append time the producer's timestamps are not used.
        self._bounds_timestamps = not self.uses_log_append_time and (
            self._before_max_ms != INT64_MAX or self._after_max_ms != INT64_MAX
        )
        self._compression = _target_compression(config)
        self._opens_records = self._is_compacted or self._compression is not None or self._bounds_timestamps
        self._level = _level(config, self._compression)
        changes_batches = self._opens_records or self.uses_log_append_time or self.magic != MAGIC
        # The largest batch that is appended as it was sent, after a look at its header and its CRC.
        self._untouched_bytes_max = 0 if changes_batches else min(self._bytes_max, self._segment_bytes)

    def append_time_ms(self, now_ms: int) -> int:
        """Return the time that the response names: -1 if records keep the producer's timestamps."""
        return now_ms if self.uses_log_append_time else -1

    def read_untouched(self, records: WritableBuffer) -> tuple[int, int, int] | None:
        """Return what `read_plain` does for a batch of a client in which `validate` would change nothing.

        None for every other batch; `validate` checks it.
        """
        return read_plain(records) if len(records) <= self._untouched_bytes_max else None

    def validate(
        self, records: WritableBuffer, origin: AppendOrigin, now_ms: int
    ) -> tuple[BatchHeader, WritableBuffer]:
        """Check that `records` is one valid batch; return its header and the bytes to write.

        The bytes are `records`, patched in place for log-append time, or a recompressed copy.

        Raises:
            MessageTooLargeError, RecordListTooLargeError: the batch is above a limit.
            RecordsError: a subclass for invalid bytes.
        """
        header = read_header(records)
        size = header.batch_length + LOG_OVERHEAD
        if size > self._bytes_max:
            raise self._too_large(size)
        if origin is AppendOrigin.CLIENT:
            validate_bytes(records, 0, header)
            validate_produced(header)
            if header.is_barrier:
                check_barrier(records, 0, header)
        else:
            validate(records, 0, header)
        if size != len(records):
            raise InvalidRecordError(f"an append holds one batch; {len(records) - size} bytes follow it")
        if origin is AppendOrigin.CLIENT:
            if self._opens_records:
                self._open(records, header, now_ms)
            if header.max_timestamp < header.base_timestamp:
                _correct_max_timestamp(records, header)
            if header.attributes & LOG_APPEND_TIME_FLAG:
                self._take_back_append_time(records, header)
        if self._compression is not None and not header.attributes & CONTROL_FLAG:
            records, header = self._recompress(records, header)
            size = len(records)
        if size > self._segment_bytes:
            raise RecordListTooLargeError(
                f"batch of {size} bytes is above segment.bytes={self._segment_bytes}; send smaller batches"
            )
        if self.uses_log_append_time:
            set_log_append_time(records, 0, now_ms)
            header.attributes |= LOG_APPEND_TIME_FLAG
            header.max_timestamp = now_ms
        return header, records

    def convert(
        self,
        records: WritableBuffer,
        now_ms: int,
        first_offset: int,
        leader_epoch: int,
        unpacked: UnpackedMessages | None = None,
    ) -> Converted:
        """Check what a client sent where its format or the log's is an old one, and convert it.

        Args:
            records: what the client sent.
            now_ms: the time of the append.
            first_offset: the offset of the first record.
            leader_epoch: of the partition.
            unpacked: the same records if `unpack` was called before.

        Raises:
            MessageTooLargeError, RecordListTooLargeError: a message or what it becomes is above a limit.
            UnsupportedForMessageFormatError: the records of an idempotent producer or with headers, in an old
                format.
            RecordsError: a subclass for invalid bytes.
        """
        started = time.perf_counter()
        is_old = is_message_set(records)
        if is_old and unpacked is None:
            unpacked = self._unpacked(records)
        elif unpacked is not None and unpacked.error is not None:
            raise unpacked.error
        parts: list[Buffer] = []
        offset = first_offset
        for batch in [records] if unpacked is None else unpacked.batches:
            header, checked = self.validate(batch, AppendOrigin.CLIENT, now_ms)
            set_base_offset_and_leader_epoch(checked, 0, offset, leader_epoch)
            offset += header.record_count
            if self.magic == MAGIC:
                parts.append(checked)
                continue
            if header.producer_id >= 0 or header.is_transactional:
                raise UnsupportedForMessageFormatError(
                    f"format {self.magic} has no idempotence, so records of producer {header.producer_id} "
                    "cannot be stored; set message.format.version to 0.11 or later"
                )
            if not is_old and any(record.headers for record in iter_records(checked, 0, header)):
                raise UnsupportedForMessageFormatError(
                    f"format {self.magic} has no headers, so records with headers cannot be stored; set "
                    "message.format.version to 0.11 or later"
                )
            parts.append(down_convert(checked, self.magic).messages)
        written = parts[0] if len(parts) == 1 else bytearray().join(parts)
        headers = list(iter_headers(written))
        for _, header in headers:
            if header.size > self._bytes_max:
                raise self._too_large(header.size)
        if len(written) > self._segment_bytes:
            raise RecordListTooLargeError(
                f"messages of {len(written)} bytes are above segment.bytes={self._segment_bytes}; "
                "send fewer at once"
            )
        seconds = time.perf_counter() - started
        memory_bytes = len(written) if self.magic != MAGIC else 0
        if unpacked is not None:
            seconds += unpacked.seconds
            memory_bytes += unpacked.memory_bytes
        checked_batches = describe(headers, first_offset, offset - first_offset)
        return Converted(memoryview(written), checked_batches, seconds, memory_bytes)

    def unpack(self, records: WritableBuffer) -> UnpackedMessages:
        """Do the part of `convert` that takes long for a compressed message set; callable from any thread.

        What is wrong with the messages becomes the result's `error`.
        """
        started = time.perf_counter()
        try:
            unpacked = self._unpacked(records)
        except (RecordsError, StorageError) as error:
            unpacked = UnpackedMessages()
            unpacked.error = error
        unpacked.seconds = time.perf_counter() - started
        return unpacked

    def _unpacked(self, records: WritableBuffer) -> UnpackedMessages:
        """Return the batches of a message set.

        Uncompressed messages share batches up to ``max.message.bytes``; a wrapper becomes one batch.
        """
        found = UnpackedMessages()
        run: RecordBatchBuilder | None = None
        magic = records[MAGIC_POSITION]
        plain_end = 0
        while True:
            following = RecordBatchBuilder()
            plain_end = append_plain_messages(following, records, plain_end, magic, self._bytes_max)
            if not following.record_count:
                break
            if run is not None:
                found.add(run)
            run = following
        for position, header in iter_headers(records, plain_end):
            if header.magic != magic:
                raise InvalidRecordError(
                    f"a message of format {header.magic} follows one of format {magic}; expected one format"
                )
            if header.size > self._bytes_max:
                raise self._too_large(header.size)
            # Without `validate`, because the offsets of old clients may be anything; kafkajs writes -1.
            validate_bytes(records, position, header)
            size = header.size
            if run is not None and (
                header.compression is not Compression.NONE or run.size + size > self._bytes_max
            ):
                found.add(run)
                run = None
            if header.compression is not Compression.NONE:
                found.add(self._batch_of_wrapper(records, position, header))
                continue
            run = run or RecordBatchBuilder()
            (message,) = iter_messages(records, position, header)
            _append(run, message)
        if run is not None:
            found.add(run)
        if not found.batches:
            raise InvalidRecordError("a partition's records must hold one whole message")
        return found

    def _batch_of_wrapper(
        self, records: WritableBuffer, position: int, header: BatchHeader
    ) -> RecordBatchBuilder:
        new_builder = partial(
            RecordBatchBuilder, compression=header.compression, compression_level=self._level
        )
        builder = new_builder()
        if not append_wrapped_messages(builder, records, position, header):
            builder = new_builder()
            for message in iter_messages(records, position, header, check_inner_crcs=True):
                _append(builder, message)
        return builder

    def _too_large(self, size: int) -> MessageTooLargeError:
        return MessageTooLargeError(
            f"batch of {size} bytes is above max.message.bytes={self._bytes_max}; "
            "send smaller batches or raise the limit"
        )

    def _open(self, records: WritableBuffer, header: BatchHeader, now_ms: int) -> None:
        """Open the records and check keys and timestamps."""
        bounds = None
        if self._bounds_timestamps:
            bounds = TimestampBounds(now_ms - self._before_max_ms, now_ms + self._after_max_ms)
        try:
            validate_records(records, 0, header, require_keys=self._is_compacted, timestamp_bounds=bounds)
        except (CorruptRecordError, NeedMoreBytes) as error:
            # The CRC is right, so the producer wrote these bytes, and a retry would not help.
            raise InvalidRecordError(f"the batch does not contain valid records: {error}") from error

    def _take_back_append_time(self, records: WritableBuffer, header: BatchHeader) -> None:
        """Reset the timestamp type of a batch whose producer set log-append time, as Kafka does.

        The batch is refused if the topic uses log-append time itself, or if the batch has no timestamp.
        """
        if self.uses_log_append_time or header.max_timestamp == NO_TIMESTAMP:
            raise InvalidTimestampError("a producer may not set the timestamp type to log-append time")
        set_max_timestamp(records, 0, header.max_timestamp)
        header.attributes &= ~LOG_APPEND_TIME_FLAG

    def _recompress(self, records: WritableBuffer, header: BatchHeader) -> tuple[WritableBuffer, BatchHeader]:
        assert self._compression is not None, "called where the topic has a codec of its own"
        if header.compression is self._compression:
            return records, header
        packed = recompress(records, 0, header, self._compression, self._level)
        if len(packed) > self._bytes_max:
            raise MessageTooLargeError(
                f"batch of {len(packed)} bytes, recompressed, is above max.message.bytes={self._bytes_max}"
            )
        return packed, read_header(packed)


def _append(builder: RecordBatchBuilder, message: Record) -> None:
    try:
        builder.append_next(message.key, message.value, message.timestamp)
    except ValueError as error:
        raise InvalidTimestampError(str(error)) from None


def _correct_max_timestamp(records: WritableBuffer, header: BatchHeader) -> None:
    """Correct the maximum timestamp of a batch that is below its first record's timestamp.

    Otherwise lookups by time would skip its records. Compressed batches are not opened for this.

    Raises:
        InvalidTimestampError: a record has a timestamp above the largest one.
    """
    if header.attributes & COMPRESSION_MASK:
        return
    try:
        newest = max(record.timestamp for record in iter_records(records, 0, header))
    except (CorruptRecordError, InvalidRecordError, NeedMoreBytes):
        return
    if newest > INT64_MAX:
        raise InvalidTimestampError(f"a record has timestamp {newest}; the largest is {INT64_MAX}")
    if newest > header.max_timestamp and not header.attributes & LOG_APPEND_TIME_FLAG:
        set_max_timestamp(records, 0, newest)
        header.max_timestamp = newest


def _target_compression(config: LogConfig) -> Compression | None:
    if config.compression_type == _PRODUCER:
        return None
    if config.compression_type == "uncompressed":
        return Compression.NONE
    return Compression[config.compression_type.upper()]


def _level(config: LogConfig, compression: Compression | None) -> int | None:
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }
    return None if compression is None else levels.get(compression)

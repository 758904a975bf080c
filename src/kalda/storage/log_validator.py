"""Checks a batch that a leader is about to append, and patches its timestamps and compression.

Only the 61-byte header is read, plus the CRC over the whole batch. Records are opened for three kinds of
topics: compacted ones (every record needs a key), ones with bounds on timestamps, and ones with a
`compression.type` of their own.
"""

from contextlib import suppress
from functools import partial
from typing import Final

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
from kalda.records.errors import CorruptRecordError, InvalidRecordError, InvalidTimestampError, NeedMoreBytes
from kalda.records.format_conversion import down_convert, is_message_set
from kalda.records.message_set import append_plain_messages, append_wrapped_messages, iter_messages
from kalda.records.record import Record, RecordBatchBuilder, iter_records
from kalda.records.validation import TimestampBounds, validate_records
from kalda.storage.checked_batches import CheckedBatches, describe
from kalda.storage.errors import (
    MessageTooLargeError,
    RecordListTooLargeError,
    UnsupportedForMessageFormatError,
)
from kalda.storage.log_config import INT64_MAX, LogConfig, TimestampTypeConfig
from kalda.storage.producer_state_manager import AppendOrigin

WritableBuffer = bytearray | memoryview

_PRODUCER: Final = "producer"


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
        self, records: WritableBuffer, now_ms: int, first_offset: int, leader_epoch: int
    ) -> tuple[memoryview, CheckedBatches]:
        """Check what a client sent where its format or the log's is an old one, and convert it.

        Returns the bytes to write, with offsets from `first_offset` on, and what they hold.

        Raises:
            MessageTooLargeError, RecordListTooLargeError: a message or what it becomes is above a limit.
            UnsupportedForMessageFormatError: the records of an idempotent producer or with headers, in an old
                format.
            RecordsError: a subclass for invalid bytes.
        """
        is_old = is_message_set(records)
        batches = self._batches_of_messages(records) if is_old else [records]
        parts: list[Buffer] = []
        offset = first_offset
        for batch in batches:
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
        return memoryview(written), describe(headers, first_offset, offset - first_offset)

    def _batches_of_messages(self, records: WritableBuffer) -> list[bytearray]:
        """Return a message set as batches that a client could have sent: offsets from 0, no gaps.

        Uncompressed messages share batches up to ``max.message.bytes``; a wrapper becomes one batch.
        """
        batches: list[bytearray] = []
        run: RecordBatchBuilder | None = None
        magic = records[MAGIC_POSITION]
        plain_end = 0
        while True:
            following = RecordBatchBuilder()
            plain_end = append_plain_messages(following, records, plain_end, magic, self._bytes_max)
            if not following.record_count:
                break
            if run is not None:
                batches.append(run.build())
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
                batches.append(run.build())
                run = None
            if header.compression is not Compression.NONE:
                batches.append(self._batch_of_wrapper(records, position, header))
                continue
            run = run or RecordBatchBuilder()
            (message,) = iter_messages(records, position, header)
            _append(run, message)
        if run is not None:
            batches.append(run.build())
        if not batches:
            raise InvalidRecordError("a partition's records must hold one whole message")
        return batches

    def _batch_of_wrapper(self, records: WritableBuffer, position: int, header: BatchHeader) -> bytearray:
        new_builder = partial(
            RecordBatchBuilder, compression=header.compression, compression_level=self._level
        )
        builder = new_builder()
        if not append_wrapped_messages(builder, records, position, header):
            builder = new_builder()
            for message in iter_messages(records, position, header, check_inner_crcs=True):
                _append(builder, message)
        return builder.build()

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
    """
    if header.attributes & COMPRESSION_MASK:
        return
    with suppress(CorruptRecordError, InvalidRecordError, NeedMoreBytes):
        newest = max(record.timestamp for record in iter_records(records, 0, header))
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

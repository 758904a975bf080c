"""What a leader demands of an append, and what it changes in it, before offsets are given.

Only the 61-byte header is read, plus the CRC over the whole. Records are opened where a topic's settings
leave no other way: compacted topics (every record needs a key) and a `compression.type` of the topic's own.
Timestamp bounds are held against the header's base and maximum timestamps.
"""

from typing import Final

from kalda.records.batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
    set_log_append_time,
    validate,
    validate_produced,
)
from kalda.records.compression import Compression
from kalda.records.conversion import recompress
from kalda.records.errors import InvalidRecordError, InvalidTimestampError
from kalda.records.record import iter_records
from kalda.storage.config import INT64_MAX, LogConfig, TimestampTypeConfig
from kalda.storage.errors import MessageTooLargeError, RecordListTooLargeError
from kalda.storage.producer_state import AppendOrigin

WritableBuffer = bytearray | memoryview

_PRODUCER: Final = "producer"


class AppendValidator:
    """One log's settings, turned into what an append checks. Replaced when the settings change."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_bounds_timestamps",
        "_bytes_max",
        "_compression",
        "_is_compacted",
        "_level",
        "_segment_bytes",
        "uses_log_append_time",
    )

    def __init__(self, config: LogConfig) -> None:
        self._bytes_max = config.max_message_bytes
        self._segment_bytes = config.segment_bytes
        self._is_compacted = config.is_compacted
        self.uses_log_append_time = config.message_timestamp_type is TimestampTypeConfig.LOG_APPEND_TIME
        self._before_max_ms = config.message_timestamp_before_max_ms
        self._after_max_ms = config.message_timestamp_after_max_ms
        self._bounds_timestamps = not self.uses_log_append_time and (
            self._before_max_ms != INT64_MAX or self._after_max_ms != INT64_MAX
        )
        self._compression = _target_compression(config)
        self._level = _level(config, self._compression)

    def validate(
        self, records: WritableBuffer, origin: AppendOrigin, now_ms: int
    ) -> tuple[BatchHeader, WritableBuffer]:
        """Check the one batch that `records` must be; return its header and the bytes to write.

        The bytes are `records`, patched in place for log-append time, or a recompressed copy.

        Raises:
            MessageTooLargeError, RecordListTooLargeError: the batch is above a limit.
            RecordsError: a subclass says what is wrong with the bytes.
        """
        header = read_header(records)
        size = header.batch_length + LOG_OVERHEAD
        if size > self._bytes_max and origin is not AppendOrigin.REPLICATION:
            raise MessageTooLargeError(
                f"batch of {size} bytes is above max.message.bytes={self._bytes_max}; "
                "send smaller batches or raise the limit"
            )
        validate(records, 0, header)
        if size != len(records):
            raise InvalidRecordError(f"an append holds one batch; {len(records) - size} bytes follow it")
        if origin is AppendOrigin.CLIENT:
            validate_produced(header)
        if self._bounds_timestamps or header.attributes & LOG_APPEND_TIME_FLAG:
            self._check_timestamps(header, now_ms)
        if self._is_compacted and not header.attributes & CONTROL_FLAG:
            _check_keys(records, header)
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

    def _check_timestamps(self, header: BatchHeader, now_ms: int) -> None:
        if header.attributes & LOG_APPEND_TIME_FLAG and not self.uses_log_append_time:
            raise InvalidTimestampError("a producer may not mark its batch as LogAppendTime")
        if header.max_timestamp != NO_TIMESTAMP and header.max_timestamp - now_ms > self._after_max_ms:
            raise InvalidTimestampError(
                f"timestamp {header.max_timestamp} is {header.max_timestamp - now_ms} ms after the broker's; "
                f"message.timestamp.after.max.ms={self._after_max_ms}"
            )
        if header.base_timestamp != NO_TIMESTAMP and now_ms - header.base_timestamp > self._before_max_ms:
            raise InvalidTimestampError(
                f"timestamp {header.base_timestamp} is {now_ms - header.base_timestamp} ms too old; "
                f"message.timestamp.before.max.ms={self._before_max_ms}"
            )

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


def _check_keys(records: WritableBuffer, header: BatchHeader) -> None:
    for record in iter_records(records, 0, header):
        if record.key is None:
            raise InvalidRecordError(
                f"record {record.offset - header.base_offset} has no key; a compacted topic needs one"
            )


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

"""Checks a batch that a leader is about to append, and patches its timestamps and compression.

Only the 61-byte header is read, plus the CRC over the whole batch. Records are opened for four kinds of
topics: compacted ones (every record needs a key), ones with bounds on timestamps, ones with a
`compression.type` of their own, and ones whose records are inspected (`RecordsInspection`). They are opened
piece by piece, so that 250 MB in a batch of 8 KB take no such memory, and what may take long is prepared on
another thread first: `LogValidator.prepare`.
"""

import math
from typing import Final, NamedTuple

from kalda.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_PARTITION_LEADER_EPOCH,
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
from kalda.records.compression import (
    DECOMPRESSED_SIZE_MAX,
    Checkpoint,
    Compression,
    StreamCompressor,
    go_on,
    iter_decompressed,
    memory_bytes,
)
from kalda.records.control import check_barrier
from kalda.records.errors import (
    CorruptRecordError,
    DecompressedSizeError,
    InvalidRecordError,
    InvalidTimestampError,
    NeedMoreBytes,
    RecordsError,
)
from kalda.records.format_conversion import down_convert, is_message_set
from kalda.records.message_set import append_plain_messages, append_wrapped_messages, iter_messages
from kalda.records.recompression import repack
from kalda.records.record import RecordBatchBuilder, iter_records
from kalda.records.validation import RecordsCheck, TimestampBounds
from kalda.runtime.error_text import without_frames
from kalda.runtime.system.clock import monotonic
from kalda.storage.checked_batches import CheckedBatches, describe
from kalda.storage.errors import (
    HeavyBatchError,
    LookupNeededError,
    MessageTooLargeError,
    RecordListTooLargeError,
    StorageError,
    UnsupportedForMessageFormatError,
)
from kalda.storage.log_config import INT64_MAX, LogConfig, TimestampTypeConfig
from kalda.storage.log_resources import RecordsInspection
from kalda.storage.producer_state_manager import AppendOrigin

WritableBuffer = bytearray | memoryview

_PRODUCER: Final = "producer"
_MESSAGE_ATTRIBUTES_POSITION: Final = 17
# The lower byte of two.
_BATCH_ATTRIBUTES_POSITION: Final = 22
_MESSAGES_PER_CHECKPOINT: Final = 32
"""Where they are read one by one, which takes some 0.2 ms."""


PACKED_BYTES_MAX: Final = 4096
"""Larger compressed batches are opened on another thread: gzip takes some 0.1 ms for these."""

OPENED_BYTES_MAX: Final = 64 * 1024
"""What a batch may hold, decompressed, that is opened at once: some 0.3 ms."""

PLAIN_BYTES_MAX: Final = 256 * 1024
"""Larger batches are opened on another thread even if they are not compressed: 1 MB takes up to 5 ms."""

REQUEST_BYTES_MAX: Final = 4 * 1024 * 1024
"""What one request may open at once in all its batches: up to some 20 ms."""

INSPECTED_BYTES_MAX: Final = 32 * 1024
"""Larger batches are inspected on another thread: some 0.4 ms for these."""

INSPECTED_SIZE_MAX: Final = 64 * 1024 * 1024
"""What a batch may hold that is inspected: unlike in other checks, all of it is in memory at once."""

_INSPECTION_COST: Final = 16
"""A batch that is inspected counts as this many times its size."""
_PACKED_COST: Final = 16
"""A compressed batch counts as this many times its size, within these bounds."""
_PACKED_COST_MIN: Final = OPENED_BYTES_MAX // 2
_CONVERSION_COST: Final = 4
"""Messages of an old format count as this many times their size."""


class _UnpackedMessages:
    """A message set as batches that a client could have sent: offsets from 0, no gaps."""

    __slots__ = ("batches", "memory_bytes")

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.memory_bytes = 0
        """Bytes of the batches without compression."""

    def add(self, builder: RecordBatchBuilder) -> None:
        """Add the batch that a builder holds."""
        self.memory_bytes += builder.size
        self.batches.append(builder.build())


class Converted(NamedTuple):
    """A client's records in the log's format."""

    records: memoryview
    batches: CheckedBatches
    seconds: float
    memory_bytes: int
    """Bytes that the conversion made, before compression."""

    def moved(self, first_offset: int, leader_epoch: int) -> "Converted | None":
        """Return the same batches from another offset on; None in the old formats, which contain offsets."""
        before = self.batches.first_offset
        first = self.batches.headers[0][1]
        if first_offset == before and first.partition_leader_epoch in (
            leader_epoch,
            NO_PARTITION_LEADER_EPOCH,
        ):
            return self
        if first.magic != MAGIC:
            return None
        for position, header in self.batches.headers:
            header.base_offset += first_offset - before
            header.partition_leader_epoch = leader_epoch
            set_base_offset_and_leader_epoch(self.records, position, header.base_offset, leader_epoch)
        batches = describe(self.batches.headers, first_offset, self.batches.record_count)
        return self._replace(batches=batches)


class Prepared:
    """What `LogValidator.prepare` made of a client's batch; without a result, only that it may be put off.

    Then the batches of one request share it, which take at most `left_bytes` when they are opened at once.
    """

    __slots__ = ("_left_bytes", "converted", "error", "validated")

    def __init__(self, left_bytes: float = REQUEST_BYTES_MAX) -> None:
        self._left_bytes = left_bytes
        self.validated: tuple[BatchHeader, WritableBuffer] | None = None
        self.converted: Converted | None = None
        self.error: Exception | None = None
        """Why the batch is refused."""

    def count(self, size: int, *, is_packed: bool) -> None:
        """Count a batch that is opened at once; raises `HeavyBatchError` where the request has had enough."""
        cost = min(max(_PACKED_COST * size, _PACKED_COST_MIN), OPENED_BYTES_MAX) if is_packed else size
        if cost > self._left_bytes:
            raise HeavyBatchError
        self._left_bytes -= cost


PUT_OFF: Final = Prepared(math.inf)
"""For the only batch of a request, which may be put off: nothing is prepared yet."""


class _Limits(NamedTuple):
    """The limits of opening a batch."""

    size_max: int
    checkpoint: Checkpoint
    put_off: Prepared | None = None
    """Given where the batch is opened briefly or not at all."""


_AT_ONCE: Final = _Limits(DECOMPRESSED_SIZE_MAX, go_on)


class LogValidator:
    """Checks appends to one log by its settings; replaced when the settings change."""

    __slots__ = (
        "_after_max_ms",
        "_before_max_ms",
        "_bounds_timestamps",
        "_bytes_max",
        "_compression",
        "_inspection",
        "_is_compacted",
        "_level",
        "_opens_records",
        "_segment_bytes",
        "_untouched_bytes_max",
        "magic",
        "uses_log_append_time",
    )

    def __init__(self, config: LogConfig, inspection: RecordsInspection | None = None) -> None:
        self._inspection = inspection
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
        self._opens_records = (
            self._is_compacted
            or self._compression is not None
            or self._bounds_timestamps
            or inspection is not None
        )
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

    def prepare(
        self,
        records: WritableBuffer,
        now_ms: int,
        first_offset: int,
        leader_epoch: int,
        checkpoint: Checkpoint,
    ) -> Prepared:
        """Do the part of an append that may take long; callable from any thread.

        `checkpoint` is called between pieces. `first_offset` is where the log will probably end then.
        """
        prepared = Prepared()
        limits = _Limits(DECOMPRESSED_SIZE_MAX, checkpoint)
        try:
            if self.converts(records):
                prepared.converted = self._convert(records, now_ms, first_offset, leader_epoch, limits)
            else:
                prepared.validated = self._validate(records, AppendOrigin.CLIENT, now_ms, limits)
        except (RecordsError, StorageError, LookupNeededError) as error:
            without_frames(error)
            prepared.error = error
        return prepared

    def converts(self, records: WritableBuffer) -> bool:
        """Return whether what a client sent, or the log, has an old format."""
        return self.magic != MAGIC or is_message_set(records)

    def validate(
        self,
        records: WritableBuffer,
        origin: AppendOrigin,
        now_ms: int,
        prepared: Prepared | None = None,
    ) -> tuple[BatchHeader, WritableBuffer]:
        """Check that `records` is one valid batch; return its header and the bytes to write.

        The bytes are `records`, patched in place for log-append time, or a recompressed copy.
        `prepared` is what `prepare` made of them, or `PUT_OFF`.

        Raises:
            HeavyBatchError: with `PUT_OFF`, that it would take long; `records` are as they were.
            MessageTooLargeError, RecordListTooLargeError: the batch is above a limit.
            RecordsError: a subclass for invalid bytes.
        """
        if prepared is None:
            return self._validate(records, origin, now_ms, _AT_ONCE)
        if prepared.error is not None:
            raise prepared.error
        if prepared.validated is not None:
            return prepared.validated
        try:
            return self._validate(records, origin, now_ms, _Limits(OPENED_BYTES_MAX, go_on, prepared))
        except DecompressedSizeError:
            raise HeavyBatchError from None

    def _validate(
        self, records: WritableBuffer, origin: AppendOrigin, now_ms: int, limits: _Limits
    ) -> tuple[BatchHeader, WritableBuffer]:
        header = read_header(records)
        size = header.batch_length + LOG_OVERHEAD
        if size > self._bytes_max:
            raise self._too_large(size)
        if limits.put_off is not None:
            self._check_light(header, limits.put_off)
        if origin is AppendOrigin.CLIENT:
            validate_bytes(records, 0, header)
            validate_produced(header)
            if header.is_barrier:
                check_barrier(records, 0, header)
        else:
            validate(records, 0, header)
        if size != len(records):
            raise InvalidRecordError(f"an append holds one batch; {len(records) - size} bytes follow it")
        packed: bytes | None = None
        if origin is AppendOrigin.CLIENT:
            if self._opens_records:
                packed = self._open(records, header, now_ms, limits)
            if header.max_timestamp < header.base_timestamp:
                _correct_max_timestamp(records, header, limits.checkpoint)
            if header.attributes & LOG_APPEND_TIME_FLAG:
                self._take_back_append_time(records, header)
        elif self._repacks(header):
            packed = self._read(records, header, limits, None)
        if packed is not None:
            assert self._compression is not None, "repacked for a topic without a codec of its own"
            records = repack(header, packed, self._compression)
            header, size = read_header(records), len(records)
            if size > self._bytes_max:
                raise self._too_large(size)
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
        prepared: Prepared | None = None,
    ) -> Converted:
        """Check what a client sent where its format or the log's is an old one, and convert it.

        Args:
            records: what the client sent.
            now_ms: the time of the append.
            first_offset: the offset of the first record.
            leader_epoch: of the partition.
            prepared: what `prepare` made of the records, or `PUT_OFF`.

        Raises:
            HeavyBatchError: with `PUT_OFF`, that it would take long; after `prepare`, that the log moved on
                and has an old format. `records` are as they were.
            MessageTooLargeError, RecordListTooLargeError: a message or what it becomes is above a limit.
            UnsupportedForMessageFormatError: the records of an idempotent producer or with headers, in an old
                format.
            RecordsError: a subclass for invalid bytes.
        """
        if prepared is None:
            return self._convert(records, now_ms, first_offset, leader_epoch, _AT_ONCE)
        if prepared.error is not None:
            raise prepared.error
        if prepared.converted is not None:
            moved = prepared.converted.moved(first_offset, leader_epoch)
            if moved is None:
                raise HeavyBatchError
            return moved
        is_packed = len(records) > _BATCH_ATTRIBUTES_POSITION and _is_packed(records)
        size_max = (
            PACKED_BYTES_MAX if is_packed else PLAIN_BYTES_MAX if self.magic == MAGIC else OPENED_BYTES_MAX
        )
        if self._inspection is not None:
            size_max = 0 if is_packed else min(size_max, INSPECTED_BYTES_MAX)
        if len(records) > size_max or (is_packed and not is_message_set(records)):
            raise HeavyBatchError
        if is_message_set(records):
            prepared.count(_CONVERSION_COST * len(records), is_packed=is_packed)
        limits = _Limits(OPENED_BYTES_MAX, go_on, prepared)
        try:
            return self._convert(records, now_ms, first_offset, leader_epoch, limits)
        except DecompressedSizeError:
            raise HeavyBatchError from None

    def _convert(
        self,
        records: WritableBuffer,
        now_ms: int,
        first_offset: int,
        leader_epoch: int,
        limits: _Limits,
    ) -> Converted:
        started = monotonic()
        checkpoint = limits.checkpoint
        unpacked = self._unpacked(records, limits) if is_message_set(records) else None
        parts: list[Buffer] = []
        offset = first_offset
        # A copy, because this is done again if the log moves on meanwhile.
        for batch in [bytearray(records)] if unpacked is None else unpacked.batches:
            checkpoint(0)
            # What was unpacked already may be opened again: the bound for that was kept.
            within = limits if unpacked is None else _Limits(DECOMPRESSED_SIZE_MAX, checkpoint)
            header, checked = self._validate(batch, AppendOrigin.CLIENT, now_ms, within)
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
            if unpacked is None and self._has_headers(checked, header, limits):
                raise UnsupportedForMessageFormatError(
                    f"format {self.magic} has no headers, so records with headers cannot be stored; set "
                    "message.format.version to 0.11 or later"
                )
            parts.append(down_convert(checked, self.magic, checkpoint=checkpoint).messages)
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
        memory_bytes = len(written) if self.magic != MAGIC else 0
        if unpacked is not None:
            memory_bytes += unpacked.memory_bytes
        checked_batches = describe(headers, first_offset, offset - first_offset)
        seconds = monotonic() - started
        return Converted(memoryview(written), checked_batches, seconds, memory_bytes)

    def _unpacked(self, records: WritableBuffer, limits: _Limits) -> _UnpackedMessages:
        """Return the batches of a message set.

        Uncompressed messages share batches up to ``max.message.bytes``; a wrapper becomes one batch.
        """
        found = _UnpackedMessages()
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
            limits.checkpoint(0)
        for count, (position, header) in enumerate(iter_headers(records, plain_end)):
            if count % _MESSAGES_PER_CHECKPOINT == 0:
                limits.checkpoint(0)
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
                # What is unpacked briefly is bounded as a whole.
                before = 0 if limits.put_off is None else found.memory_bytes
                within = limits._replace(size_max=limits.size_max - before)
                found.add(self._batch_of_wrapper(records, position, header, within))
                continue
            run = run or RecordBatchBuilder()
            (message,) = iter_messages(records, position, header)
            try:
                run.append_next(message.key, message.value, message.timestamp)
            except ValueError as error:
                raise InvalidTimestampError(str(error)) from None
        if run is not None:
            found.add(run)
        if not found.batches:
            raise InvalidRecordError("a partition's records must hold one whole message")
        return found

    def _batch_of_wrapper(
        self, records: WritableBuffer, position: int, header: BatchHeader, limits: _Limits
    ) -> RecordBatchBuilder:
        builder = RecordBatchBuilder(compression=header.compression, compression_level=self._level)

        def checkpoint(held_bytes: int) -> None:
            if builder.packed_bytes > self._bytes_max:
                raise self._too_large(builder.packed_bytes)
            limits.checkpoint(held_bytes)

        try:
            append_wrapped_messages(
                builder,
                records,
                position,
                header,
                size_max=limits.size_max,
                checkpoint=checkpoint,
            )
        except ValueError as error:
            raise InvalidTimestampError(str(error)) from None
        return builder

    def _too_large(self, size: int) -> MessageTooLargeError:
        return MessageTooLargeError(
            f"batch of {size} bytes is above max.message.bytes={self._bytes_max}; "
            "send smaller batches or raise the limit"
        )

    def _check_light(self, header: BatchHeader, put_off: Prepared) -> None:
        """Raise `HeavyBatchError` if it may take long to open a batch, after others of its request."""
        is_packed = bool(header.attributes & COMPRESSION_MASK)
        corrects = not is_packed and header.max_timestamp < header.base_timestamp
        if not (self._opens_records or corrects):
            return
        size = header.size
        if self._inspection is not None:
            if is_packed or size > INSPECTED_BYTES_MAX:
                raise HeavyBatchError
            size *= _INSPECTION_COST
        elif size > (PACKED_BYTES_MAX if is_packed or corrects else PLAIN_BYTES_MAX):
            raise HeavyBatchError
        put_off.count(size, is_packed=is_packed or corrects)

    def _has_headers(self, records: WritableBuffer, header: BatchHeader, limits: _Limits) -> bool:
        check = RecordsCheck(header)
        self._read(records, header, limits, check)
        check.finish()
        return check.has_headers

    def _repacks(self, header: BatchHeader) -> bool:
        """Return whether a batch gets the topic's own codec."""
        return (
            self._compression is not None
            and header.compression is not self._compression
            and not header.attributes & CONTROL_FLAG
        )

    def _open(
        self, records: WritableBuffer, header: BatchHeader, now_ms: int, limits: _Limits
    ) -> bytes | None:
        """Check keys and timestamps of the records of a client; return them with the topic's codec.

        Returns None where the batch keeps its codec.
        """
        bounds = None
        if self._bounds_timestamps:
            bounds = TimestampBounds(now_ms - self._before_max_ms, now_ms + self._after_max_ms)
        check = RecordsCheck(header, require_keys=self._is_compacted, timestamp_bounds=bounds)
        inspection = None if header.attributes & CONTROL_FLAG else self._inspection
        opened = None if inspection is None else bytearray()
        try:
            packed = self._read(records, header, limits, check, opened)
            check.finish()
        except (CorruptRecordError, NeedMoreBytes) as error:
            # The CRC is right, so the producer wrote these bytes, and a retry would not help.
            raise InvalidRecordError(f"the batch does not contain valid records: {error}") from error
        if inspection is not None and opened is not None:
            inspection.inspect(header, bytes(opened), limits.checkpoint)
        return packed

    def _read(
        self,
        records: WritableBuffer,
        header: BatchHeader,
        limits: _Limits,
        check: RecordsCheck | None,
        opened: bytearray | None = None,
    ) -> bytes | None:
        """Read the records piece by piece; return them with the topic's codec if they get that.

        Where `opened` is given, they are added to it without compression.
        """
        codec = self._compression
        packer = StreamCompressor(codec, self._level) if codec is not None and self._repacks(header) else None
        section = memoryview(records)[HEADER_SIZE : header.size]
        held_bytes = memory_bytes(header.compression, section)
        limits.checkpoint(held_bytes)
        for piece in iter_decompressed(header.compression, section, limits.size_max):
            if check is not None:
                check.feed(piece)
            if opened is not None:
                opened += piece
                held_bytes += len(piece)
                if len(opened) > INSPECTED_SIZE_MAX:
                    raise MessageTooLargeError(
                        f"the batch of {header.size} bytes holds more than {INSPECTED_SIZE_MAX} bytes "
                        "without compression, the limit where records are checked; send smaller batches"
                    )
            if packer is not None:
                packer.write(piece)
                if packer.size > self._bytes_max:
                    raise MessageTooLargeError(
                        f"the batch of {header.size} bytes has more than "
                        f"max.message.bytes={self._bytes_max} with the topic's compression.type"
                    )
            limits.checkpoint(held_bytes)
        return None if packer is None else packer.finish()

    def _take_back_append_time(self, records: WritableBuffer, header: BatchHeader) -> None:
        """Reset the timestamp type of a batch whose producer set log-append time, as Kafka does.

        The batch is refused if the topic uses log-append time itself, or if the batch has no timestamp.
        """
        if self.uses_log_append_time or header.max_timestamp == NO_TIMESTAMP:
            raise InvalidTimestampError("a producer may not set the timestamp type to log-append time")
        set_max_timestamp(records, 0, header.max_timestamp)
        header.attributes &= ~LOG_APPEND_TIME_FLAG


def _is_packed(records: WritableBuffer) -> bool:
    """Return whether the first batch or message is compressed."""
    at = _MESSAGE_ATTRIBUTES_POSITION if is_message_set(records) else _BATCH_ATTRIBUTES_POSITION
    return bool(records[at] & COMPRESSION_MASK)


def _correct_max_timestamp(records: WritableBuffer, header: BatchHeader, checkpoint: Checkpoint) -> None:
    """Correct the maximum timestamp of a batch that is below its first record's timestamp.

    Otherwise lookups by time would skip its records. Compressed batches are not opened for this.

    Raises:
        InvalidTimestampError: a record has a timestamp above the largest one.
    """
    if header.attributes & COMPRESSION_MASK:
        return
    try:
        newest = NO_TIMESTAMP
        for count, record in enumerate(iter_records(records, 0, header)):
            if count % _MESSAGES_PER_CHECKPOINT == 0:
                checkpoint(0)
            newest = max(newest, record.timestamp)
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

"""Checks the records inside a produced batch, which the broker opens only for topics that need it.

A leader opens a batch of a compacted topic (each record needs a key), of a topic with bounds on timestamps,
and before it recompresses. `batch.validate` and `batch.validate_produced` check the header of every batch.

`RecordsCheck` gets the records in pieces, so a batch of 8 KB that holds 250 MB takes no such memory. Compiled
code does the work where the package was built with it; `_PythonScanner` defines what is right.
"""

from collections.abc import Generator
from typing import Final, NamedTuple

from kalda.records.batch import (
    HEADER_SIZE,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    TimestampType,
    read_header,
)
from kalda.records.compression import (
    DECOMPRESSED_SIZE_MAX,
    Checkpoint,
    Compression,
    go_on,
    iter_decompressed,
    memory_bytes,
)
from kalda.records.errors import CorruptRecordError, InvalidRecordError, InvalidTimestampError, NeedMoreBytes
from kalda.records.format_conversion import batch_of_wrapper
from kalda.records.implementation import is_built, is_compiled
from kalda.records.message_set import SLOW_MESSAGES_MAX, iter_messages

if is_built:
    from kalda.records import _records

RECORD_ERRORS_MAX: Final = 10_000
"""The refused records that a response names at most: a compressed batch of 1 MB can hold millions."""

INT64_LIMIT: Final = 1 << 63
_VARINT_BYTES_MAX: Final = 5
_VARLONG_BYTES_MAX: Final = 10
_CORRUPT: Final = 1
_WRONG_OFFSET: Final = 2
_FOUND: Final = 3


class TimestampBounds(NamedTuple):
    """The range that ``message.timestamp.before.max.ms`` and ``.after.max.ms`` allow, ends included."""

    low: int
    high: int


class RecordsCheck:
    """Reads every record of a produced batch, in pieces, and checks it against the batch's header.

    The offsets must run from the base offset without a gap; with `require_keys` no key may be null, with
    `timestamp_bounds` no timestamp may lie outside them. A timestamp of -1 means none and passes.
    """

    def __init__(
        self,
        header: BatchHeader,
        *,
        require_keys: bool = False,
        timestamp_bounds: TimestampBounds | None = None,
    ) -> None:
        self._header: Final = header
        self._bounds: Final = timestamp_bounds
        low, high = timestamp_bounds or (-INT64_LIMIT, INT64_LIMIT - 1)
        is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
        # A bound beyond 64 bits bounds nothing.
        self._scanner: Final = (_records.RecordScanner if is_compiled() else _PythonScanner)(
            header.record_count,
            header.base_timestamp,
            header.max_timestamp if is_appended else None,
            require_keys,
            max(low, -INT64_LIMIT),
            min(high, INT64_LIMIT - 1),
            RECORD_ERRORS_MAX,
        )

    @property
    def has_headers(self) -> bool:
        """Whether one of the records so far has headers."""
        return self._scanner.has_headers

    def feed(self, piece: Buffer) -> None:
        """Read the next piece of the records.

        Raises:
            CorruptRecordError: the bytes are no records, or more than the header counts.
            InvalidRecordError: the offsets are wrong.
        """
        scanner = self._scanner
        if scanner.feed(piece):
            return
        header = self._header
        if scanner.fault == _WRONG_OFFSET:
            raise InvalidRecordError(
                f"record {scanner.index} has offset {header.base_offset + scanner.found_delta}; "
                f"expected {header.base_offset + scanner.index}"
            )
        if scanner.index == header.record_count:
            raise CorruptRecordError(
                f"batch at offset {header.base_offset} has bytes behind its {header.record_count} records"
            )
        raise CorruptRecordError(
            f"record {scanner.index} of the batch at offset {header.base_offset} does not end where its "
            "length says, or is no record"
        )

    def finish(self) -> None:
        """Check what only the end shows.

        Raises:
            CorruptRecordError: the batch ends inside a record, or has fewer than its header counts.
            InvalidTimestampError: times are outside the bounds; names each refused record, keyless ones too.
            InvalidRecordError: records have no key, each is named; or the header's last offset is wrong.
        """
        scanner, header = self._scanner, self._header
        if scanner.index != header.record_count or not scanner.is_between:
            raise CorruptRecordError(f"batch at offset {header.base_offset} ends inside a record")
        if scanner.time_count or scanner.keyless_count:
            raise self._refusal()
        if scanner.index != header.last_offset_delta + 1:
            raise InvalidRecordError(
                f"batch holds {scanner.index} records but its last offset delta is {header.last_offset_delta}"
            )

    def _refusal(self) -> InvalidRecordError:
        """Return the exception to raise; as in Kafka, one bad timestamp decides the code for the batch."""
        scanner = self._scanner
        low, high = self._bounds or (0, 0)
        named = tuple(
            (index, "a compacted topic takes no record without a key")
            if time is None
            else (index, f"timestamp {time} is outside [{low}, {high}]")
            for index, time in scanner.named
        )
        if scanner.time_count:
            return InvalidTimestampError(
                f"{scanner.time_count} of {scanner.index} records have a time outside what the topic "
                f"allows; first: record {named[0][0]}, {named[0][1]}",
                record_errors=named,
            )
        return InvalidRecordError(
            f"{scanner.keyless_count} of {scanner.index} records have no key; "
            "a compacted topic takes none such",
            record_errors=named,
        )


def validate_records(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    require_keys: bool = False,
    timestamp_bounds: TimestampBounds | None = None,
    size_max: int = DECOMPRESSED_SIZE_MAX,
) -> None:
    """Check every record of the batch at `position`; see `RecordsCheck`.

    Raises as `RecordsCheck` and `compression.iter_decompressed` do, and `NeedMoreBytes` if the batch is not
    whole.
    """
    if position + header.size > len(buffer):
        raise NeedMoreBytes(f"batch ends at byte {position + header.size}, the buffer at {len(buffer)}")
    check = RecordsCheck(header, require_keys=require_keys, timestamp_bounds=timestamp_bounds)
    section = memoryview(buffer)[position + HEADER_SIZE : position + header.size]
    for piece in iter_decompressed(header.compression, section, size_max):
        check.feed(piece)
    check.finish()


def search_batch(
    batch: Buffer,
    header: BatchHeader,
    timestamp: int,
    start_offset: int,
    *,
    size_max: int = DECOMPRESSED_SIZE_MAX,
    checkpoint: Checkpoint = go_on,
) -> tuple[int, int] | None:
    """Return timestamp and offset of a batch's first record at `timestamp` or later, from `start_offset` on.

    `checkpoint` is called between pieces. Raises a `RecordsError` for bytes that are no records.
    """
    if header.magic != MAGIC:
        # Compiled code reads batches; what is small is not worth the conversion.
        codec = header.compression
        if codec is not Compression.NONE and size_max == DECOMPRESSED_SIZE_MAX:
            dense = batch_of_wrapper(batch, 0, header, compression=codec, checkpoint=checkpoint)
            if dense is not None:
                converted = dense.build()
                return search_batch(
                    converted, read_header(converted), timestamp, start_offset, checkpoint=checkpoint
                )
        for record in iter_messages(
            batch, 0, header, size_max=size_max, checkpoint=checkpoint, count_max=SLOW_MESSAGES_MAX
        ):
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return record.timestamp, record.offset
        return None
    is_appended = header.timestamp_type is TimestampType.LOG_APPEND_TIME
    scanner = (_records.RecordScanner if is_compiled() else _PythonScanner)(
        header.record_count,
        header.base_timestamp,
        header.max_timestamp if is_appended else None,
        False,
        timestamp,
        INT64_LIMIT - 1,
        0,
        # Where a faulty producer's batch begins below 0, the difference may pass 64 bits.
        min(max(start_offset - header.base_offset, -INT64_LIMIT), INT64_LIMIT - 1),
    )
    section = memoryview(batch)[HEADER_SIZE : header.size]
    held_bytes = memory_bytes(header.compression, section)
    checkpoint(held_bytes)
    for piece in iter_decompressed(header.compression, section, size_max):
        if not scanner.feed(piece):
            break
        checkpoint(held_bytes)
    if scanner.fault == _FOUND:
        return scanner.found_time, header.base_offset + scanner.found_delta
    if scanner.index != header.record_count or scanner.fault:
        raise CorruptRecordError(
            f"record {scanner.index} of the batch at offset {header.base_offset} is no record"
        )
    return None


class _FaultError(Exception):
    """The bytes are no record."""


class _PythonScanner:
    """Checks records that come in pieces; what `_records.RecordScanner` does, in plain Python."""

    def __init__(
        self,
        count: int,
        base_timestamp: int,
        append_time: int | None,
        require_keys: bool,
        low: int,
        high: int,
        named_max: int,
        delta_min: int | None = None,
    ) -> None:
        self.index = 0
        self.fault = 0
        self.found_delta = 0
        self.found_time = 0
        self._delta_min = delta_min
        self.keyless_count = 0
        self.time_count = 0
        self.named: list[tuple[int, int | None]] = []
        self.is_between = True
        self.has_headers = False
        self._count = count
        self._base_timestamp = base_timestamp
        self._append_time = append_time
        self._require_keys = require_keys
        self._low = low
        self._high = high
        self._named_max = named_max
        self._piece: Buffer = b""
        self._at = 0
        # Bytes of the record that were not read yet.
        self._left = 0
        self._reader = self._read()
        next(self._reader)

    def feed(self, piece: Buffer) -> bool:
        """Read a piece; return whether the records are valid so far."""
        if not self.fault:
            self._piece, self._at = piece, 0
            try:
                self._reader.send(None)
            except _FaultError:
                self.fault = _CORRUPT
            except StopIteration:
                pass
        return not self.fault

    def _read(self) -> Generator[None, None, None]:
        yield
        while True:
            while self._at == len(self._piece):
                yield
            if self.index == self._count:
                raise _FaultError
            self.is_between = False
            self._left = _VARINT_BYTES_MAX
            raw = yield from self._varint(_VARINT_BYTES_MAX)
            if raw & 1 or not raw:
                raise _FaultError
            self._left = raw >> 1
            yield from self._skip(1)
            raw = yield from self._varint(_VARLONG_BYTES_MAX)
            time_delta = (raw >> 1) ^ -(raw & 1)
            raw = yield from self._varint(_VARINT_BYTES_MAX)
            delta = (raw >> 1) ^ -(raw & 1)
            raw = yield from self._varint(_VARINT_BYTES_MAX)
            is_keyless = bool(raw & 1)
            yield from self._skip(0 if is_keyless else raw >> 1)
            raw = yield from self._varint(_VARINT_BYTES_MAX)
            yield from self._skip(0 if raw & 1 else raw >> 1)
            count = yield from self._varint(_VARINT_BYTES_MAX)
            if count & 1 or count > self._left:
                raise _FaultError
            self.has_headers = self.has_headers or count > 0
            for _ in range(count >> 1):
                raw = yield from self._varint(_VARINT_BYTES_MAX)
                if raw & 1:
                    raise _FaultError
                yield from self._skip(raw >> 1)
                raw = yield from self._varint(_VARINT_BYTES_MAX)
                yield from self._skip(0 if raw & 1 else raw >> 1)
            if self._left:
                raise _FaultError
            if self._delta_min is not None:
                self._look_at(time_delta, delta, self._delta_min)
                if self.fault:
                    return
                continue
            if delta != self.index:
                self.fault, self.found_delta = _WRONG_OFFSET, delta
                return
            self._note(time_delta, is_keyless=is_keyless)
            self.index += 1
            self.is_between = True

    def _look_at(self, time_delta: int, delta: int, delta_min: int) -> None:
        """Note whether a record is the one that is searched."""
        time = self._base_timestamp + time_delta if self._append_time is None else self._append_time
        self.index += 1
        self.is_between = True
        if self._low <= time < INT64_LIMIT and delta >= delta_min:
            self.fault, self.found_delta, self.found_time = _FOUND, delta, time

    def _note(self, time_delta: int, *, is_keyless: bool) -> None:
        time = self._base_timestamp + time_delta if self._append_time is None else self._append_time
        refused: int | None = None
        if self._require_keys and is_keyless:
            self.keyless_count += 1
        elif time != NO_TIMESTAMP and not self._low <= time <= self._high and self._is_bounded:
            self.time_count += 1
            refused = time
        else:
            return
        if len(self.named) < self._named_max:
            self.named.append((self.index, refused))

    @property
    def _is_bounded(self) -> bool:
        return self._low != -INT64_LIMIT or self._high != INT64_LIMIT - 1

    def _varint(self, bytes_max: int) -> Generator[None, None, int]:
        value = 0
        for shift in range(0, 7 * bytes_max, 7):
            while self._at == len(self._piece):
                yield
            if not self._left:
                raise _FaultError
            byte = self._piece[self._at]
            self._at += 1
            self._left -= 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value & (0xFFFFFFFF if bytes_max == _VARINT_BYTES_MAX else 0xFFFFFFFFFFFFFFFF)
        raise _FaultError

    def _skip(self, size: int) -> Generator[None, None, None]:
        if size > self._left:
            raise _FaultError
        self._left -= size
        while size:
            while self._at == len(self._piece):
                yield
            passed = min(size, len(self._piece) - self._at)
            self._at += passed
            size -= passed

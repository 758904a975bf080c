"""Reads, checks and patches the 61-byte header of a record batch (format version 2).

The records inside a batch are read by `record`; the broker's hot path never opens them. Headers of messages
of format 0 and 1 are read and checked here too, because one log may hold all three formats; `message_set`
reads what they contain.

Invariant: base offset, length and partition leader epoch lie outside the CRC, so a leader assigns offsets
without touching other bytes. Everything from the attributes on lies inside the CRC, and each function here
that changes such a byte recomputes it.
"""

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kalda.common.public import public
from kalda.records.compression import Compression
from kalda.records.crc import Checksum, crc32c
from kalda.records.errors import CorruptRecordError, InvalidRecordError, NeedMoreBytes
from kalda.records.implementation import is_compiled

if TYPE_CHECKING or is_compiled():
    from kalda.records import _records

Buffer = bytes | bytearray | memoryview
WritableBuffer = bytearray | memoryview

HEADER_SIZE: Final = 61
# Base offset and batch length, which `batch_length` does not count.
LOG_OVERHEAD: Final = 12
MAGIC: Final = 2
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
PRODUCER_EPOCH_MAX: Final = 2**15 - 1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_PARTITION_LEADER_EPOCH: Final = -1

LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_POSITION: Final = 43

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
# Offset, length, CRC, magic, attributes; and the timestamp in format 1, the key's length in format 0.
_MESSAGES: Final = (struct.Struct(">qiIbBi"), struct.Struct(">qiIbBq"))
_MESSAGE_ATTRIBUTES: Final = (0x07, 0x0F)
_MESSAGE_LENGTH_MIN: Final = (14, 22)
_PRODUCER: Final = struct.Struct(">qhi")
_INT16: Final = struct.Struct(">h")
_UINT32: Final = struct.Struct(">I")
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")
_BATCH_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD
_CODEC_MAX: Final = int(Compression.ZSTD)
_SEQUENCE_MAX: Final = 0x7FFFFFFF


@public
class TimestampType(IntEnum):
    """The source of a record's timestamp: the producer, the broker on append, or none (format 0)."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


def increment_sequence(sequence: int, increment: int) -> int:
    """Add to a sequence number; 0 follows 2147483647."""
    if sequence > _SEQUENCE_MAX - increment:
        return increment - (_SEQUENCE_MAX - sequence) - 1
    return sequence + increment


@dataclass(slots=True, eq=False)
class BatchHeader:
    """The header of one batch as it was read; changing a field does not change the bytes.

    A message of format 0 or 1 counts as a batch of one record. One that wraps compressed messages does too:
    its offset is the last of theirs, and only `message_set` counts them.
    """

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LOG_OVERHEAD

    @property
    def last_offset(self) -> int:
        """Offset of the last record, counted even if compaction removed that record."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset that follows the batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; -1 without a base sequence."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)

    @property
    def compression(self) -> Compression:
        """The codec of the records; raises `UnsupportedCompressionTypeError` for an unknown one."""
        return Compression.from_id(self.attributes & COMPRESSION_MASK)

    @property
    def timestamp_type(self) -> TimestampType:
        """Whether the records carry the producer's time or the broker's."""
        if self.attributes & LOG_APPEND_TIME_FLAG:
            return TimestampType.LOG_APPEND_TIME
        return TimestampType.CREATE_TIME if self.magic else TimestampType.NO_TIMESTAMP_TYPE

    @property
    def is_transactional(self) -> bool:
        """Whether the batch belongs to a transaction."""
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        """Whether the batch holds a transaction marker instead of a client's records."""
        return self.attributes & CONTROL_FLAG != 0

    @property
    def is_barrier(self) -> bool:
        """Whether the batch is a barrier: a client's control batch, which readers skip; see `control`.

        Markers have no sequence numbers. To a log, a barrier is a data batch of its transaction.
        """
        return self.attributes & CONTROL_FLAG != 0 and self.base_sequence >= 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When compaction may drop the batch's tombstones (KIP-534), or ``None`` while that is not set."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """Read the header at `position`, of a batch or of a message of format 0 or 1, but not the records.

    Raises `NeedMoreBytes` if the buffer ends before the header does, and `CorruptRecordError` for a format
    that does not exist or a length that no batch has.
    """
    try:
        header = BatchHeader(*_HEADER.unpack_from(buffer, position))
    except struct.error:
        if len(buffer) - position > MAGIC_POSITION and buffer[position + MAGIC_POSITION] != MAGIC:
            # A message can be shorter than the header of a batch.
            return _read_message_header(buffer, position)
        raise NeedMoreBytes(
            f"batch header needs {HEADER_SIZE} bytes, {len(buffer) - position} are left"
        ) from None
    if header.magic != MAGIC:
        return _read_message_header(buffer, position)
    if header.batch_length < _BATCH_LENGTH_MIN:
        raise CorruptRecordError(
            f"batch length {header.batch_length} at byte {position} is below {_BATCH_LENGTH_MIN}"
        )
    return header


def _read_message_header(buffer: Buffer, position: int) -> BatchHeader:
    magic = buffer[position + MAGIC_POSITION]
    if magic not in (0, 1):
        raise CorruptRecordError(f"magic {magic} does not exist; expected 0, 1 or {MAGIC}")
    try:
        offset, length, crc, _, attributes, timestamp = _MESSAGES[magic].unpack_from(buffer, position)
    except struct.error:
        raise NeedMoreBytes(
            f"message header needs {_MESSAGES[magic].size} bytes, {len(buffer) - position} are left"
        ) from None
    if length < _MESSAGE_LENGTH_MIN[magic]:
        raise CorruptRecordError(
            f"message length {length} at byte {position} is below {_MESSAGE_LENGTH_MIN[magic]}"
        )
    return BatchHeader(
        base_offset=offset,
        batch_length=length,
        partition_leader_epoch=NO_PARTITION_LEADER_EPOCH,
        magic=magic,
        crc=crc,
        # The other bits are unused in these formats, and flags in format 2.
        attributes=attributes & _MESSAGE_ATTRIBUTES[magic],
        last_offset_delta=0,
        base_timestamp=timestamp if magic else NO_TIMESTAMP,
        max_timestamp=timestamp if magic else NO_TIMESTAMP,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_PRODUCER_EPOCH,
        base_sequence=NO_SEQUENCE,
        record_count=1,
    )


def read_producer(batch: Buffer) -> tuple[int, int, int]:
    """Read only producer id, producer epoch and base sequence; the header must be whole."""
    producer: tuple[int, int, int] = _PRODUCER.unpack_from(batch, PRODUCER_POSITION)
    return producer


def validate(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Check a batch's size, CRC, codec and counts, without opening its records.

    Every batch in a log passes, compacted ones too; `validate_produced` checks what a client may send. Raises
    `NeedMoreBytes` if the buffer ends inside the batch, otherwise `CorruptRecordError` or
    `UnsupportedCompressionTypeError`.
    """
    validate_bytes(buffer, position, header)
    if header.base_offset < 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} counts {header.record_count} records "
            f"but its last offset delta is {header.last_offset_delta}"
        )


def validate_bytes(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Check a batch's size, CRC and codec, which damage in transit changes; raises as `validate` does."""
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(buffer):
        raise NeedMoreBytes(f"batch ends at byte {end}, the buffer at {len(buffer)}")
    if header.magic != MAGIC:
        crc = zlib.crc32(memoryview(buffer)[position + MAGIC_POSITION : end])
    else:
        crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    if crc != header.crc:
        raise CorruptRecordError(
            f"batch at offset {header.base_offset} has CRC {header.crc:#010x}, its bytes give {crc:#010x}"
        )
    if header.attributes & COMPRESSION_MASK > Compression.ZSTD:
        Compression.from_id(header.attributes & COMPRESSION_MASK)


def read_plain(batch: Buffer) -> tuple[int, int, int] | None:
    """Read and check a batch that is all of the buffer, as `validate_bytes` and `validate_produced` do.

    Returns its last offset delta, maximum timestamp and producer id. None for every batch that does not pass,
    and for some that do: those of transactions, barriers, and ones with a wrong maximum timestamp or the flag
    of log-append time.
    """
    return _read_plain(batch, crc32c)


def read_plain_in_python(batch: Buffer, checksum: Checksum) -> tuple[int, int, int] | None:
    """Implement `read_plain` in plain Python."""
    size = len(batch)
    if size < HEADER_SIZE:
        return None
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        _,
        base_sequence,
        record_count,
    ) = _HEADER.unpack_from(batch)
    if (
        magic == MAGIC
        and length + LOG_OVERHEAD == size
        and 0 <= attributes <= _CODEC_MAX
        and base_offset == 0
        and record_count > 0
        and record_count == last_offset_delta + 1
        and (base_sequence >= 0 or producer_id < 0)
        and max_timestamp >= base_timestamp
        and checksum(memoryview(batch)[ATTRIBUTES_POSITION:]) == crc
    ):
        return last_offset_delta, max_timestamp, producer_id
    return None


_read_plain = _records.read_plain if is_compiled() else read_plain_in_python


def validate_produced(header: BatchHeader) -> None:
    """Check the rules for a batch that a client produces; raises `InvalidRecordError`.

    The batch starts at offset 0, holds at least one record, has no gaps between its offsets, is not a
    transaction marker, and has sequence numbers if it has a producer id. `control.check_barrier` checks
    barriers. Impossible counts under a correct CRC are an `InvalidRecordError` too: a client would retry a
    corrupt batch endlessly.
    """
    if header.base_offset != 0:
        raise InvalidRecordError(f"produced batch has base offset {header.base_offset}; expected 0")
    if header.record_count <= 0 or header.record_count != header.last_offset_delta + 1:
        raise InvalidRecordError(
            f"batch counts {header.record_count} records but its last offset delta is "
            f"{header.last_offset_delta}; expected one less than the count"
        )
    if header.attributes & CONTROL_FLAG and not header.is_barrier:
        raise InvalidRecordError("clients may not write control records, except barriers")
    if header.producer_id > NO_PRODUCER_ID and header.base_sequence < 0:
        raise InvalidRecordError(
            f"producer {header.producer_id} sent sequence {header.base_sequence}; expected 0 or more"
        )


def iter_headers(buffer: Buffer, position: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Yield position and header of each whole batch; a partial batch at the end is left out.

    The CRC is not checked. Raises `CorruptRecordError` where a header is invalid.
    """
    size = len(buffer)
    while True:
        try:
            header = read_header(buffer, position)
        except NeedMoreBytes:
            return
        end = position + header.batch_length + LOG_OVERHEAD
        if end > size:
            return
        yield position, header
        position = end


def set_base_offset_and_leader_epoch(
    buffer: WritableBuffer, position: int, base_offset: int, leader_epoch: int
) -> None:
    """Write base offset and leader epoch into the batch. Both lie outside the CRC, which stays valid."""
    _INT64.pack_into(buffer, position, base_offset)
    _INT32.pack_into(buffer, position + LEADER_EPOCH_POSITION, leader_epoch)


def set_log_append_time(buffer: WritableBuffer, position: int, timestamp_ms: int) -> None:
    """Set log-append time; readers then use `max_timestamp` as the timestamp of every record."""
    set_max_timestamp(buffer, position, timestamp_ms, TimestampType.LOG_APPEND_TIME)


def set_max_timestamp(
    buffer: WritableBuffer,
    position: int,
    timestamp_ms: int,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> None:
    """Set the maximum timestamp and the timestamp type, and recompute the CRC."""
    assert timestamp_type is not TimestampType.NO_TIMESTAMP_TYPE, "a batch of format 2 has timestamps"
    attributes: int = _INT16.unpack_from(buffer, position + ATTRIBUTES_POSITION)[0]
    if timestamp_type is TimestampType.LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_FLAG
    else:
        attributes &= ~LOG_APPEND_TIME_FLAG
    _INT16.pack_into(buffer, position + ATTRIBUTES_POSITION, attributes)
    _INT64.pack_into(buffer, position + MAX_TIMESTAMP_POSITION, timestamp_ms)
    _update_crc(buffer, position)


def set_producer_state(
    buffer: WritableBuffer, producer_id: int, epoch: int, base_sequence: int, *, is_transactional: bool
) -> None:
    """Write the producer id, epoch and sequence, which are known only at sending, and recompute the CRC.

    A producer that got a new id or epoch also does this to the batches that wait to be sent again.
    """
    assert producer_id >= 0 or not is_transactional, "a transactional batch needs a producer id"
    attributes: int = _INT16.unpack_from(buffer, ATTRIBUTES_POSITION)[0]
    transactional = TRANSACTIONAL_FLAG if is_transactional else 0
    _INT16.pack_into(buffer, ATTRIBUTES_POSITION, attributes & ~TRANSACTIONAL_FLAG | transactional)
    _PRODUCER.pack_into(buffer, PRODUCER_POSITION, producer_id, epoch, base_sequence)
    _update_crc(buffer, 0)


def _update_crc(buffer: WritableBuffer, position: int) -> None:
    end = position + LOG_OVERHEAD + _INT32.unpack_from(buffer, position + 8)[0]
    crc = crc32c(memoryview(buffer)[position + ATTRIBUTES_POSITION : end])
    _UINT32.pack_into(buffer, position + CRC_POSITION, crc)


def pack_batch(
    records: Buffer,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> bytearray:
    """Put a header before `records`, which are already compressed with the codec in `attributes`."""
    # One pass over a megabyte. To assign to a slice of a zeroed bytearray takes three.
    batch = bytearray().join((bytes(HEADER_SIZE), records))
    pack_header(
        batch,
        base_offset=base_offset,
        partition_leader_epoch=partition_leader_epoch,
        attributes=attributes,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )
    return batch


def pack_header(
    batch: bytearray,
    *,
    base_offset: int,
    partition_leader_epoch: int,
    attributes: int,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    record_count: int,
) -> None:
    """Write the header of the records behind the first `HEADER_SIZE` bytes of `batch`."""
    assert len(batch) >= HEADER_SIZE, f"a batch of {len(batch)} bytes has no room for a header"
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        len(batch) - LOG_OVERHEAD,
        partition_leader_epoch,
        MAGIC,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    _update_crc(batch, 0)

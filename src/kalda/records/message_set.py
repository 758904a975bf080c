"""Reads message sets, the formats before record batches: magic 0 (Kafka 0.8) and magic 1 (0.10).

A message set is a sequence of entries: an offset, a size and one message with its own CRC. A compressed
message is a wrapper: its value is another message set under the codec. In magic 0 the inner messages have
their absolute offsets; in magic 1 they count from 0, and the wrapper has the offset of the last one, so that
a broker assigns offsets without decompressing.

`batch.read_header` reads the header of an entry of any format. To a log, one entry is one batch.
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Final, NamedTuple

from kalda.records.batch import (
    COMPRESSION_MASK,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    TimestampType,
)
from kalda.records.compression import (
    DECOMPRESSED_SIZE_MAX,
    GATHERED_BYTES_MAX,
    PIECE_BYTES,
    Checkpoint,
    Compression,
    decompress,
    go_on,
    iter_decompressed,
    memory_bytes,
    mend_lz4_header,
)
from kalda.records.errors import CorruptRecordError, DecompressedSizeError, InvalidRecordError, NeedMoreBytes
from kalda.records.implementation import is_built, is_compiled
from kalda.records.record import Record, RecordBatchBuilder

if is_built:
    from kalda.records import _records

MESSAGE_OVERHEAD: Final = (26, 34)
"""Bytes of an entry without key and value, offset and size included, by magic."""

CRC_START: Final = 16
"""The CRC-32 of a message covers everything from its magic on."""

ATTRIBUTES_POSITION: Final = 17
TIMESTAMP_POSITION: Final = 18
KEY_POSITION: Final = (18, 26)

_KEPT_BYTES_MAX: Final = 16 * 1024 * 1024
"""What the messages of one wrapper take as objects; those of larger ones are read twice."""
_RECORD_BYTES: Final = 250

_MESSAGES_PER_CHECKPOINT: Final = 32
"""Where they are read in Python, which takes some 0.1 to 0.2 ms."""

SLOW_MESSAGES_MAX: Final = 250_000
"""What one wrapper may hold that compiled code does not read, such as offsets with gaps: so many take some
2 s in Python. A wrapper of 1 MB that was compacted has some thousands."""

# Offset, size, CRC, magic, attributes.
_ENTRY: Final = struct.Struct(">qiIbB")
# The same, in magic 1 the timestamp, and the size of the key.
_PLAIN_HEADS: Final = (struct.Struct(">qiIbBi"), struct.Struct(">qiIbBqi"))
_INT32: Final = struct.Struct(">i")
_INT64: Final = struct.Struct(">q")


def check_codec(header: BatchHeader) -> None:
    """Raise `InvalidRecordError` for zstd, which came with format 2 (KIP-110)."""
    if header.compression is Compression.ZSTD:
        raise InvalidRecordError(
            f"message at offset {header.base_offset} has format {header.magic}, which has no zstd; "
            "allowed are none, gzip, snappy, lz4"
        )


def iter_messages(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    size_max: int = DECOMPRESSED_SIZE_MAX,
    check_inner_crcs: bool = False,
    checkpoint: Checkpoint = go_on,
    count_max: int | None = None,
) -> Iterator[Record]:
    """Yield the message at `position`, or those that it wraps, with absolute offsets.

    The caller checks the CRC of the entry (`batch.validate`); those of wrapped messages are checked with
    `check_inner_crcs`, as a leader does for what a client sends.

    Raises:
        NeedMoreBytes: the entry is not whole.
        CorruptRecordError: the entry or what it wraps is no message.
        DecompressedSizeError: it wraps more than `size_max` bytes, or more than `count_max` messages.
        InvalidRecordError: a wrapper has no messages, compressed ones, or offsets beyond its own.
    """
    end = position + header.batch_length + LOG_OVERHEAD
    if end > len(buffer):
        raise NeedMoreBytes(f"message ends at byte {end}, the buffer at {len(buffer)}")
    if not header.attributes & COMPRESSION_MASK:
        key, value = _key_and_value(memoryview(buffer), position, end, header.magic, header.base_offset)
        yield Record(header.base_offset, header.max_timestamp, header.timestamp_type, key, value, [])
        return
    last_offset: int | None = None
    if header.magic == 0:
        for record in _iter_wrapped(
            buffer, position, header, size_max, check_inner_crcs, checkpoint, count_max
        ):
            last_offset = record.offset
            yield record
        if last_offset is None:
            raise _wraps_nothing(header)
        return
    # The last message decides what the offsets of all count from.
    kept: list[Record] | None = []
    kept_bytes = 0
    for record in _iter_wrapped(buffer, position, header, size_max, check_inner_crcs, checkpoint, count_max):
        last_offset = record.offset
        if kept is not None:
            kept.append(record)
            kept_bytes += _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
            if kept_bytes > _KEPT_BYTES_MAX:
                kept = None
    if last_offset is None:
        raise _wraps_nothing(header)
    base_offset = absolute_base(header, last_offset)
    again = (
        _iter_wrapped(buffer, position, header, size_max, False, checkpoint, None) if kept is None else kept
    )
    for record in again:
        yield record._replace(offset=base_offset + record.offset)


def _wraps_nothing(header: BatchHeader) -> InvalidRecordError:
    return InvalidRecordError(f"compressed message at offset {header.base_offset} wraps no messages")


def _iter_wrapped(
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    size_max: int,
    check_crcs: bool,
    checkpoint: Checkpoint,
    count_max: int | None,
) -> Iterator[Record]:
    """Yield the messages in a wrapper with the offsets that they carry; memory is needed for the largest."""
    packed = _packed(buffer, position, header)
    held_bytes = memory_bytes(header.compression, packed)
    checkpoint(held_bytes)
    data = bytearray()
    count = 0
    for piece in iter_decompressed(header.compression, packed, size_max):
        data += piece
        size = LOG_OVERHEAD + int(_INT32.unpack_from(data, 8)[0]) if len(data) >= LOG_OVERHEAD else 0
        if size > len(data):
            checkpoint(held_bytes + 2 * len(data))
            continue
        end = 0
        for entry_end, record in _iter_entries(bytes(data), header, check_crcs=check_crcs):
            yield record
            end = entry_end
            count += 1
            if count % _MESSAGES_PER_CHECKPOINT == 0:
                checkpoint(held_bytes + 2 * len(data))
                if count_max is not None and count > count_max:
                    raise DecompressedSizeError(
                        f"the message at offset {header.base_offset} wraps more than {count_max} messages "
                        "whose offsets have gaps; no more are read"
                    )
        del data[:end]


def inner_bytes(
    buffer: Buffer, position: int, header: BatchHeader, size_max: int = DECOMPRESSED_SIZE_MAX
) -> bytes:
    """Return the message set that the compressed message at `position` wraps; raises as `iter_messages`."""
    return decompress(header.compression, _packed(buffer, position, header), size_max)


def _packed(buffer: Buffer, position: int, header: BatchHeader) -> Buffer:
    """Return the compressed bytes of the wrapper at `position`."""
    check_codec(header)
    end = position + header.batch_length + LOG_OVERHEAD
    _, value = _spans(memoryview(buffer), position, end, header.magic, header.base_offset)
    if value is None:
        raise InvalidRecordError(f"compressed message at offset {header.base_offset} has no value")
    data: Buffer = memoryview(buffer)[value[0] : value[1]]
    if header.magic == 0 and header.compression is Compression.LZ4:
        # Clients of 0.8 and 0.9 computed the checksum of the frame's header over the wrong bytes.
        data = mend_lz4_header(data)
    return data


class PlainMessage(NamedTuple):
    """An uncompressed message, without its offset, and where it ends in its buffer."""

    end: int
    timestamp: int
    key: bytes | None
    value: bytes | None


def iter_plain_messages(
    buffer: Buffer, position: int, magic: int, message_bytes_max: int
) -> Iterator[PlainMessage]:
    """Yield the messages from `position` on up to the first that is not of the usual kind.

    Usual is one that is whole, of format `magic`, uncompressed, of at most `message_bytes_max` bytes, and has
    a correct CRC and a timestamp that a batch can hold. `iter_messages` reads any other and raises what is
    wrong with it. For messages of 100 bytes this takes half its time, because no header and no views are made
    for them.
    """
    data = buffer if isinstance(buffer, bytes) else bytes(buffer)
    head, overhead, size = _PLAIN_HEADS[magic], MESSAGE_OVERHEAD[magic], len(data)
    timestamp = NO_TIMESTAMP
    while position + overhead <= size:
        if magic:
            _, length, crc, found, attributes, timestamp, key_size = head.unpack_from(data, position)
        else:
            _, length, crc, found, attributes, key_size = head.unpack_from(data, position)
        end = position + LOG_OVERHEAD + length
        at = position + head.size
        if (
            found != magic
            or attributes & COMPRESSION_MASK
            or timestamp < NO_TIMESTAMP
            or end > size
            or not overhead <= end - position <= message_bytes_max
            or key_size > end - at - 4
            or zlib.crc32(data[position + CRC_START : end]) != crc
        ):
            return
        key = None
        if key_size >= 0:
            key = data[at : at + key_size]
            at += key_size
        value_size: int = _INT32.unpack_from(data, at)[0]
        at += 4
        if max(value_size, 0) != end - at:
            return
        yield PlainMessage(end, timestamp, key, None if value_size < 0 else data[at:end])
        position = end


def append_plain_messages(
    builder: RecordBatchBuilder, buffer: Buffer, position: int, magic: int, batch_bytes_max: int
) -> int:
    """Append the messages from `position` on to a batch; return the end of the last one.

    It stops at the first that is not of the usual kind, see `iter_plain_messages`, and before the batch would
    be larger than `batch_bytes_max`, counting what is added in its size as a message.
    """
    room = batch_bytes_max - builder.size
    if is_compiled():
        return _extend(builder, buffer, position, magic, batch_bytes_max, room)[1]
    start = builder.size
    for message in iter_plain_messages(buffer, position, magic, batch_bytes_max):
        if builder.size - start + message.end - position > room:
            break
        try:
            builder.append_next(message.key, message.value, message.timestamp)
        except ValueError:
            # The batch cannot hold its timestamp; the caller finds it at this message.
            break
        position = message.end
    return position


def append_wrapped_messages(
    builder: RecordBatchBuilder,
    buffer: Buffer,
    position: int,
    header: BatchHeader,
    *,
    size_max: int = DECOMPRESSED_SIZE_MAX,
    checkpoint: Checkpoint = go_on,
) -> tuple[int, int]:
    """Append the messages that the compressed message at `position` wraps, and check their CRCs.

    Returns the offsets that the first and the last one carry; the batch gives them those that are next.

    They are decompressed in pieces, and `builder` compresses its records in between, so that memory is needed
    for one piece, or for the largest message.

    Raises:
        DecompressedSizeError: they are larger than `size_max`, or one is larger than `GATHERED_BYTES_MAX`.
        ValueError: a batch cannot hold the timestamp of one.
        RecordsError: another subclass, as `iter_messages`.
    """
    packed = _packed(buffer, position, header)
    decoder_bytes = memory_bytes(header.compression, packed)
    checkpoint(decoder_bytes)
    data = bytearray()
    wanted = slow_count = 0
    first_offset = last_offset = None
    for piece in iter_decompressed(header.compression, packed, size_max):
        data += piece
        if first_offset is None and len(data) >= LOG_OVERHEAD:
            first_offset = int(_INT64.unpack_from(data)[0])
        if len(data) >= min(wanted, GATHERED_BYTES_MAX):
            done, wanted, last_offset, count = _append_entries(builder, data, header, last_offset, checkpoint)
            slow_count += count
            if is_compiled() and slow_count > SLOW_MESSAGES_MAX:
                raise DecompressedSizeError(
                    f"the message at offset {header.base_offset} wraps over {SLOW_MESSAGES_MAX} messages "
                    "of an unusual kind; no more are read"
                )
            del data[:done]
            if len(data) > GATHERED_BYTES_MAX:
                raise DecompressedSizeError(
                    f"the message at offset {header.base_offset} wraps one of {wanted} bytes; at most "
                    f"{GATHERED_BYTES_MAX} are allowed in a message that is converted"
                )
            if builder.undrained_bytes >= PIECE_BYTES:
                builder.drain()
        # The message that is gathered is copied when it is whole.
        checkpoint(decoder_bytes + 2 * len(data) + builder.undrained_bytes)
    if first_offset is None or last_offset is None:
        raise _wraps_nothing(header)
    if header.magic:
        absolute_base(header, last_offset)
    return first_offset, last_offset


def _append_entries(
    builder: RecordBatchBuilder,
    data: bytearray,
    header: BatchHeader,
    last_offset: int | None,
    checkpoint: Checkpoint,
) -> tuple[int, int, int | None, int]:
    """Append the messages in `data` that are whole.

    Returns where the last one ends, the size of the next one, 0 if it is unknown, the offset of the last, and
    how many were read in Python.
    """
    at = slow_count = 0
    # With log-append time, the wrapper's timestamp counts for all.
    has_own_times = not header.attributes & LOG_APPEND_TIME_FLAG
    is_usual = is_compiled() and (has_own_times or builder.has_append_time)
    while True:
        if is_usual:
            start, end = _extend(builder, data, at, header.magic, len(data), len(data))
            if end > at:
                last_offset, at = _INT64.unpack_from(data, start)[0], end
        if at + LOG_OVERHEAD > len(data):
            return at, 0, last_offset, slow_count
        size = LOG_OVERHEAD + int(_INT32.unpack_from(data, at + 8)[0])
        if at + size > len(data):
            return at, size, last_offset, slow_count
        # Not of the usual kind, or not valid.
        is_single = is_usual and size >= LOG_OVERHEAD
        part = bytes(memoryview(data)[at : at + size] if is_single else memoryview(data)[at:])
        for count, (end, record) in enumerate(_iter_entries(part, header, check_crcs=True), 1):
            builder.append_next(record.key, record.value, record.timestamp)
            last_offset, size = record.offset, end
            slow_count += 1
            if count % _MESSAGES_PER_CHECKPOINT == 0:
                checkpoint(len(data) + builder.undrained_bytes)
        at += size


def _extend(
    builder: RecordBatchBuilder, buffer: Buffer, position: int, magic: int, bytes_max: int, room: int
) -> tuple[int, int]:
    """Append messages in compiled code; return where the last one starts and ends."""
    return builder.extend(
        lambda records, base, delta: _records.append_messages(
            records, buffer, position, magic, bytes_max, room, base, delta
        )
    )


def first_offset(buffer: Buffer, position: int, header: BatchHeader) -> int:
    """Return the offset of the first record of a batch or message of any format.

    The header of a wrapper has the last one, so its messages are read; raises as `iter_messages` does.
    """
    if header.magic == MAGIC or not header.attributes & COMPRESSION_MASK:
        return header.base_offset
    return next(iter_messages(buffer, position, header)).offset


def absolute_base(wrapper: BatchHeader, last_inner_offset: int) -> int:
    """Return the offset that the relative offsets in a wrapper of magic 1 count from.

    Some versions of librdkafka produce wrappers with offset 0, which then count from 0.
    """
    if wrapper.base_offset == 0:
        return 0
    if wrapper.base_offset < last_inner_offset:
        raise InvalidRecordError(
            f"compressed message has offset {wrapper.base_offset}, its last inner message "
            f"{last_inner_offset}; expected at most that of the wrapper"
        )
    return wrapper.base_offset - last_inner_offset


def _iter_entries(data: bytes, wrapper: BatchHeader, *, check_crcs: bool) -> Iterator[tuple[int, Record]]:
    """Yield the messages in a wrapper with the offsets that they carry, each after where it ends.

    A partial one at the end is left out.

    With log-append time, the wrapper's timestamp counts for all.
    """
    view = memoryview(data)
    position, size = 0, len(data)
    by_wrapper = wrapper.attributes & LOG_APPEND_TIME_FLAG
    while position + LOG_OVERHEAD <= size:
        offset, length = _INT64.unpack_from(data, position)[0], _INT32.unpack_from(data, position + 8)[0]
        end = position + LOG_OVERHEAD + length
        if length < MESSAGE_OVERHEAD[0] - LOG_OVERHEAD:
            raise CorruptRecordError(
                f"an inner message of the wrapper at offset {wrapper.base_offset} has {length} bytes; "
                f"expected {MESSAGE_OVERHEAD[0] - LOG_OVERHEAD} or more"
            )
        if end > size:
            return
        _, _, crc, magic, attributes = _ENTRY.unpack_from(data, position)
        if magic not in (0, 1) or magic > wrapper.magic:
            raise InvalidRecordError(
                f"inner message at offset {offset} has format {magic}, its wrapper {wrapper.magic}"
            )
        if attributes & COMPRESSION_MASK:
            raise InvalidRecordError(f"inner message at offset {offset} is compressed itself")
        if check_crcs:
            _check_crc(view, position, end, crc, offset)
        timestamp, timestamp_type = NO_TIMESTAMP, TimestampType.NO_TIMESTAMP_TYPE
        if magic:
            if end - position < MESSAGE_OVERHEAD[1]:
                raise CorruptRecordError(f"inner message at offset {offset} ends inside its header")
            timestamp_type = wrapper.timestamp_type
            timestamp = (
                wrapper.max_timestamp
                if by_wrapper
                else _INT64.unpack_from(data, position + TIMESTAMP_POSITION)[0]
            )
        key, value = _key_and_value(view, position, end, magic, offset)
        yield end, Record(offset, timestamp, timestamp_type, key, value, [])
        position = end


def _key_and_value(
    view: memoryview, position: int, end: int, magic: int, offset: int
) -> tuple[bytes | None, bytes | None]:
    key, value = _spans(view, position, end, magic, offset)
    return (
        None if key is None else bytes(view[key[0] : key[1]]),
        None if value is None else bytes(view[value[0] : value[1]]),
    )


def _spans(
    view: memoryview, position: int, end: int, magic: int, offset: int
) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """Return where key and value of the message lie, None for a null one."""
    at = position + KEY_POSITION[magic]
    spans: list[tuple[int, int] | None] = []
    for _ in range(2):
        if at + 4 > end:
            raise CorruptRecordError(f"message at offset {offset} ends inside its key or value")
        size: int = _INT32.unpack_from(view, at)[0]
        at += 4
        if size < 0:
            spans.append(None)
            continue
        if at + size > end:
            raise CorruptRecordError(f"key or value of the message at offset {offset} passes its end")
        spans.append((at, at + size))
        at += size
    if at != end:
        raise CorruptRecordError(f"message at offset {offset} has {end - at} bytes behind its value")
    return spans[0], spans[1]


def _check_crc(view: memoryview, position: int, end: int, expected: int, offset: int) -> None:
    crc = zlib.crc32(view[position + CRC_START : end])
    if crc != expected:
        raise CorruptRecordError(
            f"message at offset {offset} has CRC {expected:#010x}, its bytes give {crc:#010x}"
        )

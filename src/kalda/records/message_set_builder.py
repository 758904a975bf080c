"""Builds message sets (`message_set`), byte for byte as Kafka's own builder does."""

import struct
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from kalda.records.batch import LOG_APPEND_TIME_FLAG, NO_TIMESTAMP, Buffer, TimestampType
from kalda.records.compression import Compression, StreamCompressor, as_message_set, compress_message_set
from kalda.records.record import Header

_ENTRY: Final = struct.Struct(">qiI")
"""Offset, size and CRC, which the CRC does not cover."""
# Magic, attributes, in magic 1 the timestamp, and the size of the key.
_HEADS: Final = (struct.Struct(">bBi"), struct.Struct(">bBqi"))
_INT32: Final = struct.Struct(">i")
_CRC_SIZE: Final = 4
_NULL_SIZE: Final = -1
_BEFORE_ALL: Final = -(1 << 63)


class MessageSetBuilder:
    """Collects messages of one format; with a codec, one wrapper message holds them all.

    It takes what `record.RecordBatchBuilder` takes, so that a conversion chooses the builder by the format.
    Headers are left out, because these formats have none. With log-append time every message gets
    `log_append_time` (milliseconds since the epoch) as its timestamp.
    """

    def __init__(
        self,
        magic: int,
        *,
        base_offset: int | None = 0,
        compression: Compression = Compression.NONE,
        compression_level: int | None = None,
        timestamp_type: TimestampType = TimestampType.CREATE_TIME,
        log_append_time: int = NO_TIMESTAMP,
    ) -> None:
        """Begin at `base_offset`; with None, at the offset of the first message, which `append` gets."""
        if magic not in (0, 1):
            raise ValueError(f"magic {magic} is no format of messages; expected 0 or 1")
        if compression is Compression.ZSTD:
            raise ValueError(f"format {magic} has no zstd; allowed are none, gzip, snappy, lz4")
        self._magic = magic
        self._base_offset = base_offset
        self._compression = compression
        self._compression_level = compression_level
        appended = magic > 0 and timestamp_type is TimestampType.LOG_APPEND_TIME
        self._append_time = log_append_time if appended else None
        self._attributes = LOG_APPEND_TIME_FLAG if appended else 0
        self._messages = bytearray()
        # What `drain` took out of `_messages`.
        self._drained: StreamCompressor | None = None
        self._next_offset = _BEFORE_ALL if base_offset is None else base_offset
        self._max_timestamp = NO_TIMESTAMP
        self.record_count = 0

    def append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        timestamp: int,
        headers: Sequence[Header] = (),
        *,
        offset: int | None = None,
    ) -> int:
        """Add a message; return its offset, which is the next one unless `offset` leaves a gap.

        Raises `ValueError` for an offset that does not follow.
        """
        if offset is None:
            offset = self._next_offset
        elif offset < self._next_offset:
            raise ValueError(f"offset {offset} does not follow {self._next_offset - 1}")
        if self._base_offset is None:
            self._base_offset = offset
        if self._append_time is not None:
            timestamp = self._append_time
        # Inside a wrapper of magic 1, offsets are relative to the first one.
        is_relative = self._magic and self._compression is not Compression.NONE
        self._messages += _message(
            self._magic,
            offset - self._base_offset if is_relative else offset,
            self._attributes,
            timestamp,
            key,
            value,
        )
        self._next_offset = offset + 1
        self._max_timestamp = max(self._max_timestamp, timestamp if self._magic else NO_TIMESTAMP)
        self.record_count += 1
        return offset

    def extend(
        self, append: Callable[[bytearray, int | None, int], tuple[int, int, int, int, int, int]]
    ) -> tuple[int, int]:
        """Let a function append messages to the encoded ones; return the first two values that it returns.

        The function gets these messages, the base offset (None where the first message sets it) and the last
        offset. It returns two values, how many messages it appended, the base offset, the last offset and the
        largest timestamp.
        """
        last_offset = max(self._next_offset - 1, _BEFORE_ALL)
        first, second, count, base_offset, last_offset, max_timestamp = append(
            self._messages, self._base_offset, last_offset
        )
        assert count >= 0, f"{count} messages were appended"
        if count:
            assert last_offset >= self._next_offset, f"{last_offset} does not follow {self._next_offset - 1}"
            self._base_offset = base_offset
            self._next_offset = last_offset + 1
            self._max_timestamp = max(self._max_timestamp, max_timestamp if self._magic else NO_TIMESTAMP)
            self.record_count += count
        return first, second

    @property
    def undrained_bytes(self) -> int:
        """Bytes of the messages that are not compressed yet."""
        return len(self._messages)

    def drain(self) -> None:
        """Compress what was appended so far, where there is a codec, so that it takes less memory."""
        if self._compression is Compression.NONE:
            return
        if self._drained is None:
            self._drained = StreamCompressor(self._compression, self._compression_level)
        self._drained.write(self._messages)
        self._messages = bytearray()

    def build(self) -> bytearray:
        """Return the message set, writable for in-place patching.

        Raises `ValueError` if no message was appended.
        """
        if not self.record_count:
            raise ValueError("a message set needs at least one message")
        if self._compression is Compression.NONE:
            return self._messages
        if self._drained is not None:
            self.drain()
            packed = as_message_set(self._compression, self._magic, self._drained.finish())
        else:
            packed = compress_message_set(
                self._compression, self._magic, self._messages, self._compression_level
            )
        return bytearray(
            _message(
                self._magic,
                self._next_offset - 1,
                self._attributes | self._compression,
                self._max_timestamp,
                None,
                packed,
            )
        )


def _message(
    magic: int, offset: int, attributes: int, timestamp: int, key: Buffer | None, value: Buffer | None
) -> bytes:
    """Return one entry. The bytes under the CRC are one object: they are neither sliced nor patched."""
    if key is None:
        key, key_size = b"", _NULL_SIZE
    else:
        key_size = len(key)
    if value is None:
        value, value_size = b"", _NULL_SIZE
    else:
        value_size = len(value)
    head = _HEADS[magic]
    packed = (
        head.pack(magic, attributes, timestamp, key_size) if magic else head.pack(magic, attributes, key_size)
    )
    message = b"".join((packed, key, _INT32.pack(value_size), value))
    return _ENTRY.pack(offset, len(message) + _CRC_SIZE, zlib.crc32(message)) + message

"""Compresses and decompresses records in the framings that Kafka's clients read and write.

Java clients must be able to read what this module writes. They read lz4 frames only with independent blocks
and snappy only in xerial's framing, so both framings are built here around the library's block functions.
Decompression accepts more: raw snappy (older librdkafka versions), linked lz4 blocks, several gzip members.

Every output is bounded by `size_max`, because a few kilobytes of input can expand to gigabytes.
"""

import struct
import zlib
from enum import IntEnum
from typing import Final

import cramjam

from kalda.records.errors import CorruptRecordError, DecompressedSizeError, UnsupportedCompressionTypeError

# Kafka has no such bound. 256 MiB is enough for every batch that a default broker accepts (1 MiB) at a ratio
# of 256, and for batches of 10 MB at a ratio of 25, and a small machine can still allocate it.
DECOMPRESSED_SIZE_MAX: Final = 256 * 1024 * 1024

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_SIZE: Final = 32 * 1024
# Frame version 1, independent blocks, no checksums; 64 KiB blocks; then the descriptor's xxHash32 byte,
# constant because the two bytes before it are.
_LZ4_HEADER: Final = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_CHECKSUM_AT: Final = 6
_LZ4_CONTENT_SIZE: Final = 0x08
# What clients of 0.8 and 0.9 write there for the header above.
_LZ4_WRONG_CHECKSUM: Final = b"\x1a"
_LZ4_BLOCK_SIZE: Final = 64 * 1024
_LZ4_STORED: Final = 0x80000000
_LZ4_DEFAULT_LEVEL: Final = 9
_ZSTD_DEFAULT_LEVEL: Final = 3
_GZIP_WBITS: Final = 31
_FIRST_GUESS_MIN: Final = 64 * 1024
_INT32: Final = struct.Struct(">i")
_UINT32_LE: Final = struct.Struct("<I")

Buffer = bytes | bytearray | memoryview


class Compression(IntEnum):
    """The codec in the lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def from_id(cls, codec_id: int) -> "Compression":
        """Return the codec of an id on the wire; raises `UnsupportedCompressionTypeError` for 5 to 7."""
        try:
            return _BY_ID[codec_id]
        except IndexError:
            raise UnsupportedCompressionTypeError(
                f"compression type {codec_id} does not exist; known are 0 (none) to 4 (zstd)"
            ) from None


_BY_ID: Final = tuple(Compression)


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """Compress `data`; `level` is the codec's own scale, ``None`` its default in Kafka (KIP-390)."""
    match codec:
        case Compression.NONE:
            return bytes(data)
        case Compression.GZIP:
            return zlib.compress(data, -1 if level is None else level, wbits=_GZIP_WBITS)
        case Compression.SNAPPY:
            return _compress_snappy(data)
        case Compression.LZ4:
            return _compress_lz4(data, level)
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data, _ZSTD_DEFAULT_LEVEL if level is None else level))


def compress_message_set(codec: Compression, magic: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress the messages that a wrapper of format `magic` holds.

    Clients that know format 0 only (0.8 and 0.9) expect their own wrong checksum in the header of lz4 frames.
    """
    packed = compress(codec, data, level)
    if codec is Compression.LZ4 and magic == 0:
        return packed[:_LZ4_CHECKSUM_AT] + _LZ4_WRONG_CHECKSUM + packed[_LZ4_CHECKSUM_AT + 1 :]
    return packed


def mend_lz4_header(data: Buffer) -> bytearray:
    """Return the lz4 frame with the right checksum in its header, whatever is there.

    Clients of 0.8 and 0.9 computed the checksum over the frame's magic number too (KAFKA-3160). Raises
    `CorruptRecordError` if the header is not whole.
    """
    frame = bytearray(data)
    # The flags say whether the size of the content, in 8 bytes, follows the two bytes of the descriptor.
    at = _LZ4_CHECKSUM_AT + (8 if len(frame) > _LZ4_CHECKSUM_AT and frame[4] & _LZ4_CONTENT_SIZE else 0)
    if at >= len(frame):
        raise _corrupt(Compression.LZ4, "it ends inside the frame's header")
    frame[at] = _xxhash32(frame[4:at]) >> 8 & 0xFF
    return frame


def _xxhash32(data: bytes | bytearray) -> int:
    """Return the xxHash32 (seed 0) of at most 15 bytes, for which the algorithm has no main loop."""
    assert len(data) < 16
    mask = 0xFFFFFFFF
    state = 374761393 + len(data)
    whole = len(data) // 4 * 4
    for lane in range(0, whole, 4):
        state = state + int.from_bytes(data[lane : lane + 4], "little") * 3266489917 & mask
        state = (state << 17 | state >> 15) * 668265263 & mask
    for byte in data[whole:]:
        state = state + byte * 374761393 & mask
        state = (state << 11 | state >> 21) * 2654435761 & mask
    state = (state ^ state >> 15) * 2246822519 & mask
    state = (state ^ state >> 13) * 3266489917 & mask
    return state ^ state >> 16


def decompress(codec: Compression, data: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX) -> bytes:
    """Decompress `data` to at most `size_max` bytes.

    Raises `CorruptRecordError` for bytes the codec does not accept and `DecompressedSizeError` when the
    output would be larger than the bound.
    """
    match codec:
        case Compression.NONE:
            if len(data) > size_max:
                raise too_large(codec, size_max)
            return bytes(data)
        case Compression.GZIP:
            return _decompress_gzip(data, size_max)
        case Compression.SNAPPY:
            return _decompress_snappy(data, size_max)
        case Compression.LZ4 | Compression.ZSTD:
            return _decompress_stream(codec, data, size_max)


def decompress_into(codec: Compression, data: Buffer, out: bytearray | memoryview) -> int | None:
    """Decompress lz4 or zstd to the front of `out`; return the size, or None if `out` is too small.

    The library distinguishes "too small" from "corrupt" only in its message, which is the Rust standard
    library's for a full writer; a test checks that message.

    Raises:
        CorruptRecordError: the codec does not accept the bytes.
    """
    module = cramjam.lz4 if codec is Compression.LZ4 else cramjam.zstd
    try:
        size: int = module.decompress_into(data, out)
    except cramjam.DecompressionError as error:
        if "whole buffer" not in str(error):
            raise _corrupt(codec, error) from error
        return None
    return size


def too_large(codec: Compression, size_max: int) -> DecompressedSizeError:
    """Return the error for content of more than `size_max` bytes."""
    return DecompressedSizeError(f"{codec.name.lower()} data decompresses to more than {size_max} bytes")


def _corrupt(codec: Compression, reason: object) -> CorruptRecordError:
    return CorruptRecordError(f"{codec.name.lower()} data is corrupt: {reason}")


def _decompress_gzip(data: Buffer, size_max: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    rest: Buffer = data
    while True:
        inflater = zlib.decompressobj(wbits=_GZIP_WBITS)
        try:
            # One byte above the bound distinguishes "too large" from "exactly as large"; 0 would mean no
            # bound.
            part = inflater.decompress(rest, size_max - size + 1)
        except zlib.error as error:
            raise _corrupt(Compression.GZIP, error) from error
        size += len(part)
        if size > size_max:
            raise too_large(Compression.GZIP, size_max)
        if not inflater.eof:
            raise _corrupt(Compression.GZIP, "it ends inside a member")
        parts.append(part)
        rest = inflater.unused_data
        if not rest:
            return parts[0] if len(parts) == 1 else b"".join(parts)


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts.append(_INT32.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _decompress_snappy(data: Buffer, size_max: int) -> bytes:
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        block = _decompress_snappy_block(view, size_max)
        if block is None:
            raise too_large(Compression.SNAPPY, size_max)
        return block
    parts: list[bytes] = []
    size = 0
    position = 0
    end = len(view)
    while position < end:
        # The input may be several concatenated streams, each with its header.
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > end:
                raise _corrupt(Compression.SNAPPY, "it ends inside the stream header")
            continue
        if end - position < 4:
            raise _corrupt(Compression.SNAPPY, "it ends inside a block's length")
        block_size: int = _INT32.unpack_from(view, position)[0]
        position += 4
        if not 0 <= block_size <= end - position:
            raise _corrupt(Compression.SNAPPY, f"block of {block_size} bytes, {end - position} are left")
        part = _decompress_snappy_block(view[position : position + block_size], size_max - size)
        if part is None:
            raise too_large(Compression.SNAPPY, size_max)
        size += len(part)
        parts.append(part)
        position += block_size
    return b"".join(parts)


def _decompress_snappy_block(block: memoryview, size_max: int) -> bytes | None:
    """Return the block's content, or ``None`` if its preamble declares more than `size_max` bytes."""
    try:
        if cramjam.snappy.decompress_raw_len(block) > size_max:
            return None
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt(Compression.SNAPPY, error) from error


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_SIZE):
        block = view[start : start + _LZ4_BLOCK_SIZE]
        if level is None or level == _LZ4_DEFAULT_LEVEL:
            packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
        else:
            packed = bytes(
                cramjam.lz4.compress_block(
                    block, mode="high_compression", compression=level, store_size=False
                )
            )
        if len(packed) < len(block):
            parts.append(_UINT32_LE.pack(len(packed)))
            parts.append(packed)
        else:
            parts.append(_UINT32_LE.pack(len(block) | _LZ4_STORED))
            parts.append(bytes(block))
    parts.append(_UINT32_LE.pack(0))
    return b"".join(parts)


def _decompress_stream(codec: Compression, data: Buffer, size_max: int) -> bytes:
    """Decompress lz4 or zstd into a buffer of bounded size, whatever size the frame claims.

    Frames rarely contain the size of their content, so the buffer grows by a factor of four until the content
    fits; at most a third of the work is repeated.
    """
    capacity = min(size_max, max(_FIRST_GUESS_MIN, 8 * len(data)))
    while True:
        out = bytearray(capacity)
        size = decompress_into(codec, data, out)
        if size is not None:
            return bytes(memoryview(out)[:size])
        if capacity >= size_max:
            raise too_large(codec, size_max)
        capacity = min(size_max, capacity * 4)

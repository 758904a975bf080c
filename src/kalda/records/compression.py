"""Compresses and decompresses records in the framings that Kafka's clients read and write.

Java clients must be able to read what this module writes. They read lz4 frames only with independent blocks
and snappy only in xerial's framing, so both framings are built here around the library's block functions.
Decompression accepts more: raw snappy (older librdkafka versions), linked lz4 blocks, several gzip members.

Every output is bounded by `size_max`, because a few kilobytes of input can expand to gigabytes. What does not
need all of it at once uses `iter_decompressed` and `StreamCompressor`, which hold one piece at a time.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum
from io import BytesIO
from typing import Final

import cramjam
import zstandard

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
_LZ4_SMALL_BLOCK: Final = 64
"""Up to so many bytes, a block is checked here: the library takes 50 us for a frame of one block."""
_LZ4_DEFAULT_LEVEL: Final = 9
_ZSTD_DEFAULT_LEVEL: Final = 3
_GZIP_WBITS: Final = 31
_FIRST_GUESS_MIN: Final = 64 * 1024
AT_ONCE_BYTES: Final = 8 * 1024 * 1024
"""Content up to so many bytes is decompressed into memory of a guessed size. More is decompressed in pieces:
a guess that is too large takes memory twice, and one that is too small is work to do again."""

PIECE_BYTES: Final = 256 * 1024
"""The size of most pieces of `iter_decompressed`: codecs take some 0.1 ms to 1 ms for one."""

_GZIP_INPUT_BYTES: Final = 4096
"""What zlib gets at a time where the output is bounded: it copies what is left of it behind each member."""
_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_MEMBER_MIN: Final = 20
_SNAPPY_RATIO_MAX: Final = 64
"""A copy of 64 bytes takes at least 2 bytes, so no block has more content than this times its size."""
_LZ4_MAGIC: Final = _LZ4_HEADER[:4]
_LZ4_BLOCK_SIZES: Final = {4: 1 << 16, 5: 1 << 18, 6: 1 << 20, 7: 1 << 22}
_LZ4_VERSION: Final = 0x40
_LZ4_CONTENT_CHECKSUM: Final = 0x04
_LZ4_BLOCK_CHECKSUM: Final = 0x10
_LZ4_INDEPENDENT: Final = 0x20
_LZ4_DICTIONARY: Final = 0x01
LINKED_SIZE_MAX: Final = 32 * 1024 * 1024
"""The most content of an lz4 frame whose blocks refer to each other, which is decompressed at once.

Java cannot read such frames, so clients do not write them."""
ZSTD_WINDOW_MAX: Final = 1 << 27
"""The largest window of a broker's decoder. It is the format's recommended limit and Java's."""
_ZSTD_WINDOW_LIMIT: Final = 1 << 31
"""The largest window that the library accepts; it takes memory only for the content."""
_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_SKIPPABLE_MASK: Final = 0xFFFFFFF0
_INT32: Final = struct.Struct(">i")
_UINT32_LE: Final = struct.Struct("<I")

Buffer = bytes | bytearray | memoryview

Checkpoint = Callable[[int], None]
"""What long work calls between its pieces, with the bytes that it holds; it may wait, or raise to end."""

GATHERED_BYTES_MAX: Final = 64 * 1024 * 1024
"""The largest record or message that is converted to another format: it must be whole in memory."""


def go_on(_held_bytes: int) -> None:
    """Do nothing at a checkpoint."""


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
    return as_message_set(codec, magic, compress(codec, data, level))


def as_message_set(codec: Compression, magic: int, packed: bytes) -> bytes:
    """Return compressed messages as clients of format `magic` expect them; see `compress_message_set`."""
    assert magic in (0, 1), f"a message set has format 0 or 1, not {magic}"
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
    """Return the xxHash32 (seed 0) of some bytes."""
    mask = 0xFFFFFFFF
    state = 374761393
    done = len(data) // 16 * 16
    if done:
        lanes = [606290984, 2246822519, 0, 1640531535]
        for at in range(0, done, 4):
            lane = lanes[at // 4 % 4] + int.from_bytes(data[at : at + 4], "little") * 2246822519 & mask
            lanes[at // 4 % 4] = (lane << 13 | lane >> 19) * 2654435761 & mask
        state = sum(
            (lane << by | lane >> 32 - by) & mask for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)
        )
    state = state + len(data) & mask
    whole = len(data) // 4 * 4
    for lane in range(done, whole, 4):
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
    content = decompress_at_once(codec, data, size_max)
    return _gathered(iter_readable(codec, data, size_max)) if content is None else content


def decompress_at_once(codec: Compression, data: Buffer, size_max: int) -> bytes | None:
    """Do what `decompress` does; return None for what only `iter_readable` reads, or reads in less memory."""
    match codec:
        case Compression.NONE:
            if len(data) > size_max:
                raise too_large(codec, size_max)
            return bytes(data)
        case Compression.GZIP:
            return _decompress_gzip(data, size_max)
        case Compression.SNAPPY:
            return None
        case Compression.LZ4 | Compression.ZSTD:
            return _decompress_stream(codec, data, size_max)


def decompress_into(codec: Compression, data: Buffer, out: bytearray | memoryview) -> int | None:
    """Decompress lz4 or zstd to the front of `out`; return the size, or None if `out` is too small.

    The library distinguishes "too small" from "corrupt" only in its message, which is the Rust standard
    library's for a full writer; a test checks that message.

    Raises:
        CorruptRecordError: the codec does not accept the bytes.
    """
    assert codec in (Compression.LZ4, Compression.ZSTD), f"{codec.name} is not decompressed in place"
    if codec is Compression.LZ4:
        data = _first_lz4_frame(data)
    module = cramjam.lz4 if codec is Compression.LZ4 else cramjam.zstd
    try:
        size: int = module.decompress_into(data, out)
    except cramjam.DecompressionError as error:
        if "whole buffer" not in str(error):
            raise _corrupt(codec, error) from error
        return None
    assert size <= len(out), f"{size} bytes were written to a buffer of {len(out)}"
    return size


def iter_decompressed(
    codec: Compression, data: Buffer, size_max: int = DECOMPRESSED_SIZE_MAX
) -> Iterator[bytes]:
    """Decompress `data` in pieces, some of which may be empty; at most `size_max` bytes in all.

    Most pieces have at most `PIECE_BYTES`. Of lz4 and snappy a piece is a block: up to 4 MB for lz4, up to 64
    times the input for raw snappy. The content of an lz4 frame with linked blocks is one piece of at most
    `LINKED_SIZE_MAX`. A decoder of zstd holds the frame's window besides, at most `ZSTD_WINDOW_MAX`.

    Raises as `decompress` does, for a zstd frame with a larger window too.
    """
    match codec:
        case Compression.NONE:
            if len(data) > size_max:
                raise too_large(codec, size_max)
            return _iter_parts(data)
        case Compression.GZIP:
            return _iter_gzip(data, size_max)
        case Compression.SNAPPY:
            return _iter_snappy(data, size_max)
        case Compression.LZ4:
            return _iter_lz4(data, size_max)
        case Compression.ZSTD:
            return _iter_zstd(data, size_max, ZSTD_WINDOW_MAX)


def iter_readable(codec: Compression, data: Buffer, size_max: int) -> Iterator[bytes]:
    """Decompress what `decompress` does, in pieces.

    Unlike `iter_decompressed`, it takes windows of zstd and linked blocks of lz4 of any size.
    """
    if codec is Compression.ZSTD:
        return _iter_zstd(data, size_max, _ZSTD_WINDOW_LIMIT)
    if codec is Compression.LZ4 and not _has_independent_blocks(data):
        return iter((_decompress_by_library(codec, data, size_max),))
    return iter_decompressed(codec, data, size_max)


def memory_bytes(codec: Compression, data: Buffer) -> int:
    """Return how much memory `iter_decompressed` may take for one piece and the decoder."""
    match codec:
        case Compression.SNAPPY:
            return (
                PIECE_BYTES
                if bytes(data[: len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC
                else _SNAPPY_RATIO_MAX * len(data)
            )
        case Compression.LZ4:
            is_linked = len(data) > 4 and not data[4] & _LZ4_INDEPENDENT
            return LINKED_SIZE_MAX if is_linked else max(_LZ4_BLOCK_SIZES.values())
        case Compression.ZSTD:
            return min(max((size for _, size in _zstd_frames(data)), default=0), ZSTD_WINDOW_MAX)
        case _:
            return PIECE_BYTES


def too_large(codec: Compression, size_max: int) -> DecompressedSizeError:
    """Return the error for content of more than `size_max` bytes."""
    return DecompressedSizeError(f"{codec.name.lower()} data decompresses to more than {size_max} bytes")


def _corrupt(codec: Compression, reason: object) -> CorruptRecordError:
    return CorruptRecordError(f"{codec.name.lower()} data is corrupt: {reason}")


def _gathered(pieces: Iterator[bytes]) -> bytes:
    """Return the pieces as one; of several, it takes the memory of two beside that of the result."""
    first = next(pieces, b"")
    piece = next(pieces, None)
    if piece is None:
        # Raw snappy and linked lz4 are one piece, however large.
        return first
    content = BytesIO()
    content.write(first)
    del first
    while piece is not None:
        content.write(piece)
        piece = next(pieces, None)
    return content.getvalue()


def _decompress_gzip(data: Buffer, size_max: int) -> bytes | None:
    """Return the content of one member; None for several, or for more than `AT_ONCE_BYTES`."""
    try:
        # Nearly every batch is one member. One byte above the bound distinguishes "too large" from "exactly
        # as large"; 0 would mean no bound.
        inflater = zlib.decompressobj(wbits=_GZIP_WBITS)
        content = inflater.decompress(data, min(size_max, AT_ONCE_BYTES) + 1)
    except zlib.error as error:
        raise _corrupt(Compression.GZIP, error) from error
    if len(content) > size_max:
        raise too_large(Compression.GZIP, size_max)
    return content if inflater.eof and not inflater.unused_data else None


def _iter_gzip(data: Buffer, size_max: int) -> Iterator[bytes]:
    """Yield the content of all members; bytes behind a member that begin no other are ignored, as in Java."""
    view = memoryview(data)
    size = position = 0
    is_first = True
    while is_first or _begins_member(view[position:]):
        is_first = False
        inflater = zlib.decompressobj(wbits=_GZIP_WBITS)
        try:
            while not inflater.eof:
                piece: Buffer = inflater.unconsumed_tail
                if not piece:
                    piece = view[position : position + _GZIP_INPUT_BYTES]
                    position += len(piece)
                part = inflater.decompress(piece, PIECE_BYTES)
                if not (part or piece or inflater.eof):
                    raise _corrupt(Compression.GZIP, "it ends inside a member")
                size += len(part)
                if size > size_max:
                    raise too_large(Compression.GZIP, size_max)
                if part:
                    yield part
        except zlib.error as error:
            raise _corrupt(Compression.GZIP, error) from error
        position -= len(inflater.unused_data)
        # For the caller to look up where members are empty.
        yield b""


def _begins_member(rest: memoryview) -> bool:
    return len(rest) >= _GZIP_MEMBER_MIN and bytes(rest[: len(_GZIP_MAGIC)]) == _GZIP_MAGIC


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    starts = range(0, len(view), _XERIAL_BLOCK_SIZE)
    blocks = (_snappy_block(view[start : start + _XERIAL_BLOCK_SIZE]) for start in starts)
    return b"".join((_XERIAL_HEADER, *blocks))


def _snappy_block(data: Buffer) -> bytes:
    block = bytes(cramjam.snappy.compress_raw(data))
    return _INT32.pack(len(block)) + block


def _iter_snappy(data: Buffer, size_max: int) -> Iterator[bytes]:
    """Yield the content of each block, and nothing for each header of a stream."""
    view = memoryview(data)
    if bytes(view[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        block = _decompress_snappy_block(view, size_max)
        if block is None:
            raise too_large(Compression.SNAPPY, size_max)
        yield block
        return
    size = 0
    position = 0
    end = len(view)
    while position < end:
        # The input may be several concatenated streams, each with its header.
        if bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC:
            position += len(_XERIAL_HEADER)
            if position > end:
                raise _corrupt(Compression.SNAPPY, "it ends inside the stream header")
            # For the caller to look up where streams are empty.
            yield b""
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
        yield part
        position += block_size


def _decompress_snappy_block(block: memoryview, size_max: int) -> bytes | None:
    """Return the block's content, or ``None`` if its preamble declares more than `size_max` bytes."""
    assert size_max >= 0, f"the blocks before exceeded the bound by {-size_max} bytes"
    try:
        size: int = cramjam.snappy.decompress_raw_len(block)
        if size > size_max:
            return None
        if size > _SNAPPY_RATIO_MAX * len(block):
            # The library would clear memory of the size that the block claims.
            raise _corrupt(
                Compression.SNAPPY, f"a block of {len(block)} bytes claims {size} bytes of content"
            )
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt(Compression.SNAPPY, error) from error


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    view = memoryview(data)
    starts = range(0, len(view), _LZ4_BLOCK_SIZE)
    blocks = (_lz4_block(view[start : start + _LZ4_BLOCK_SIZE], level) for start in starts)
    return b"".join((_LZ4_HEADER, *blocks, _UINT32_LE.pack(0)))


def _lz4_block(block: Buffer, level: int | None) -> bytes:
    if level is None or level == _LZ4_DEFAULT_LEVEL:
        packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
    else:
        packed = bytes(
            cramjam.lz4.compress_block(block, mode="high_compression", compression=level, store_size=False)
        )
    if len(packed) < len(block):
        return _UINT32_LE.pack(len(packed)) + packed
    return _UINT32_LE.pack(len(block) | _LZ4_STORED) + bytes(block)


def _decompress_stream(codec: Compression, data: Buffer, size_max: int) -> bytes | None:
    """Decompress lz4 or zstd; return None for more than `AT_ONCE_BYTES`, or what the library does not read.

    Other clients take a window above the library's limit, and ignore bytes behind an lz4 frame.
    """
    try:
        content = _decompress_by_library(codec, data, min(size_max, AT_ONCE_BYTES))
    except DecompressedSizeError:
        if size_max <= AT_ONCE_BYTES:
            raise
        return None
    except CorruptRecordError:
        if _has_large_window(data) if codec is Compression.ZSTD else _has_independent_blocks(data):
            return None
        raise
    return content


def _has_independent_blocks(data: Buffer) -> bool:
    return len(data) > 4 and bool(data[4] & _LZ4_INDEPENDENT)


def _decompress_by_library(codec: Compression, data: Buffer, size_max: int) -> bytes:
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


def _iter_parts(data: Buffer) -> Iterator[bytes]:
    view = memoryview(data)
    for start in range(0, len(view), PIECE_BYTES):
        yield bytes(view[start : start + PIECE_BYTES])


def _iter_lz4(data: Buffer, size_max: int) -> Iterator[bytes]:
    """Yield the content of each block of a frame; bytes behind the frame are ignored, as in Java."""
    view = memoryview(data)
    size = 0
    position = _LZ4_CHECKSUM_AT + 1
    if len(view) < position or view[:4] != _LZ4_MAGIC:
        raise _corrupt(Compression.LZ4, "it does not begin with a frame")
    flags = view[4]
    block_size_max = _LZ4_BLOCK_SIZES.get(view[5] >> 4 & 7)
    if flags & _LZ4_DICTIONARY or block_size_max is None or not flags & _LZ4_INDEPENDENT:
        # Such frames are rare; the library knows all kinds of them.
        yield _decompress_by_library(Compression.LZ4, data, min(size_max, LINKED_SIZE_MAX))
        return
    position += 8 if flags & _LZ4_CONTENT_SIZE else 0
    if position > len(view) or _xxhash32(bytes(view[4 : position - 1])) >> 8 & 0xFF != view[position - 1]:
        raise _corrupt(Compression.LZ4, "the frame's header has another checksum")
    out = bytearray(block_size_max)
    while True:
        if position + 4 > len(view):
            raise _corrupt(Compression.LZ4, "it ends inside a block's length")
        length: int = _UINT32_LE.unpack_from(view, position)[0]
        position += 4
        if not length & ~_LZ4_STORED:
            # Java reads the checksum of the content and does not verify it.
            if flags & _LZ4_CONTENT_CHECKSUM and position + 4 > len(view):
                raise _corrupt(Compression.LZ4, "it ends inside the checksum of its content")
            return
        end = position + (length & ~_LZ4_STORED)
        if end + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0) > len(view) or end - position > block_size_max:
            raise _corrupt(Compression.LZ4, f"a block of {end - position} bytes passes its bound")
        block = view[position:end]
        is_checked = flags & _LZ4_BLOCK_CHECKSUM and len(block) > _LZ4_SMALL_BLOCK
        if (
            flags & _LZ4_BLOCK_CHECKSUM
            and not is_checked
            and _xxhash32(bytes(block)) != _UINT32_LE.unpack_from(view, end)[0]
        ):
            raise _corrupt(Compression.LZ4, "a block has another checksum")
        if is_checked:
            part = _checked_lz4_block(view[5], view[position - 4 : end + 4], out)
        elif length & _LZ4_STORED:
            part = bytes(block)
        else:
            try:
                part_size: int = cramjam.lz4.decompress_block_into(block, out, output_len=block_size_max)
            except (cramjam.DecompressionError, ValueError) as error:
                raise _corrupt(Compression.LZ4, error) from error
            part = bytes(memoryview(out)[:part_size])
        size += len(part)
        if size > size_max:
            raise too_large(Compression.LZ4, size_max)
        yield part
        position = end + (4 if flags & _LZ4_BLOCK_CHECKSUM else 0)


def _checked_lz4_block(block_sizes: int, block: Buffer, out: bytearray) -> bytes:
    """Decompress a block between its length and its checksum, which the library's reader of frames checks."""
    descriptor = bytes((_LZ4_VERSION | _LZ4_INDEPENDENT | _LZ4_BLOCK_CHECKSUM, block_sizes))
    checksum = bytes((_xxhash32(descriptor) >> 8 & 0xFF,))
    frame = b"".join((_LZ4_MAGIC, descriptor, checksum, block, _UINT32_LE.pack(0)))
    try:
        size: int = cramjam.lz4.decompress_into(frame, out)
    except cramjam.DecompressionError as error:
        raise _corrupt(Compression.LZ4, error) from error
    return bytes(memoryview(out)[:size])


def _first_lz4_frame(data: Buffer) -> Buffer:
    """Return the first frame: Java ignores what is behind it, where the library reads further frames.

    A frame that is not whole is returned as it is, for the library to refuse.

    Raises:
        CorruptRecordError: it does not begin with a frame of content.
    """
    view = memoryview(data)
    end = len(view)
    if end < _LZ4_CHECKSUM_AT + 1 or view[:4] != _LZ4_MAGIC:
        raise _corrupt(Compression.LZ4, "it does not begin with a frame")
    flags = view[4]
    position = _LZ4_CHECKSUM_AT + 1
    position += (8 if flags & _LZ4_CONTENT_SIZE else 0) + (4 if flags & _LZ4_DICTIONARY else 0)
    behind_block = 4 if flags & _LZ4_BLOCK_CHECKSUM else 0
    while position + 4 <= end:
        length: int = _UINT32_LE.unpack_from(view, position)[0]
        position += 4
        if not length & ~_LZ4_STORED:
            position += 4 if flags & _LZ4_CONTENT_CHECKSUM else 0
            return data if position >= end else view[:position]
        position += (length & ~_LZ4_STORED) + behind_block
    return data


def _iter_zstd(data: Buffer, size_max: int, window_max: int) -> Iterator[bytes]:
    # The reader ends without an error where a frame is cut.
    window = max((size for _, size in _zstd_frames(data)), default=0)
    if window > window_max:
        raise _corrupt(Compression.ZSTD, f"its window of {window} bytes is above {window_max}")
    size = 0
    decompressor = zstandard.ZstdDecompressor(max_window_size=window_max)
    with decompressor.stream_reader(data, read_across_frames=True) as reader:
        while True:
            try:
                part = reader.read(PIECE_BYTES)
            except (zstandard.ZstdError, MemoryError) as error:
                raise _corrupt(Compression.ZSTD, error) from error
            if not part:
                return
            size += len(part)
            if size > size_max:
                raise too_large(Compression.ZSTD, size_max)
            yield part


def _has_large_window(data: Buffer) -> bool:
    return any(size > ZSTD_WINDOW_MAX for _, size in _zstd_frames(data))


def _zstd_frames(data: Buffer) -> Iterator[tuple[int, int]]:
    """Yield where each frame of content begins, and the size of its window (RFC 8878).

    Raises `CorruptRecordError` where a frame is not whole.
    """
    view = memoryview(data)
    position, end = 0, len(view)
    while position < end:
        try:
            magic: int = _UINT32_LE.unpack_from(view, position)[0]
            if magic & _ZSTD_SKIPPABLE_MASK == _ZSTD_SKIPPABLE:
                position += 8 + int(_UINT32_LE.unpack_from(view, position + 4)[0])
            else:
                if magic != _ZSTD_MAGIC:
                    raise _corrupt(Compression.ZSTD, f"byte {position} begins no frame")
                window, at = _zstd_window(view, position + 4)
                yield position, window
                position = _end_of_zstd_frame(view, at, has_checksum=bool(view[position + 4] & 0x04))
        except (IndexError, struct.error):
            position = end + 1
    if position > end:
        raise _corrupt(Compression.ZSTD, "it ends inside a frame")


def _zstd_window(view: memoryview, position: int) -> tuple[int, int]:
    """Return the window of the frame whose descriptor is at `position`, and where its blocks begin."""
    descriptor = view[position]
    content_flag, is_single = descriptor >> 6, bool(descriptor & 0x20)
    position += 1
    window = 0
    if not is_single:
        exponent, mantissa = view[position] >> 3, view[position] & 7
        base = 1 << (10 + exponent)
        window = base + (base >> 3) * mantissa
        position += 1
    position += (0, 1, 2, 4)[descriptor & 3]
    content_size = (1 if is_single else 0, 2, 4, 8)[content_flag]
    if is_single:
        window = int.from_bytes(view[position : position + content_size], "little")
        window += 256 if content_flag == 1 else 0
    return window, position + content_size


def _end_of_zstd_frame(view: memoryview, position: int, *, has_checksum: bool) -> int:
    is_last = False
    while not is_last:
        head = view[position] | view[position + 1] << 8 | view[position + 2] << 16
        is_last = bool(head & 1)
        # A block of one repeated byte has that byte only.
        position += 3 + (1 if head >> 1 & 3 == 1 else head >> 3)
    return position + (4 if has_checksum else 0)


class StreamCompressor:
    """Compresses what it gets piece by piece, in the framing that `compress` writes."""

    def __init__(self, codec: Compression, level: int | None = None) -> None:
        self._parts: list[bytes] = []
        self.size = 0
        """Bytes of compressed data so far."""
        self._rest = bytearray()
        self._block_size = 0
        match codec:
            case Compression.NONE:
                self._write, self._finish = bytes, lambda: b""
            case Compression.GZIP:
                gzip = zlib.compressobj(-1 if level is None else level, wbits=_GZIP_WBITS)
                self._write, self._finish = gzip.compress, gzip.flush
            case Compression.ZSTD:
                zstd = zstandard.ZstdCompressor(
                    level=_ZSTD_DEFAULT_LEVEL if level is None else level
                ).compressobj()
                self._write, self._finish = zstd.compress, zstd.flush
            case Compression.SNAPPY:
                self._blocks(_XERIAL_HEADER, _XERIAL_BLOCK_SIZE)
                self._write, self._finish = _snappy_block, lambda: b""
            case Compression.LZ4:
                self._blocks(_LZ4_HEADER, _LZ4_BLOCK_SIZE)
                self._write, self._finish = lambda block: _lz4_block(block, level), lambda: _UINT32_LE.pack(0)

    _write: Callable[[Buffer], bytes]
    _finish: Callable[[], bytes]

    def write(self, data: Buffer) -> None:
        """Compress some more."""
        if not self._block_size:
            self._add(self._write(data))
            return
        view, start = memoryview(data), 0
        if self._rest:
            start = min(self._block_size - len(self._rest), len(view))
            self._rest += view[:start]
            if len(self._rest) < self._block_size:
                return
            self._add(self._write(self._rest))
            self._rest = bytearray()
        whole = start + (len(view) - start) // self._block_size * self._block_size
        for at in range(start, whole, self._block_size):
            self._add(self._write(view[at : at + self._block_size]))
        self._rest += view[whole:]

    def finish(self) -> bytes:
        """Return all of it, compressed."""
        if self._rest:
            self._add(self._write(self._rest))
        self._add(self._finish())
        return b"".join(self._parts)

    def _blocks(self, header: bytes, size: int) -> None:
        self._add(header)
        self._block_size = size

    def _add(self, part: bytes) -> None:
        if part:
            self._parts.append(part)
            self.size += len(part)

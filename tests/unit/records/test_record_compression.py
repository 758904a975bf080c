"""Codecs and their framings, against other libraries' writers and readers of the same formats."""

import gzip
import os
import struct
import tracemalloc
import zlib
from collections.abc import Callable
from functools import partial
from random import Random

import cramjam
import lz4.frame
import pytest
import zstandard

from kalda.common.errors import ErrorCode
from kalda.records.compression import (
    LINKED_SIZE_MAX,
    PIECE_BYTES,
    Compression,
    StreamCompressor,
    compress,
    decompress,
    iter_decompressed,
)
from kalda.records.decompression_buffer import DecompressionBuffer
from kalda.records.errors import CorruptRecordError, DecompressedSizeError, UnsupportedCompressionTypeError

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
SAMPLES = {
    "empty": b"",
    "short": b"hello",
    "repetitive": b"the quick brown fox " * 20_000,
    "incompressible": os.urandom(200_000),
    "block sized": b"x" * 65_536,
}


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("name", SAMPLES)
def test_data_survives_a_round_trip(codec: Compression, name: str) -> None:
    data = SAMPLES[name]
    assert data == decompress(codec, compress(codec, data))
    assert data == decompress(codec, memoryview(compress(codec, memoryview(data))))


@pytest.mark.parametrize("level", [1, 9, 12])
def test_levels_keep_the_data(level: int) -> None:
    data = SAMPLES["repetitive"]
    assert data == decompress(Compression.LZ4, compress(Compression.LZ4, data, level))
    assert data == decompress(Compression.ZSTD, compress(Compression.ZSTD, data, level))
    assert data == decompress(Compression.GZIP, compress(Compression.GZIP, data, min(level, 9)))


def test_lz4_frames_have_independent_blocks_of_64_kib() -> None:
    """Java refuses a frame with linked blocks, so the library's own framing would lose every consumer."""
    packed = compress(Compression.LZ4, SAMPLES["repetitive"])
    info = lz4.frame.get_frame_info(packed)
    assert (False, 65_536) == (info["block_linked"], info["block_size"])
    assert SAMPLES["repetitive"] == lz4.frame.decompress(packed)


def test_lz4_stores_what_does_not_shrink() -> None:
    data = SAMPLES["incompressible"]
    packed = compress(Compression.LZ4, data)
    assert len(packed) < len(data) + 100
    assert data == lz4.frame.decompress(packed)


@pytest.mark.parametrize(
    "options",
    [
        {"block_linked": True},
        {"block_linked": False, "block_checksum": True, "content_checksum": True},
        {"store_size": False, "block_size": lz4.frame.BLOCKSIZE_MAX4MB},
    ],
)
def test_lz4_frames_of_other_writers_are_read(options: dict[str, object]) -> None:
    data = SAMPLES["repetitive"]
    assert data == decompress(Compression.LZ4, lz4.frame.compress(data, **options))


def test_zstd_frames_without_a_content_size_are_read() -> None:
    """Java's stream writer does not know the size when it writes the frame's header."""
    data = SAMPLES["repetitive"]
    packer = zstandard.ZstdCompressor().compressobj()
    assert data == decompress(Compression.ZSTD, packer.compress(data) + packer.flush())


def test_gzip_members_after_each_other_are_one_stream() -> None:
    assert b"one two" == decompress(Compression.GZIP, gzip.compress(b"one ") + gzip.compress(b"two"))


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    packed = compress(Compression.SNAPPY, b"y" * 40_000)
    assert b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) == packed[:16]
    first_size = struct.unpack_from(">i", packed, 16)[0]
    assert b"y" * 32_768 == bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + first_size]))


def test_raw_snappy_is_read() -> None:
    """Clients in C write it without xerial's framing."""
    data = SAMPLES["repetitive"]
    assert data == decompress(Compression.SNAPPY, bytes(cramjam.snappy.compress_raw(data)))


def test_xerial_streams_after_each_other_are_one_stream() -> None:
    packed = compress(Compression.SNAPPY, b"one ") + compress(Compression.SNAPPY, b"two")
    assert b"one two" == decompress(Compression.SNAPPY, packed)


@pytest.mark.parametrize("codec", list(Compression))
def test_output_up_to_the_bound_passes_and_one_byte_more_does_not(codec: Compression) -> None:
    data = b"z" * 300_000
    packed = compress(codec, data)
    assert data == decompress(codec, packed, size_max=len(data))
    with pytest.raises(DecompressedSizeError):
        decompress(codec, packed, size_max=len(data) - 1)


@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_is_refused(codec: Compression) -> None:
    """A few kilobytes that unpack to a hundred megabytes must not reach the broker's memory."""
    bomb = compress(codec, bytes(50_000_000))
    tracemalloc.start()
    with pytest.raises(DecompressedSizeError, match="more than 1000000 bytes"):
        decompress(codec, bomb, size_max=1_000_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5_000_000


@pytest.mark.parametrize("codec", CODECS)
def test_truncation_at_each_byte_is_corrupt(codec: Compression) -> None:
    packed = compress(codec, b"some records " * 5)
    for size in range(len(packed)):
        try:
            whole = decompress(codec, packed[:size])
        except CorruptRecordError:
            continue
        # Xerial's framing has no end mark: what ends between blocks is a shorter stream.
        assert codec is Compression.SNAPPY
        assert b"" == whole


def test_snappy_block_longer_than_the_stream_is_corrupt() -> None:
    packed = bytearray(compress(Compression.SNAPPY, b"data"))
    struct.pack_into(">i", packed, 16, 1_000)
    with pytest.raises(CorruptRecordError, match="block of 1000 bytes"):
        decompress(Compression.SNAPPY, packed)


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_unknown_codec_ids_are_refused_with_kafkas_error(codec_id: int) -> None:
    with pytest.raises(UnsupportedCompressionTypeError) as caught:
        Compression.from_id(codec_id)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def in_pieces(codec: Compression, data: bytes, sizes: int) -> bytes:
    compressor = StreamCompressor(codec)
    for start in range(0, len(data), sizes):
        compressor.write(memoryview(data)[start : start + sizes])
    return compressor.finish()


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("name", SAMPLES)
@pytest.mark.parametrize("size", [4_001, 65_536, 500_000])
def test_data_survives_in_pieces(codec: Compression, name: str, size: int) -> None:
    """Both ways, and other clients can read it: the framing is the same."""
    data = SAMPLES[name]
    packed = in_pieces(codec, data, size)
    assert data == decompress(codec, packed)
    assert data == b"".join(iter_decompressed(codec, packed))
    assert data == b"".join(iter_decompressed(codec, memoryview(compress(codec, data))))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("cut", [1, 2, 3, 10])
def test_data_that_is_cut_is_corrupt_in_pieces_too(codec: Compression, cut: int) -> None:
    packed = compress(codec, SAMPLES["incompressible"])
    with pytest.raises(CorruptRecordError):
        list(iter_decompressed(codec, packed[:-cut]))


@pytest.mark.parametrize("codec", list(Compression))
def test_pieces_are_bounded_and_so_is_their_sum(codec: Compression) -> None:
    data = bytes(3_000_000)
    packed = compress(codec, data)
    assert all(len(piece) <= PIECE_BYTES for piece in iter_decompressed(codec, packed, len(data)))
    with pytest.raises(DecompressedSizeError, match="more than 2999999 bytes"):
        list(iter_decompressed(codec, packed, len(data) - 1))


@pytest.mark.parametrize(
    "behind", [b"x", b"\0" * 8, b"no member begins here, however long it is", b"\x1f\x8b\x08"]
)
def test_bytes_behind_a_gzip_member_are_ignored(behind: bytes) -> None:
    """As in Java and librdkafka; brokers store such a batch unopened."""
    packed = gzip.compress(b"first") + gzip.compress(b"second") + behind
    assert b"firstsecond" == decompress(Compression.GZIP, packed)


def test_bytes_behind_an_lz4_frame_are_ignored() -> None:
    """As in Java."""
    assert b"abc" == decompress(Compression.LZ4, compress(Compression.LZ4, b"abc") + b"behind")


@pytest.mark.parametrize("options", [{}, {"content_checksum": True}, {"store_size": True}])
def test_an_lz4_frame_behind_another_is_ignored_by_every_reader(options: dict[str, bool]) -> None:
    """As in Java. The broker, which checked the first one only, and the consumer must read the same."""
    packed = lz4.frame.compress(b"first", **options) + lz4.frame.compress(b"second")
    buffer = DecompressionBuffer()
    start, end = buffer.append(Compression.LZ4, packed, 1000)
    assert b"first" == decompress(Compression.LZ4, packed)
    assert b"first" == b"".join(iter_decompressed(Compression.LZ4, packed))
    assert b"first" == bytes(buffer.view()[start:end])


def _read_in_place(codec: Compression, data: bytes) -> bytes:
    buffer = DecompressionBuffer()
    start, end = buffer.append(codec, data, 1 << 20)
    return bytes(buffer.view()[start:end])


READERS = (decompress, lambda codec, data: b"".join(iter_decompressed(codec, data)), _read_in_place)


@pytest.mark.parametrize("is_stored", [False, True], ids=["compressed", "stored"])
@pytest.mark.parametrize("block", [0, 1])
def test_a_block_of_an_lz4_frame_with_a_wrong_checksum_is_corrupt_to_every_reader(
    is_stored: bool, block: int
) -> None:
    """Java's consumer and broker refuse it, and so does librdkafka."""
    content = Random(1).randbytes(100_000) if is_stored else bytes(100_000)
    packed = bytearray(lz4.frame.compress(content, block_checksum=True, block_linked=False, store_size=False))
    for read in READERS:
        assert content == read(Compression.LZ4, bytes(packed))
    position = 7
    for _ in range(block):
        position += 8 + (int.from_bytes(packed[position : position + 4], "little") & 0x7FFFFFFF)
    length = int.from_bytes(packed[position : position + 4], "little")
    assert (length >> 31 == 1) is is_stored
    packed[position + 4 + (length & 0x7FFFFFFF)] ^= 1
    for read in READERS:
        with pytest.raises(CorruptRecordError):
            read(Compression.LZ4, bytes(packed))


def test_an_lz4_frame_without_the_checksum_of_its_content_is_corrupt_to_every_reader() -> None:
    """As to Java, which reads the checksum and does not verify it; a wrong one is read by all."""
    packed = lz4.frame.compress(b"abc" * 100, content_checksum=True, block_linked=False)
    for read in READERS:
        for cut in range(1, 5):
            with pytest.raises(CorruptRecordError):
                read(Compression.LZ4, packed[:-cut])
        assert b"abc" * 100 == read(Compression.LZ4, packed[:-4] + b"\0\1\2\3")


def test_a_stored_block_without_bytes_ends_an_lz4_frame_for_every_reader() -> None:
    """As in Java. What is behind it, the library would read as further blocks."""
    packed = lz4.frame.compress(b"abc" * 100, block_linked=False, store_size=False)
    behind = packed[:-4] + b"\0\0\0\x80" + packed[7:]
    for read in READERS:
        assert b"abc" * 100 == read(Compression.LZ4, behind)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 15, 16, 17, 31, 32, 64, 100, 128, 129, 200])
def test_checksums_of_small_lz4_blocks_are_those_of_the_library(size: int) -> None:
    content = Random(size).randbytes(size)
    packed = bytearray(
        lz4.frame.compress(content, block_checksum=True, block_linked=False, store_size=False) + b"behind"
    )
    assert content == decompress(Compression.LZ4, bytes(packed))
    assert content == b"".join(iter_decompressed(Compression.LZ4, bytes(packed)))
    if size:
        packed[11 + size] ^= 1
        with pytest.raises(CorruptRecordError):
            list(iter_decompressed(Compression.LZ4, bytes(packed)))


def test_what_begins_with_no_lz4_frame_is_corrupt_to_every_reader() -> None:
    """A skippable frame, which the library passes over and Java refuses."""
    packed = b"\x50\x2a\x4d\x18\x05\0\0\0abcde" + compress(Compression.LZ4, b"abc")
    for read in (decompress, lambda codec, data: b"".join(iter_decompressed(codec, data))):
        with pytest.raises(CorruptRecordError):
            read(Compression.LZ4, packed)


def test_gzip_members_are_read_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """What zlib is given it copies behind each member: 50,000 of them in 1 MB were 25 GB."""
    given: list[int] = []
    new = zlib.decompressobj

    class Counting:
        def __init__(self, wbits: int) -> None:
            self._real = new(wbits=wbits)

        def decompress(self, data: bytes, size_max: int) -> bytes:
            given.append(len(data))
            content: bytes = self._real.decompress(data, size_max)
            return content

        def __getattr__(self, name: str) -> object:
            return getattr(self._real, name)

    monkeypatch.setattr("kalda.records.compression.zlib.decompressobj", Counting)
    packed = gzip.compress(b"") * 5_000
    assert b"" == decompress(Compression.GZIP, packed)
    assert sum(given) < 5_000 * 5_000


def test_zstd_window_of_two_gigabytes_takes_memory_for_the_content_only() -> None:
    """Librdkafka reads it. A broker that opens the batch refuses it, as Kafka's does."""
    options = zstandard.ZstdCompressionParameters(window_log=31)
    compressor = zstandard.ZstdCompressor(compression_params=options).compressobj()
    packed = compressor.compress(b"abc" * 1_000) + compressor.flush()
    assert b"abc" * 1_000 == decompress(Compression.ZSTD, packed)
    with pytest.raises(CorruptRecordError, match="window of 2147483648 bytes is above 134217728"):
        list(iter_decompressed(Compression.ZSTD, packed))


def test_lz4_frame_with_linked_blocks_is_one_piece_of_bounded_size() -> None:
    packed = lz4.frame.compress(b"abc" * 50_000, block_linked=True)
    assert [b"abc" * 50_000] == list(iter_decompressed(Compression.LZ4, packed))
    packed = lz4.frame.compress(bytes(LINKED_SIZE_MAX + 1), block_linked=True)
    with pytest.raises(DecompressedSizeError):
        list(iter_decompressed(Compression.LZ4, packed))


@pytest.mark.parametrize("position", [4, 5, 6])
def test_lz4_frame_with_any_descriptor_is_read_or_corrupt(position: int) -> None:
    """Block sizes that no decoder knows, dictionaries, reserved bits, a wrong checksum."""
    frame = bytearray(lz4.frame.compress(b"abc" * 100, block_linked=False))
    for value in range(256):
        frame[position] = value
        for read in (decompress, lambda *given: b"".join(iter_decompressed(*given))):
            try:
                assert b"abc" * 100 == read(Compression.LZ4, bytes(frame))
            except CorruptRecordError:
                continue


def test_snappy_block_with_a_false_size_is_corrupt() -> None:
    """The library would clear memory of the size that four bytes claim."""
    with pytest.raises(CorruptRecordError, match="claims 268435456 bytes"):
        decompress(Compression.SNAPPY, b"\x80\x80\x80\x80\x01" + b"x" * 10)


@pytest.mark.parametrize(
    ("codec", "pack"),
    [
        *((codec, partial(compress, codec)) for codec in CODECS),
        (Compression.SNAPPY, lambda data: bytes(cramjam.snappy.compress_raw(data))),
    ],
)
def test_content_takes_its_memory_once(codec: Compression, pack: Callable[[bytes], bytes]) -> None:
    """A consumer reads what a few kilobytes hold, up to 256 MiB, and needs no second time of it."""
    size = 50_000_000
    packed = pack(bytes(size))
    tracemalloc.start()
    content = decompress(codec, packed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == len(content)
    assert peak < 1.2 * size


def test_large_content_with_linked_blocks_is_read() -> None:
    """More than is decompressed at once, and than a piece may have."""
    packed = lz4.frame.compress(bytes(LINKED_SIZE_MAX + 1), block_linked=True)
    assert LINKED_SIZE_MAX + 1 == len(decompress(Compression.LZ4, packed))

"""Codecs and their framings, against other libraries' writers and readers of the same formats."""

import gzip
import os
import struct
import tracemalloc

import cramjam
import lz4.frame
import pytest
import zstandard

from kalda.common.errors import ErrorCode
from kalda.records.compression import Compression, compress, decompress
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

"""The memory that records are decompressed into."""

import tracemalloc

import pytest
import zstandard

from kalda.records.compression import Compression, compress
from kalda.records.decompression_buffer import DecompressionBuffer
from kalda.records.errors import CorruptRecordError, DecompressedSizeError

SIZE_MAX = 64 * 1024 * 1024


@pytest.mark.parametrize("codec", Compression)
def test_sections_lie_behind_one_another(codec: Compression) -> None:
    buffer = DecompressionBuffer()
    sections = [buffer.append(codec, compress(codec, text), SIZE_MAX) for text in (b"one" * 50, b"two")]
    assert [(0, 150), (150, 153)] == sections
    assert b"one" * 50 + b"two" == bytes(buffer.view())


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_the_buffer_grows_and_keeps_what_it_has(codec: Compression) -> None:
    """Frames rarely say how large their content is."""
    large = bytes(5_000_000)
    buffer = DecompressionBuffer()
    buffer.append(codec, compress(codec, b"first"), SIZE_MAX)
    assert (5, 5_000_005) == buffer.append(codec, compress(codec, large), SIZE_MAX)
    assert b"first" + large == bytes(buffer.view())


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_section_is_bounded(codec: Compression) -> None:
    buffer = DecompressionBuffer()
    buffer.append(codec, compress(codec, b"a" * 700), 1_000)
    with pytest.raises(DecompressedSizeError, match="more than 1000 bytes"):
        buffer.append(codec, compress(codec, b"a" * 1_001), 1_000)
    assert b"a" * 700 == bytes(buffer.view())


@pytest.mark.parametrize("codec", [Compression.LZ4, Compression.ZSTD])
def test_corrupt_sections_are_refused(codec: Compression) -> None:
    with pytest.raises(CorruptRecordError, match=codec.name.lower()):
        DecompressionBuffer().append(codec, b"not compressed at all", SIZE_MAX)


def test_sections_are_read_as_other_clients_read_them() -> None:
    """Windows above the limit of the library, and bytes behind a frame of lz4."""
    options = zstandard.ZstdCompressionParameters(window_log=31)
    large_window = zstandard.ZstdCompressor(compression_params=options).compressobj()
    zstd = large_window.compress(b"zstd" * 50) + large_window.flush()
    lz4 = compress(Compression.LZ4, b"lz4" * 50) + b"rest"
    buffer = DecompressionBuffer()
    buffer.append(Compression.ZSTD, zstd, SIZE_MAX)
    assert (200, 350) == buffer.append(Compression.LZ4, lz4, SIZE_MAX)
    assert b"zstd" * 50 + b"lz4" * 50 == bytes(buffer.view())


def test_a_cleared_buffer_is_empty_and_little() -> None:
    """One large batch must not cost its memory for as long as the thread lives."""
    buffer = DecompressionBuffer()
    for text in (b"small", bytes(20_000_000)):
        buffer.append(Compression.NONE, text, SIZE_MAX)
        buffer.clear()
        assert (0, b"") == (buffer.size, bytes(buffer.view()))
    assert 0 == len(buffer._memory)


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_large_section_takes_little_more_than_its_memory(codec: Compression) -> None:
    size = 60_000_000
    packed = compress(codec, bytes(size))
    buffer = DecompressionBuffer()
    tracemalloc.start()
    assert (0, size) == buffer.append(codec, packed, SIZE_MAX)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2 * size


def test_a_corrupt_section_leaves_nothing_behind() -> None:
    """Its first pieces are in the memory when the fault is found."""
    buffer = DecompressionBuffer()
    buffer.append(Compression.GZIP, compress(Compression.GZIP, b"first"), SIZE_MAX)
    with pytest.raises(CorruptRecordError, match="gzip"):
        buffer.append(Compression.GZIP, compress(Compression.GZIP, bytes(20_000_000))[:-100], SIZE_MAX)
    assert b"first" == bytes(buffer.view())

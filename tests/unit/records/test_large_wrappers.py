"""Wrappers of the old formats that hold far more than they take: converted and searched piece by piece."""

import struct
import zlib
from collections.abc import Iterator

import pytest

from kalda.records import format_conversion, message_set, validation
from kalda.records.batch import LOG_APPEND_TIME_FLAG, iter_headers, read_header
from kalda.records.compression import Compression, compress_message_set
from kalda.records.errors import CorruptRecordError, DecompressedSizeError
from kalda.records.format_conversion import down_convert, iter_any_records, up_convert
from kalda.records.record import Record, RecordBatchBuilder
from kalda.records.validation import search_batch
from tests.record_implementations import needs_compiled, using

COUNT = 50_000
LARGE = 20 * 1024 * 1024


class AbandonedError(Exception):
    pass


def entry(magic: int, offset: int, value: bytes, timestamp: int = 7, attributes: int = 0) -> bytes:
    time = struct.pack(">q", timestamp) if magic else b""
    body = struct.pack(">bB", magic, attributes) + time + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", offset, len(body) + 4, zlib.crc32(body)) + body


def wrapper(
    count: int = COUNT,
    step: int = 1,
    value: bytes = b"",
    magic: int = 1,
    attributes: int = 0,
    time: int = 7,
) -> bytes:
    inner = b"".join(entry(magic, index * step, value, index) for index in range(count))
    packed = compress_message_set(Compression.GZIP, magic, inner)
    last = (count - 1) * step + (100 if magic else 0)
    return entry(magic, last, packed, time, Compression.GZIP | attributes)


def abandon(held_bytes: int) -> None:
    raise AbandonedError


def test_a_wrapper_is_converted_down_in_pieces_that_can_be_abandoned() -> None:
    """Two such threads serve all clients: a wrapper of 1 MB held one for half a minute after SIGTERM."""
    checkpoints: list[int] = []
    converted = down_convert(wrapper(), 0, checkpoint=checkpoints.append)

    records = list(iter_any_records(converted.messages, 0, read_header(converted.messages)))

    assert (COUNT, 100, COUNT + 99) == (len(records), records[0].offset, records[-1].offset)
    assert len(checkpoints) > 10
    with pytest.raises(AbandonedError):
        down_convert(wrapper(), 0, checkpoint=abandon)


@pytest.mark.parametrize("magic", [0, 1])
def test_what_a_large_wrapper_holds_is_compressed_again_when_it_becomes_a_batch(magic: int) -> None:
    """A consumer of a few kilobytes would need several times the content in memory."""
    (header,) = [
        header
        for _, header in iter_headers(up_convert(wrapper(2, 1, bytes(LARGE), magic), keeps_codecs=False)[0])
    ]

    assert (Compression.GZIP, 2) == (header.compression, header.record_count)
    assert header.size < LARGE // 10


def test_a_small_wrapper_becomes_a_batch_without_a_codec() -> None:
    (header,) = [header for _, header in iter_headers(up_convert(wrapper(3), keeps_codecs=False).batches)]

    assert (Compression.NONE, 100, 3) == (header.compression, header.base_offset, header.record_count)


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_with_gaps_is_converted_up_to_a_count(magic: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gaps of compaction need Python, which takes seconds for what one message of 1 MB can wrap."""
    monkeypatch.setattr(format_conversion, "SLOW_MESSAGES_MAX", 512)
    offsets = [record.offset for record in read_batch(up_convert(wrapper(300, 2, magic=magic)).batches)]
    assert [(100 if magic else 0) + 2 * index for index in range(300)] == offsets

    for convert in (up_convert, lambda buffer: down_convert(buffer, 0)):
        if magic or convert is up_convert:
            with pytest.raises(DecompressedSizeError, match="wraps more than 512 messages"):
                convert(wrapper(2_000, 2, magic=magic))


def read_batch(batch: bytes) -> list[Record]:
    return list(iter_any_records(batch, 0, read_header(batch)))


def test_a_search_in_a_wrapper_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoints: list[int] = []
    large = wrapper()

    found = search_batch(large, read_header(large), COUNT - 1, 0, checkpoint=checkpoints.append)

    assert (COUNT - 1, COUNT + 99) == found
    monkeypatch.setattr(validation, "SLOW_MESSAGES_MAX", 512)
    sparse = wrapper(2_000, 2)
    with pytest.raises(DecompressedSizeError, match="wraps more than 512 messages"):
        search_batch(sparse, read_header(sparse), 1_999, 0)
    assert (199, 100 + 398) == search_batch(wrapper(200, 2), read_header(wrapper(200, 2)), 199, 0)


def test_a_wrapper_with_log_append_time_but_no_time_is_corrupt() -> None:
    """The consumer raised ValueError for what a broker sent."""
    with pytest.raises(CorruptRecordError, match="log_append_time"):
        up_convert(wrapper(2, attributes=LOG_APPEND_TIME_FLAG, time=-1))
    with pytest.raises(CorruptRecordError, match="log_append_time"):
        up_convert(entry(1, 0, b"v", -1, LOG_APPEND_TIME_FLAG))


@pytest.mark.parametrize("base_offset", [-(1 << 63), -(1 << 63) + 5, -1, (1 << 63) - 1])
@pytest.mark.parametrize("start_offset", [0, (1 << 63) - 1])
def test_a_search_takes_batches_at_the_ends_of_64_bits(base_offset: int, start_offset: int) -> None:
    """The difference of two offsets may pass 64 bits: OverflowError."""
    builder = RecordBatchBuilder(base_offset=base_offset)
    builder.append(None, b"v", 5)
    batch = builder.build()

    expected = (5, base_offset) if base_offset >= start_offset else None

    assert expected == search_batch(batch, read_header(batch), 5, start_offset)


@pytest.fixture
def compiled() -> Iterator[None]:
    with using("compiled"):
        yield


@needs_compiled
@pytest.mark.usefixtures("compiled")
def test_messages_of_an_unusual_kind_are_converted_up_to_a_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of format 0 in a wrapper of format 1 are legal, and take Python as long as gaps do."""
    inner = b"".join(entry(0, index, b"") for index in range(2_000))
    packed = compress_message_set(Compression.GZIP, 1, inner)
    mixed = entry(1, 2_099, packed, attributes=Compression.GZIP)
    assert 2_000 == len(read_batch(up_convert(mixed).batches))

    monkeypatch.setattr(message_set, "SLOW_MESSAGES_MAX", 512)
    with pytest.raises(DecompressedSizeError, match="wraps over 512 messages"):
        down_convert(mixed, 0)


@needs_compiled
@pytest.mark.usefixtures("compiled")
def test_log_append_time_is_no_unusual_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrapper's time counts for all, so that compiled code need not read theirs."""
    monkeypatch.setattr(message_set, "SLOW_MESSAGES_MAX", 0)
    records = read_batch(up_convert(wrapper(3, attributes=LOG_APPEND_TIME_FLAG, time=99)).batches)
    assert [(100, 99), (101, 99), (102, 99)] == [(record.offset, record.timestamp) for record in records]

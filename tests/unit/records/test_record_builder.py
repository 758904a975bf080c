"""Building and reading records one by one: the fields' edges and what is refused."""

import struct

import pytest

from kalda.records.batch import TimestampType, read_header
from kalda.records.compression import Compression
from kalda.records.crc import crc32c
from kalda.records.errors import CorruptRecordError, DecompressedSizeError, NeedMoreBytes
from kalda.records.record import Record, RecordBatchBuilder, iter_records, record_size

pytestmark = pytest.mark.usefixtures("record_implementation")


def with_records(batch: bytearray, records: bytes, count: int) -> bytes:
    """Put other bytes behind a header and make length, count and CRC fit them."""
    batch = batch[:61] + records
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">i", batch, 57, count)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def one_record() -> bytearray:
    builder = RecordBatchBuilder()
    builder.append(b"k", b"v", 1)
    return builder.build()


def test_null_empty_and_filled_fields_are_told_apart() -> None:
    builder = RecordBatchBuilder()
    rows: list[Record] = []
    for key in (None, b"", b"key"):
        for value in (None, b"", b"value"):
            headers = [("empty", b""), ("null", None), ("", b"x")]
            offset = builder.append(key, value, 5, headers)
            rows.append(Record(offset, 5, TimestampType.CREATE_TIME, key, value, headers))
    assert rows == list(iter_records(builder.build()))


def test_times_before_the_first_record_and_none_at_all_are_kept() -> None:
    builder = RecordBatchBuilder()
    times = [5_000, 10, -1, 2**62]
    for timestamp in times:
        builder.append(None, None, timestamp)
    batch = builder.build()
    assert [record.timestamp for record in iter_records(batch)] == times
    assert 5_000 == read_header(batch).base_timestamp
    assert 2**62 == read_header(batch).max_timestamp


def test_log_append_time_is_the_batchs() -> None:
    builder = RecordBatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time=900)
    builder.append(None, b"v", 100)
    (record,) = iter_records(builder.build())
    assert (900, TimestampType.LOG_APPEND_TIME) == (record.timestamp, record.timestamp_type)


def test_gaps_in_offsets_are_kept() -> None:
    builder = RecordBatchBuilder(base_offset=50)
    for offset in (50, 53, 200):
        builder.append(None, b"v", 0, offset=offset)
    batch = builder.build()
    assert [50, 53, 200] == [record.offset for record in iter_records(batch)]
    assert 200 == read_header(batch).last_offset


def test_size_is_the_batchs_before_compression() -> None:
    builder = RecordBatchBuilder()
    sizes = []
    for index in range(3):
        sizes.append(record_size(b"key", b"v" * 100 * index, index * 1_000, index, [("h", None)]))
        builder.append(b"key", b"v" * 100 * index, index * 1_000, [("h", None)])
    assert builder.size == len(builder.build()) == 61 + sum(sizes)
    assert (3, 3) == (builder.record_count, builder.next_offset)


@pytest.mark.parametrize("timestamp", [-2, 2**63])
def test_time_that_no_batch_can_hold_is_our_misuse(timestamp: int) -> None:
    with pytest.raises(ValueError, match="timestamp"):
        RecordBatchBuilder().append(None, None, timestamp)


def test_times_more_than_64_bits_apart_are_our_misuse() -> None:
    """The delta would not fit; Java's would wrap."""
    builder = RecordBatchBuilder()
    builder.append(None, None, -1)
    with pytest.raises(ValueError, match="timestamp 9223372036854775807 is more than"):
        builder.append(None, None, 2**63 - 1)


def test_offsets_never_go_back() -> None:
    builder = RecordBatchBuilder(base_offset=5)
    builder.append(None, None, 0)
    with pytest.raises(ValueError, match="does not follow"):
        builder.append(None, None, 0, offset=5)


def test_builder_refuses_batches_that_no_reader_takes() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        RecordBatchBuilder().build()
    with pytest.raises(ValueError, match="producer_id"):
        RecordBatchBuilder(is_transactional=True)
    with pytest.raises(ValueError, match="log_append_time"):
        RecordBatchBuilder(timestamp_type=TimestampType.LOG_APPEND_TIME)


@pytest.mark.parametrize(
    ("records", "count"),
    [
        ("", 1),
        ("0c0000000101", 1),
        ("0c000000010100", 2),
        ("0c00000001010000", 1),
        ("0d000000010100", 1),
        ("0a0000000101", 1),
        ("0e00000001010000", 1),
        ("0c000000100100", 1),
        ("0c000000011000", 1),
        ("0c0000000101fe", 1),
        ("0c000000010101", 1),
        ("10000000010102010000", 1),
        ("0c00808080808000", 1),
    ],
    ids=[
        "nothing",
        "cut",
        "fewer than counted",
        "bytes behind",
        "negative length",
        "length too short",
        "length too long",
        "key passes the end",
        "value passes the end",
        "headers pass the end",
        "negative header count",
        "null header key",
        "long varint",
    ],
)
def test_nonsense_under_a_right_crc_is_corrupt(records: str, count: int) -> None:
    """A faulty client can send it, and a reader must neither crash nor make records up."""
    with pytest.raises(CorruptRecordError):
        list(iter_records(with_records(one_record(), bytes.fromhex(records), count)))


def test_record_of_nothing_is_seven_bytes() -> None:
    """The sound form of what the table above breaks."""
    (record,) = iter_records(with_records(one_record(), bytes.fromhex("0c000000010100"), 1))
    assert Record(0, 1, TimestampType.CREATE_TIME, None, None, []) == record


def test_header_key_that_is_no_utf8_is_replaced() -> None:
    records = bytes.fromhex("1200000001010202ff01")
    (record,) = iter_records(with_records(one_record(), records, 1))
    assert [("\ufffd", None)] == record.headers


def test_batch_that_is_not_whole_needs_more_bytes() -> None:
    with pytest.raises(NeedMoreBytes):
        list(iter_records(bytes(one_record())[:-1]))


def test_decompressed_records_are_bounded() -> None:
    builder = RecordBatchBuilder(compression=Compression.GZIP)
    builder.append(None, bytes(1_000_000), 0)
    with pytest.raises(DecompressedSizeError):
        list(iter_records(builder.build(), size_max=10_000))

"""The columnar decoder: what it leaves out, where it goes on, and what it points into."""

import struct
import tracemalloc

import pyarrow as pa
import pytest

from kalda.records import columnar_selection
from kalda.records.batch import TimestampType, set_log_append_time
from kalda.records.columnar import ColumnarBatch, decode_batches, iter_record_batches
from kalda.records.columnar_fields import HEADERS_TYPE
from kalda.records.compression import Compression
from kalda.records.control import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from kalda.records.crc import crc32c
from kalda.records.decompression_buffer import DecompressionBuffer
from kalda.records.errors import CorruptRecordError, DecompressedSizeError
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import RecordBatchBuilder, iter_records

pytestmark = pytest.mark.usefixtures("record_implementation")


def build(base_offset: int, count: int, producer_id: int = -1, **options: object) -> bytes:
    is_transactional = producer_id >= 0
    builder = RecordBatchBuilder(
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=0 if is_transactional else -1,
        base_sequence=0 if is_transactional else -1,
        is_transactional=is_transactional,
        **options,  # type: ignore[arg-type]  # options are the builder's own
    )
    for index in range(count):
        offset = base_offset + index
        builder.append(b"k%d" % offset, b"a value of more than twelve bytes, %d" % offset, 1_000 + offset)
    return bytes(builder.build())


def marker(base_offset: int, producer_id: int, control_type: ControlRecordType) -> bytes:
    return bytes(
        build_end_transaction_marker(
            EndTransactionMarker(control_type, 0),
            producer_id=producer_id,
            producer_epoch=0,
            timestamp=0,
            base_offset=base_offset,
        )
    )


def offsets(batch: ColumnarBatch) -> list[int]:
    result: list[int] = batch.offsets.to_pylist()
    return result


def test_columns_have_one_row_per_record() -> None:
    batch = decode_batches(build(5, 2), start_offset=0)
    assert [5, 6] == offsets(batch)
    assert [1_005, 1_006] == batch.timestamps_ms.to_pylist()
    assert [0, 0] == batch.timestamp_types.to_pylist()
    assert [b"k5", b"k6"] == batch.keys.to_pylist()
    assert b"a value of more than twelve bytes, 6" == batch.values.to_pylist()[1]
    assert batch.headers is None
    assert 2 == len(batch)


@pytest.mark.parametrize("as_binary", [True, False])
def test_fields_that_are_not_wanted_are_null(as_binary: bool) -> None:
    """A reader of offsets does not pay for the bytes of values; the columns keep their types."""
    whole = decode_batches(build(5, 3), start_offset=6, as_binary=as_binary)
    batch = decode_batches(build(5, 3), start_offset=6, as_binary=as_binary, want_keys=False)
    assert [None, None] == batch.keys.to_pylist()
    assert whole.keys.type == batch.keys.type
    assert whole.values.equals(batch.values)
    batch = decode_batches(build(5, 3), start_offset=6, as_binary=as_binary, want_values=False)
    assert [None, None] == batch.values.to_pylist()
    assert whole.keys.equals(batch.keys)


def test_record_batch_has_a_schema_that_does_not_depend_on_the_rows() -> None:
    names = ["key", "value", "offset", "timestamp", "timestamp_type", "headers"]
    types = [pa.binary(), pa.binary(), pa.int64(), pa.timestamp("ms", "UTC"), pa.int32(), HEADERS_TYPE]
    for buffer in (build(0, 3), b""):
        batch = decode_batches(buffer, start_offset=0, want_headers=True).to_record_batch()
        assert names == batch.schema.names
        assert types == batch.schema.types


def test_nothing_at_all_stays_where_it_was() -> None:
    batch = decode_batches(b"", start_offset=7)
    assert (0, 7, 0) == (len(batch), batch.next_offset, batch.consumed_bytes)


@pytest.mark.parametrize("compression", list(Compression))
def test_rows_outside_the_asked_offsets_are_left_out(compression: Compression) -> None:
    """A fetch answers with the whole batch that holds the asked offset."""
    buffer = build(10, 5, compression=compression) + build(15, 5)
    batch = decode_batches(buffer, start_offset=12, end_offset=17)
    assert [12, 13, 14, 15, 16] == offsets(batch)
    assert b"k12" == batch.keys.to_pylist()[0]
    assert (batch.next_offset, batch.consumed_bytes) == (17, len(buffer))


def test_batch_at_the_end_offset_is_not_consumed() -> None:
    first, second = build(0, 5), build(5, 5)
    batch = decode_batches(first + second, start_offset=0, end_offset=5)
    assert (offsets(batch), batch.next_offset, batch.consumed_bytes) == ([0, 1, 2, 3, 4], 5, len(first))


def test_end_offset_in_a_compacted_gap_is_reached() -> None:
    """Otherwise a reader with a fixed end would fetch the same gap for ever."""
    batch = decode_batches(build(0, 2) + build(10, 2), start_offset=0, end_offset=6)
    assert ([0, 1], 6) == (offsets(batch), batch.next_offset)


def test_partial_batch_at_the_end_is_left_for_the_next_fetch() -> None:
    whole, cut = build(0, 3), build(3, 3)
    for size in range(len(cut)):
        batch = decode_batches(whole + cut[:size], start_offset=0)
        assert (len(batch), batch.next_offset, batch.consumed_bytes) == (3, 3, len(whole))


def test_control_batches_are_passed_over_but_counted() -> None:
    buffer = build(0, 2, producer_id=1) + marker(2, 1, ControlRecordType.COMMIT)
    batch = decode_batches(buffer, start_offset=0)
    assert (offsets(batch), batch.next_offset, batch.consumed_bytes) == ([0, 1], 3, len(buffer))


@pytest.mark.parametrize("aborted", [[(1, 6), (1, 0)], [(1, 0), (1, 6)]])
def test_aborted_transactions_are_left_out_until_their_marker(aborted: list[tuple[int, int]]) -> None:
    """Producer 1 aborts 0-1 and 6-7 around a committed 4; producer 2 commits 2; 5 is not transactional."""
    buffer = (
        build(0, 2, producer_id=1)
        + build(2, 1, producer_id=2)
        + marker(3, 1, ControlRecordType.ABORT)
        + build(4, 1, producer_id=1)
        + build(5, 1)
        + build(6, 2, producer_id=1)
        + marker(8, 1, ControlRecordType.ABORT)
        + marker(9, 2, ControlRecordType.COMMIT)
    )
    batch = decode_batches(buffer, start_offset=0, aborted=aborted)
    assert ([2, 4, 5], 10) == (offsets(batch), batch.next_offset)
    assert [0, 1, 2, 4, 5, 6, 7] == offsets(decode_batches(buffer, start_offset=0))


def test_aborted_transaction_begins_at_its_very_offset() -> None:
    buffer = build(0, 1, producer_id=1) + build(1, 1, producer_id=2)
    assert [0] == offsets(decode_batches(buffer, start_offset=0, aborted=[(2, 1)]))


def test_only_an_abort_marker_ends_an_aborted_transaction() -> None:
    buffer = build(0, 1, producer_id=1) + marker(1, 1, ControlRecordType.COMMIT) + build(2, 1, producer_id=1)
    assert [] == offsets(decode_batches(buffer, start_offset=0, aborted=[(1, 0)]))


def test_what_an_aborting_producer_wrote_outside_transactions_stays() -> None:
    plain = RecordBatchBuilder(base_offset=1, producer_id=1, producer_epoch=0, base_sequence=1)
    plain.append(None, b"v", 0)
    buffer = build(0, 1, producer_id=1) + bytes(plain.build())
    assert [1] == offsets(decode_batches(buffer, start_offset=0, aborted=[(1, 0)]))


def test_log_append_time_is_every_records_time() -> None:
    appended = bytearray(build(2, 2))
    set_log_append_time(appended, 0, 99)
    batch = decode_batches(build(0, 2) + bytes(appended), start_offset=0)
    assert [1_000, 1_001, 99, 99] == batch.timestamps_ms.to_pylist()
    assert [
        *[TimestampType.CREATE_TIME] * 2,
        *[TimestampType.LOG_APPEND_TIME] * 2,
    ] == batch.timestamp_types.to_pylist()


def test_views_point_into_the_fetched_bytes() -> None:
    """The point of views: no copy of the values, however long."""
    buffer = build(0, 50)
    values = decode_batches(buffer, start_offset=0, as_binary=False).values
    values.validate(full=True)
    assert values.type == pa.binary_view()
    assert values.buffers()[2].address == pa.py_buffer(buffer).address


@pytest.mark.parametrize("size", range(20))
def test_views_and_copies_agree_around_the_inline_size(size: int) -> None:
    """Arrow keeps up to 12 bytes in the view; the last values of a buffer have no full word behind them."""
    builder = RecordBatchBuilder()
    for index in range(4):
        builder.append(
            b"abcdefghijklmnopqrstuvwxyz"[index : index + size], None if index == 2 else b"", index
        )
    buffer = bytes(builder.build())
    views = decode_batches(buffer, start_offset=0, as_binary=False)
    copies = decode_batches(buffer, start_offset=0)
    for column in (views.keys, views.values, copies.keys, copies.values):
        column.validate(full=True)
    assert views.keys.to_pylist() == copies.keys.to_pylist()
    assert views.values.to_pylist() == [b"", b"", None, b""] == copies.values.to_pylist()


def test_many_headers_in_few_records_and_few_in_many() -> None:
    """Both ways of reading headers, the vectorised one and the one by row, meet in one batch."""
    builder = RecordBatchBuilder(compression=Compression.ZSTD)
    rows: list[list[tuple[str, bytes | None]]] = []
    for index in range(40):
        count = 300 if index == 3 else index % 3
        rows.append([(f"h{number}", None if number % 4 == 3 else b"x" * number) for number in range(count)])
        builder.append(None, b"v", 0, rows[-1])
    headers = decode_batches(builder.build(), start_offset=2, want_headers=True).headers
    assert headers is not None
    headers.validate(full=True)
    assert [[(entry["key"], entry["value"]) for entry in row] for row in headers.to_pylist()] == rows[2:]


def test_header_key_that_is_no_utf8_is_replaced() -> None:
    builder = RecordBatchBuilder()
    builder.append(None, None, 0, [("xy", b"1")])
    batch = builder.build()
    position = bytes(batch).index(b"xy")
    batch[position : position + 2] = b"\xff\xfe"
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    headers = decode_batches(batch, start_offset=0, want_headers=True).headers
    assert headers is not None
    assert [[{"key": "\ufffd\ufffd", "value": b"1"}]] == headers.to_pylist()


def test_crc_is_checked_unless_told_not_to() -> None:
    batch = bytearray(build(0, 2))
    batch[17] ^= 1
    with pytest.raises(CorruptRecordError, match="CRC"):
        decode_batches(batch, start_offset=0)
    assert [0, 1] == offsets(decode_batches(batch, start_offset=0, check_crc=False))


@pytest.mark.parametrize(
    ("position", "value"),
    [(61, 0x59), (61, 0x56), (61, 0x5A), (65, 0x06), (65, 0x02), (68, 0x46), (105, 0x01), (105, 0x02)],
    ids=[
        "negative length",
        "shorter record",
        "longer record",
        "longer key",
        "shorter key",
        "shorter value",
        "negative header count",
        "header without bytes",
    ],
)
def test_length_that_lies_under_a_right_crc_is_corrupt(position: int, value: int) -> None:
    """The walk over lengths and the fields inside must agree, or values would come from other records."""
    batch = bytearray(build(0, 3))
    assert (0x58, 0x04, 0x48, 0x00) == (batch[61], batch[65], batch[68], batch[105])
    batch[position] = value
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    with pytest.raises(CorruptRecordError):
        decode_batches(batch, start_offset=0, want_headers=True)


@pytest.mark.parametrize("count", [0x01, 0x02, 0x7E])
def test_impossible_header_counts_are_corrupt_even_if_headers_are_not_wanted(count: int) -> None:
    batch = bytearray(build(0, 1))
    batch[-1] = count
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    with pytest.raises(CorruptRecordError):
        decode_batches(batch, start_offset=0)


@pytest.mark.parametrize("rows", [1, 30])
@pytest.mark.parametrize(
    ("position", "value"), [(0, 0x02), (1, 0x01), (1, 0x06), (3, 0x06), (3, 0x7E)], ids=str
)
def test_headers_that_do_not_fill_their_record_are_corrupt(rows: int, position: int, value: int) -> None:
    """A record's last bytes are ``04 02 61 02 62 02 63 02 64``: two headers, a=b and c=d."""
    builder = RecordBatchBuilder()
    for _ in range(rows):
        builder.append(None, b"v", 0, [("a", b"b"), ("c", b"d")])
    batch = builder.build()
    assert "040261026202630264" == batch[-9:].hex()
    batch[len(batch) - 9 + position] = value
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    with pytest.raises(CorruptRecordError):
        decode_batches(batch, start_offset=0, want_headers=True)
    with pytest.raises(CorruptRecordError):
        list(iter_records(batch))


@pytest.mark.parametrize("rows", [1, 30])
def test_header_without_a_key_is_corrupt(rows: int) -> None:
    """``01 02 61 01`` could else pass for a header of nothing and one of a=null."""
    builder = RecordBatchBuilder()
    for _ in range(rows):
        builder.append(None, b"v", 0, [("", None), ("", None)])
    batch = builder.build()
    batch[-4:] = bytes.fromhex("01026101")
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    with pytest.raises(CorruptRecordError, match="null"):
        decode_batches(batch, start_offset=0, want_headers=True)
    with pytest.raises(CorruptRecordError, match="null"):
        list(iter_records(batch))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_message_sets_are_decoded_up_to_where_the_format_changes(magic: int, codec: Compression) -> None:
    def message_set(base_offset: int) -> bytes:
        builder = MessageSetBuilder(magic, base_offset=base_offset, compression=codec)
        for offset in range(base_offset, base_offset + 3):
            builder.append(b"k%d" % offset, b"v", 1_000 + offset)
        return bytes(builder.build())

    old = message_set(0) + message_set(3)
    fetched = old + build(6, 2) + message_set(8)
    decoded = decode_batches(fetched, start_offset=1, want_headers=True)
    assert [1, 2, 3, 4, 5] == offsets(decoded)
    assert (6, len(old)) == (decoded.next_offset, decoded.consumed_bytes)
    assert [1_001 if magic else -1, b"k1"] == [decoded.timestamps_ms[0].as_py(), decoded.keys[0].as_py()]
    rest = fetched[decoded.consumed_bytes :]
    decoded = decode_batches(rest, start_offset=6)
    assert [6, 7] == offsets(decoded)
    decoded = decode_batches(rest[decoded.consumed_bytes :], start_offset=8, end_offset=10)
    assert [8, 9] == offsets(decoded)
    damaged = bytearray(old)
    damaged[-1] ^= 1
    front = decode_batches(damaged, start_offset=0)
    assert front.next_offset == offsets(front)[-1] + 1 < 6
    with pytest.raises(CorruptRecordError, match="CRC"):
        decode_batches(damaged[front.consumed_bytes :], start_offset=0)


def test_decompressed_size_of_a_batch_is_bounded() -> None:
    with pytest.raises(DecompressedSizeError):
        decode_batches(build(0, 1_000, compression=Compression.LZ4), start_offset=0, size_max=1_000)


def test_one_decode_stops_before_it_grows_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow counts bytes in 32 bits, and a fetch of well compressed batches can unpack to more."""
    monkeypatch.setattr(columnar_selection, "_DATA_SIZE_MAX", 2_000)
    batches = [build(base, 20, compression=Compression.GZIP) for base in (0, 20, 40)]
    batch = decode_batches(b"".join(batches), start_offset=0)
    assert (40, 40) == (len(batch), batch.next_offset)
    assert len(batches[0]) + len(batches[1]) == batch.consumed_bytes


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD])
def test_a_decode_ends_after_the_wanted_bytes(codec: Compression) -> None:
    """A reader that goes on at `consumed_bytes` gets every record once."""
    # The plain batch in front has to move beside the decompressed ones.
    data = build(0, 3) + b"".join(build(base, 20, compression=codec) for base in (3, 23, 43))
    rest, reached, pieces = memoryview(data), 0, []
    while rest:
        batch = decode_batches(rest, start_offset=reached, decompressed_bytes=700)
        pieces.append(batch.values.to_pylist())
        rest, reached = rest[batch.consumed_bytes :], batch.next_offset
    assert [23, 20, 20] == [len(each) for each in pieces]
    assert decode_batches(build(0, 63), start_offset=0).values.to_pylist() == [
        value for each in pieces for value in each
    ]


def test_columns_do_not_change_with_the_next_decode() -> None:
    """The memory of decompressed records is used again; columns must not point into it."""
    first, second = (build(base, 500, compression=Compression.ZSTD) for base in (0, 500))
    expected = decode_batches(build(0, 500), start_offset=0).values.to_pylist()
    memory = DecompressionBuffer()
    copies = decode_batches(first, start_offset=0, memory=memory).values
    views = decode_batches(first, start_offset=0, memory=memory, as_binary=False).values
    decode_batches(second, start_offset=500, memory=memory)
    assert expected == copies.to_pylist() == views.to_pylist()


def test_the_memory_of_a_large_decode_is_free_while_its_columns_are_used() -> None:
    memory = DecompressionBuffer()
    builder = RecordBatchBuilder(compression=Compression.ZSTD)
    builder.append(None, bytes(20 << 20), 0)
    data = bytes(builder.build())
    decode_batches(build(0, 1), start_offset=0)  # the first one imports modules
    tracemalloc.start()
    try:
        columns = decode_batches(data, start_offset=0, memory=memory)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert 20 << 20 == len(columns.values[0].as_py())
    assert held < 1 << 20


def test_record_batches_come_in_slices() -> None:
    batches = list(iter_record_batches(build(0, 25), start_offset=3, rows_max=10))
    assert [10, 10, 2] == [batch.num_rows for batch in batches]
    assert list(range(3, 25)) == [row for batch in batches for row in batch.column("offset").to_pylist()]

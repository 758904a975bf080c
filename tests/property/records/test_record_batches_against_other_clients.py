"""Laws of record batches, with kafka-python's and aiokafka's readers and writers as oracles."""

import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords
from kafka.record.memory_records import MemoryRecordsBuilder as KafkaPythonBuilder

from kalda.records.batch import TimestampType, iter_headers, read_header, validate
from kalda.records.columnar import ColumnarBatch, decode_batches
from kalda.records.columnar_encode import encode_batches
from kalda.records.columnar_fields import HEADERS_TYPE, read_varints, read_varlongs
from kalda.records.compression import Compression, compress, decompress
from kalda.records.crc import crc32c
from kalda.records.errors import RecordsError
from kalda.records.recompression import repack
from kalda.records.record import Header, Record, RecordBatchBuilder, iter_records, record_bytes
from kalda.records.validation import validate_records
from kalda.records.varint import read_varint, read_varlong

pytestmark = pytest.mark.usefixtures("record_implementation")

Row = tuple[bytes | None, bytes | None, int, list[Header]]

CODECS = list(Compression)
SETTINGS = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

# Lengths around one, two and three varint bytes, and around Arrow's 12 inline bytes.
payloads = st.one_of(
    st.binary(max_size=20),
    st.sampled_from([b"x" * size for size in (12, 13, 63, 64, 8_191, 8_192)]),
)
headers = st.lists(st.tuples(st.text(max_size=6), st.one_of(st.none(), st.binary(max_size=70))), max_size=4)
timestamps = st.integers(min_value=0, max_value=2**62)
rows = st.tuples(st.one_of(st.none(), payloads), st.one_of(st.none(), payloads), timestamps, headers)
row_lists: st.SearchStrategy[list[Row]] = st.lists(rows, min_size=1, max_size=30)
codecs = st.sampled_from(CODECS)
encoded_varints = st.binary(min_size=1, max_size=10).map(
    lambda raw: bytes([*(byte | 0x80 for byte in raw[:-1]), raw[-1] & 0x7F])
)


def build(rows: list[Row], codec: Compression, base_offset: int = 0, gap: int = 1) -> bytes:
    builder = RecordBatchBuilder(compression=codec, base_offset=base_offset)
    for index, (key, value, timestamp, row_headers) in enumerate(rows):
        builder.append(key, value, timestamp, row_headers, offset=base_offset + index * gap)
    return bytes(builder.build())


def expected_records(rows: list[Row], base_offset: int = 0) -> list[Record]:
    return [
        Record(base_offset + index, timestamp, TimestampType.CREATE_TIME, key, value, row_headers)
        for index, (key, value, timestamp, row_headers) in enumerate(rows)
    ]


def records_of(batch: ColumnarBatch) -> list[Record]:
    assert batch.headers is not None
    columns = (
        batch.offsets,
        batch.timestamps_ms,
        batch.timestamp_types,
        batch.keys,
        batch.values,
        batch.headers,
    )
    for column in columns:
        column.validate(full=True)
    *fields, header_rows = (column.to_pylist() for column in columns)
    header_tuples = [[(entry["key"], entry["value"]) for entry in row] for row in header_rows]
    return [Record(*row) for row in zip(*fields, header_tuples, strict=True)]


def as_rows(records: Any) -> list[Row]:
    return [(record.key, record.value, record.timestamp, list(record.headers)) for record in records]


@SETTINGS
@given(row_lists, codecs, st.integers(min_value=0, max_value=2**40))
def test_what_the_builder_writes_the_iterator_reads(
    rows: list[Row], codec: Compression, base_offset: int
) -> None:
    batch = build(rows, codec, base_offset)
    header = read_header(batch)
    validate(batch, 0, header)
    assert expected_records(rows, base_offset) == list(iter_records(batch))
    validate_records(batch, 0, header)
    assert header.max_timestamp == max(row[2] for row in rows)


@SETTINGS
@given(row_lists, codecs)
def test_kafka_python_reads_what_we_write(rows: list[Row], codec: Compression) -> None:
    memory_records = KafkaPythonRecords(build(rows, codec))
    batch = memory_records.next_batch()
    assert batch.validate_crc()
    assert rows == as_rows(batch)
    assert not memory_records.has_next()


@SETTINGS
@given(row_lists, codecs)
def test_aiokafka_reads_what_we_write(rows: list[Row], codec: Compression) -> None:
    batch = AiokafkaRecords(build(rows, codec)).next_batch()
    assert batch is not None
    assert batch.validate_crc()
    assert rows == as_rows(batch)


@SETTINGS
@given(row_lists, codecs)
def test_we_read_what_kafka_python_writes(rows: list[Row], codec: Compression) -> None:
    builder = KafkaPythonBuilder(magic=2, compression_type=int(codec), batch_size=1 << 24)
    for key, value, timestamp, row_headers in rows:
        builder.append(timestamp=timestamp, key=key, value=value, headers=row_headers)
    builder.close()
    batch = bytes(builder.buffer())
    validate(batch, 0, read_header(batch))
    assert expected_records(rows) == list(iter_records(batch))
    # Uncompressed bytes are equal but for the leader epoch, which is 0 there and -1 in Java and here.
    if codec is Compression.NONE:
        assert batch[16:] == build(rows, codec)[16:]


@SETTINGS
@given(row_lists, codecs)
def test_we_read_what_aiokafka_writes(rows: list[Row], codec: Compression) -> None:
    builder = AiokafkaBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 24,
    )
    for offset, (key, value, timestamp, row_headers) in enumerate(rows):
        assert builder.append(offset, timestamp, key, value, row_headers) is not None
    batch = bytes(builder.build())
    validate(batch, 0, read_header(batch))
    assert expected_records(rows) == list(iter_records(batch))


@SETTINGS
@given(
    st.lists(st.tuples(row_lists, codecs, st.integers(min_value=1, max_value=3)), min_size=1, max_size=4),
    st.integers(min_value=-2, max_value=90),
    st.one_of(st.none(), st.integers(min_value=-2, max_value=90)),
)
def test_columns_equal_rows(
    batches: list[tuple[list[Row], Compression, int]], start_offset: int, end_offset: int | None
) -> None:
    """Whatever the codecs, gaps and bounds, the decoder tells what the iterator does."""
    buffer = b""
    expected: list[Record] = []
    base_offset = 0
    for batch_rows, codec, gap in batches:
        batch = build(batch_rows, codec, base_offset, gap)
        buffer += batch
        expected += iter_records(batch)
        base_offset = read_header(batch).next_offset
    wanted = [
        record
        for record in expected
        if record.offset >= start_offset and (end_offset is None or record.offset < end_offset)
    ]
    decoded = decode_batches(buffer, start_offset=start_offset, end_offset=end_offset, want_headers=True)
    assert wanted == records_of(decoded)
    views = decode_batches(buffer, start_offset=start_offset, end_offset=end_offset, as_binary=False)
    views.keys.validate(full=True)
    assert [record.key for record in wanted] == views.keys.to_pylist()
    assert [record.value for record in wanted] == views.values.to_pylist()
    if end_offset is None:
        assert (decoded.next_offset, decoded.consumed_bytes) == (max(start_offset, base_offset), len(buffer))


@SETTINGS
@given(row_lists, codecs, codecs)
def test_recompression_keeps_the_records(rows: list[Row], source: Compression, target: Compression) -> None:
    batch = build(rows, source)
    header = read_header(batch)
    converted = repack(header, compress(target, record_bytes(batch, 0, header)), target)
    validate(converted, 0, read_header(converted))
    assert expected_records(rows) == list(iter_records(converted))


@SETTINGS
@given(row_lists, codecs)
def test_encoded_columns_equal_the_builders_bytes(rows: list[Row], codec: Compression) -> None:
    keys, values, times, row_headers = (list(column) for column in zip(*rows, strict=True))
    batches = list(
        encode_batches(
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(times, pa.int64()),
            pa.array(row_headers, HEADERS_TYPE),
            compression=codec,
        )
    )
    assert [bytes(batch) for batch in batches] == [build(rows, codec)]


@SETTINGS
@given(st.lists(encoded_varints))
def test_varints_of_a_column_equal_those_read_one_by_one(encoded: list[bytes]) -> None:
    """Overlong forms and surplus high bits included."""
    for vector, scalar, size_max in ((read_varints, read_varint, 5), (read_varlongs, read_varlong, 10)):
        parts = [part for part in encoded if len(part) <= size_max]
        if not parts:
            continue
        starts = np.cumsum([0, *(len(part) for part in parts[:-1])])
        values, ends = vector(np.frombuffer(b"".join(parts), np.uint8), starts)
        assert values.tolist() == [scalar(part, 0)[0] for part in parts]
        assert ends.tolist() == (starts + [len(part) for part in parts]).tolist()


def swallow(buffer: bytes) -> None:
    """Run every parser; only our own error may come out."""
    parsers: list[Callable[[], object]] = [
        lambda: list(iter_headers(buffer)),
        lambda: list(iter_records(buffer)),
        lambda: validate_records(buffer, 0, read_header(buffer)),
        lambda: decode_batches(buffer, start_offset=0, check_crc=False, want_headers=True, size_max=1 << 20),
        lambda: decode_batches(buffer, start_offset=0, as_binary=False, size_max=1 << 20),
    ]
    for parse in parsers:
        try:
            parse()
        except RecordsError:
            continue


@SETTINGS
@given(st.binary(max_size=200))
def test_junk_raises_only_our_errors(junk: bytes) -> None:
    swallow(junk)
    swallow(struct.pack(">qiib", 0, len(junk) + 5, 0, 2) + junk)


@SETTINGS
@given(row_lists, codecs, st.data())
def test_changed_bytes_under_a_right_crc_raise_only_our_errors(
    rows: list[Row], codec: Compression, data: st.DataObject
) -> None:
    """A CRC is no proof of sense: what a faulty client wrote must not crash a reader."""
    batch = bytearray(build(rows, codec))
    for _ in range(data.draw(st.integers(min_value=1, max_value=4))):
        position = data.draw(st.integers(min_value=0, max_value=len(batch) - 1))
        batch[position] = data.draw(st.integers(min_value=0, max_value=255))
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    swallow(bytes(batch))


@SETTINGS
@given(row_lists, st.data())
def test_columns_and_rows_agree_on_changed_records(rows: list[Row], data: st.DataObject) -> None:
    """Where the iterator refuses a batch, so does the decoder, and the other way round."""
    batch = bytearray(build(rows, Compression.NONE))
    position = data.draw(st.integers(min_value=61, max_value=len(batch) - 1))
    batch[position] = data.draw(st.integers(min_value=0, max_value=255))
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    try:
        expected = list(iter_records(batch))
    except RecordsError:
        with pytest.raises(RecordsError):
            decode_batches(batch, start_offset=-(2**62), want_headers=True)
        return
    assert expected == records_of(decode_batches(batch, start_offset=-(2**62), want_headers=True))


@pytest.mark.parametrize("codec", CODECS)
def test_truncation_at_each_byte_is_never_a_crash(codec: Compression) -> None:
    rows: list[Row] = [(b"k", b"v" * index, index, [("h", b"1")]) for index in range(20)]
    batch = build(rows, codec)
    for size in range(len(batch)):
        swallow(batch[:size])
    records = record_bytes(build(rows, Compression.NONE), 0, read_header(build(rows, Compression.NONE)))
    for size in range(len(records)):
        cut = bytearray(build(rows, Compression.NONE)[: 61 + size])
        struct.pack_into(">i", cut, 8, len(cut) - 12)
        struct.pack_into(">I", cut, 17, crc32c(memoryview(cut)[21:]))
        with pytest.raises(RecordsError):
            list(iter_records(cut))
        with pytest.raises(RecordsError):
            decode_batches(cut, start_offset=0, want_headers=True)


@SETTINGS
@given(codecs, st.binary(max_size=300))
def test_codecs_raise_only_our_errors_for_junk(codec: Compression, junk: bytes) -> None:
    for data in (
        junk,
        b"\x82SNAPPY\x00" + junk,
        b"\x04\x22\x4d\x18\x60\x40\x82" + junk,
        b"\x28\xb5\x2f\xfd" + junk,
    ):
        try:
            assert len(decompress(codec, data, size_max=1 << 20)) <= 1 << 20
        except RecordsError:
            continue

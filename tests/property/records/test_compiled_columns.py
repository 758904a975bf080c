"""The compiled decoder returns what numpy's returns, and raises what it raises, whatever the bytes are."""

import random
import struct

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kalda.records import implementation
from kalda.records.batch import HEADER_SIZE, set_log_append_time
from kalda.records.columnar import decode_batches
from kalda.records.compression import Compression
from kalda.records.errors import RecordsError
from kalda.records.record import Header, RecordBatchBuilder
from tests.record_implementations import needs_compiled, using

if implementation.is_built:
    from kalda.records import _records

pytestmark = needs_compiled

SETTINGS = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])

payloads = st.none() | st.binary(max_size=20) | st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 8_192])
headers = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=70)), max_size=4)
records = st.tuples(payloads, payloads, st.integers(0, 2**62), headers)
batches = st.lists(
    st.tuples(st.lists(records, min_size=1, max_size=20), st.sampled_from(list(Compression)), st.booleans()),
    min_size=1,
    max_size=3,
)
Rows = list[tuple[bytes | None, bytes | None, int, list[Header]]]
Batches = list[tuple[Rows, Compression, bool]]


def encoded(parts: Batches) -> bytearray:
    """Return the batches one after another, with gaps between their offsets."""
    data = bytearray()
    offset = 0
    for rows, codec, is_appended in parts:
        builder = RecordBatchBuilder(base_offset=offset, compression=codec)
        for key, value, timestamp, row_headers in rows:
            builder.append(key, value, timestamp, row_headers)
        batch = builder.build()
        if is_appended:
            set_log_append_time(batch, 0, 77)
        data += batch
        offset = builder.next_offset + 3
    return data


def outcome(
    name: str, data: bytes, start: int = 0, end: int | None = None, *, want_headers: bool, as_binary: bool
) -> list[object]:
    """Return what a decode gives: the columns as lists with their types, or the error."""
    with using(name):
        try:
            decoded = decode_batches(
                data,
                start_offset=start,
                end_offset=end,
                check_crc=False,
                want_headers=want_headers,
                as_binary=as_binary,
                size_max=1 << 20,
            )
        except RecordsError as error:
            return [type(error), str(error)]
    batch = decoded.to_record_batch()
    batch.validate(full=True)
    columns = [decoded.offsets, decoded.timestamps_ms, decoded.timestamp_types, decoded.keys, decoded.values]
    if decoded.headers is not None:
        columns.append(decoded.headers)
    return [
        decoded.next_offset,
        decoded.consumed_bytes,
        batch.schema,
        *((column.null_count, column.to_pylist()) for column in columns),
    ]


def assert_same(data: bytes, start: int = 0, end: int | None = None) -> None:
    for want_headers in (False, True):
        for as_binary in (False, True):
            expected = outcome("numpy", data, start, end, want_headers=want_headers, as_binary=as_binary)
            assert expected == outcome(
                "compiled", data, start, end, want_headers=want_headers, as_binary=as_binary
            )


@SETTINGS
@given(batches, st.integers(-2, 30), st.none() | st.integers(0, 70))
def test_rows_and_ranges_of_rows_are_the_same(parts: Batches, start: int, end: int | None) -> None:
    assert_same(bytes(encoded(parts)), start, end)


@SETTINGS
@given(batches, st.data())
def test_damaged_batches_give_the_same_rows_or_the_same_error(parts: Batches, data: st.DataObject) -> None:
    """Bits flip anywhere behind the length: in counts, base times, varints and header keys."""
    damaged = encoded(parts)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(16, len(damaged) - 1))
        damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    assert_same(bytes(damaged))


@SETTINGS
@given(batches, st.integers(0, 10_000))
def test_records_that_are_cut_under_a_right_length_are_the_same_error(parts: Batches, size: int) -> None:
    """The batch's length is patched, so the records end anywhere."""
    data = encoded(parts[:1])
    cut = data[: HEADER_SIZE + size % (len(data) - HEADER_SIZE)]
    struct.pack_into(">i", cut, 8, len(cut) - 12)
    assert_same(bytes(cut))


@SETTINGS
@given(st.binary(max_size=200), st.integers(0, 40))
@example(b"\xff" * 30, 2)
@example(b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1)
def test_random_records_are_the_same(contents: bytes, count: int) -> None:
    data = bytearray(encoded([([(None, None, 0, [])], Compression.NONE, False)])[:HEADER_SIZE] + contents)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, count)
    assert_same(bytes(data))


def test_a_count_beyond_the_bytes_takes_no_memory() -> None:
    """A count of two milliards in a batch of 70 bytes would ask for 60 GB of columns."""
    data = encoded([([(None, None, 0, [])], Compression.NONE, False)])
    struct.pack_into(">i", data, 57, 0x7FFFFFFF)
    columns = [bytearray(8)] * 9
    section = struct.pack("=7q", HEADER_SIZE, len(data), 0x7FFFFFFF, 0, 0, 0, 0)
    assert _records.scan(data, section, 0, 2**62, True, columns) is None


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_never_pass_their_buffers(seed: int) -> None:
    """Most random bytes fail at the first record; chosen small lengths lead deeper into the fields."""
    source = random.Random(seed)
    for _ in range(2_000):
        size = source.randrange(1, 60)
        data = bytes(
            source.choice((0, 1, 2, 4, 14, 16, 0x80, 0xFF, source.randrange(256))) for _ in range(size)
        )
        start = source.randrange(size)
        end = source.randrange(start, size + 1)
        count = source.randrange(0, end - start + 1)
        section = struct.pack("=7q", start, end, count, source.randrange(-5, 5), 0, 0, 0)
        columns = [bytearray(8 * count + 8) for _ in range(9)]
        totals = _records.scan(data, section, -(2**62), 2**62, True, columns)
        if totals is None:
            continue
        rows, key_size, _, value_size, _, slots, *_ = totals
        fields = [bytearray(4 * slots + 4) for _ in range(4)]
        _records.copy_bytes(data, columns[3], columns[4], rows, bytearray(key_size))
        _records.copy_bytes(data, columns[5], columns[6], rows, bytearray(value_size))
        _records.fill_views(data, columns[5], columns[6], rows, bytearray(16 * rows))
        _records.fill_validity(columns[3], rows, bytearray(rows))
        _records.fill_header_fields(data, columns[7], columns[8], rows, fields)


def test_columns_that_are_too_small_are_refused() -> None:
    """Our own mistake in the size of a buffer must be an exception, not a write behind it."""
    data = bytes(encoded([([(b"k", b"v", 0, [])] * 3, Compression.NONE, False)]))
    section = struct.pack("=7q", HEADER_SIZE, len(data), 3, 0, 0, 0, 0)
    for index, size in enumerate((24, 24, 12, 12, 16, 12, 16, 12, 16)):
        columns = [bytearray(24) for _ in range(9)]
        columns[index] = bytearray(size - 1)
        with pytest.raises(ValueError, match="are needed"):
            _records.scan(data, section, 0, 10, True, columns)

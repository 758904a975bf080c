"""The columnar encoder: where batches end, which columns it takes, and what it refuses."""

import pyarrow as pa
import pytest

from kalda.records.batch import read_header, validate, validate_produced
from kalda.records.columnar import decode_batches
from kalda.records.columnar_encode import encode_batches
from kalda.records.columnar_fields import HEADERS_TYPE
from kalda.records.compression import Compression
from kalda.records.record import iter_records

pytestmark = pytest.mark.usefixtures("record_implementation")


def test_batches_end_before_the_bound_and_a_larger_row_stands_alone() -> None:
    sizes = [100] * 50 + [5_000] + [100] * 50
    values = pa.array([b"v" * size for size in sizes])
    batches = list(encode_batches(None, values, 5, batch_bytes_max=2_000))
    for batch in batches:
        header = read_header(batch)
        validate(batch, 0, header)
        validate_produced(header)
        assert header.size <= 2_000 or header.record_count == 1
    assert [len(record.value or b"") for batch in batches for record in iter_records(batch)] == sizes
    assert len(batches) < 12


def test_one_time_serves_for_all_rows() -> None:
    (batch,) = encode_batches(pa.array([b"k", None]), pa.array([None, b"v"]), 77)
    assert [
        (b"k", None, 77),
        (None, b"v", 77),
    ] == [(r.key, r.value, r.timestamp) for r in iter_records(batch)]


def test_strings_slices_and_times_of_arrow_are_taken() -> None:
    """What a data frame hands over is rarely plain ``binary`` from row 0."""
    keys = pa.array(["a", "b", "ü"]).slice(1)
    values = pa.array(["one", "two", "three"], pa.large_string()).slice(1)
    times = pa.array([1, 2, 3], pa.timestamp("ms", "UTC")).slice(1)
    headers = pa.array([[("x", b"1")], None, [("y", None)]], HEADERS_TYPE).slice(1)
    (batch,) = encode_batches(keys, values, times, headers, compression=Compression.ZSTD)
    assert [
        (b"b", b"two", 2, []),
        ("ü".encode(), b"three", 3, [("y", None)]),
    ] == [(r.key, r.value, r.timestamp, r.headers) for r in iter_records(batch)]


def test_no_rows_make_no_batch() -> None:
    assert [] == list(encode_batches(None, pa.array([], pa.binary()), 0))


def test_what_the_encoder_writes_the_decoder_reads() -> None:
    values = pa.array([b"%d" % number for number in range(1_000)])
    times = pa.array(range(1_000, 2_000))
    (batch,) = encode_batches(values, values, times, compression=Compression.LZ4)
    decoded = decode_batches(batch, start_offset=0)
    assert decoded.keys.equals(values)
    assert decoded.values.equals(values)
    assert decoded.timestamps_ms.equals(times)


@pytest.mark.parametrize(
    ("keys", "times", "headers", "message"),
    [
        (pa.array([b"k"]), 0, None, "1 rows, the values have 2"),
        (None, pa.array([1]), None, "1 rows, the values have 2"),
        (None, 0, pa.array([[]], HEADERS_TYPE), "1 rows, the values have 2"),
        (None, -2, None, "below -1"),
        (None, pa.array([1, None]), None, "nulls"),
        (None, 0, pa.array([[(None, b"v")], []], HEADERS_TYPE), "key is null"),
    ],
)
def test_columns_that_make_no_records_are_our_misuse(
    keys: pa.Array | None, times: pa.Array | int, headers: pa.Array | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        list(encode_batches(keys, pa.array([b"v", b"w"]), times, headers))

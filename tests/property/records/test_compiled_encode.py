"""The compiled encoder writes what numpy's writes, for every layout in which Arrow may hold the columns."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.records import implementation
from kalda.records.columnar_encode import encode_batches
from kalda.records.columnar_fields import HEADERS_TYPE
from kalda.records.compression import Compression
from kalda.records.record import RecordBatchBuilder
from tests.record_implementations import needs_compiled, using

if implementation.is_built:
    from kalda.records import _records

pytestmark = needs_compiled

texts = st.none() | st.text(max_size=20) | st.sampled_from(["x" * 63, "y" * 64, "z" * 8_192])
headers = st.none() | st.lists(
    st.tuples(st.text(max_size=70), st.none() | st.binary(max_size=70)), max_size=3
)
rows = st.lists(st.tuples(texts, texts, st.integers(-1, 2**62), headers), min_size=1, max_size=80)
types = st.sampled_from([pa.binary(), pa.string(), pa.large_binary(), pa.large_string(), pa.binary_view()])


@settings(deadline=None, max_examples=150)
@given(
    rows, st.integers(0, 3), types, st.sampled_from([None, 300, 5_000]), st.sampled_from(list(Compression))
)
def test_batches_are_the_same_bytes(
    records: list[tuple[str | None, str | None, int, list[tuple[str, bytes | None]] | None]],
    skipped: int,
    kind: pa.DataType,
    bound: int | None,
    codec: Compression,
) -> None:
    """`skipped` rows before the batch shift the columns' buffers."""
    shifted = [("k", None, 7, [("a", b"b"), ("c", None)])] * skipped + records
    arrays = (
        pa.array([row[0] for row in shifted], pa.string()).cast(kind)[skipped:],
        pa.array([row[1] for row in shifted], pa.string()).cast(kind)[skipped:],
        pa.array([row[2] for row in shifted], pa.int64())[skipped:],
        pa.array([row[3] for row in shifted], HEADERS_TYPE)[skipped:],
    )
    outcomes = []
    for name in ("numpy", "compiled"):
        with using(name):
            outcomes.append(
                list(encode_batches(*arrays, compression=codec, batch_bytes_max=bound or 1 << 30))
            )

    expected, compiled = outcomes

    assert expected == compiled
    if bound is None:
        builder = RecordBatchBuilder(compression=codec)
        for key, value, timestamp, row_headers in records:
            builder.append(
                None if key is None else key.encode(),
                None if value is None else value.encode(),
                timestamp,
                row_headers or (),
            )
        assert [builder.build()] == compiled


def test_lists_that_are_null_over_entries_have_none_of_them() -> None:
    """Arrow lets a null list cover entries, such as those of a row that a filter has masked."""
    entries = pa.array([{"key": "a", "value": b"1"}, {"key": "b", "value": None}], HEADERS_TYPE.value_type)
    headers = pa.ListArray.from_arrays(pa.array([0, 1, 2]), entries, mask=pa.array([True, False]))
    values = pa.array([b"v", b"w"])
    with using("numpy"):
        expected = list(encode_batches(None, values, 0, headers))
    with using("compiled"):
        assert expected == list(encode_batches(None, values, 0, headers))


@pytest.mark.parametrize("ends", [(0, 5, 3), (0, 3, 9), (-1, 2, 3), (4, 5, 6)])
def test_offsets_outside_the_data_are_not_followed(ends: tuple[int, int, int]) -> None:
    column = (0, None, b"".join(end.to_bytes(4, "little", signed=True) for end in ends), b"abc")
    times = bytes(16)
    assert _records.encode_records(None, column, None, times, 2, 0) is None
    lists = (0, None, bytes(4) + (1).to_bytes(4, "little") + (2).to_bytes(4, "little"), None)
    assert _records.encode_headers(lists, column, None, 2, 2, bytearray(12)) is None


def test_columns_with_fewer_rows_than_asked_are_refused() -> None:
    """Our own mistake in a count must be an exception, not a read behind a buffer."""
    column = (1, None, bytes(12), b"abc")
    assert _records.encode_records(None, column, None, bytes(8), 1, 0) is not None
    with pytest.raises(ValueError, match="are needed"):
        _records.encode_records(None, column, None, bytes(16), 2, 0)
    with pytest.raises(ValueError, match="are needed"):
        _records.encode_records(None, (0, b"", bytes(12), b"abc"), None, bytes(16), 2, 0)
    with pytest.raises(ValueError, match="are needed"):
        _records.encode_records(None, None, None, bytes(15), 2, 0)

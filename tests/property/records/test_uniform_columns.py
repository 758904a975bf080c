"""Columns whose values all have one size are encoded in another way, to the same bytes."""

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kalda.records.columnar_encode import encode_batches
from kalda.records.record import RecordBatchBuilder

pytestmark = pytest.mark.usefixtures("record_implementation")


@given(
    st.integers(1, 300) | st.integers(8_100, 8_300),
    st.none() | st.integers(0, 70),
    st.integers(0, 200),
    st.integers(0, 3),
)
@example(20_000, 1, 1, 0)
def test_the_bytes_are_the_builders(count: int, key_size: int | None, value_size: int, skipped: int) -> None:
    """`skipped` rows before the batch shift the columns' buffers."""
    key = None if key_size is None else b"k" * key_size
    value = bytes(index % 251 for index in range(value_size))
    keys = None if key is None else pa.array([key] * (count + skipped), pa.binary())[skipped:]
    values = pa.array([value] * (count + skipped), pa.binary())[skipped:]
    builder = RecordBatchBuilder()
    for _ in range(count):
        builder.append_next(key, value, 1_700_000_000_000)
    (batch,) = encode_batches(keys, values, 1_700_000_000_000, batch_bytes_max=10**9)
    assert builder.build() == batch

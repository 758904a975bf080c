"""The starts of many records are found at once; what comes out must not depend on that, nor on the values."""

import random
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.records import columnar_numpy
from kalda.records.columnar import decode_batches
from kalda.records.columnar_starts import linked_starts
from kalda.records.errors import CorruptRecordError
from kalda.records.record import RecordBatchBuilder, iter_records

pytestmark = pytest.mark.usefixtures("numpy_records")


def batch(seed: int, count: int, size_max: int, zeros: float, odd: float) -> bytes:
    """Return records of random sizes; `zeros` of a value's bytes are 0, `odd` of the records stand out."""
    source = random.Random(seed)
    builder = RecordBatchBuilder(base_offset=0)
    for index in range(count):
        size = source.randint(size_max // 2, size_max)
        value = bytes(0 if source.random() < zeros else source.randrange(256) for _ in range(size))
        is_odd = source.random() < odd
        headers = [("h", b"x")] if is_odd and source.random() < 0.5 else []
        key = bytes(source.choice([0, 9000])) if is_odd else None
        builder.append(key, value, 1000 + index // 3, headers)
    return bytes(builder.build())


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 1000),
    st.sampled_from([600, 1500]),
    st.sampled_from([1, 30, 60, 90, 140]),
    st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    st.sampled_from([0.0, 0.002, 0.3]),
)
def test_records_decode_as_record_by_record(
    seed: int, count: int, size_max: int, zeros: float, odd: float
) -> None:
    data = batch(seed, count, size_max, zeros, odd)
    records = list(iter_records(data))

    decoded = decode_batches(data, start_offset=0)

    assert [record.key for record in records] == decoded.keys.to_pylist()
    assert [record.value for record in records] == decoded.values.to_pylist()


@pytest.mark.parametrize("odd", [0.0, 0.001])
def test_plain_records_are_found_at_once(odd: float) -> None:
    """Otherwise the test above would compare the loop with itself."""
    data = batch(1, 3000, 140, 0.002, odd)
    with patch.object(columnar_numpy, "linked_starts", wraps=linked_starts) as linked:
        decode_batches(data, start_offset=0)

    assert 1 == linked.call_count
    assert linked_starts(*linked.call_args.args) is not None


@settings(deadline=None)
@given(st.integers(0, 100_000), st.integers(0, 255))
def test_a_damaged_byte_gives_an_error_or_what_the_loop_gives(place: int, byte: int) -> None:
    data = bytearray(batch(2, 900, 100, 0.01, 0.0))
    data[61 + place % (len(data) - 61)] = byte
    with patch.object(columnar_numpy, "is_worthwhile", return_value=False):
        expected = _decoded(data)

    assert expected == _decoded(data)


def _decoded(data: bytearray) -> list[bytes | None] | None:
    try:
        decoded = decode_batches(bytes(data), start_offset=0, check_crc=False)
    except CorruptRecordError:
        return None
    values: list[bytes | None] = decoded.values.to_pylist()
    return values

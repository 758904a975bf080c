"""Runs of records of one size are taken in one step; what comes out must not depend on that."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kalda.records.columnar import decode_batches
from kalda.records.errors import CorruptRecordError
from kalda.records.record import RecordBatchBuilder, iter_records

pytestmark = pytest.mark.usefixtures("record_implementation")

# Sizes around those at which a length varint gets its second and its third byte.
value_sizes = st.sampled_from([0, 1, 40, 55, 56, 57, 58, 100, 8180, 8186, 8190])
runs = st.lists(st.tuples(value_sizes, st.integers(1, 70)), min_size=1, max_size=8)


def batch(base_offset: int, sizes: list[int]) -> bytes:
    builder = RecordBatchBuilder(base_offset=base_offset)
    for index, size in enumerate(sizes):
        builder.append(None, bytes([index % 251]) * size, timestamp=1000)
    return bytes(builder.build())


@settings(deadline=None)
@given(st.lists(runs, min_size=1, max_size=3))
@example([[(100, 3000)]])
@example([[(57, 40), (58, 40), (57, 1), (58, 1)] * 4])
@example([[(size % 50, 1) for size in range(400)], [(100, 400)]])
def test_runs_decode_as_record_by_record(batches: list[list[tuple[int, int]]]) -> None:
    data = b""
    values: list[bytes | None] = []
    offset = 0
    for pieces in batches:
        sizes = [size for size, count in pieces for _ in range(count)]
        one = batch(offset, sizes)
        values += [record.value for record in iter_records(one)]
        data += one
        offset += len(sizes)

    decoded = decode_batches(data, start_offset=0)

    assert list(range(offset)) == decoded.offsets.to_pylist()
    assert values == decoded.values.to_pylist()


@given(st.integers(0, 199), st.integers(0, 255))
def test_a_wrong_length_inside_a_run_is_corrupt(row: int, byte: int) -> None:
    data = bytearray(batch(0, [30] * 200))
    decoded = decode_batches(bytes(data), start_offset=0, as_binary=False)
    assert 200 == len(decoded)
    # Offset deltas take a second byte from 64 on, so records have two sizes.
    position = 61 + sum(37 if index < 64 else 38 for index in range(row))
    assert (72 if row < 64 else 74) == data[position]
    if data[position] == byte:
        return
    data[position] = byte

    with pytest.raises(CorruptRecordError):
        decode_batches(bytes(data), start_offset=0, check_crc=False)

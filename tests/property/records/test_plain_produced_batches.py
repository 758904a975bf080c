"""`read_plain` passes only what the general checks pass, whatever a client writes into a header."""

import struct
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from kalda.records import implementation
from kalda.records.batch import (
    ATTRIBUTES_POSITION,
    LOG_APPEND_TIME_FLAG,
    read_header,
    read_plain,
    read_plain_in_python,
    validate_bytes,
    validate_produced,
)
from kalda.records.crc import crc32c
from kalda.records.record import RecordBatchBuilder
from tests.record_implementations import needs_compiled

if implementation.is_built:
    from kalda.records import _records

CRC_POSITION: Final = 17
FIELDS: Final = (
    *((0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q")),
    *((35, ">q"), (43, ">q"), (51, ">h"), (53, ">i"), (57, ">i")),
)
"""Position and format of each field of a header, but for the CRC."""

VALUES: Final = st.sampled_from(
    [-(2**63), -(2**15), -2, -1, 0, 1, 2, 3, 4, 5, 8, 16, 32, 48, 64, 2**15 - 1, 2**31 - 1, 2**63 - 1]
)


@st.composite
def batches(draw: st.DrawFn) -> bytearray:
    builder = RecordBatchBuilder(
        producer_id=draw(st.sampled_from([-1, 5])), base_sequence=draw(st.sampled_from([-1, 0]))
    )
    for _ in range(draw(st.integers(1, 3))):
        builder.append(b"k", b"v", draw(st.sampled_from([-1, 0, 1_000])))
    batch = bytearray(builder.build())
    for (position, layout), value in draw(st.lists(st.tuples(st.sampled_from(FIELDS), VALUES), max_size=3)):
        bits = 8 * struct.calcsize(layout) - 1
        struct.pack_into(layout, batch, position, max(-(1 << bits), min((1 << bits) - 1, value)))
    if draw(st.integers(0, 9)):
        struct.pack_into(">I", batch, CRC_POSITION, crc32c(batch[ATTRIBUTES_POSITION:]))
    return batch


@given(batches())
def test_what_is_plain_passes_the_general_checks_and_needs_no_correction(batch: bytearray) -> None:
    fields = read_plain(batch)
    if fields is None:
        return
    header = read_header(batch)
    assert fields == (header.last_offset_delta, header.max_timestamp, header.producer_id)
    assert header.size == len(batch)
    validate_bytes(batch, 0, header)
    validate_produced(header)
    assert header.max_timestamp >= header.base_timestamp
    assert not header.attributes & LOG_APPEND_TIME_FLAG
    assert not header.is_barrier
    assert not header.is_transactional


@needs_compiled
@given(batches(), st.integers(0, 70))
def test_compiled_code_finds_the_same(batch: bytearray, size: int) -> None:
    for data in (batch, batch[:size]):
        assert read_plain_in_python(data, crc32c) == _records.read_plain(memoryview(data), crc32c)


@given(st.integers(1, 5), st.sampled_from([-1, 7]))
def test_what_producers_send_is_plain(count: int, producer_id: int) -> None:
    builder = RecordBatchBuilder(producer_id=producer_id, base_sequence=0 if producer_id >= 0 else -1)
    for number in range(count):
        builder.append(None, b"v", 1_000 + number)
    batch = builder.build()
    assert read_plain(batch) == (count - 1, 1_000 + count - 1, producer_id)
    assert read_plain(batch[:-1]) is None
    assert read_plain(batch + b"0") is None
    assert read_plain(batch[:60]) is None

"""`iter_records` yields the same records and raises the same error with compiled code and without it."""

import struct

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from kalda.records import record
from kalda.records.batch import HEADER_SIZE, set_log_append_time
from kalda.records.compression import Compression
from kalda.records.errors import RecordsError
from kalda.records.record import Header, Record, RecordBatchBuilder, iter_records
from tests.record_implementations import needs_compiled, using

pytestmark = needs_compiled

SETTINGS = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])

payloads = st.none() | st.binary(max_size=20) | st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 8_192])
headers = st.lists(st.tuples(st.text(max_size=6), st.none() | st.binary(max_size=70)), max_size=4)
rows = st.lists(
    st.tuples(payloads, payloads, st.integers(0, 2**62), headers, st.integers(0, 300)),
    min_size=1,
    max_size=20,
)
Rows = list[tuple[bytes | None, bytes | None, int, list[Header], int]]


def encoded(records: Rows, codec: Compression = Compression.NONE, is_appended: bool = False) -> bytearray:
    """Return a batch with gaps between its offsets."""
    builder = RecordBatchBuilder(base_offset=11, compression=codec)
    for key, value, timestamp, record_headers, gap in records:
        builder.append(key, value, timestamp, record_headers, offset=builder.next_offset + gap)
    batch = builder.build()
    if is_appended:
        set_log_append_time(batch, 0, 77)
    return batch


def outcome(name: str, data: bytes) -> list[object]:
    """Return the records up to the error, with the error."""
    yielded: list[object] = []
    with using(name):
        try:
            for each in iter_records(data, size_max=1 << 20):
                assert type(each) is Record
                yielded.append((each, type(each.headers), type(each.key), type(each.value)))
        except RecordsError as error:
            yielded.append((type(error), str(error)))
    return yielded


def assert_same(data: bytes) -> None:
    assert outcome("numpy", data) == outcome("compiled", data)


@SETTINGS
@given(rows, st.sampled_from(list(Compression)), st.booleans())
def test_records_are_the_same(records: Rows, codec: Compression, is_appended: bool) -> None:
    assert_same(bytes(encoded(records, codec, is_appended)))


@SETTINGS
@given(rows, st.data())
def test_damaged_batches_give_the_same_records_and_the_same_error(records: Rows, data: st.DataObject) -> None:
    """Bits flip anywhere behind the length: in counts, base times, varints and header keys."""
    damaged = encoded(records)
    for _ in range(data.draw(st.integers(1, 3))):
        position = data.draw(st.integers(17, len(damaged) - 1))
        damaged[position] ^= 1 << data.draw(st.integers(0, 7))
    assert_same(bytes(damaged))


@SETTINGS
@given(rows, st.integers(0, 10_000))
def test_records_that_are_cut_under_a_right_length_are_the_same_error(records: Rows, size: int) -> None:
    data = encoded(records)
    cut = data[: HEADER_SIZE + size % (len(data) - HEADER_SIZE)]
    struct.pack_into(">i", cut, 8, len(cut) - 12)
    assert_same(bytes(cut))


@SETTINGS
@given(st.binary(max_size=200), st.integers(-1, 40))
@example(b"\xff" * 30, 2)
@example(b"\x0e\x00\x00\x00\x01\x01\x00\x00", 1)
def test_random_records_are_the_same(contents: bytes, count: int) -> None:
    data = bytearray(encoded([(None, None, 0, [], 0)])[:HEADER_SIZE] + contents)
    struct.pack_into(">i", data, 8, len(data) - 12)
    struct.pack_into(">i", data, 57, count)
    assert_same(bytes(data))


def test_a_fault_behind_the_records_of_several_calls_follows_those_before_it() -> None:
    """Compiled code makes some hundred records in a call."""
    count = 3 * record._DECODED_AT_ONCE
    data = encoded([(b"k", b"%d" % number, number, [], 0) for number in range(count)])
    assert_same(bytes(data))
    data[-3] = 0x7F
    yielded = outcome("compiled", bytes(data))
    assert count == len(yielded)
    assert_same(bytes(data))

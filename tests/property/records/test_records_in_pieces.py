"""Records that come in pieces are checked as those of a whole batch are, by compiled code and in Python."""

from itertools import pairwise

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kalda.records.batch import HEADER_SIZE, BatchHeader, pack_batch, read_header
from kalda.records.errors import InvalidRecordError, RecordsError
from kalda.records.implementation import is_built
from kalda.records.record import RecordBatchBuilder, iter_records
from kalda.records.validation import RecordsCheck, TimestampBounds
from tests.record_implementations import using

SETTINGS = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
NAMES = ("compiled", "numpy") if is_built else ("numpy",)

payloads = st.none() | st.binary(max_size=20) | st.sampled_from([b"x" * 63, b"y" * 64, b"z" * 8_192])
headers = st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=70)), max_size=3)
rows = st.lists(st.tuples(payloads, payloads, st.integers(-1, 100), headers), min_size=1, max_size=12)
Rows = list[tuple[bytes | None, bytes | None, int, list[tuple[str, bytes | None]]]]
Outcome = tuple[type[RecordsError], list[int]] | None


def outcome(header: BatchHeader, data: bytes, cuts: list[int]) -> Outcome:
    """Return None, or the kind of the error and the records that it names."""
    check = RecordsCheck(header, require_keys=True, timestamp_bounds=TimestampBounds(0, 50))
    try:
        for start, end in pairwise([0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]):
            check.feed(data[start:end])
        check.finish()
    except InvalidRecordError as error:
        return type(error), [index for index, _ in error.record_errors]
    except RecordsError as error:
        return type(error), []
    return None


def is_readable(header: BatchHeader, data: bytes) -> bool:
    fields = {
        name: getattr(header, name)
        for name in header.__slots__
        if name not in ("batch_length", "magic", "crc")
    }
    try:
        list(iter_records(pack_batch(data, **fields)))
    except RecordsError:
        return False
    return True


@SETTINGS
@given(
    rows,
    st.lists(st.integers(0, 1 << 16), max_size=6),
    st.lists(st.tuples(st.integers(0, 1 << 16), st.integers(0, 255)), max_size=2),
    st.integers(-3, 3),
)
def test_pieces_are_checked_as_the_whole_is(
    records: Rows, cuts: list[int], damage: list[tuple[int, int]], missing: int
) -> None:
    """Also where bytes are wrong, missing or too many."""
    builder = RecordBatchBuilder()
    for key, value, timestamp, record_headers in records:
        builder.append(key, value, timestamp, record_headers)
    batch = builder.build()
    header = read_header(batch)
    section = batch[HEADER_SIZE:]
    for place, byte in damage:
        section[place % len(section)] = byte
    data = bytes(section[:-missing]) if missing > 0 else bytes(section) + bytes(-missing)
    found: list[Outcome] = []
    for name in NAMES:
        with using(name):
            found += outcome(header, data, []), outcome(header, data, cuts)
    assert found[:1] * len(found) == found
    if found[0] is None or not issubclass(found[0][0], InvalidRecordError):
        assert is_readable(header, data) == (found[0] is None)

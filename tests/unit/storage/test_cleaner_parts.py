"""The parts of the cleaner by themselves: parsing, the table of keys, grouping, jobs, the throttle."""

import random
import struct
import sys
import tracemalloc

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kalda.records.batch import HEADER_SIZE, read_header
from kalda.records.control import ControlRecordType, EndTransactionMarker
from kalda.records.errors import CorruptRecordError
from kalda.records.record import RecordBatchBuilder, iter_records
from kalda.storage.cleaner.batch_rewriter import spans_of_indices, spans_of_places
from kalda.storage.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata
from kalda.storage.cleaner.grouping import group_segments
from kalda.storage.cleaner.job import (
    CleanedGroup,
    CleaningFailure,
    CleaningJob,
    CleaningResult,
    JobDecoder,
    SourceSegment,
    decode_report,
    encode_job,
    encode_report,
)
from kalda.storage.cleaner.offset_map import ENTRY_BYTES, PLACES_PER_OFFSET, OffsetMap, is_long, shorten
from kalda.storage.cleaner.record_fields import (
    note_keys,
    note_one,
    offset_deltas,
    record_starts,
    scan_keys,
    timestamp_delta,
)
from kalda.storage.cleaner.throttler import Throttler
from kalda.storage.transaction_index import AbortedTransaction
from tests.record_implementations import record_implementation

__all__ = ["record_implementation"]

pytestmark = pytest.mark.usefixtures("record_implementation")

KEY = st.one_of(st.none(), st.binary(max_size=3), st.just(b"k" * 12), st.binary(min_size=60, max_size=70))
VALUE = st.one_of(st.none(), st.just(b"v" * 20), st.just(b"v" * 9000), st.binary(max_size=5))
RECORDS = st.lists(st.tuples(KEY, VALUE, st.integers(0, 3_000_000), st.booleans()), min_size=1, max_size=5)


@given(
    groups=st.lists(st.tuples(RECORDS, st.integers(1, 60)), min_size=1, max_size=3), gap=st.integers(1, 9000)
)
@settings(max_examples=150, deadline=None)
def test_the_scan_agrees_with_the_record_iterator(
    groups: list[tuple[list[tuple[bytes | None, bytes | None, int, bool]], int]], gap: int
) -> None:
    """Runs of one layout, records of many, every width of a field: the same keys at the same places."""
    builder = RecordBatchBuilder(base_offset=7)
    offset = 7
    for records, repeats in groups:
        for _ in range(repeats):
            for key, value, timestamp, has_header in records:
                headers = [("h", b"x")] if has_header else []
                builder.append(key, value, 1_000 + timestamp, headers, offset=offset)
                offset += 1
        offset += gap
    data = bytes(builder.build())
    header = read_header(data)
    expected = list(iter_records(data))

    scanned = scan_keys(data, HEADER_SIZE, len(data), header.record_count)

    assert [record.key for record in expected] == scanned.keys
    assert [index for index, record in enumerate(expected) if record.value is None] == scanned.tombstones
    assert scanned.starts == record_starts(data, HEADER_SIZE, len(data), header.record_count)
    assert [record.offset - 7 for record in expected] == offset_deltas(data, scanned.starts)
    assert [record.timestamp - header.base_timestamp for record in expected] == [
        timestamp_delta(data, start) for start in scanned.starts
    ]


@given(
    records=st.lists(st.tuples(KEY, VALUE, st.integers(0, 3_000_000)), min_size=1, max_size=90),
    choice=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_places_lead_to_the_records(
    records: list[tuple[bytes | None, bytes | None, int]], choice: st.DataObject
) -> None:
    """What is noted is the last place of each key; any choice of places gives the bytes of those records."""
    builder = RecordBatchBuilder(base_offset=7)
    for key, value, timestamp in records:
        builder.append(key, value, 1_000 + timestamp)
    data = b"before" + bytes(builder.build())
    start = 6 + HEADER_SIZE
    scanned = scan_keys(data, start, len(data), len(records))
    first = 5 * PLACES_PER_OFFSET
    places = [first + index * PLACES_PER_OFFSET + at - start for index, at in enumerate(scanned.starts)]
    noted: dict[bytes, int] = {}

    has_tombstones, keyless = note_keys(noted, data, start, len(data), len(records), first)

    keyed = zip(scanned.keys, places, strict=True)
    assert {shorten(key): place for key, place in keyed if key is not None} == noted
    assert has_tombstones == bool(scanned.tombstones)
    assert keyless == scanned.keys.count(None)
    chosen = sorted(choice.draw(st.sets(st.integers(0, len(records) - 1), min_size=1)))
    bounds = [*scanned.starts, len(data)]
    expected = b"".join(data[bounds[index] : bounds[index + 1]] for index in chosen)
    by_places = spans_of_places(data, start, [places[index] for index in chosen])
    by_indices = spans_of_indices(scanned.starts, len(data), chosen)
    assert expected == b"".join(data[begin:end] for begin, end in by_places)
    assert expected == b"".join(data[begin:end] for begin, end in by_indices)


@given(key=KEY, value=st.one_of(st.none(), st.binary(max_size=90)), has_header=st.booleans())
@settings(deadline=None)
def test_one_record_is_noted_like_many(key: bytes | None, value: bytes | None, has_header: bool) -> None:
    builder = RecordBatchBuilder()
    builder.append(key, value, 1_000, [("h", b"x")] if has_header else [])
    data = bytes(builder.build())
    one: dict[bytes, int] = {}
    many: dict[bytes, int] = {}

    noted = note_one(one, data, HEADER_SIZE, len(data), 70 - HEADER_SIZE)

    assert noted == note_keys(many, data, HEADER_SIZE, len(data), 1, 70)
    assert many == one
    for end in range(HEADER_SIZE, len(data)):
        with pytest.raises(CorruptRecordError):
            note_one(one, data[:end], HEADER_SIZE, end, 0)


def sample(count: int) -> bytes:
    builder = RecordBatchBuilder()
    for number in range(count):
        builder.append(b"key%d" % number, b"value" * (number % 5), 1000 + number)
    return bytes(builder.build())


def note(data: bytes, position: int, end: int, count: int) -> None:
    note_keys({}, data, position, end, count, 0)


@pytest.mark.parametrize("count", [3, 40])
def test_cut_records_are_an_error(count: int) -> None:
    """At each byte: never an IndexError, never an endless loop."""
    data = sample(count)
    for end in range(HEADER_SIZE, len(data)):
        for read in (scan_keys, record_starts, note):
            with pytest.raises(CorruptRecordError):
                read(data[:end], HEADER_SIZE, end, count)


@given(junk=st.binary(max_size=200), count=st.integers(1, 100))
def test_junk_is_an_error_or_an_answer(junk: bytes, count: int) -> None:
    """A faulty client may write nonsense under a right CRC."""
    for read in (scan_keys, record_starts, note):
        try:
            read(junk, 0, len(junk), count)
        except CorruptRecordError:
            continue


def test_changed_bytes_are_an_error_or_an_answer() -> None:
    """As before, with bytes that look right nearly everywhere."""
    chance = random.Random(1)
    data = bytearray(sample(60))
    for _ in range(3000):
        at = chance.randrange(HEADER_SIZE, len(data))
        before = data[at]
        data[at] = chance.randrange(256)
        for read in (scan_keys, record_starts, note):
            try:
                read(bytes(data), HEADER_SIZE, len(data), 60)
            except CorruptRecordError:
                continue
        data[at] = before


def test_long_keys_are_told_apart() -> None:
    """A digest never meets a short key, and differs where the keys do."""
    keys = [b"k" * length for length in range(28, 40)]
    assert len(keys) == len({shorten(key) for key in keys})
    assert b"k" * 30 == shorten(b"k" * 30)
    assert not is_long([b"k" * 30, None, b""])
    assert is_long([b"k" * 31, None])
    assert not is_long([])


def test_an_entry_costs_no_more_than_it_counts() -> None:
    """The bound on memory is only as good as this number; measured at the worst moment, a dict that grows."""
    table = OffsetMap(ENTRY_BYTES * 1_000_000)
    # More than 2/3 of 2^17: the dict has just grown.
    count = 87_400
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    for start in range(0, count, 100):
        keys = [struct.pack(">30s", b"%d" % number) for number in range(start, start + 100)]
        assert table.add(keys, range(10**6 + start, 10**6 + start + 100), start, False)
    table.finish()
    peak = tracemalloc.get_traced_memory()[1] - before
    tracemalloc.stop()
    assert sys.maxsize > 2**32
    assert peak <= count * ENTRY_BYTES, peak / count


def test_the_table_says_when_it_is_full() -> None:
    """Known keys fit always; the first batch is taken however large it is."""
    table = OffsetMap(ENTRY_BYTES * 4)
    assert table.add([b"a", b"b"], [0, 1], 0, False)
    assert table.add([b"a", b"b", b"a", b"b"], [2, 3, 4, 5], 2, False)
    assert not table.add([b"c", b"d"], [6, 7], 6, False)
    assert table.add([b"c"], [6], 6, True)
    assert not table.add([b"e"], [7], 7, False)
    table.finish()
    survivors = table.survivors()
    assert [[], [4, 5], [6]] == [list(survivors.take(last)) for last in (1, 5, 9)]
    assert survivors.has_tombstones(6)
    assert 1.0 == table.utilization
    tiny = OffsetMap(ENTRY_BYTES)
    assert tiny.add([b"a", b"b", b"c"], [0, 1, 2], 0, False)


def source(base: int, end: int, size: int, index: int = 10) -> SourceSegment:
    return SourceSegment(base, end, size, index, index, 0)


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ([], []),
        ([(0, 10, 60), (10, 20, 30), (20, 30, 30)], [[0, 10], [20]]),
        ([(0, 10, 200), (10, 20, 1)], [[0], [10]]),
        ([(0, 10, 1), (10, 2**31, 1), (2**31, 2**31 + 1, 1)], [[0, 10], [2**31]]),
        ([(0, 10, 1), (10, 2**31, 0), (2**31, 2**31 + 1, 0)], [[0, 10, 2**31]]),
        ([(0, 1, 1, 40), (1, 2, 1, 40), (2, 3, 1, 40)], [[0, 1], [2]]),
    ],
)
def test_grouping(segments: list[tuple[int, int, int]], expected: list[list[int]]) -> None:
    """Sizes, index sizes and offsets of a group fit a segment of 100 bytes with indexes of 90."""
    groups = group_segments([source(*segment) for segment in segments], 100, 90)
    assert expected == [[segment.base_offset for segment in group] for group in groups]


def test_no_group_spans_missing_offsets() -> None:
    """The records that come back are a segment of their own, which must find its place."""
    empty = SourceSegment(0, 6, 0, 0, 0, 0, is_incomplete=True)

    groups = group_segments([empty, source(6, 12, 20), source(12, 14, 20)], 100, 90)

    assert [[0], [6, 12]] == [[segment.base_offset for segment in group] for group in groups]


def test_jobs_and_reports_come_back_as_they_were() -> None:
    """Between two processes everything is a line of JSON, and no line takes long to write."""
    job = CleaningJob(
        directory="/data/orders-0",
        segments=tuple(source(number, number + 1, 5) for number in range(2500)),
        first_dirty_offset=3,
        first_uncleanable_offset=9,
        aborted=((1, 2, 3, 4),),
        last_records=tuple((number, -1, 0) for number in range(1001)),
        now_ms=1,
        delete_retention_ms=2,
        segment_bytes=3,
        segment_index_bytes=4,
        index_interval_bytes=5,
        map_bytes=6,
        io_buffer_bytes=7,
        bytes_per_second=8.5,
    )
    decoder = JobDecoder()
    for _ in range(2):
        *lines, last = encode_job(job)
        assert all(decoder.feed(line) is None for line in lines)
        assert job == decoder.feed(last)
        assert 7 == len(lines)
    for report in (
        CleanedGroup(1, (1, 2), 3, 4, 5, 6),
        CleaningResult(9, map_seconds=0.5),
        CleaningFailure("no space", 28),
    ):
        assert report == decode_report(encode_report(report))


def test_the_throttle_pauses_for_what_is_ahead() -> None:
    """1,000 bytes a second; short debts add up before a pause, unused time is not saved."""
    now = 100.0
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds
        pauses.append(round(seconds, 3))

    throttle = Throttler(1000, lambda: now, sleep)
    throttle.take(40)
    assert not pauses
    throttle.take(40)
    assert [0.08] == pauses
    now += 50
    throttle.take(500)
    assert [0.08, 0.5] == pauses
    Throttler(0.0, lambda: now, sleep).take(10**12)
    assert 2 == len(pauses)


def test_markers_follow_their_transactions() -> None:
    """An aborted one, one whose records went before, a committed one, and a producer's second transaction."""
    abort = EndTransactionMarker(ControlRecordType.ABORT, 0)
    commit = EndTransactionMarker(ControlRecordType.COMMIT, 0)
    first, gone, second = (
        AbortedTransaction(1, 0, 10, 0),
        AbortedTransaction(2, 3, 12, 0),
        AbortedTransaction(1, 20, 30, 0),
    )
    walk = CleanedTransactionMetadata([second, first, gone, first])
    assert walk.on_data(1, 2, True)
    assert not walk.on_data(3, 4, True)
    assert not walk.on_data(1, 5, False)
    assert not walk.on_marker(1, 10, abort, is_empty=False)
    assert walk.on_marker(2, 12, abort, is_empty=False)
    assert not walk.on_data(1, 14, True)
    assert not walk.on_marker(1, 15, commit, is_empty=False)
    assert not walk.on_marker(3, 16, commit, is_empty=False)
    assert walk.on_marker(3, 17, commit, is_empty=False)
    assert walk.on_data(1, 21, True)
    assert not walk.on_marker(1, 30, abort, is_empty=False)
    assert walk.on_marker(9, 31, None, is_empty=True)
    assert not walk.on_marker(9, 32, None, is_empty=False)
    assert [first, second] == walk.retained


def test_an_aborted_transaction_that_was_over_before_the_walk_began_is_passed_by() -> None:
    """The dirty part alone is walked for its keys; what its producers committed there must count."""
    commit = EndTransactionMarker(ControlRecordType.COMMIT, 0)
    over, spanning = AbortedTransaction(1, 0, 10, 0), AbortedTransaction(2, 5, 40, 0)
    walk = CleanedTransactionMetadata([over, spanning])
    assert not walk.on_data(1, 20, True)
    assert walk.on_data(2, 25, True)
    assert not walk.on_marker(1, 30, commit, is_empty=False)
    assert walk.on_data(2, 35, True)

"""The short way with plain batches: the same answers as the general one, and none for anything else."""

import struct

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kalda.records.batch import HEADER_SIZE, NO_TIMESTAMP, iter_headers, pack_batch
from kalda.records.compression import Compression
from kalda.records.errors import CorruptRecordError
from kalda.records.record import RecordBatchBuilder
from kalda.storage.cleaner.offset_map import ENTRY_BYTES, PLACES_PER_OFFSET, OffsetMap, shorten
from kalda.storage.cleaner.plain_batches import PlainBatchFilter, map_plain
from kalda.storage.cleaner.record_fields import scan_keys
from tests.cleaner_notes import Notes
from tests.record_implementations import record_implementation

__all__ = ["record_implementation"]

pytestmark = pytest.mark.usefixtures("record_implementation")

FIRST = 40
KEY = st.one_of(st.none(), st.binary(max_size=2), st.just(b"k" * 45), st.binary(min_size=55, max_size=66))
VALUE = st.one_of(st.none(), st.just(b"v" * 9000), st.binary(max_size=70))
RECORDS = st.lists(st.tuples(KEY, VALUE, st.integers(0, 300), st.booleans()), min_size=1, max_size=20)
BATCHES = st.lists(
    st.one_of(RECORDS, st.lists(st.tuples(KEY, VALUE, st.just(0), st.just(False)), min_size=1, max_size=1))
)


def batch(offset: int, *keys: bytes | None, **fields: object) -> bytes:
    builder = RecordBatchBuilder(base_offset=offset, **fields)  # type: ignore[arg-type]
    for key in keys:
        builder.append(key, b"value", 1_000)
    return bytes(builder.build())


def table() -> OffsetMap:
    return OffsetMap(ENTRY_BYTES * 1000)


@given(batches=BATCHES)
@settings(deadline=None)
def test_every_key_is_noted_as_the_general_way_notes_it(
    batches: list[list[tuple[bytes | None, bytes | None, int, bool]]],
) -> None:
    chunk = b""
    offset = FIRST
    for records in batches:
        builder = RecordBatchBuilder(base_offset=offset)
        for key, value, timestamp, has_header in records:
            builder.append(key, value, 1_000 + timestamp, [("h", b"x")] if has_header else [])
        chunk += builder.build()
        offset = builder.next_offset
    expected: dict[bytes, int] = {}
    tombstone_batches = []
    for position, header in iter_headers(chunk):
        start = position + HEADER_SIZE
        scanned = scan_keys(chunk, start, position + header.size, header.record_count)
        for index, (key, at) in enumerate(zip(scanned.keys, scanned.starts, strict=True)):
            if key is not None:
                place = (header.base_offset + index - FIRST) * PLACES_PER_OFFSET + at - start
                expected[shorten(key)] = place
        if scanned.tombstones:
            tombstone_batches.append(header.base_offset)
    noted = table()

    position, keyless = map_plain(noted, chunk, 0, FIRST)

    assert position == len(chunk)
    assert expected == noted.places
    assert keyless == sum(key is None for records in batches for key, *_ in records)
    assert offset - 1 == noted.latest_offset or not batches
    noted.finish()
    assert all(noted.survivors().has_tombstones(each) for each in tombstone_batches)


@pytest.mark.parametrize(
    "other",
    [
        batch(FIRST + 1, b"key", compression=Compression.LZ4),
        batch(FIRST + 1, b"key", is_transactional=True, producer_id=1, producer_epoch=0, base_sequence=0),
        batch(FIRST + 1, b"key", is_control=True),
        batch(FIRST - 1, b"key"),
        batch(FIRST + 1, b"key")[:-1],
        batch(FIRST + 1, b"key")[:30],
        batch(FIRST + 1, b"key")[:-1] + b"\x01",
        batch(FIRST + 1, *[b"%d" % number for number in range(2000)]),
    ],
    ids=["compressed", "transactional", "control", "clean", "cut", "cut header", "wrong CRC", "no room"],
)
def test_anything_else_is_left_to_the_general_way(other: bytes) -> None:
    plain = batch(FIRST, b"plain")
    noted = table()

    assert (len(plain), 0) == map_plain(noted, plain + other, 0, FIRST)
    assert {b"plain"} == noted.places.keys()
    assert FIRST == noted.latest_offset


@given(junk=st.binary(max_size=40), count=st.integers(-3, 3), delta=st.integers(-3, 3))
def test_junk_under_a_right_crc_is_an_error_or_an_answer(junk: bytes, count: int, delta: int) -> None:
    """A faulty client may have written it."""
    data = bytes(
        pack_batch(
            junk,
            base_offset=FIRST,
            partition_leader_epoch=0,
            attributes=0,
            last_offset_delta=delta,
            base_timestamp=0,
            max_timestamp=0,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=count,
        )
    )
    try:
        position, _ = map_plain(table(), data, 0, FIRST)
    except CorruptRecordError:
        return
    assert position == (len(data) if 0 < count == delta + 1 else 0)


def test_a_lone_record_with_any_byte_changed_is_read_as_the_general_way_reads_it() -> None:
    """A key that is misread would delete another record."""
    usual = batch(FIRST, b"key")[HEADER_SIZE:]
    for at in range(len(usual)):
        for byte in range(256):
            junk = usual[:at] + struct.pack("B", byte) + usual[at + 1 :]
            noted = table()
            try:
                keys = scan_keys(junk, 0, len(junk), 1).keys
            except CorruptRecordError:
                with pytest.raises(CorruptRecordError):
                    map_plain(noted, batch_of(junk), 0, FIRST)
                continue
            map_plain(noted, batch_of(junk), 0, FIRST)
            assert {key for key in keys if key is not None} == noted.places.keys()


def batch_of(records: bytes) -> bytes:
    return bytes(
        pack_batch(
            records,
            base_offset=FIRST,
            partition_leader_epoch=0,
            attributes=0,
            last_offset_delta=0,
            base_timestamp=0,
            max_timestamp=NO_TIMESTAMP,
            producer_id=-1,
            producer_epoch=-1,
            base_sequence=-1,
            record_count=1,
        )
    )


def test_whole_and_gone_batches_are_decided_and_no_others() -> None:
    """[40: a] [41: b, c] [43: a] [44: b] [45: d, c]: 40 goes, of 41 nothing stays, 43 to 45 stay whole."""
    batches = [
        batch(40, b"a"),
        batch(41, b"b", b"c"),
        batch(43, b"a"),
        batch(44, b"b"),
        batch(45, b"d", b"c"),
    ]
    chunk = b"".join(batches)
    noted = table()
    map_plain(noted, chunk, 0, FIRST)
    noted.finish()
    stays = Notes()

    batch_filter = PlainBatchFilter(noted.survivors(), FIRST, noted.latest_offset, ())
    position, spans = batch_filter.filter(chunk, 0, stays)

    gone = len(batches[0]) + len(batches[1])
    assert (position, spans) == (len(chunk), [(gone, len(chunk))])
    assert [(43, len(batches[2]), 1_000), (44, len(batches[3]), 1_000), (46, len(batches[4]), 1_000)] == stays
    assert (7, 4) == (batch_filter.records_read, batch_filter.records_written)


def test_a_batch_that_is_cut_or_may_be_needed_is_left_alone() -> None:
    """Some of 40 stays; 42 is a producer's last batch, which stays without its records."""
    cut = batch(40, b"a", b"b")
    last = batch(42, b"c", producer_id=7, producer_epoch=0, base_sequence=0)
    chunk = cut + last + batch(43, b"b") + batch(44, b"c")
    noted = table()
    map_plain(noted, chunk, 0, FIRST)
    noted.finish()
    survivors = noted.survivors()
    batch_filter = PlainBatchFilter(survivors, FIRST, noted.latest_offset, {7})

    assert (0, []) == batch_filter.filter(chunk, 0, Notes())
    assert [0] == list(survivors.take(2 * PLACES_PER_OFFSET - 1))
    assert (len(cut), []) == batch_filter.filter(chunk, len(cut), Notes())
    at = len(cut + last)
    assert (len(chunk), [(at, len(chunk))]) == batch_filter.filter(chunk, at, Notes())

"""What the cleaner does in compiled code equals what it does in Python, whatever the bytes are."""

import random
import struct
from array import array
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kalda.records import implementation
from kalda.records.batch import (
    ATTRIBUTES_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    iter_headers,
    read_header,
    set_log_append_time,
)
from kalda.records.compression import Compression
from kalda.records.crc import crc32c
from kalda.records.errors import CorruptRecordError
from kalda.records.record import RecordBatchBuilder
from kalda.storage.cleaner.batch_rewriter import keep_places
from kalda.storage.cleaner.offset_map import ENTRY_BYTES, PLACES_PER_OFFSET, OffsetMap
from kalda.storage.cleaner.plain_batches import PlainBatchFilter, map_plain
from kalda.storage.cleaner.record_fields import note_keys, scan_keys
from tests.cleaner_notes import Notes
from tests.record_implementations import needs_compiled, using

if implementation.is_built:
    from kalda.records import _records

pytestmark = needs_compiled

SETTINGS = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
FIRST = 40

keys = st.none() | st.binary(max_size=1) | st.sampled_from([b"k" * 30, b"k" * 31, b"k" * 70])
values = st.none() | st.binary(max_size=20) | st.sampled_from([b"v" * 63, b"v" * 9_000])
records = st.lists(st.tuples(keys, values, st.integers(0, 2**40), st.booleans()), min_size=1, max_size=20)
one = st.lists(st.tuples(keys, values, st.just(0), st.just(False)), min_size=1, max_size=1)
# Of one producer in four batches, with some codec in a few.
batches = st.lists(st.tuples(records | one, st.sampled_from([0, 0, 0, 0, 3]), st.integers(-1, 2)), max_size=8)
Records = list[tuple[bytes | None, bytes | None, int, bool]]
Batches = list[tuple[Records, int, int]]


def encoded(parts: Batches, base_offset: int = FIRST) -> bytearray:
    data = bytearray()
    for part, codec, producer_id in parts:
        sequence = 0 if producer_id >= 0 else -1
        builder = RecordBatchBuilder(
            base_offset=base_offset,
            compression=Compression(codec),
            producer_id=producer_id,
            producer_epoch=sequence,
            base_sequence=sequence,
        )
        for key, value, timestamp, has_header in part:
            builder.append(key, value, timestamp, [("h", b"x")] if has_header else [])
        data += builder.build()
        base_offset = builder.next_offset
    return data


def damage(data: bytearray, choice: st.DataObject, first: int) -> None:
    for _ in range(choice.draw(st.integers(1, 3))):
        position = choice.draw(st.integers(first, len(data) - 1))
        data[position] ^= 1 << choice.draw(st.integers(0, 7))


def with_right_crcs(data: bytearray) -> bytearray:
    """Write into each batch the CRC of what it holds now."""
    for position, header in list(iter_headers(data)):
        crc = crc32c(memoryview(data)[position + ATTRIBUTES_POSITION : position + header.size])
        struct.pack_into(">I", data, position + CRC_POSITION, crc)
    return data


def both(call: Callable[[], object]) -> object:
    """Return what both implementations return or raise; places that were set before an error do not count."""
    outcomes: list[object] = []
    for name in ("numpy", "compiled"):
        with using(name):
            try:
                outcomes.append(call())
            except CorruptRecordError as error:
                outcomes.append((CorruptRecordError, str(error)))
    python, compiled = outcomes
    assert python == compiled
    return python


def mapped(data: bytes, capacity: int = 1_000) -> tuple[OffsetMap, list[object]]:
    """Map what is plain, passing over batches that are not; return the map, and what was seen on the way."""
    table = OffsetMap(ENTRY_BYTES * capacity)
    steps: list[object] = []
    position = 0
    while True:
        position, keyless = map_plain(table, data, position, FIRST)
        steps.append((position, keyless))
        following = next(iter_headers(data, position), None)
        if following is None:
            break
        position += following[1].size
    return table, [steps, table.places, table.tombstone_batches, table.latest_offset]


def filtered(data: bytes) -> list[object]:
    table, steps = mapped(data)
    table.finish()
    notes = Notes()
    batch_filter = PlainBatchFilter(table.survivors(), FIRST, table.latest_offset, {1})
    position = 0
    while True:
        position, spans = batch_filter.filter(data, position, notes)
        steps.append((position, spans))
        following = next(iter_headers(data, position), None)
        if following is None:
            break
        survivors = table.survivors()
        behind = (following[1].last_offset + 1 - FIRST) * PLACES_PER_OFFSET
        steps.append(list(batch_filter._survivors.take(behind - 1)))
        steps.append(list(survivors.take(behind - 1)))
        position += following[1].size
    return [*steps, notes, batch_filter.records_read, batch_filter.records_written]


@SETTINGS
@given(batches, st.integers(0, 200))
def test_chunks_are_mapped_and_filtered_alike(parts: Batches, cut: int) -> None:
    data = bytes(encoded(parts))
    assert both(lambda: filtered(data))
    both(lambda: filtered(data[: max(0, len(data) - cut)]))


@SETTINGS
@given(batches, st.integers(1, 30))
def test_a_full_map_stops_alike(parts: Batches, capacity: int) -> None:
    data = bytes(encoded(parts))
    both(lambda: mapped(data, capacity)[1])


@SETTINGS
@given(batches.filter(bool), st.booleans(), st.data())
def test_damaged_chunks_are_mapped_and_filtered_alike(
    parts: Batches, has_right_crcs: bool, choice: st.DataObject
) -> None:
    """Bits flip anywhere; with right CRCs the records must be refused by themselves."""
    data = encoded(parts)
    damage(data, choice, ATTRIBUTES_POSITION)
    try:
        data = with_right_crcs(data) if has_right_crcs else data
        list(iter_headers(data))
    except CorruptRecordError:
        # The walk of this test ends where a header is none.
        return
    both(lambda: filtered(bytes(data)))


@SETTINGS
@given(records, st.integers(0, 9), st.data())
def test_sections_are_read_alike(part: Records, extra: int, choice: st.DataObject) -> None:
    """Whole, cut at any byte, with another count, and with bits that flip."""
    data = encoded([(part, 0, -1)])
    count = len(part) if extra else choice.draw(st.integers(0, 30))
    end = len(data) if extra > 3 else choice.draw(st.integers(HEADER_SIZE, len(data)))
    if extra % 2:
        damage(data, choice, HEADER_SIZE)
    section = bytes(data)

    def noted() -> object:
        places: dict[bytes, int] = {}
        return note_keys(places, section, HEADER_SIZE, end, count, 5 * PLACES_PER_OFFSET), places

    both(noted)
    both(lambda: scan_keys(section, HEADER_SIZE, end, count))


@SETTINGS
@given(st.binary(max_size=200), st.integers(0, 40))
def test_random_sections_are_read_alike(section: bytes, count: int) -> None:
    both(lambda: scan_keys(section, 0, len(section), count))
    both(lambda: note_keys({}, section, 0, len(section), count, 0))


@SETTINGS
@given(records, st.booleans(), st.booleans(), st.data())
def test_kept_records_are_the_same_batch(
    part: Records, is_appended: bool, has_wrong_maximum: bool, choice: st.DataObject
) -> None:
    data = encoded([(part, 0, -1)])
    if is_appended:
        set_log_append_time(data, 0, 77)
    if has_wrong_maximum:
        struct.pack_into(">q", data, 35, choice.draw(st.integers(-1, 2**40)))
    batch = bytes(data)
    header = read_header(batch)
    starts = scan_keys(batch, HEADER_SIZE, len(batch), len(part)).starts
    chosen = sorted(choice.draw(st.sets(st.sampled_from(range(len(part))), min_size=1)))
    places = array("q", [index * PLACES_PER_OFFSET + starts[index] - HEADER_SIZE for index in chosen])
    both(lambda: bytes(keep_places(header, batch, HEADER_SIZE, len(batch), places)))


@SETTINGS
@given(st.dictionaries(st.binary(max_size=4), st.integers(-(2**10), 2**66) | st.integers(0, 2**50)))
def test_places_are_sorted_or_left_to_python(places: dict[bytes, int]) -> None:
    def survivors() -> list[int]:
        table = OffsetMap(ENTRY_BYTES)
        table.places.update(places)
        table.finish()
        return list(table.survivors().places)

    assert sorted(places.values()) == both(survivors)


@SETTINGS
@given(st.binary(max_size=150), st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6), st.data())
def test_places_that_are_wrong_copy_nothing(data: bytes, places: list[int], choice: st.DataObject) -> None:
    """No place and no length leads out of the bytes, nor to more bytes than there are."""
    start = choice.draw(st.integers(-3, len(data) + 3))
    end = choice.draw(st.integers(-3, len(data) + 3))
    copied = _records.copy_records(data, start, end, array("q", places), 0, 2**62)
    if copied is not None:
        assert 0 <= start <= end <= len(data)
        assert len(copied[0]) <= end - start


@pytest.mark.parametrize("seed", range(20))
def test_random_bytes_never_pass_their_buffers(seed: int) -> None:
    """The answers do not matter; a wrong access would end the process or fail under a checker."""
    chance = random.Random(seed)
    for _ in range(300):
        data = bytearray(encoded([([(b"k", b"v" * 9, 0, False)] * chance.randint(1, 9), 0, 1)]))
        for _ in range(chance.randint(0, 6)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        chunk = bytes(with_crc(data)[: chance.randint(0, len(data))])
        tombstones: list[int] = []
        position = chance.randint(-5, 5)
        _records.map_batches({}, chunk, position, 0, 50, 30, bytes, tombstones, crc32c)
        _records.filter_batches(chunk, position, array("q", [1, 2]), chance.randint(0, 4), 0, 99, (), ())


def with_crc(data: bytearray) -> bytearray:
    crc = crc32c(memoryview(data)[ATTRIBUTES_POSITION:])
    struct.pack_into(">I", data, CRC_POSITION, crc)
    return data


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100, 4_000, 4_096, 5_000, 20_000])
def test_the_inline_checksum_is_the_one_of_batches(size: int) -> None:
    """Small batches are checked with the processor's instruction, large ones by the library."""
    chunk = bytes(
        encoded([([(b"k", bytes(range(256)) * (size // 256) + b"v" * (size % 256), 0, False)], 0, -1)])
    )
    for at in (-1, len(chunk) // 2, CRC_POSITION):
        wrong = bytearray(chunk)
        wrong[at] ^= 1
        assert (0, 0) == both(lambda: map_plain(OffsetMap(ENTRY_BYTES * 9), bytes(wrong), 0, FIRST))  # noqa: B023
    assert (len(chunk), 0) == both(lambda: map_plain(OffsetMap(ENTRY_BYTES * 9), chunk, 0, FIRST))

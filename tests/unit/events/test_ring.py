"""The ring of events: what was written is read again, whatever a kill or a bad disk left of it."""

import pytest

from kalda.events.event import CausalEvent, EventId, decode_event, encode_event
from kalda.events.ring import EVENT_FILES, EventRing
from kalda.events.ring_file import HEADER, encode_record, file_header, is_readable, records
from tests.unit.storage.faulty_file_system import FaultyFileSystem


def event(number: int) -> CausalEvent:
    return CausalEvent(
        id=EventId(2, number),
        time_ms=1_700_000_000_000 + number,
        kind="leader-changed",
        subject={"topic": "orders", "partition": 3},
        details={"isr": [1, 2], "reason": "ü"},
        cause=EventId(1, 77),
    )


def record(number: int) -> bytes:
    return encode_record(encode_event(event(number)))


def numbers(ring: EventRing) -> list[int]:
    found = [decode_event(2, content) for content in ring.contents()]
    return [each.id.number for each in found if each is not None]


def test_event_is_read_as_it_was_written() -> None:
    assert event(5) == decode_event(2, encode_event(event(5)))


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"{}",
        b"[]",
        b"\xff",
        b"null",
        b"[" * 60_000,
        b'{"n":1,"t":2,"k":"x","s":3}',
        b'{"n":1,"t":1e999,"k":"x","s":{}}',
        b'{"n":1,"t":Infinity,"k":"x","s":{}}',
        b'{"n":1,"t":999999999999999999999,"k":"x","s":{}}',
        b'{"n":9223372036854775808,"t":2,"k":"x","s":{}}',
        b'{"n":-1,"t":2,"k":"x","s":{}}',
        b'{"n":1,"t":2,"k":"x","s":{},"c":7}',
        b'{"n":%s,"t":2,"k":"x","s":{}}' % (b"9" * 5_000),
    ],
)
def test_junk_is_no_event(junk: bytes) -> None:
    assert decode_event(2, junk) is None


@pytest.mark.parametrize("number", [0, 35, 36, 1_764_408_512_345])
def test_id_is_read_as_it_is_printed(number: int) -> None:
    assert EventId(7, number) == EventId.parse(str(EventId(7, number)))


@pytest.mark.parametrize("text", ["", "7", "-5", "x-5", "7-", "7-ä"])
def test_text_that_is_no_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is no id of an event"):
        EventId.parse(text)


def test_file_cut_at_each_byte_keeps_the_records_before() -> None:
    first, second = record(1), record(2)
    data = file_header(2) + first + second
    for size in range(len(data)):
        kept = 0 if size < HEADER.size + len(first) else 1
        assert kept == len(list(records(data[:size]))) or not is_readable(data[:size], 2)
    assert 2 == len(list(records(data)))


def test_damaged_byte_ends_the_file_there() -> None:
    data = bytearray(file_header(2) + record(1) + record(2))
    data[HEADER.size + len(record(1)) + 20] ^= 1

    assert 1 == len(list(records(bytes(data))))


def test_file_of_another_broker_or_version_is_not_read() -> None:
    assert not is_readable(file_header(3), 2)
    assert not is_readable(b"KALDAEVT" + bytes([0, 0, 0, 1]) + bytes([0, 0, 0, 2]), 2)


def test_ring_keeps_the_newest_events_within_its_bound() -> None:
    system = FaultyFileSystem()
    ring = EventRing(system, "/data", 2, bytes_max=4096)
    assert ring.open() is None
    for number in range(1, 200):
        ring.append(record(number))

    found = numbers(ring)

    assert 199 == found[-1]
    assert found == list(range(found[0], 200))
    assert 4096 >= sum(len(system.nodes[f"/data/{name}"].content) for name in EVENT_FILES)
    assert 4096 // 2 <= len(found) * len(record(1))


def test_details_that_are_no_object_are_none() -> None:
    found = decode_event(2, b'{"n":1,"t":2,"k":"x","s":{"topic":["a"]},"d":[1]}')
    assert found is not None
    assert ({}, {}, "") == (found.subject, found.details, found.text("reason"))


@pytest.mark.parametrize("content", [b'{"n":%s,"t":1}' % (b"9" * 5_000), b"[" * 60_000, b"9" * 100, b"\x00"])
def test_ring_with_a_record_of_another_program_opens(content: bytes) -> None:
    """Its length and its checksum are right; the broker must start."""
    system = FaultyFileSystem()
    for name in EVENT_FILES:
        system.open(f"/data/{name}", create=True).write_at(file_header(2) + encode_record(content), 0)
    ring = EventRing(system, "/data", 2, bytes_max=1 << 20)
    assert content == ring.open()
    ring.append(record(3))
    assert [3] == numbers(ring)


def test_ring_goes_on_behind_a_torn_record() -> None:
    system = FaultyFileSystem()
    ring = EventRing(system, "/data", 2, bytes_max=1 << 20)
    ring.open()
    ring.append(record(1))
    ring.append(record(2)[:-3])

    again = EventRing(system.crash(), "/data", 2, bytes_max=1 << 20)
    last = again.open()
    assert last == encode_event(event(1))
    again.append(record(3))

    assert [1, 3] == numbers(again)


def test_ring_that_is_opened_again_appends_to_the_newer_file() -> None:
    system = FaultyFileSystem()
    ring = EventRing(system, "/data", 2, bytes_max=2048)
    ring.open()
    for number in range(1, 30):
        ring.append(record(number))
    before = numbers(ring)

    again = EventRing(system, "/data", 2, bytes_max=2048)
    assert again.open() == encode_event(event(29))
    assert before == numbers(again)

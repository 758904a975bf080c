"""The shared part of streams: no reader misses an event or gets one twice, wherever it joins and leaves."""

import random

import pytest

from kalda.clients.values import ConsumerRecord
from kalda.http.gateway.streams.conditions import Conditions
from kalda.http.gateway.streams.event_form import EventForm
from kalda.http.gateway.streams.event_ids import parse_event_id
from kalda.http.gateway.streams.recent_records import BytesRecord, RecentRecords
from kalda.http.gateway.streams.rendering import Format, RecordRenderer
from kalda.http.gateway.streams.view import QUEUED_BYTES_MAX, Leaving, Membership, View
from kalda.records.batch import TimestampType

FORM = EventForm(Conditions(), RecordRenderer(Format.AUTO, Format.AUTO))


def record(partition: int, offset: int, value: bytes = b"v") -> BytesRecord:
    return ConsumerRecord(
        "t", partition, offset, 0, TimestampType.CREATE_TIME, b"k", value, (), 1, len(value), None
    )


def pump(view: View) -> None:
    while view.pump():
        pass


def events(chunks: list[bytes]) -> list[tuple[str, str]]:
    """Return the ids and data of events in bytes."""
    found = []
    for block in b"".join(chunks).decode().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
        if "data" in fields:
            found.append((fields["id"], fields["data"]))
    return found


def places(chunks: list[bytes]) -> list[tuple[int, int]]:
    return [
        (int(data.split('"partition":')[1].split(",")[0]), int(data.split('"offset":')[1].split(",")[0]))
        for _, data in events(chunks)
    ]


def feed(partitions: int, records_max: int = 1000) -> RecentRecords:
    recent = RecentRecords(records_max, 10_000_000)
    for partition in range(partitions):
        recent.add_partition(partition, 0)
    return recent


def add(recent: RecentRecords, view: View, *records: BytesRecord) -> None:
    for each in records:
        recent.append(each)
    view.add(records)


def test_readers_in_step_share_the_bytes() -> None:
    recent = feed(2)
    view = View(FORM, recent, lambda _: True)
    first, second = view.join({0: 0, 1: 0}), view.join({0: 0, 1: 0})

    add(recent, view, record(0, 0), record(1, 0))
    view.flush()
    pump(view)

    (one,), (other,) = first.take(), second.take()
    assert one is other
    assert [("0:1,1:0"), ("0:1,1:1")] == [event_id for event_id, _ in events([one])]


def test_a_reader_behind_gets_what_it_misses_when_it_joins() -> None:
    recent = feed(1)
    view = View(FORM, recent, lambda _: True)
    add(recent, view, record(0, 0), record(0, 1), record(0, 2))

    member = view.join({0: 1})

    assert [(0, 1), (0, 2)] == places(member.take())


def test_a_reader_ahead_gets_nothing_twice() -> None:
    recent = feed(2)
    view = View(FORM, recent, lambda _: True)
    member = view.join({0: 2, 1: 0})

    add(recent, view, record(0, 0), record(1, 0), record(0, 1), record(0, 2))
    view.flush()
    pump(view)
    add(recent, view, record(1, 1))
    view.flush()
    pump(view)

    chunks = member.take()
    assert [(1, 0), (0, 2), (1, 1)] == places(chunks)
    assert "0:3,1:2" == events(chunks)[-1][0]


def test_a_slow_reader_leaves_with_the_position_of_its_last_event() -> None:
    recent = feed(1)
    view = View(FORM, recent, lambda _: True)
    member = view.join({0: 0})
    offset = 0
    while member.leaving is None:
        add(recent, view, record(0, offset, b"x" * 10_000))
        offset += 1
        view.flush()
        pump(view)
        assert member.queued_bytes <= QUEUED_BYTES_MAX

    assert Leaving.SLOW is member.leaving
    assert {0: len(places(member.take()))} == member.position


def test_a_reader_that_leaves_and_comes_back_during_a_write_gets_it_once() -> None:
    recent = feed(1)
    view = View(FORM, recent, lambda _: True)
    others = [view.join({0: 0}) for _ in range(500)]
    back = view.join({0: 0})
    add(recent, view, record(0, 0))
    view.flush()
    assert view.pump(), "the first readers have the write, and the last ones not yet"

    view.remove(back)
    back = view.join({0: 0})
    pump(view)

    assert [(0, 0)] == places(back.take())
    assert [[(0, 0)]] * 500 == [places(each.take()) for each in others]


def test_positions_pass_offsets_without_records() -> None:
    """Markers of transactions have offsets and are no events; a position behind them is that of the view."""
    recent = feed(1)
    view = View(FORM, recent, lambda _: True)
    add(recent, view, record(0, 0))
    recent.advance(0, 3)
    view.sync_position()

    member = view.join({0: 1})
    add(recent, view, record(0, 3))
    view.flush()
    pump(view)

    assert ["0:4"] == [event_id for event_id, _ in events(member.take())]


def test_a_heartbeat_names_a_position_that_moved_without_events() -> None:
    form = EventForm(Conditions(keys=frozenset({b"other"})), RecordRenderer(Format.AUTO, Format.AUTO))
    recent = feed(1)
    view = View(form, recent, lambda _: True)
    member = view.join({0: 0})
    add(recent, view, record(0, 0))

    view.heartbeat()
    pump(view)
    view.heartbeat()
    pump(view)

    assert [b"id: 0:1\n\n", b": heartbeat\n\n"] == member.take()


def test_added_partitions_appear_in_ids_and_are_read_from_their_beginning() -> None:
    recent = feed(1)
    view = View(FORM, recent, lambda _: True)
    old = view.join({0: 0})
    recent.add_partition(1, 0)
    view.sync_position()
    add(recent, view, record(1, 0))
    view.flush()
    pump(view)
    back = view.join({0: 0})

    assert ["0:0,1:1"] == [event_id for event_id, _ in events(old.take())]
    assert [(1, 0)] == places(back.take())


@pytest.mark.parametrize("seed", range(30))
def test_no_reader_loses_or_doubles_anything(seed: int) -> None:
    """Readers join anywhere, stop reading, leave, come back; each sees every record once and in order."""
    chance = random.Random(seed)
    recent = feed(3, records_max=60)
    view = View(FORM, recent, lambda _: True)
    log: dict[int, list[int]] = {0: [], 1: [], 2: []}
    seen: list[list[tuple[int, int]]] = [[] for _ in range(8)]
    positions: list[dict[int, int]] = [{0: 0, 1: 0, 2: 0} for _ in range(8)]
    members: list[Membership | None] = [None] * 8

    def take(reader: int) -> None:
        member = members[reader]
        assert member is not None
        chunks = member.take()
        seen[reader] += places(chunks)
        if ids := events(chunks):
            positions[reader] = parse_event_id(ids[-1][0])
        if member.leaving is not None:
            positions[reader] = member.position
            members[reader] = None

    def catch_up(reader: int) -> None:
        """Read alone, up to somewhere the feed covers."""
        position = positions[reader]
        for partition, offsets in log.items():
            for offset in offsets:
                if offset >= position[partition] and (
                    offset < recent.first[partition] or chance.random() < 0.3
                ):
                    seen[reader].append((partition, offset))
                    position[partition] = offset + 1
                elif offset >= position[partition]:
                    break

    for _ in range(400):
        action = chance.random()
        reader = chance.randrange(8)
        if action < 0.5:
            batch = []
            for _ in range(chance.randrange(1, 6)):
                partition = chance.randrange(3)
                offset = log[partition][-1] + chance.choice((1, 1, 2)) if log[partition] else 0
                log[partition].append(offset)
                batch.append(record(partition, offset, b"x" * chance.choice((1, 1, 20_000))))
            add(recent, view, *batch)
            view.sync_position()
        elif action < 0.7:
            view.flush()
            view.pump()
        elif members[reader] is None:
            catch_up(reader)
            if recent.covers(positions[reader]):
                members[reader] = view.join(positions[reader])
        elif action < 0.9:
            take(reader)
        else:
            member = members[reader]
            assert member is not None
            view.remove(member)
            # What is queued is lost with the connection; the reader has the id of its last event.
            members[reader] = None
    view.end(Leaving.RESET)
    for reader in range(8):
        if members[reader] is not None:
            take(reader)
        for partition, offsets in log.items():
            got = [offset for number, offset in seen[reader] if number == partition]
            assert [each for each in offsets if each < positions[reader][partition]] == got

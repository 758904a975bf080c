"""Each acquired offset is handed out or settled exactly once, whatever the bytes of the response are."""

import itertools
import random
from collections.abc import Sequence
from uuid import UUID

import pytest

from kalda.clients.consumer.completed_fetch import DecodeBound
from kalda.clients.consumer.consumer_errors import FetchCorruptionError, RecordDeserializationError
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.errors import ClientError
from kalda.clients.share.acknowledgements import (
    ACCEPTED,
    GAP,
    RELEASED,
    AcknowledgeType,
    Decision,
    PartitionAcknowledgements,
    Range,
    SharePartition,
    ranges_of,
)
from kalda.clients.share.acquired_records import AcquiredRecords
from kalda.common.types import TopicPartition
from kalda.records.batch import HEADER_SIZE
from kalda.records.compression import Compression
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.records.record import RecordBatchBuilder

SOURCE = SharePartition(UUID(int=5), TopicPartition("t", 0))
PLAIN = Deserializers()
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


def batch(base_offset: int, offsets: Sequence[int], *, is_control: bool = False) -> bytes:
    """Return a batch with records at `offsets`; the value is the offset."""
    builder = RecordBatchBuilder(base_offset=base_offset, is_control=is_control)
    for offset in offsets:
        builder.append(b"k", b"%d" % offset, 1000, offset=offset)
    return bytes(builder.build())


def acquired(data: bytes, *ranges: tuple[int, int, int]) -> AcquiredRecords:
    return AcquiredRecords(SOURCE, 1, 0, ranges, memoryview(data), expires_at=1e9, check_crcs=True)


def take(found: AcquiredRecords, count: int = 100, functions: Deserializers = PLAIN) -> list[tuple[int, int]]:
    """Return the offsets and delivery counts of the next records; accepts them."""
    records = found.take(count, functions, DecodeBound())
    for each in records:
        assert b"%d" % each.offset == each.value
        found.decide(each.offset, ACCEPTED)
    return [(each.offset, each.delivery_count) for each in records]


def settled(found: AcquiredRecords) -> list[tuple[int, int, int]]:
    return [(each.first, each.last, each.kind) for each in found.drain().ranges]


def test_only_records_inside_the_ranges_are_handed_out_with_their_counts() -> None:
    found = acquired(batch(0, range(10)) + batch(10, range(10, 20)), (2, 3, 1), (8, 11, 4), (19, 19, 2))
    assert [(2, 1), (3, 1), (8, 4)] == take(found, 3)
    assert [(9, 4), (10, 4), (11, 4), (19, 2)] == take(found)
    assert found.is_read
    assert [(2, 3, ACCEPT), (8, 11, ACCEPT), (19, 19, ACCEPT)] == settled(found)
    assert [] == settled(found), "they are collected once"


def test_offsets_without_records_are_gaps() -> None:
    """Compaction leaves them; a control batch has offsets and no records for users."""
    data = batch(0, [0, 3]) + batch(6, [6], is_control=True) + batch(7, [8])
    found = acquired(data, (0, 8, 1))
    assert [(0, 1), (3, 1), (8, 1)] == take(found)
    assert [(0, 0, ACCEPT), (1, 2, GAP), (3, 3, ACCEPT), (4, 7, GAP), (8, 8, ACCEPT)] == settled(found)


def test_what_did_not_arrive_is_released() -> None:
    data = batch(0, range(3)) + batch(3, range(3, 6))
    found = acquired(data[:-1], (0, 9, 1))
    assert [(0, 1), (1, 1), (2, 1)] == take(found)
    assert [] == take(found)
    assert [(0, 2, ACCEPT), (3, 9, RELEASE)] == settled(found)
    nothing = acquired(b"", (5, 2**62, 1))
    assert [] == take(nothing)
    assert [(5, 2**62, RELEASE)] == settled(nothing)


def test_a_damaged_batch_is_rejected_and_the_next_one_read() -> None:
    data = bytearray(batch(0, range(3)) + batch(3, range(3, 6)) + batch(6, range(6, 9)))
    data[len(batch(0, range(3))) + 70] ^= 1
    found = acquired(bytes(data), (1, 7, 1))
    assert [(1, 1), (2, 1)] == take(found)
    with pytest.raises(FetchCorruptionError, match=r"t-0 at offset 3.*records of the batch are rejected"):
        take(found)
    assert [(6, 1), (7, 1)] == take(found)
    (one, damaged, other) = found.drain().ranges
    assert [(1, 2, ACCEPT), (3, 5, REJECT), (6, 7, ACCEPT)] == [each[:3] for each in (one, damaged, other)]
    assert ["", True, ""] == [one.reason, "CRC" in damaged.reason, other.reason]


def test_a_batch_of_an_unreadable_size_releases_the_rest() -> None:
    data = batch(0, range(2)) + b"\0" * 100
    found = acquired(data, (0, 5, 1))
    assert [(0, 1), (1, 1)] == take(found)
    with pytest.raises(FetchCorruptionError, match="released and come again"):
        take(found)
    assert [(0, 1, ACCEPT), (2, 5, RELEASE)] == settled(found)


def test_a_record_that_cannot_be_deserialized_is_released_unless_the_user_decides() -> None:
    def odd(data: bytes) -> bytes:
        if int(data) % 2:
            raise ValueError("odd")
        return data

    functions = Deserializers(None, odd)
    found = acquired(batch(0, range(5)), (0, 0, 1), (2, 4, 1))
    assert [(0, 1)] == take(found, functions=functions)
    assert [(2, 1)] == take(found, functions=functions), "1 was not acquired: nobody is to know"
    with pytest.raises(RecordDeserializationError, match=r"offset 3 of t-0: odd; the record is released"):
        take(found, functions=functions)
    assert [(4, 1)] == take(found, functions=functions)
    assert [(0, 0, ACCEPT), (2, 2, ACCEPT), (3, 3, RELEASE), (4, 4, ACCEPT)] == settled(found)
    again = acquired(batch(0, [1]), (1, 1, 2))
    with pytest.raises(RecordDeserializationError) as failed:
        take(again, functions=functions)
    again.decide(failed.value.offset, Decision(REJECT))
    assert [(1, 1, REJECT)] == settled(again)


def test_batches_of_one_range_are_read_as_one_up_to_what_cannot_be_read() -> None:
    def not_four(data: bytes) -> bytes:
        if data == b"4":
            raise ValueError("four")
        return data

    damaged = bytearray(batch(9, range(9, 12)))
    damaged[-1] ^= 1
    whole = b"".join(batch(first, range(first, first + 3)) for first in (0, 3, 6))
    functions = Deserializers(None, not_four)
    found = acquired(whole + bytes(damaged) + batch(12, [12, 14]), (0, 12, 1), (13, 15, 2))
    assert [(0, 1), (1, 1), (2, 1), (3, 1)] == take(found, functions=functions)
    with pytest.raises(RecordDeserializationError, match="offset 4"):
        take(found, functions=functions)
    assert [(5, 1), (6, 1), (7, 1), (8, 1)] == take(found, functions=functions)
    with pytest.raises(FetchCorruptionError, match="offset 9"):
        take(found, functions=functions)
    assert [(12, 1), (14, 2)] == take(found, functions=functions)
    assert [] == take(found, functions=functions)
    ends = [(0, 3, ACCEPT), (4, 4, RELEASE), (5, 8, ACCEPT), (9, 11, REJECT), (12, 12, ACCEPT)]
    assert [*ends, (13, 13, GAP), (14, 14, ACCEPT), (15, 15, RELEASE)] == settled(found)


def test_rows_are_of_one_batch_where_several_are_open() -> None:
    found = acquired(batch(0, range(3)) + batch(3, range(3, 6)), (0, 5, 1))
    assert [(0, 1)] == take(found, 1)
    assert [(1, 1), (2, 1)] == take_rows(found)
    assert [(3, 1)] == take(found, 1)
    assert [(4, 1), (5, 1)] == take_rows(found)
    assert [(0, 5, ACCEPT)] == settled(found)


def test_records_are_decided_together() -> None:
    found = acquired(batch(0, range(6)), (0, 5, 1))
    assert 6 == len(found.take(6, PLAIN, DecodeBound()))
    found.decide(5, RELEASED)
    found.decide_range(0, 2, ACCEPTED)
    found.decide_range(3, 4, ACCEPTED)
    ended = found.drain()
    assert [(0, 4, ACCEPT), (5, 5, RELEASE)] == [(each.first, each.last, each.kind) for each in ended.ranges]
    assert [0, 1, 2, 3, 4, 5] == sorted(ended.offsets)


def test_messages_of_older_formats() -> None:
    builder = MessageSetBuilder(1, base_offset=0, compression=Compression.GZIP)
    for number in range(6):
        builder.append(b"k", b"%d" % number, 1000)
    found = acquired(bytes(builder.build()), (2, 4, 1))
    assert [(2, 1), (3, 1), (4, 1)] == take(found)
    assert [(2, 4, ACCEPT)] == settled(found)


@pytest.mark.parametrize("seed", range(300))
def test_every_offset_is_settled_once(seed: int) -> None:
    """Damaged, cut and compacted batches, and ranges of any shape."""
    chance = random.Random(seed)
    data, offset = bytearray(), 0
    for _ in range(chance.randint(1, 4)):
        offset += chance.choice([0, 0, 3])
        inside = [
            offset + delta for delta in range(chance.randint(1, 6)) if delta == 0 or chance.random() < 0.8
        ]
        data += batch(offset, inside)
        offset = inside[-1] + 1
    ranges, at = [], 0
    while at < offset + 3:
        at += chance.choice([0, 0, 1, 4])
        size = chance.randint(1, 5)
        ranges.append((at, at + size - 1, chance.randint(1, 5)))
        at += size
    if chance.random() < 0.5:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.3:
        del data[chance.randrange(len(data)) :]
    found = acquired(bytes(data), *ranges)
    handed_out: list[int] = []
    for _ in range(1000):
        if found.is_read:
            break
        try:
            records = found.take(chance.randint(1, 4), PLAIN, DecodeBound())
        except ClientError:
            continue
        for each in records:
            handed_out.append(each.offset)
            found.decide(each.offset, ACCEPTED)
    assert found.is_read
    wanted = [offset for first, last, _ in ranges for offset in range(first, last + 1)]
    ends = found.drain()
    assert wanted == [each for part in ends.ranges for each in range(part.first, part.last + 1)]
    assert handed_out == sorted(set(handed_out))
    assert set(handed_out) <= set(wanted)


def test_neighbours_are_joined() -> None:
    later = Decision(2, 500)
    decided = dict.fromkeys([3, 1, 2], ACCEPTED) | {5: RELEASED, 6: later, 7: later, 8: Decision(2, 0)}
    why = Decision(3, reason="bad")
    decided |= {9: why, 10: Decision(3, reason="bad"), 11: Decision(3), 12: Decision(3, reason="worse")}
    releases = [Range(5, 5, 2), Range(6, 7, 2, 500), Range(8, 8, 2, 0)]
    rejections = [Range(9, 10, 3, reason="bad"), Range(11, 11, 3), Range(12, 12, 3, reason="worse")]
    assert [Range(0, 3, 1), Range(4, 4, 0), *releases, *rejections] == ranges_of(
        decided, [Range(0, 0, 1), Range(4, 4, 0)]
    )
    known = PartitionAcknowledgements([Range(0, 1, 1)], [0, 1])
    known.add(PartitionAcknowledgements([Range(2, 2, 1)], [2]))
    assert ([Range(0, 2, 1)], [0, 1, 2]) == (known.ranges, known.offsets)
    assert not known.renews
    assert PartitionAcknowledgements([Range(0, 0, RENEW)]).renews


def test_a_batch_that_counts_less_than_no_record_is_damaged() -> None:
    """Without a check of CRCs each poll looked at it until its time was over, and went no further."""
    data = bytearray(batch(0, range(3)))
    data[HEADER_SIZE - 4 : HEADER_SIZE] = (-3).to_bytes(4, "big", signed=True)
    found = AcquiredRecords(SOURCE, 1, 0, [(0, 2, 1)], memoryview(data), expires_at=1e9, check_crcs=False)
    ticks = itertools.count()
    with pytest.raises(FetchCorruptionError, match="counts -3 records"):
        found.take(10, PLAIN, DecodeBound(lambda: next(ticks) / 1000))
    assert found.is_read
    assert [(0, 2, REJECT)] == settled(found)


def take_rows(found: AcquiredRecords, count: int = 100) -> list[tuple[int, int]]:
    """Return the offsets and delivery counts of the next rows; accepts them."""
    pytest.importorskip("pyarrow")
    from kalda.clients.share.share_arrow import ShareArrow

    rows = found.take_rows(count, ShareArrow(check_crcs=True), DecodeBound())
    if rows is None:
        return []
    values = rows.column("value").to_pylist()
    taken = list(zip(*(rows.column(name).to_pylist() for name in ("offset", "delivery_count")), strict=True))
    for (offset, _), value in zip(taken, values, strict=True):
        assert b"%d" % offset == value
        found.decide(offset, ACCEPTED)
    return taken


def test_rows_are_those_inside_the_ranges_with_their_counts() -> None:
    found = acquired(batch(0, range(10)) + batch(10, [10, 11, 19]), (2, 3, 1), (8, 11, 4), (19, 20, 2))
    assert [(2, 1), (3, 1), (8, 4)] == take_rows(found, 3)
    assert [(9, 4)] == take_rows(found)
    assert [(10, 4), (11, 4), (19, 2)] == take_rows(found)
    assert [] == take_rows(found)
    assert found.is_read
    assert [(2, 3, ACCEPT), (8, 11, ACCEPT), (19, 19, ACCEPT), (20, 20, RELEASE)] == settled(found)


def test_rows_and_records_take_turns() -> None:
    found = acquired(batch(0, range(6)) + batch(6, range(6, 9)), (0, 8, 1))
    assert [(0, 1), (1, 1)] == take_rows(found, 2)
    assert [(2, 1), (3, 1)] == take(found, 2)
    assert [(4, 1)] == take_rows(found, 1)
    assert [(5, 1), (6, 1)] == take(found, 2)
    assert [(7, 1), (8, 1)] == take_rows(found)
    assert [(0, 8, ACCEPT)] == settled(found)


def test_records_that_were_put_back_come_again() -> None:
    found = acquired(batch(0, range(3)) + batch(3, [3, 5]), (0, 2, 2), (3, 5, 1))
    records = found.take(100, PLAIN, DecodeBound())
    for record in reversed(records[1:]):
        found.put_back(record.offset, record.delivery_count)
    found.decide(0, ACCEPTED)
    assert [(1, 2), (2, 2)] == take_rows(found)
    assert [(3, 1), (5, 1)] == take_rows(found)
    assert [(0, 3, ACCEPT), (4, 4, GAP), (5, 5, ACCEPT)] == settled(found)


def test_a_damaged_batch_is_rejected_when_rows_are_asked_for() -> None:
    damaged = bytearray(batch(3, range(3, 6)))
    damaged[-1] ^= 1
    found = acquired(batch(0, range(3)) + bytes(damaged) + batch(6, [6]), (0, 6, 1))
    assert [(0, 1), (1, 1), (2, 1)] == take_rows(found)
    with pytest.raises(FetchCorruptionError, match="offset 3"):
        take_rows(found)
    assert [(6, 1)] == take_rows(found)
    assert [(0, 2, ACCEPT), (3, 5, REJECT), (6, 6, ACCEPT)] == settled(found)


def test_rows_of_an_older_format_end_where_the_format_changes() -> None:
    old = MessageSetBuilder(magic=1, base_offset=0)
    for offset in range(3):
        old.append(None, b"%d" % offset, 1000, offset=offset)
    found = acquired(bytes(old.build()) + batch(3, [3, 4]), (0, 5, 1))
    taken = [each for _ in range(3) for each in take_rows(found)]
    assert [(offset, 1) for offset in range(5)] == taken
    assert [(0, 4, ACCEPT), (5, 5, RELEASE)] == settled(found)

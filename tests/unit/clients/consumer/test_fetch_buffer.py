"""What waits between the event loop and the user: order, pauses, seeks, and records that go back."""

import pytest

from kalda.clients.consumer import arrow_poll, completed_fetch
from kalda.clients.consumer.arrow_poll import ArrowPoll
from kalda.clients.consumer.completed_fetch import CompletedFetch
from kalda.clients.consumer.consumer_errors import FetchCorruptionError
from kalda.clients.consumer.fetch_buffer import FetchBuffer
from kalda.clients.consumer.offset_reset import EARLIEST
from kalda.clients.consumer.record_decoder import Deserializers
from kalda.clients.consumer.record_iteration import RecordIteration
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.fetch_position import FetchPosition, LeaderAndEpoch
from kalda.common.types import TopicPartition
from kalda.records.compression import Compression
from kalda.records.record import RecordBatchBuilder

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
PLAIN = Deserializers()


def batch(base_offset: int, count: int, compression: Compression = Compression.NONE) -> bytearray:
    builder = RecordBatchBuilder(base_offset=base_offset, partition_leader_epoch=3, compression=compression)
    for number in range(count):
        builder.append(None, b"%d" % (base_offset + number), 1_000)
    return builder.build()


class Buffered:
    """A buffer with a subscription to two partitions at offset 0."""

    def __init__(self) -> None:
        self.subscription = SubscriptionState(EARLIEST)
        self.subscription.assign_from_user([A, B])
        for partition in (A, B):
            self.subscription.seek(partition, FetchPosition(0))
        self.buffer = FetchBuffer(self.subscription)
        self.generations = self.current()

    def current(self) -> dict[TopicPartition, int]:
        return {each.topic_partition: each.generation for each in self.subscription.fetchable(0.0)}

    def add(self, partition: TopicPartition, *batches: tuple[int, int], damaged: bool = False) -> None:
        data = b"".join(batch(*each) for each in batches)
        if damaged:
            data = data[:-1] + bytes([data[-1] ^ 1])
        generation = self.generations[partition]
        self.buffer.add(
            CompletedFetch(partition, generation, batches[0][0], memoryview(data), (), check_crcs=True)
        )

    def take(self, count: int) -> list[tuple[str, int]]:
        return [(record.topic, record.offset) for record in self.buffer.take(count, PLAIN)]

    def position(self, partition: TopicPartition) -> int:
        position = self.subscription.position(partition)
        assert position is not None
        return position.offset


def test_fetches_are_taken_in_order_across_partitions() -> None:
    it = Buffered()
    it.add(A, (0, 3))
    it.add(B, (0, 2))
    it.add(A, (3, 2))
    assert [("a", 0), ("a", 1)] == it.take(2)
    assert (2, 0) == (it.position(A), it.position(B))
    assert [("a", 2), ("b", 0), ("b", 1), ("a", 3)] == it.take(4)
    assert [("a", 4)] == it.take(4)
    assert {} == it.buffer.unread_bytes()
    assert FetchPosition(5, 3) == it.subscription.position(A)


def test_paused_records_stay_in_their_place() -> None:
    it = Buffered()
    it.add(A, (0, 2))
    it.add(B, (0, 2))
    it.add(A, (2, 2))
    it.subscription.pause([A])
    assert [("b", 0), ("b", 1)] == it.take(10)
    assert [] == it.take(10)
    it.subscription.resume([A])
    assert [("a", offset) for offset in range(4)] == it.take(10)


def test_a_seek_drops_what_was_fetched() -> None:
    it = Buffered()
    it.add(A, (0, 2))
    it.subscription.seek(A, FetchPosition(0))
    assert [] == it.take(10)
    assert 0 == it.position(A)


def test_stale_fetches_are_dropped_without_being_taken() -> None:
    it = Buffered()
    it.add(A, (0, 2))
    it.add(B, (0, 2))
    it.subscription.seek(A, FetchPosition(5))
    it.buffer.drop_stale()
    assert {B} == it.buffer.unread_bytes().keys()


def test_a_fetch_that_does_not_continue_the_position_is_fetched_again() -> None:
    """It must not leave a gap; the new generation makes the fetcher begin at the position."""
    it = Buffered()
    it.add(A, (5, 2))
    assert [] == it.take(10)
    assert it.generations[A] != it.current()[A]
    assert 0 == it.position(A)


def test_records_before_a_damaged_batch_are_returned_first() -> None:
    it = Buffered()
    it.add(A, (0, 2), (2, 1), damaged=True)
    assert [("a", 0), ("a", 1)] == it.take(10)
    for _ in range(2):
        with pytest.raises(FetchCorruptionError, match="a-0 at offset 2"):
            it.take(10)


def test_a_loop_gives_back_what_it_has_not_got() -> None:
    """A commit in the middle of a loop counts what the loop has got."""
    it = Buffered()
    it.add(A, (0, 3), (3, 3))
    iteration = RecordIteration(it.buffer, PLAIN)
    iteration.next_chunk(4)
    records = iteration.records
    assert [0, 1] == [next(records).offset, next(records).offset]
    iteration.settle()
    assert [] == list(records)
    assert FetchPosition(2, 3) == it.subscription.position(A)
    assert [2, 3, 4, 5] == [offset for _, offset in it.take(10)]
    assert FetchPosition(6, 3) == it.subscription.position(A)


def test_giving_back_before_the_first_record_changes_nothing() -> None:
    it = Buffered()
    it.add(A, (0, 2))
    iteration = RecordIteration(it.buffer, PLAIN)
    iteration.next_chunk(10)
    iteration.settle()
    assert FetchPosition(0) == it.subscription.position(A)
    iteration.next_chunk(1)
    assert [0] == [record.offset for record in iteration.records]
    iteration.settle()
    assert [("a", 1)] == it.take(10)


def test_nothing_goes_back_after_a_seek() -> None:
    it = Buffered()
    it.add(A, (0, 3))
    iteration = RecordIteration(it.buffer, PLAIN)
    iteration.next_chunk(10)
    assert 0 == next(iteration.records).offset
    it.subscription.seek(A, FetchPosition(7))
    iteration.settle()
    assert 7 == it.position(A)
    assert [] == it.take(10)


def in_a_loop(it: Buffered, handed_out: int) -> RecordIteration:
    """Return a loop over A's six records that has got the first ones; all six are decoded."""
    it.subscription.seek(A, FetchPosition(0, -1, LeaderAndEpoch(1, 3)))
    it.generations = it.current()
    it.add(A, (0, 6))
    iteration = RecordIteration(it.buffer, PLAIN)
    iteration.next_chunk(10)
    for _ in range(handed_out):
        next(iteration.records)
    return iteration


@pytest.mark.parametrize("can_validate", [True, False])
def test_a_loop_goes_back_after_its_partition_got_another_leader(can_validate: bool) -> None:
    """The position was ahead of the loop when the leader failed. It stayed there: records were skipped."""
    it = Buffered()
    iteration = in_a_loop(it, handed_out=2)
    it.subscription.change_leader(A, LeaderAndEpoch(2, 4), can_validate=can_validate)
    iteration.settle()
    assert FetchPosition(2, 3, LeaderAndEpoch(2, 4)) == it.subscription.position(A)
    assert can_validate == (A in it.subscription.needing_validation(0.0))
    assert [] == it.take(10), "the new leader's log decides what follows"


def test_a_loop_goes_back_before_the_point_of_a_truncation() -> None:
    it = Buffered()
    iteration = in_a_loop(it, handed_out=2)
    leader = LeaderAndEpoch(2, 4)
    it.subscription.change_leader(A, leader, can_validate=True)
    it.subscription.complete_validation(A, FetchPosition(6, 3, leader), 3, 4)
    assert 4 == it.position(A)
    iteration.settle()
    assert 2 == it.position(A)


def test_a_loop_goes_back_before_a_reset_that_nobody_asked_for() -> None:
    """What the loop was being given is still there; the reset was due to the position ahead of it."""
    it = Buffered()
    iteration = in_a_loop(it, handed_out=2)
    it.subscription.reset_out_of_range(A)
    iteration.settle()
    assert 2 == it.position(A)
    assert {} == it.subscription.needing_reset(0.0)


def test_a_loop_does_not_move_a_truncated_position_forward() -> None:
    it = Buffered()
    iteration = in_a_loop(it, handed_out=5)
    leader = LeaderAndEpoch(2, 4)
    it.subscription.change_leader(A, leader, can_validate=True)
    it.subscription.complete_validation(A, FetchPosition(6, 3, leader), 3, 4)
    iteration.settle()
    assert 4 == it.position(A)


def test_nothing_goes_back_after_a_reset_by_the_user() -> None:
    it = Buffered()
    iteration = in_a_loop(it, handed_out=2)
    it.subscription.request_reset(A, EARLIEST)
    iteration.settle()
    assert it.subscription.position(A) is None


def test_nothing_goes_back_into_another_assignment() -> None:
    """The partition was another member's meanwhile, so the committed offset decides."""
    it = Buffered()
    iteration = in_a_loop(it, handed_out=2)
    it.subscription.assign_from_user([B])
    it.subscription.assign_from_user([A, B])
    iteration.settle()
    assert it.subscription.position(A) is None


def test_rows_that_were_not_returned_come_as_records() -> None:
    it = Buffered()
    it.add(A, (0, 5))
    arrow = ArrowPoll(it.buffer, it.subscription, check_crcs=True)
    rows = arrow.take(2)
    assert rows is not None
    assert [0, 1] == rows["offset"].to_pylist()
    arrow.give_up()
    assert 2 == it.position(A)
    assert it.generations[A] != it.current()[A]


def test_rows_continue_where_records_ended() -> None:
    """Also in the middle of a batch."""
    it = Buffered()
    it.add(A, (0, 5))
    assert [("a", 0), ("a", 1)] == it.take(2)
    rows = ArrowPoll(it.buffer, it.subscription, check_crcs=True).take(10)
    assert rows is not None
    assert [2, 3, 4] == rows["offset"].to_pylist()
    assert FetchPosition(5, 3) == it.subscription.position(A)


def test_rows_before_a_damaged_batch_are_returned_first() -> None:
    it = Buffered()
    it.add(A, (0, 2), (2, 1), damaged=True)
    arrow = ArrowPoll(it.buffer, it.subscription, check_crcs=True)
    rows = arrow.take(10)
    assert rows is not None
    assert [0, 1] == rows["offset"].to_pylist()
    it.generations = it.current()
    it.add(A, (2, 1), damaged=True)
    with pytest.raises(FetchCorruptionError, match="a-0 at offset 2"):
        arrow.take(10)


def test_rows_of_a_partition_that_was_sought_are_dropped() -> None:
    it = Buffered()
    it.add(A, (0, 5))
    arrow = ArrowPoll(it.buffer, it.subscription, check_crcs=True)
    arrow.take(2)
    it.subscription.seek(A, FetchPosition(4))
    assert arrow.take(10) is None
    assert 4 == it.position(A)


def test_a_poll_ends_when_it_has_decoded_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small batches may hold much more than fits in memory; the rest is for the next polls."""
    monkeypatch.setattr(completed_fetch, "DECODED_BYTES_MAX", 20)
    it = Buffered()
    it.add(A, (0, 2), (2, 2), (4, 2))
    it.add(B, (0, 2))
    assert [("a", 0), ("a", 1), ("a", 2), ("a", 3)] == it.take(100)
    assert it.buffer.is_cut_short, "the caller may look again at once"
    assert 4 == it.position(A)
    assert [("a", 4), ("a", 5), ("b", 0), ("b", 1)] == it.take(100)
    assert [] == it.take(100)
    assert not it.buffer.is_cut_short


def test_batches_without_records_do_not_hold_a_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they hold is decompressed before it is known that they have none."""
    monkeypatch.setattr(completed_fetch, "DECODED_SECONDS_MAX", -1.0)
    it = Buffered()
    it.add(A, (0, 2))
    assert [] == it.take(100)
    assert it.buffer.is_cut_short
    assert it.buffer.take_chunk(100, PLAIN) is None
    assert it.buffer.is_cut_short
    monkeypatch.undo()
    assert [("a", 0), ("a", 1)] == it.take(100)


def test_rows_come_in_parts_when_they_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow_poll, "DECODED_BYTES_MAX", 10)
    monkeypatch.setattr(completed_fetch, "DECODED_BYTES_MAX", 10)
    it = Buffered()
    data = b"".join(batch(offset, 2, Compression.LZ4) for offset in (0, 2, 4))
    it.buffer.add(CompletedFetch(A, it.generations[A], 0, memoryview(data), (), check_crcs=True))
    arrow = ArrowPoll(it.buffer, it.subscription, check_crcs=True)
    found = []
    for expected in (2, 4, 6):
        rows = arrow.take(100)
        assert rows is not None
        found += rows.column(2).to_pylist()
        assert expected == it.position(A)
    assert [0, 1, 2, 3, 4, 5] == found
    assert {} == it.buffer.unread_bytes()

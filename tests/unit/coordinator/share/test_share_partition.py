"""The rules of a share partition that the model of five records does not reach."""

from random import Random
from typing import Any

import pytest

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.share.acknowledgement import Acknowledgement
from kalda.coordinator.share.delivery_state import (
    AcknowledgeType,
    PartitionState,
    RecordState,
    StateRange,
    combined,
)
from kalda.coordinator.share.fetched_batch import FetchedBatch
from kalda.coordinator.share.in_flight_records import DeadRange
from kalda.coordinator.share.partition_limits import PartitionLimits
from kalda.coordinator.share.share_partition import (
    AcquiredRange,
    SharePartition,
)
from kalda.protocol.messages.share_acknowledge import GROUPS_DELAY

ACCEPT = int(AcknowledgeType.ACCEPT)
REJECT = int(AcknowledgeType.REJECT)
RELEASE = int(AcknowledgeType.RELEASE)
RENEW = int(AcknowledgeType.RENEW)


def partition(**limits: int | bool) -> SharePartition:
    return SharePartition(PartitionState(0, 0), PartitionLimits(**limits))  # type: ignore[arg-type]  # checked


def acknowledge(found: SharePartition, first: int, last: int, *types: int, now_ms: int = 0) -> None:
    transition = found.acknowledge("a", [Acknowledgement(first, last, types)], now_ms)
    if transition is not None:
        found.confirm(transition)
    found.check_invariants()


def test_whole_batches_are_acquired_until_the_limit_is_reached() -> None:
    found = partition()
    batches = [FetchedBatch(0, 9), FetchedBatch(10, 19), FetchedBatch(20, 29)]
    assert [AcquiredRange(0, 19, 1)] == found.acquire("a", 0, batches, 0, records_max=11, batch_size=100)
    assert 20 == found.next_fetch_offset()


def test_a_strict_limit_splits_a_batch() -> None:
    found = partition()
    batches = [FetchedBatch(0, 9), FetchedBatch(10, 19)]
    assert [AcquiredRange(0, 9, 1), AcquiredRange(10, 12, 1)] == found.acquire(
        "a", 0, batches, 0, records_max=13, is_strict=True
    )
    assert [AcquiredRange(13, 19, 1)] == found.acquire("b", 13, batches[1:], 0, records_max=100)
    acknowledge(found, 0, 9, RELEASE)
    assert [AcquiredRange(0, 3, 2)] == found.acquire("b", 0, batches, 0, records_max=4, is_strict=True)
    assert 4 == found.next_fetch_offset()


def test_what_a_checker_looks_at() -> None:
    found = partition(lock_ms=50)
    assert found.holder(0) is None
    found.acquire("a", 0, [FetchedBatch(0, 9)], 1, records_max=10)
    assert [("a", 51), None] == [found.holder(0), found.holder(10)]
    acknowledge(found, 1, 1, ACCEPT)
    assert (None, ("a", 51)) == (found.holder(1), found.holder(2))
    assert [False, True, False, False] == [found.is_done(offset) for offset in (0, 1, 2, 10)]
    acknowledge(found, 0, 0, REJECT)
    assert found.is_done(0)


def test_batches_are_joined_up_to_the_wanted_size() -> None:
    found = partition()
    batches = [FetchedBatch(number * 10, number * 10 + 9) for number in range(4)]
    assert [AcquiredRange(0, 19, 1), AcquiredRange(20, 39, 1)] == found.acquire(
        "a", 0, batches, 0, records_max=100, batch_size=20
    )


def test_no_new_record_is_acquired_beyond_the_limit_in_flight() -> None:
    found = partition(in_flight_max=10)
    found.acquire("a", 0, [FetchedBatch(0, 9)], 0, records_max=100)
    assert found.next_fetch_offset() is None
    acknowledge(found, 5, 5, RELEASE)
    assert 5 == found.next_fetch_offset()
    acknowledge(found, 0, 4, ACCEPT)
    found.acquire("b", 5, [FetchedBatch(5, 5)], 0, records_max=100)
    assert 10 == found.next_fetch_offset()


def test_what_is_no_record_is_archived() -> None:
    """Control batches, and offsets that compaction has taken: nobody could acknowledge them."""
    found = partition()
    batches = [FetchedBatch(2, 3), FetchedBatch(4, 4, is_skipped=True), FetchedBatch(7, 8)]
    assert [AcquiredRange(2, 3, 1), AcquiredRange(7, 8, 1)] == found.acquire(
        "a", 0, batches, 0, records_max=100
    )
    assert 2 == found.start_offset
    acknowledge(found, 2, 3, ACCEPT)
    assert 7 == found.start_offset


def test_a_renewal_moves_the_end_of_the_lock_and_stores_nothing() -> None:
    found = partition(lock_ms=100)
    found.acquire("a", 0, [FetchedBatch(0, 1)], 0, records_max=10)
    assert found.acknowledge("a", [Acknowledgement(0, 1, [RENEW, ACCEPT])], 90) is not None
    assert found.expire(100) is None
    assert 190 == found.next_deadline_ms
    assert found.expire(190) is not None


def test_a_group_may_forbid_renewals() -> None:
    found = partition(may_renew=False)
    found.acquire("a", 0, [FetchedBatch(0, 1)], 0, records_max=10)
    with pytest.raises(ApiError) as caught:
        found.acknowledge("a", [Acknowledgement(0, 1, [RENEW])], 0)
    assert ErrorCode.INVALID_REQUEST == caught.value.code


@pytest.mark.parametrize(
    ("member_id", "batches", "code"),
    [
        ("b", [(0, 0, [ACCEPT])], ErrorCode.INVALID_RECORD_STATE),
        ("a", [(0, 9, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ("a", [(1, 0, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ("a", [(0, 1, [ACCEPT] * 3)], ErrorCode.INVALID_REQUEST),
        ("a", [(0, 1, [])], ErrorCode.INVALID_REQUEST),
        ("a", [(0, 1, [9])], ErrorCode.INVALID_REQUEST),
        ("a", [(2, 2, [ACCEPT]), (1, 1, [ACCEPT])], ErrorCode.INVALID_REQUEST),
        ("a", [(0, 1, [RELEASE], -2)], ErrorCode.INVALID_REQUEST),
        ("a", [(0, 1, [RELEASE], 604_800_001)], ErrorCode.INVALID_REQUEST),
        ("a", [(0, 1, [REJECT, ACCEPT], 700)], ErrorCode.INVALID_REQUEST),
        ("a", [(0, 1, [ACCEPT], 0)], ErrorCode.INVALID_REQUEST),
        ("a", [(0, 1, [REJECT], GROUPS_DELAY, "")], ErrorCode.INVALID_REQUEST),
        ("a", [(0, 1, [REJECT], GROUPS_DELAY, "é" * 501)], ErrorCode.INVALID_REQUEST),
        ("a", [(0, 1, [RELEASE, ACCEPT], GROUPS_DELAY, "bad")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_wrong_acknowledgement_changes_nothing(
    member_id: str, batches: list[tuple[Any, ...]], code: ErrorCode
) -> None:
    found = partition()
    found.acquire("a", 0, [FetchedBatch(0, 4)], 0, records_max=10)
    before = found.state_ranges()
    with pytest.raises(ApiError) as caught:
        found.acknowledge(member_id, [Acknowledgement(*each) for each in batches], 0)
    assert (code, before) == (caught.value.code, found.state_ranges())


def test_what_is_being_stored_is_neither_delivered_nor_acknowledged_again() -> None:
    found = partition(lock_ms=10)
    found.acquire("a", 0, [FetchedBatch(0, 4)], 0, records_max=10)
    transition = found.acknowledge("a", [Acknowledgement(1, 2, [RELEASE])], 0)
    assert transition is not None
    assert 5 == found.next_fetch_offset()
    with pytest.raises(ApiError):
        found.acknowledge("a", [Acknowledgement(2, 3, [ACCEPT])], 0)
    expired = found.expire(10)
    assert expired is not None
    assert [StateRange(0, 0, 0, 1), StateRange(3, 4, 0, 1)] == list(found.progress([expired]).ranges)
    found.take_back(transition)
    found.confirm(expired)
    found.check_invariants()
    acknowledge(found, 1, 2, ACCEPT)


def test_transitions_that_are_stored_together_move_the_start_together() -> None:
    found = partition()
    found.acquire("a", 0, [FetchedBatch(0, 4)], 0, records_max=10)
    second = found.acknowledge("a", [Acknowledgement(1, 2, [ACCEPT])], 0)
    first = found.acknowledge("a", [Acknowledgement(0, 0, [ACCEPT])], 0)
    assert first is not None
    assert second is not None
    assert (0, 2) == found.progress([second])[:2]
    assert (3, 0, ()) == found.progress([second, first])


def test_records_that_the_log_has_deleted_are_given_up() -> None:
    found = partition()
    found.acquire("a", 0, [FetchedBatch(0, 9)], 0, records_max=10)
    transition = found.acknowledge("a", [Acknowledgement(2, 6, [RELEASE])], 0)
    assert transition is not None
    assert found.move_start(4)
    found.confirm(transition)
    found.check_invariants()
    assert (4, 4) == (found.start_offset, found.next_fetch_offset())
    acknowledge(found, 0, 3, ACCEPT)
    assert found.move_start(20)
    assert (20, 20) == (found.start_offset, found.end_offset)


def test_a_leader_delivers_what_the_one_before_had_delivered_and_not_stored() -> None:
    state = PartitionState(
        0, 3, ranges=(StateRange(5, 6, RecordState.ACKNOWLEDGED, 1), StateRange(8, 8, 0, 2))
    )
    found = SharePartition(state, PartitionLimits())
    assert (3, 9) == (found.next_fetch_offset(), found.end_offset)
    assert [AcquiredRange(3, 4, 1), AcquiredRange(7, 7, 1), AcquiredRange(8, 8, 3)] == found.acquire(
        "a", 3, [FetchedBatch(0, 8)], 0, records_max=10
    )


def test_changes_are_combined_with_what_is_stored() -> None:
    ranges = (StateRange(0, 9, 0, 1), StateRange(12, 14, 2, 1))
    changes = (StateRange(4, 5, 2, 1), StateRange(9, 12, 4, 2), StateRange(20, 20, 0, 1))
    assert (
        StateRange(2, 3, 0, 1),
        StateRange(4, 5, 2, 1),
        StateRange(6, 8, 0, 1),
        StateRange(9, 12, 4, 2),
        StateRange(13, 14, 2, 1),
        StateRange(20, 20, 0, 1),
    ) == combined(ranges, changes, 2)
    assert (StateRange(0, 9, 2, 1),) == combined((StateRange(0, 4, 2, 1),), (StateRange(5, 9, 2, 1),), 0)


def test_a_batch_with_very_many_records_is_acquired_in_parts() -> None:
    """A member that acknowledged each record in another way would leave more state than a record can have."""
    found = partition()
    batch = FetchedBatch(0, 2**31)
    after = FetchedBatch(2**31 + 1, 2**31 + 1, is_skipped=True)
    assert [AcquiredRange(0, 9_999, 1)] == found.acquire("a", 0, [batch, after], 0, records_max=2**31)
    assert (10_000, None) == (found.end_offset, found.next_fetch_offset())
    acknowledge(found, 0, 9_999, ACCEPT)
    assert [AcquiredRange(10_000, 10_009, 1)] == found.acquire(
        "a", 10_000, [batch, after], 0, records_max=10, is_strict=True
    )


def test_thousands_of_acknowledgements_of_single_records_take_no_time() -> None:
    """The broker serves nobody else meanwhile: time must not grow with the square of the count."""
    found = partition()
    found.acquire("a", 0, [FetchedBatch(0, 9_999)], 0, records_max=10_000)
    transition = found.acknowledge("a", [Acknowledgement(0, 9_999, [RELEASE, ACCEPT] * 5_000)], 0)
    assert transition is not None
    progress = found.progress([transition])
    found.confirm(transition)
    stored = combined(
        combined((), progress.ranges, 0), [each._replace(deliveries=2) for each in progress.ranges], 0
    )
    assert 10_000 == len(stored)
    assert 5_000 == progress.complete_count


@pytest.mark.parametrize(
    "garbage",
    [
        StateRange(9, 3, 2, 1),
        StateRange(-5, 8, 2, 1),
        StateRange(3, 2**63 - 1, 2, 1),
        StateRange(3, 8, 77, 1),
        StateRange(3, 8, 2, -1),
        StateRange(3, 8, 2, 2**15),
    ],
)
def test_ranges_that_cannot_be_are_not_taken_from_the_share_coordinator(garbage: StateRange) -> None:
    found = SharePartition(PartitionState(0, 3, ranges=(garbage,)), PartitionLimits())
    found.check_invariants()
    assert (3, 3) == (found.end_offset, found.next_fetch_offset())


def test_stored_ranges_that_overlap_or_are_acquired_are_delivered_again() -> None:
    state = PartitionState(0, 0, ranges=(StateRange(2, 5, RecordState.ACQUIRED, 1), StateRange(4, 7, 2, 1)))
    found = SharePartition(state, PartitionLimits())
    found.check_invariants()
    assert [StateRange(0, 1, 0, 0), StateRange(2, 5, 0, 1), StateRange(6, 7, 2, 1)] == list(
        found.state_ranges()
    )
    assert found.next_deadline_ms is None


def test_a_count_of_deliveries_stays_within_16_bits() -> None:
    found = SharePartition(PartitionState(0, 0, ranges=(StateRange(0, 0, 0, 2**15 - 1),)), PartitionLimits())
    assert [AcquiredRange(0, 0, 2**15 - 1)] == found.acquire("a", 0, [FetchedBatch(0, 0)], 0, records_max=1)


@pytest.mark.parametrize("seed", range(4))
def test_combined_ranges_are_what_each_offset_was_last_given(seed: int) -> None:
    random = Random(seed)
    for _ in range(200):
        changes = []
        for _ in range(random.randrange(8)):
            first = random.randrange(20)
            changes.append(StateRange(first, first + random.randrange(-1, 8), random.randrange(2), 1))
        cut, start = random.randrange(len(changes) + 1), random.randrange(6)
        expected = {
            offset: each.state for each in changes for offset in range(max(each.first, start), each.last + 1)
        }
        found = combined(changes[:cut], changes[cut:], start)
        assert expected == {
            offset: each.state for each in found for offset in range(each.first, each.last + 1)
        }
        assert sorted(found) == list(found)


def test_a_rejected_record_waits_for_its_dead_letter() -> None:
    """A kill between the two loses nothing: the next leader writes the letter, perhaps once more."""
    found = partition(has_dead_letters=True)
    found.acquire("a", 0, [FetchedBatch(0, 9)], 0, records_max=100)
    rejected = found.acknowledge("a", [Acknowledgement(0, 2, [REJECT])], 0)
    assert rejected is not None
    progress = found.progress([rejected])
    assert (0, 0) == (progress.start_offset, progress.complete_count)
    assert (StateRange(0, 2, RecordState.ARCHIVING, 1),) == progress.ranges
    assert [] == found.dead_ranges(10)
    found.confirm(rejected)
    assert [DeadRange(0, 1, 1, True)] == found.dead_ranges(2)
    assert (3, 0, 10) == (found.dead_count, found.start_offset, found.next_fetch_offset())
    after = SharePartition(PartitionState(0, 0, ranges=progress.ranges), found.limits)
    assert [DeadRange(0, 2, 1, True)] == after.dead_ranges(10)
    assert 3 == after.next_fetch_offset()
    buried = found.bury(found.dead_ranges(2))
    assert buried is not None
    assert [DeadRange(2, 2, 1, True)] == found.dead_ranges(10)
    found.take_back(buried)
    assert [DeadRange(0, 2, 1, True)] == found.dead_ranges(10)
    buried = found.bury(found.dead_ranges(10))
    assert buried is not None
    found.confirm(buried)
    found.check_invariants()
    assert (3, 0) == (found.start_offset, found.dead_count)


def reject(found: SharePartition, first: int, last: int, reason: str | None) -> None:
    transition = found.acknowledge("a", [Acknowledgement(first, last, [REJECT], GROUPS_DELAY, reason)], 0)
    assert transition is not None
    found.confirm(transition)
    found.check_invariants()


def test_a_rejection_keeps_its_reason_until_its_dead_letter_is_written() -> None:
    """Neighbours with one reason are one range, whoever rejected them; the next leader knows no reason."""
    found = partition(has_dead_letters=True)
    found.acquire("a", 0, [FetchedBatch(0, 9)], 0, records_max=100)
    for first, last, reason in ((0, 1, "é"), (4, 4, "worse"), (2, 3, "é"), (5, 5, None), (6, 6, None)):
        reject(found, first, last, reason)
    bad = DeadRange(0, 3, 1, True, "é".encode())
    assert [bad, DeadRange(4, 4, 1, True, b"worse"), DeadRange(5, 6, 1, True)] == found.dead_ranges(10)
    after = SharePartition(PartitionState(0, 0, ranges=found.state_ranges()), found.limits)
    assert [True, b""] * 3 == [said for each in after.dead_ranges(10) for said in each[3:]]
    buried = found.bury(found.dead_ranges(2))
    assert buried is not None
    found.take_back(buried)
    assert bad == found.dead_ranges(10)[0]
    found.move_start(1)
    buried = found.bury(found.dead_ranges(10))
    assert buried is not None
    found.confirm(buried)
    found.check_invariants()
    assert (7, 0) == (found.start_offset, found.dead_count)


def test_a_reason_is_of_those_records_of_an_acknowledgement_that_are_rejected() -> None:
    found = partition(has_dead_letters=True)
    found.acquire("a", 0, [FetchedBatch(0, 3)], 0, records_max=10)
    kinds = Acknowledgement(0, 3, [RELEASE, REJECT, ACCEPT, REJECT], GROUPS_DELAY, "bad")
    transition = found.acknowledge("a", [kinds], 0)
    assert transition is not None
    found.confirm(transition)
    dead = [DeadRange(1, 1, 1, True, b"bad"), DeadRange(3, 3, 1, True, b"bad")]
    assert (dead, 0) == (found.dead_ranges(10), found.next_fetch_offset())


def test_without_dead_letters_no_reason_is_kept() -> None:
    found = partition()
    found.acquire("a", 0, [FetchedBatch(0, 9)], 0, records_max=10)
    for offset in range(1, 9):
        reject(found, offset, offset, f"bad {offset}")
    states = [(each.first, each.last, each.state) for each in found.state_ranges()]
    assert [(0, 0, 1), (1, 8, 4), (9, 9, 1)] == [(first, last, int(state)) for first, last, state in states]


def test_a_rejection_that_could_not_be_stored_leaves_no_reason_behind() -> None:
    found = partition(has_dead_letters=True, delivery_count_limit=1)
    found.acquire("a", 0, [FetchedBatch(0, 0)], 0, records_max=10)
    rejected = found.acknowledge("a", [Acknowledgement(0, 0, [REJECT], GROUPS_DELAY, "bad")], 0)
    assert rejected is not None
    found.take_back(rejected)
    acknowledge(found, 0, 0, RELEASE)
    assert [DeadRange(0, 0, 1, False)] == found.dead_ranges(10)


def test_a_record_that_was_delivered_too_often_is_dead_for_that_reason() -> None:
    found = partition(delivery_count_limit=2, lock_ms=10, has_dead_letters=True)
    for now_ms in (0, 10):
        found.acquire("a", 0, [FetchedBatch(0, 0)], now_ms, records_max=1)
        expired = found.expire(now_ms + 10)
        assert expired is not None
        stored = found.progress([expired]).ranges
        found.confirm(expired)
    assert [DeadRange(0, 0, 2, False)] == found.dead_ranges(10)
    after = SharePartition(PartitionState(0, 0, ranges=stored), found.limits)
    assert [DeadRange(0, 0, 2, False)] == after.dead_ranges(10)


def test_gaps_have_no_dead_letters() -> None:
    found = partition(has_dead_letters=True)
    found.acquire("a", 0, [FetchedBatch(0, 9)], 0, records_max=100)
    acknowledge(found, 0, 9, int(AcknowledgeType.GAP))
    assert (10, []) == (found.start_offset, found.dead_ranges(10))


def test_dead_letters_of_records_that_the_log_has_deleted_are_given_up() -> None:
    found = partition(has_dead_letters=True)
    found.acquire("a", 0, [FetchedBatch(0, 9)], 0, records_max=100)
    acknowledge(found, 0, 9, REJECT)
    dead = found.dead_ranges(10)
    found.move_start(4)
    assert [DeadRange(4, 9, 1, True)] == found.dead_ranges(10)
    buried = found.bury(dead)
    assert buried is not None
    found.confirm(buried)
    found.check_invariants()
    assert 10 == found.start_offset


def test_a_released_record_is_not_acquired_before_its_time() -> None:
    found = partition(backoff_ms=200)
    batches = [FetchedBatch(0, 4), FetchedBatch(5, 9)]
    found.acquire("a", 0, batches, 0, records_max=5)
    acknowledge(found, 1, 2, RELEASE, now_ms=100)
    assert (5, 300) == (found.next_fetch_offset(299), found.next_deadline_ms)
    assert [AcquiredRange(5, 9, 1)] == found.acquire("b", 5, batches, 299, records_max=100)
    assert [] == found.acquire("b", 0, batches, 299, records_max=100)
    assert not found.end_waits(299)
    assert 1 == found.next_fetch_offset(300)
    assert found.end_waits(300)
    assert [AcquiredRange(1, 2, 2)] == found.acquire("b", 1, batches, 300, records_max=100)
    found.check_invariants()


def test_a_lock_that_ends_makes_the_record_wait_too_and_waits_double() -> None:
    found = partition(lock_ms=1000, backoff_ms=100, backoff_max_ms=350, delivery_count_limit=6)
    now_ms, waits = 0, []
    for _ in range(5):
        assert 1 == len(found.acquire("a", 0, [FetchedBatch(0, 0)], now_ms, records_max=1))
        expired = found.expire(now_ms + 1000)
        assert expired is not None
        found.confirm(expired)
        deadline_ms = found.next_deadline_ms
        assert deadline_ms is not None
        waits.append(deadline_ms - now_ms - 1000)
        now_ms = deadline_ms
    assert [100, 200, 350, 350, 350] == waits


def abandon(found: SharePartition, member_id: str = "a", *unsent: AcquiredRange, now_ms: int = 0) -> None:
    transition = found.abandon(member_id, now_ms, unsent)
    if transition is not None:
        found.confirm(transition)
    found.check_invariants()


def test_a_delivery_counts_where_the_member_is_gone_without_closing_its_session() -> None:
    """Else a record that ends the process of each member that gets it is delivered without end."""
    found = partition(delivery_count_limit=3)
    deliveries = []
    while acquired := found.acquire("a", 0, [FetchedBatch(0, 0)], 0, records_max=100):
        deliveries += [each.deliveries for each in acquired]
        assert len(deliveries) < 10
        abandon(found)
    assert ([1, 2, 3], 1) == (deliveries, found.start_offset)


def test_what_was_acquired_and_not_sent_does_not_count() -> None:
    found = partition(delivery_count_limit=1, has_dead_letters=True)
    batches = [FetchedBatch(0, 4), FetchedBatch(5, 9)]
    sent = found.acquire("a", 0, batches, 0, records_max=5)
    unsent = found.acquire("a", 5, batches, 0, records_max=5)
    found.acquire("b", 10, [FetchedBatch(10, 10)], 0, records_max=5)
    assert [AcquiredRange(0, 4, 1), AcquiredRange(5, 9, 1)] == [*sent, *unsent]
    abandon(found, "a", *unsent, AcquiredRange(50, 60, 1))
    assert [DeadRange(0, 4, 1, False)] == found.dead_ranges(100)
    assert unsent == found.acquire("c", 5, batches, 0, records_max=100)
    assert 6 == found.acquired_count


def test_a_record_that_ends_its_members_does_not_take_its_neighbours_along() -> None:
    """Suspect records come in halves, and one by one at the last attempt (KAFKA-17541)."""
    found = partition()
    poison, count, sizes = 13, 16, []
    while found.start_offset < count:
        offset = found.next_fetch_offset()
        assert offset is not None
        acquired = found.acquire("a", offset, [FetchedBatch(0, count - 1)], 0, records_max=100)
        sizes.append(sum(each.last - each.first + 1 for each in acquired))
        if any(each.first <= poison <= each.last for each in acquired):
            abandon(found)
        else:
            for each in acquired:
                acknowledge(found, each.first, each.last, ACCEPT)
        assert len(sizes) < 50
    assert [16, 16, 16, 8, 4, 2, 1, 1, 1, 1] == sizes


def test_suspect_records_come_alone() -> None:
    found = partition(delivery_count_limit=4)
    batches = [FetchedBatch(0, 3), FetchedBatch(4, 7), FetchedBatch(8, 9)]
    found.acquire("a", 0, batches[:1], 0, records_max=100)
    for _ in range(2):
        found.acquire("b", 4, batches[1:2], 0, records_max=100)
        abandon(found, "b")
    acknowledge(found, 0, 3, RELEASE)
    assert [AcquiredRange(0, 3, 2)] == found.acquire("a", 0, batches, 0, records_max=100)
    assert [] == found.acquire("a", 4, batches, 0, records_max=100, is_first=False)
    assert [AcquiredRange(4, 5, 3)] == found.acquire("a", 4, batches, 0, records_max=100)
    assert [AcquiredRange(6, 6, 3)] == found.acquire("a", 6, batches, 0, records_max=100)
    assert 7 == found.next_fetch_offset()
    found.check_invariants()


def test_a_record_does_not_wait_because_its_session_was_closed_or_its_leader_ended() -> None:
    """The member has not passed it on; and a next leader does not know when it was released."""
    found = partition(backoff_ms=1000)
    found.acquire("a", 0, [FetchedBatch(0, 9)], 0, records_max=100)
    transition = found.release("a")
    assert transition is not None
    found.confirm(transition)
    assert (0, None) == (found.next_fetch_offset(0), found.next_deadline_ms)
    acquired = found.acquire("a", 0, [FetchedBatch(0, 9)], 0, records_max=100)
    assert [AcquiredRange(0, 9, 1)] == acquired
    acknowledge(found, 0, 9, RELEASE)
    after = SharePartition(PartitionState(0, 0, ranges=found.state_ranges()), found.limits)
    assert (10, 0) == (found.next_fetch_offset(0), after.next_fetch_offset(0))


def release(found: SharePartition, first: int, last: int, delay_ms: int, *, now_ms: int = 0) -> None:
    transition = found.acknowledge("a", [Acknowledgement(first, last, [RELEASE], delay_ms)], now_ms)
    assert transition is not None
    found.confirm(transition)
    found.check_invariants()


def test_a_release_may_say_how_long_a_record_is_not_delivered() -> None:
    """It replaces what the group's settings say, with a longer or a shorter wait, or none."""
    found = partition(backoff_ms=200, backoff_max_ms=1000)
    batches = [FetchedBatch(0, 9)]
    found.acquire("a", 0, batches, 0, records_max=10)
    for first, last, delay_ms in ((0, 1, 5000), (2, 3, 50), (4, 5, 0), (6, 7, GROUPS_DELAY)):
        release(found, first, last, delay_ms, now_ms=100)
    assert (4, 150, 6) == (found.next_fetch_offset(100), found.next_deadline_ms, found.waiting_count)
    assert [AcquiredRange(4, 5, 2)] == found.acquire("b", 4, batches, 149, records_max=100)
    assert [AcquiredRange(2, 3, 2)] == found.acquire("b", 2, batches, 150, records_max=100)
    assert [AcquiredRange(6, 7, 2)] == found.acquire("b", 6, batches, 300, records_max=100)
    assert (10, 0) == (found.next_fetch_offset(5099), found.next_fetch_offset(5100))
    assert found.end_waits(5100)
    assert 0 == found.waiting_count
    after = SharePartition(PartitionState(0, 0, ranges=found.state_ranges()), found.limits)
    assert 0 == after.next_fetch_offset(0)


def test_a_delay_counts_for_those_records_of_an_acknowledgement_that_are_released() -> None:
    found = partition()
    found.acquire("a", 0, [FetchedBatch(0, 2)], 0, records_max=10)
    kinds = Acknowledgement(0, 2, [RELEASE, ACCEPT, RENEW], 700)
    transition = found.acknowledge("a", [kinds], 100)
    assert transition is not None
    found.confirm(transition)
    found.check_invariants()
    assert (1, 800) == (found.waiting_count, found.next_deadline_ms)
    assert [AcquiredRange(0, 0, 2)] == found.acquire("b", 0, [FetchedBatch(0, 2)], 800, records_max=10)


def test_a_record_that_waits_as_its_member_asked_holds_up_its_key_until_it_is_given_up() -> None:
    found = partition(delivery_count_limit=2, has_key_order=True)
    batches = [FetchedBatch(0, 1, keys={0: 7, 1: 7})]
    assert [AcquiredRange(0, 0, 1)] == found.acquire("a", 0, batches, 0, records_max=10)
    release(found, 0, 0, 1000)
    assert (2, 0) == (found.next_fetch_offset(999), found.next_fetch_offset(1000))
    assert [AcquiredRange(0, 0, 2)] == found.acquire("a", 0, batches, 1000, records_max=10)
    release(found, 0, 0, 1000, now_ms=1000)
    assert 1 == found.start_offset
    assert [AcquiredRange(1, 1, 1)] == found.acquire("a", 1, batches, 1000, records_max=10)


def test_a_release_that_is_split_while_it_is_being_stored_keeps_its_delay() -> None:
    found = partition()
    found.acquire("a", 0, [FetchedBatch(0, 9)], 0, records_max=10)
    transition = found.acknowledge("a", [Acknowledgement(0, 9, [RELEASE], 700)], 0)
    assert transition is not None
    found.move_start(5)
    found.confirm(transition)
    found.check_invariants()
    assert (700, 5) == (found.next_deadline_ms, found.waiting_count)


def test_a_record_that_waits_holds_its_place_in_the_window() -> None:
    """State stays bounded: what waits is in flight."""
    found = partition(backoff_ms=1000, in_flight_max=5)
    found.acquire("a", 0, [FetchedBatch(0, 4)], 0, records_max=100)
    acknowledge(found, 0, 4, RELEASE)
    assert (None, 0) == (found.next_fetch_offset(999), found.next_fetch_offset(1000))
    found.move_start(3)
    assert 3 == found.next_fetch_offset(1000)
    found.check_invariants()


def test_the_wait_of_a_release_that_could_not_be_stored_does_not_begin() -> None:
    found = partition(backoff_ms=1000, lock_ms=500)
    found.acquire("a", 0, [FetchedBatch(0, 4)], 0, records_max=100)
    released = found.acknowledge("a", [Acknowledgement(0, 4, [RELEASE])], 0)
    assert released is not None
    assert found.next_deadline_ms is None
    found.take_back(released)
    assert 500 == found.next_deadline_ms


def test_waits_of_many_deliveries_have_a_bound() -> None:
    assert 604_800_000 == PartitionLimits(backoff_ms=1, backoff_max_ms=604_800_000).wait_ms(2**15 - 1)


def test_records_that_are_late_are_acquired_when_they_are_due() -> None:
    found = partition(has_times=True)
    batches = [FetchedBatch(0, 4, late=[(1, 50), (2, 50), (4, 90)]), FetchedBatch(5, 9)]
    assert [AcquiredRange(0, 0, 1), AcquiredRange(3, 3, 1), AcquiredRange(5, 9, 1)] == found.acquire(
        "a", 0, batches, 0, records_max=100, batch_size=100
    )
    assert (50, 10) == (found.next_deadline_ms, found.next_fetch_offset(49))
    assert found.end_waits(50)
    assert [AcquiredRange(1, 2, 1)] == found.acquire("b", 1, [FetchedBatch(0, 9)], 50, records_max=100)
    assert (None, 4) == (found.first_unknown(0, 9), found.next_fetch_offset(90))
    found.check_invariants()


def test_late_records_do_not_use_up_a_strict_limit() -> None:
    found = partition(has_times=True)
    batches = [FetchedBatch(0, 9, late=[(1, 50)])]
    assert [AcquiredRange(0, 0, 1), AcquiredRange(2, 3, 1)] == found.acquire(
        "a", 0, batches, 0, records_max=3, is_strict=True
    )
    assert 4 == found.next_fetch_offset(0)
    found.check_invariants()


def test_late_records_are_in_flight_and_bounded_like_others() -> None:
    found = partition(has_times=True, in_flight_max=4)
    batches = [FetchedBatch(n, n, late=[(n, 50)]) for n in range(10)]
    assert [] == found.acquire("a", 0, batches, 0, records_max=100)
    assert (4, None, 0) == (found.in_flight_count, found.next_fetch_offset(49), found.next_fetch_offset(50))


def test_new_records_wait_for_the_delay_of_the_group() -> None:
    """Without any state: records come about in the order of their times."""
    found = partition(delay_ms=100)
    batches = [FetchedBatch(0, 4), FetchedBatch(5, 9, due_ms=70), FetchedBatch(10, 14)]
    assert [AcquiredRange(0, 4, 1)] == found.acquire("a", 0, batches, 0, records_max=100)
    assert (5, None, 70) == (found.end_offset, found.next_fetch_offset(69), found.end_waits(69) or 70)
    acknowledge(found, 0, 4, ACCEPT)
    assert 70 == found.next_deadline_ms, "a fetch that waits is woken then"
    assert found.end_waits(70)
    assert 5 == found.next_fetch_offset(70)


def test_a_next_leader_finds_out_again_what_is_late() -> None:
    """The share coordinator does not store when records are due."""
    limits = PartitionLimits(has_times=True)
    ranges = (StateRange(0, 1, RecordState.AVAILABLE, 2), StateRange(6, 7, RecordState.ACKNOWLEDGED, 1))
    found = SharePartition(PartitionState(0, 0, ranges=ranges), limits)
    assert (2, 4, 8, None) == (
        found.first_unknown(0, 9),
        found.first_unknown(4, 5),
        found.first_unknown(6, 9),
        found.first_unknown(6, 7),
    )
    batches = [FetchedBatch(0, 4, late=[(0, 50), (3, 50)]), FetchedBatch(5, 7)]
    assert [
        AcquiredRange(0, 0, 3),
        AcquiredRange(1, 1, 3),
        AcquiredRange(2, 2, 1),
        AcquiredRange(4, 4, 1),
        AcquiredRange(5, 5, 1),
    ] == found.acquire("a", 0, batches, 0, records_max=100)
    assert (8, None, 3) == (
        found.next_fetch_offset(49),
        found.first_unknown(0, 7),
        found.next_fetch_offset(50),
    )
    found.check_invariants()


def ordered(*keys: int, limits: PartitionLimits | None = None) -> tuple[SharePartition, list[FetchedBatch]]:
    """Return a share partition that keeps the order of keys, and a batch of records that have them."""
    limits = (limits or PartitionLimits())._replace(has_key_order=True)
    batch = FetchedBatch(0, len(keys) - 1, keys={n: key for n, key in enumerate(keys) if key})
    return SharePartition(PartitionState(0, 0), limits), [batch]


def offsets(acquired: list[AcquiredRange]) -> list[int]:
    return [offset for each in acquired for offset in range(each.first, each.last + 1)]


def test_one_record_of_a_key_is_in_flight_at_a_time() -> None:
    found, batches = ordered(7, 7, 8, 0, 0, 7)
    assert [0, 2, 3, 4] == offsets(found.acquire("a", 0, batches, 0, records_max=100))
    found.check_invariants()
    assert 6 == found.next_fetch_offset(0)
    acknowledge(found, 2, 2, ACCEPT)
    assert 6 == found.next_fetch_offset(0)
    acknowledge(found, 0, 0, RELEASE)
    assert [0] == offsets(found.acquire("b", 0, batches, 0, records_max=100))
    transition = found.acknowledge("b", [Acknowledgement(0, 0, [ACCEPT])], 0)
    assert transition is not None
    found.confirm(transition)
    assert [1] == offsets(found.acquire("a", 1, batches, 0, records_max=100))
    acknowledge(found, 1, 1, REJECT)
    assert [5] == offsets(found.acquire("a", 5, batches, 0, records_max=100))
    found.check_invariants()


def test_a_record_that_waits_for_its_time_holds_up_its_key() -> None:
    found, batches = ordered(7, 7, limits=PartitionLimits(has_times=True, backoff_ms=10))
    late = [batches[0]._replace(late=[(0, 50)])]
    assert [] == found.acquire("a", 0, late, 0, records_max=100)
    assert (2, 0) == (found.next_fetch_offset(49), found.next_fetch_offset(50))
    assert [0] == offsets(found.acquire("a", 0, batches, 50, records_max=100))
    acknowledge(found, 0, 0, RELEASE, now_ms=50)
    assert 2 == found.next_fetch_offset(59)


def test_records_without_a_place_in_the_log_do_not_hold_up_their_key() -> None:
    found, batches = ordered(7, 7, 7, 7)
    found.acquire("a", 0, batches, 0, records_max=100)
    found.move_start(2)
    found.check_invariants()
    assert [2] == offsets(found.acquire("a", 2, batches, 0, records_max=100))
    transition = found.release("a")
    assert transition is not None
    found.confirm(transition)
    assert [3] == offsets(found.acquire("a", 2, [FetchedBatch(3, 3)], 0, records_max=100))
    found.check_invariants()
    found.move_start(10)
    found.check_invariants()


def test_a_strict_limit_takes_no_key_that_it_does_not_reach() -> None:
    found, batches = ordered(7, 8, 9, 7)
    assert [0, 1] == offsets(found.acquire("a", 0, batches, 0, records_max=2, is_strict=True))
    assert [2] == offsets(found.acquire("b", 2, batches, 0, records_max=2, is_strict=True))
    found.check_invariants()
    assert 4 == found.end_offset


def test_a_batch_of_which_the_front_is_done_goes_on() -> None:
    """With a strict limit nothing may be in flight in the middle of a batch."""
    found, batches = ordered(7, 8, 9)
    assert [0, 1] == offsets(found.acquire("a", 0, batches, 0, records_max=2, is_strict=True))
    acknowledge(found, 0, 1, ACCEPT)
    assert (2, None) == (found.first_unknown(0, 2), found.first_unknown(0, 1))
    assert [2] == offsets(found.acquire("a", 2, batches, 0, records_max=2, is_strict=True))


def test_a_record_whose_key_is_known_late_waits_for_no_record_behind_it_for_ever() -> None:
    """The order begins while record 0 waits after a release, so the key of record 1 is known first."""
    limits = PartitionLimits(backoff_ms=100)
    found = partition(backoff_ms=100)
    found.acquire("a", 0, [FetchedBatch(0, 0)], 0, records_max=100)
    acknowledge(found, 0, 0, RELEASE)
    _, batches = ordered(7, 7)
    found.set_limits(limits._replace(has_key_order=True))
    assert [1] == offsets(found.acquire("a", 1, [batches[0]._replace(first=1)], 50, records_max=100))
    assert [] == found.acquire("a", 0, batches, 100, records_max=100)
    acknowledge(found, 1, 1, ACCEPT)
    found.check_invariants()
    assert [0] == offsets(found.acquire("a", 0, batches, 100, records_max=100))


def test_the_order_of_keys_may_be_given_up_and_begun() -> None:
    found, batches = ordered(7, 7, 7)
    found.acquire("a", 0, batches, 0, records_max=100)
    found.set_limits(PartitionLimits())
    found.check_invariants()
    assert [1, 2] == offsets(found.acquire("a", 1, batches, 0, records_max=100))
    acknowledge(found, 0, 2, RELEASE)
    found.set_limits(PartitionLimits(has_key_order=True))
    assert 0 == found.first_unknown(0, 2)
    assert [0] == offsets(found.acquire("a", 0, batches, 0, records_max=100))
    found.check_invariants()


def test_times_that_do_not_count_any_more_hold_up_nothing() -> None:
    found = partition(has_times=True)
    batch = FetchedBatch(0, 1, late=[(1, 500)])
    assert [0] == offsets(found.acquire("a", 0, [batch], 0, records_max=100))
    assert 2 == found.next_fetch_offset(0)
    found.set_limits(PartitionLimits())
    assert [1] == offsets(found.acquire("a", 1, [batch], 0, records_max=100))


def test_a_record_that_the_log_has_deleted_before_its_time_holds_up_nothing() -> None:
    found = partition(delay_ms=1000)
    found.acquire("a", 0, [FetchedBatch(0, 9, due_ms=1000)], 0, records_max=100)
    found.move_start(10)
    assert 10 == found.next_fetch_offset(0)


def test_a_shorter_delay_counts_at_once() -> None:
    found = partition(delay_ms=1000)
    found.acquire("a", 0, [FetchedBatch(0, 9, due_ms=1000)], 0, records_max=100)
    assert found.next_fetch_offset(0) is None
    found.set_limits(PartitionLimits(delay_ms=10))
    assert 0 == found.next_fetch_offset(0)

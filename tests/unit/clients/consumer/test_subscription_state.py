"""What is subscribed, assigned, and where each partition is read next."""

import re
from collections.abc import Callable
from uuid import UUID

import pytest

from kalda.clients.consumer.consumer_errors import NoOffsetForPartitionError
from kalda.clients.consumer.offset_reset import EARLIEST, LATEST, NONE, OffsetReset
from kalda.clients.consumer.subscription_state import (
    LogTruncation,
    SubscriptionPattern,
    SubscriptionState,
    SubscriptionType,
)
from kalda.clients.errors import IllegalStateError
from kalda.clients.fetch_position import FetchPosition, LeaderAndEpoch
from kalda.clients.values import OffsetAndMetadata
from kalda.common.types import ZERO_UUID, TopicPartition

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)
B0 = TopicPartition("b", 0)
LEADER = LeaderAndEpoch(1, 5)
OLD, NEW = UUID(int=1), UUID(int=2)


def assigned(*partitions: TopicPartition, reset: OffsetReset = EARLIEST) -> SubscriptionState:
    state = SubscriptionState(reset)
    state.assign_from_user(partitions)
    return state


def generation(state: SubscriptionState, partition: TopicPartition) -> int:
    return next(each.generation for each in state.fetchable(0.0) if each.topic_partition == partition)


@pytest.mark.parametrize(
    "first",
    [
        lambda state: state.subscribe(["a"]),
        lambda state: state.subscribe_pattern(re.compile("a.*")),
        lambda state: state.subscribe_re2(SubscriptionPattern("a.*")),
        lambda state: state.assign_from_user([A0]),
    ],
)
def test_kinds_of_subscription_exclude_each_other(first: Callable[[SubscriptionState], object]) -> None:
    """A program that mixes them would lose partitions silently at the next rebalance."""
    state = SubscriptionState(EARLIEST)

    def subscribe() -> bool:
        return state.subscribe(["b"])

    def assign() -> bool:
        return state.assign_from_user([B0])

    first(state)
    kind = state.type
    second = assign if kind is SubscriptionType.TOPICS else subscribe
    with pytest.raises(IllegalStateError, match="call unsubscribe"):
        second()
    assert kind is state.type
    state.unsubscribe()
    assert subscribe()


def test_subscribing_reports_whether_the_topics_changed() -> None:
    state = SubscriptionState(EARLIEST)
    assert state.subscribe(["a", "b"])
    assert not state.subscribe(["b", "a"])
    assert state.subscribe(["a"])
    assert frozenset({"a"}) == state.topics


def test_a_leader_of_a_group_needs_metadata_of_all_members_topics() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscribe(["a"])
    assert state.group_subscribe(["a", "b"])
    assert frozenset({"a", "b"}) == state.metadata_topics
    state.reset_group_subscription()
    assert frozenset({"a"}) == state.metadata_topics


def test_a_pattern_matches_whole_names() -> None:
    """Java calls Matcher.matches: `a` does not subscribe to `ab`."""
    state = SubscriptionState(EARLIEST)
    state.subscribe_pattern(re.compile("a|b"))
    assert state.matches_pattern("a")
    assert not state.matches_pattern("ab")
    assert [TopicPartition("ab", 0)] == state.unmatched([A0, TopicPartition("ab", 0)])


def test_partitions_that_stay_assigned_keep_their_position_and_pause() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscribe(["a"])
    state.assign_from_subscribed([A0, A1])
    state.seek(A0, FetchPosition(10))
    state.pause([A0])
    state.assign_from_subscribed([A0])
    assert FetchPosition(10) == state.position(A0)
    assert [A0] == state.paused()
    assert [A0] == state.assigned()


def test_a_partition_that_comes_back_starts_over() -> None:
    """Another member may have read on; only the committed offset counts."""
    state = SubscriptionState(EARLIEST)
    state.subscribe(["a"])
    state.assign_from_subscribed([A0])
    state.seek(A0, FetchPosition(10))
    before = generation(state, A0)
    state.assign_from_subscribed([])
    state.assign_from_subscribed([A0])
    assert {A0} == state.initializing().keys()
    assert not state.is_current(A0, before)


def test_partitions_are_not_fetched_before_the_callback_has_returned() -> None:
    state = SubscriptionState(EARLIEST)
    state.subscribe(["a"])
    state.assign_from_subscribed([A0, A1], awaiting_callback=[A1])
    state.seek(A0, FetchPosition(0))
    state.seek(A1, FetchPosition(0))
    assert [A0] == [each.topic_partition for each in state.fetchable(0.0)]
    state.callback_returned([A1])
    assert [A0, A1] == [each.topic_partition for each in state.fetchable(0.0)]


def test_partitions_about_to_be_revoked_are_not_fetched() -> None:
    """Records returned now could be processed by two members."""
    state = assigned(A0, A1)
    state.seek(A0, FetchPosition(0))
    state.seek(A1, FetchPosition(0))
    fetched = generation(state, A0)
    state.mark_pending_revocation([A0])
    assert [A1] == [each.topic_partition for each in state.fetchable(0.0)]
    assert not state.advance(A0, fetched, FetchPosition(1))


def test_records_fetched_before_a_seek_are_not_returned() -> None:
    state = assigned(A0)
    state.seek(A0, FetchPosition(0))
    fetched = generation(state, A0)
    assert state.advance(A0, fetched, FetchPosition(5, 3))
    state.seek(A0, FetchPosition(0))
    assert not state.advance(A0, fetched, FetchPosition(10, 3))
    assert FetchPosition(0) == state.position(A0)


def test_records_of_a_paused_partition_are_returned_after_resume() -> None:
    state = assigned(A0)
    state.seek(A0, FetchPosition(0))
    fetched = generation(state, A0)
    state.pause([A0])
    assert not state.advance(A0, fetched, FetchPosition(5))
    assert state.is_current(A0, fetched)
    state.resume([A0])
    assert state.advance(A0, fetched, FetchPosition(5))


def test_pausing_a_partition_that_is_not_assigned_pauses_none() -> None:
    state = assigned(A0)
    with pytest.raises(IllegalStateError, match="b-0 is not assigned"):
        state.pause([A0, B0])
    assert [] == state.paused()


def test_a_reset_is_looked_up_until_it_completes() -> None:
    state = assigned(A0)
    state.reset_initializing(state.initializing())
    assert {A0: EARLIEST} == state.needing_reset(0.0)
    assert state.position(A0) is None
    state.retry_later([A0], 5.0)
    assert {} == state.needing_reset(4.9)
    assert 5.0 == state.next_retry_at()
    assert state.complete_reset(A0, EARLIEST, FetchPosition(7))
    assert FetchPosition(7) == state.valid_position(A0)


def test_a_reset_that_was_replaced_is_ignored() -> None:
    state = assigned(A0)
    state.request_reset(A0, EARLIEST)
    state.request_reset(A0, LATEST)
    assert not state.complete_reset(A0, EARLIEST, FetchPosition(0))
    state.seek(A0, FetchPosition(3))
    assert not state.complete_reset(A0, LATEST, FetchPosition(9))
    assert FetchPosition(3) == state.position(A0)


def test_without_a_reset_policy_partitions_without_offset_are_an_error() -> None:
    state = assigned(A0, A1, reset=NONE)
    state.seek(A1, FetchPosition(0))
    with pytest.raises(NoOffsetForPartitionError) as raised:
        state.reset_initializing(state.initializing())
    assert (A0,) == raised.value.partitions


def test_committed_offsets_do_not_overwrite_a_seek() -> None:
    """The user may seek while the committed offsets are on their way."""
    state = assigned(A0, A1)
    asked = state.initializing()
    state.seek(A0, FetchPosition(3))
    state.seek_to_committed({A0: FetchPosition(100), A1: FetchPosition(200)}, asked)
    assert FetchPosition(3) == state.position(A0)
    assert FetchPosition(200) == state.position(A1)


def test_a_new_leader_validates_positions_with_an_epoch() -> None:
    state = assigned(A0)
    state.seek(A0, FetchPosition(10, 4, LeaderAndEpoch(2, 4)))
    assert state.valid_position(A0) is None, "a seek with an epoch is validated, too"
    state.complete_validation(A0, FetchPosition(10, 4, LeaderAndEpoch(2, 4)), 4, 20)
    fetched = generation(state, A0)
    assert state.change_leader(A0, LEADER, can_validate=True)
    asked = FetchPosition(10, 4, LEADER)
    assert {A0: asked} == state.needing_validation(0.0)
    assert not state.is_current(A0, fetched), "prefetched records are from the previous leader"
    assert state.complete_validation(A0, asked, 4, 10) is None
    assert asked == state.valid_position(A0)
    assert not state.change_leader(A0, LEADER, can_validate=True)


@pytest.mark.parametrize(
    ("position", "can_validate"), [(FetchPosition(10), True), (FetchPosition(10, 4), False)]
)
def test_positions_that_cannot_be_validated_go_on(position: FetchPosition, can_validate: bool) -> None:
    """Brokers before 2.3 and records without epoch have nothing to compare."""
    state = assigned(A0)
    state.seek(A0, position)
    assert state.change_leader(A0, LEADER, can_validate=can_validate)
    assert FetchPosition(10, position.offset_epoch, LEADER) == state.valid_position(A0)


def test_truncation_goes_back_to_where_the_logs_differ() -> None:
    state = assigned(A0)
    asked = FetchPosition(31, 4, LEADER)
    state.seek(A0, asked)
    assert state.complete_validation(A0, asked, 4, 20) is None
    assert FetchPosition(20, 4, LEADER) == state.valid_position(A0)


def test_a_position_beyond_the_end_of_the_leaders_own_epoch_is_out_of_range() -> None:
    """No election truncates the epoch of the leader itself: the topic was created again under its name.

    Its records from the beginning on are new, so going on at the end would skip all of them.
    """
    state = assigned(A0)
    asked = FetchPosition(50, 5, LEADER)
    state.seek(A0, asked)
    assert state.complete_validation(A0, asked, 5, 10) is None
    assert {A0: EARLIEST} == state.needing_reset(0.0)


def test_a_topic_that_was_created_again_is_read_from_where_the_reset_says() -> None:
    """The position belongs to the deleted topic: committing it, or going on there, would skip records."""
    state = assigned(A0)
    assert not state.change_topic_id(A0, OLD)
    state.seek(A0, FetchPosition(50, 4, LEADER))
    state.complete_validation(A0, FetchPosition(50, 4, LEADER), 4, 50)
    fetched = generation(state, A0)
    assert not state.change_topic_id(A0, ZERO_UUID), "a broker without topic ids says nothing"
    assert state.change_topic_id(A0, NEW)
    assert {} == state.all_consumed()
    assert {A0: EARLIEST} == state.needing_reset(0.0)
    assert not state.is_current(A0, fetched)
    assert not state.change_topic_id(A0, NEW)


def test_a_broker_that_still_names_the_deleted_topic_does_not_move_the_position() -> None:
    state = assigned(A0, reset=LATEST)
    state.change_topic_id(A0, OLD)
    state.seek(A0, FetchPosition(50))
    state.change_topic_id(A0, NEW)
    state.complete_reset(A0, LATEST, FetchPosition(3))
    assert state.change_topic_id(A0, OLD)
    assert FetchPosition(50) == state.position(A0)
    assert state.change_topic_id(A0, NEW)
    assert FetchPosition(3) == state.position(A0)


def test_positions_in_a_deleted_topic_are_not_committed() -> None:
    """The commit would stand for a topic that was created under the name meanwhile, and skip its records."""
    ids = {"a": OLD}
    state = SubscriptionState(EARLIEST)
    state.topic_id_of = lambda name: ids.get(name, ZERO_UUID)
    state.assign_from_user([A0])
    state.seek(A0, FetchPosition(50))
    assert [A0] == list(state.all_consumed())
    ids.clear()
    assert {} == state.all_consumed()


def test_without_a_reset_the_user_learns_of_the_topic_that_was_created_again() -> None:
    state = assigned(A0, reset=NONE)
    state.change_topic_id(A0, OLD)
    state.seek(A0, FetchPosition(50))
    assert state.change_topic_id(A0, NEW)
    assert {} == state.all_consumed()
    with pytest.raises(NoOffsetForPartitionError):
        state.reset_initializing(state.initializing())


def test_committed_offsets_of_the_deleted_topic_that_arrive_late_are_ignored() -> None:
    state = assigned(A0)
    state.change_topic_id(A0, OLD)
    asked = state.initializing()
    state.change_topic_id(A0, NEW)
    state.seek_to_committed({A0: FetchPosition(50)}, asked)
    assert state.position(A0) is None


def test_truncation_to_an_unknown_epoch_resets_the_position() -> None:
    state = assigned(A0)
    asked = FetchPosition(31, 4, LEADER)
    state.seek(A0, asked)
    assert state.complete_validation(A0, asked, -1, -1) is None
    assert {A0: EARLIEST} == state.needing_reset(0.0)


@pytest.mark.parametrize(
    ("epoch", "end", "divergent"), [(4, 20, OffsetAndMetadata(20, "", 4)), (-1, -1, None)]
)
def test_truncation_without_a_reset_policy_is_reported(
    epoch: int, end: int, divergent: OffsetAndMetadata | None
) -> None:
    state = assigned(A0, reset=NONE)
    asked = FetchPosition(31, 4, LEADER)
    state.seek(A0, asked)
    assert LogTruncation(A0, asked, divergent) == state.complete_validation(A0, asked, epoch, end)


def test_a_late_validation_is_ignored() -> None:
    state = assigned(A0)
    asked = FetchPosition(31, 4, LEADER)
    state.seek(A0, asked)
    state.seek(A0, FetchPosition(0))
    assert state.complete_validation(A0, asked, 4, 20) is None
    assert FetchPosition(0) == state.position(A0)


def test_all_consumed_leaves_out_partitions_without_a_valid_position() -> None:
    state = assigned(A0, A1, B0)
    state.seek(A0, FetchPosition(10, 4))
    state.seek(A1, FetchPosition(3))
    assert {A0: OffsetAndMetadata(10, "", 4), A1: OffsetAndMetadata(3)} == state.all_consumed()


def test_a_preferred_replica_is_used_until_its_lease_ends() -> None:
    state = assigned(A0)
    state.seek(A0, FetchPosition(0))
    state.set_preferred_replica(A0, 3, until=10.0)
    assert 3 == state.fetchable(9.9)[0].preferred_replica
    assert state.fetchable(10.0)[0].preferred_replica is None
    state.set_preferred_replica(A0, 3, until=20.0)
    assert 3 == state.clear_preferred_replica(A0)
    assert state.fetchable(11.0)[0].preferred_replica is None


def test_lag_counts_to_the_end_that_the_isolation_level_allows() -> None:
    state = assigned(A0)
    assert state.lag(A0, read_committed=False) is None
    state.seek(A0, FetchPosition(10))
    state.update_end(A0, high_watermark=30, last_stable_offset=25, log_start_offset=5)
    assert 20 == state.lag(A0, read_committed=False)
    assert 15 == state.lag(A0, read_committed=True)
    assert 5 == state.lead(A0)


def test_partitions_take_turns() -> None:
    state = assigned(A0, A1, B0)
    for partition in state.assigned():
        state.seek(partition, FetchPosition(0))
    state.move_to_end(A0)
    assert [A1, B0, A0] == [each.topic_partition for each in state.fetchable(0.0)]

"""What is fetched from which broker, and when nothing is."""

from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

import pytest

from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.fetch_planner import Asked, FetchPlan, FetchPlanner, Outcome, outcome_of
from kalda.clients.consumer.offset_reset import EARLIEST
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.fetch_position import FetchPosition, LeaderAndEpoch
from kalda.clients.metadata import ClusterMetadata, PartitionMetadata, TopicMetadata
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.records.record import RecordBatchBuilder

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
IDS = {"a": UUID(int=10), "b": UUID(int=11)}
LEADERS = {A0: 1, A1: 2, B0: 1}


def cluster(offline: Mapping[TopicPartition, tuple[int, ...]] | None = None) -> ClusterMetadata:
    topics = {}
    for name in ("a", "b"):
        partitions = {
            each.partition: PartitionMetadata(
                each, leader, 5, ErrorCode.NONE, (1, 2), (1, 2), (offline or {}).get(each, ())
            )
            for each, leader in LEADERS.items()
            if each.topic == name
        }
        topics[name] = TopicMetadata(name, IDS[name], False, ErrorCode.NONE, partitions)
    brokers = {number: BrokerEndpoint(number, "h", 9092) for number in (1, 2)}
    return ClusterMetadata(1, "c", 1, brokers, topics)


class Planning:
    """A planner for three partitions at offset 0; broker 1 leads two of them."""

    def __init__(self, **options: Any) -> None:
        limits = {"max_partition_fetch_bytes": 100, "fetch_max_bytes": 250, **options}
        config = ConsumerConfig.from_options({"bootstrap_servers": "h:1", **limits})
        self.subscription = SubscriptionState(EARLIEST)
        self.subscription.assign_from_user(LEADERS)
        for partition, leader in LEADERS.items():
            self.subscription.seek(partition, FetchPosition(0, -1, LeaderAndEpoch(leader, 5)))
        self.planner = FetchPlanner(config, self.subscription)

    def plan(
        self,
        unread: Mapping[TopicPartition, int] | None = None,
        *,
        busy: Collection[int] = (),
        unreachable: Collection[int] = (),
        snapshot: ClusterMetadata | None = None,
        now: float = 0.0,
    ) -> FetchPlan:
        return self.planner.plan(
            cluster() if snapshot is None else snapshot,
            now,
            unread=unread or {},
            busy=busy,
            is_reachable=lambda node: node not in unreachable,
        )

    def offsets(self, *args: Any, **options: Any) -> dict[int, dict[TopicPartition, int]]:
        fetches = self.plan(*args, **options).fetches
        return {
            node: {partition: target.fetch_offset for partition, target in fetch.targets.items()}
            for node, fetch in fetches.items()
        }

    def generation(self, partition: TopicPartition) -> int:
        return next(
            each.generation for each in self.subscription.fetchable(0.0) if each.topic_partition == partition
        )


def batch(base_offset: int, count: int) -> memoryview:
    builder = RecordBatchBuilder(base_offset=base_offset)
    for _ in range(count):
        builder.append(None, b"v", 1)
    return memoryview(builder.build())


def test_each_leader_is_asked_for_its_partitions() -> None:
    it = Planning()
    assert {1: {A0: 0, B0: 0}, 2: {A1: 0}} == it.offsets()
    target = it.plan().fetches[2].targets[A1]
    assert (IDS["a"], 0, 5, 100) == target


def test_the_default_partition_size_leaves_the_bound_of_all_partitions() -> None:
    """A partition gets twice Kafka's default; a consumer of many takes no more memory than with Kafka's."""
    options = {"bootstrap_servers": "h:1"}
    defaults = ConsumerConfig.from_options(options)
    partition_bytes, all_bytes = defaults.max_partition_fetch_bytes, defaults.fetch_max_bytes
    assert (2 << 20, 50 << 20) == (partition_bytes, all_bytes)

    it = Planning(max_partition_fetch_bytes=partition_bytes, fetch_max_bytes=all_bytes)
    assert {A1: 0} == it.offsets({A1: partition_bytes})[2], "one fetch is read while the next is under way"
    assert 2 not in it.offsets({A1: partition_bytes + 1})
    assert {} == it.offsets({A0: all_bytes})
    assert all_bytes - partition_bytes == it.planner.bytes_wanted({A1: partition_bytes})


def test_a_broker_has_one_fetch_at_a_time() -> None:
    assert {2: {A1: 0}} == Planning().offsets(busy=[1])


def test_a_broker_in_back_off_is_not_asked() -> None:
    assert {1: {A0: 0, B0: 0}} == Planning().offsets(unreachable=[2])


def test_the_next_fetch_begins_where_the_last_one_ended() -> None:
    """Records are fetched ahead of the user; a seek starts over from the position."""
    it = Planning()
    asked = it.plan().fetches[1].asked[A0]
    assert it.planner.is_wanted(A0, asked)
    assert it.planner.received(A0, asked, batch(0, 7)) is None
    assert {A0: 7, B0: 0} == it.offsets()[1]
    assert not it.planner.is_wanted(A0, asked), "the same records would come twice"
    it.subscription.seek(A0, FetchPosition(3, -1, LeaderAndEpoch(1, 5)))
    assert {A0: 3, B0: 0} == it.offsets()[1]
    assert not it.planner.is_wanted(A0, Asked(asked.generation, 7))


def test_a_response_without_a_whole_batch_leaves_the_position() -> None:
    it = Planning()
    asked = it.plan().fetches[1].asked[A0]
    assert "without a whole batch" in (it.planner.received(A0, asked, batch(0, 7)[:-1]) or "")
    assert {A0: 0, B0: 0} == it.offsets()[1]


def test_a_broker_waits_until_all_its_partitions_have_room() -> None:
    """A fetch of the others might wait at the broker while the full partition is read."""
    it = Planning()
    plan = it.plan({A0: 101})
    assert [2] == list(plan.fetches)
    assert plan.needs_room
    assert not it.plan({A0: 100}).needs_room


def test_unread_bytes_are_bounded_in_all() -> None:
    it = Planning()
    plan = it.plan({A0: 90, A1: 80, B0: 80})
    assert {} == plan.fetches
    assert plan.needs_room
    assert 1 == it.planner.bytes_wanted({A0: 300})
    assert 160 == it.planner.bytes_wanted({A0: 90})


def test_paused_partitions_do_not_hold_back_others() -> None:
    it = Planning()
    it.subscription.pause([A0])
    assert {1: {B0: 0}, 2: {A1: 0}} == it.offsets({A0: 400})
    assert [] == it.planner.excess({A0: 400})
    assert [A0] == it.planner.excess({A0: 400, B0: 101})


def test_the_preferred_replica_is_asked() -> None:
    it = Planning()
    it.subscription.set_preferred_replica(A0, 2, until=10.0)
    assert {1: {B0: 0}, 2: {A0: 0, A1: 0}} == it.offsets()
    assert {A0: 0, B0: 0} == it.offsets(now=10.0)[1], "its lease is over"


def test_a_preferred_replica_that_is_offline_is_given_up() -> None:
    it = Planning()
    it.subscription.set_preferred_replica(A0, 2, until=10.0)
    plan = it.plan(snapshot=cluster({A0: (2,)}))
    assert plan.needs_metadata
    assert {A0, B0} == plan.fetches[1].targets.keys()


def test_without_a_leader_the_metadata_is_asked() -> None:
    it = Planning()
    it.subscription.seek(A1, FetchPosition(0))
    plan = it.plan()
    assert plan.needs_metadata
    assert [1] == list(plan.fetches)


def test_a_partition_that_failed_waits_and_goes_last() -> None:
    it = Planning()
    backoff = ExponentialBackoff(1_000, 3_000, lambda low, high: 1.0)
    it.planner.failed(A0, 4.0, backoff)
    plan = it.plan(now=4.9)
    assert 5.0 == plan.retry_at
    assert [B0] == list(plan.fetches[1].targets)
    assert [B0, A0] == list(it.plan(now=5.0).fetches[1].targets)
    it.planner.failed(A0, 5.0, backoff)
    assert 7.0 == it.plan(now=5.0).retry_at, "the next wait is longer"


@pytest.mark.parametrize(
    ("base_offset", "reason"),
    [
        (2**63 - 1, "which no offset can follow"),
        (2, "only batches that end below offset 5"),
        (-5, "only batches that end below offset 5"),
    ],
)
def test_batches_that_lead_nowhere_are_refused(base_offset: int, reason: str) -> None:
    """The next fetch would ask for the same offset, or for one that no request can carry, for ever."""
    it = Planning()
    it.subscription.seek(A0, FetchPosition(5, -1, LeaderAndEpoch(1, 5)))
    asked = it.plan().fetches[1].asked[A0]
    damaged = bytearray(batch(0, 1))
    damaged[:8] = base_offset.to_bytes(8, "big", signed=True)
    assert reason in (it.planner.received(A0, asked, memoryview(damaged)) or "")
    assert 5 == it.offsets()[1][A0]


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, Outcome.REFRESH_METADATA),
        (ErrorCode.FENCED_LEADER_EPOCH, Outcome.REFRESH_METADATA),
        (ErrorCode.UNKNOWN_TOPIC_ID, Outcome.REFRESH_METADATA),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, Outcome.RETRY),
        (ErrorCode.OFFSET_OUT_OF_RANGE, Outcome.OUT_OF_RANGE),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, Outcome.FAIL),
        (ErrorCode.CORRUPT_MESSAGE, Outcome.FAIL),
    ],
)
def test_errors_have_the_outcomes_of_javas_client(code: ErrorCode, outcome: Outcome) -> None:
    assert outcome is outcome_of(code)


def test_a_topic_that_the_metadata_lost_is_fetched_by_its_id() -> None:
    """By its name, the topic that is created next would be read from the position of the deleted one."""
    it = Planning()
    assert not it.subscription.change_topic_id(A0, IDS["a"])
    known = cluster()
    without = ClusterMetadata(1, "c", 1, known.brokers, {"b": known.topics["b"]})

    targets = it.plan(snapshot=without).fetches[1].targets

    assert (IDS["a"], IDS["b"]) == (targets[A0].topic_id, targets[B0].topic_id)

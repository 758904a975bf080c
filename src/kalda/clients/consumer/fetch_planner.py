"""Decides what to fetch from which broker, and what a response means for each partition. Sans-IO.

The next fetch of a partition begins where the last one ended, whether or not the user has read that, so that
records arrive while others are processed. Two bounds hold this back: `max.partition.fetch.bytes` for the
unread bytes of each partition, and `fetch.max.bytes` for all of them. A full response just reaches the first
bound, so that one fetch is read while the next one is under way.

A broker gets no fetch while one of its partitions has no room. A fetch of the other partitions might wait at
the broker for `fetch.max.wait.ms` and delay the partition that is read fastest.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from kalda.clients.consumer.completed_fetch import OFFSET_MAX, scan_batches
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.fetch_session import FetchTarget
from kalda.clients.consumer.subscription_state import Fetchable, SubscriptionState
from kalda.clients.fetch_position import NO_LEADER, LeaderAndEpoch
from kalda.clients.metadata import ClusterMetadata
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.protocol.messages.fetch import PartitionData


@dataclass(frozen=True, slots=True)
class Asked:
    """The part of a sent request that concerns one partition."""

    generation: int
    offset: int


@dataclass(slots=True)
class NodeFetch:
    """A request for one broker."""

    targets: dict[TopicPartition, FetchTarget] = field(default_factory=dict)
    asked: dict[TopicPartition, Asked] = field(default_factory=dict)


@dataclass(slots=True)
class FetchPlan:
    """The requests to send now."""

    fetches: dict[int, NodeFetch] = field(default_factory=dict)
    """By broker id."""
    needs_metadata: bool = False
    """Whether a partition's leader is not known."""
    needs_room: bool = False
    """Whether something is not fetched before the user has read some records."""
    retry_at: float | None = None
    """When a partition that failed may be asked for again."""


class Outcome(Enum):
    """The reaction to a partition's error."""

    RETRY = "retry"
    REFRESH_METADATA = "refresh metadata"
    OUT_OF_RANGE = "out of range"
    FAIL = "fail"


_OUTCOMES: Final = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Outcome.REFRESH_METADATA,
    ErrorCode.REPLICA_NOT_AVAILABLE: Outcome.REFRESH_METADATA,
    ErrorCode.KAFKA_STORAGE_ERROR: Outcome.REFRESH_METADATA,
    ErrorCode.FENCED_LEADER_EPOCH: Outcome.REFRESH_METADATA,
    ErrorCode.OFFSET_NOT_AVAILABLE: Outcome.REFRESH_METADATA,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Outcome.REFRESH_METADATA,
    ErrorCode.UNKNOWN_TOPIC_ID: Outcome.REFRESH_METADATA,
    ErrorCode.INCONSISTENT_TOPIC_ID: Outcome.REFRESH_METADATA,
    ErrorCode.UNKNOWN_LEADER_EPOCH: Outcome.RETRY,
    ErrorCode.UNKNOWN_SERVER_ERROR: Outcome.RETRY,
    ErrorCode.OFFSET_OUT_OF_RANGE: Outcome.OUT_OF_RANGE,
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: Outcome.OUT_OF_RANGE,
}


def outcome_of(code: ErrorCode) -> Outcome:
    """Return the reaction to a partition's error code."""
    return _OUTCOMES.get(code, Outcome.FAIL)


class FetchPlanner:
    """The fetch positions ahead of the user, and the plan that follows from them."""

    def __init__(self, config: ConsumerConfig, subscription: SubscriptionState) -> None:
        self._subscription: Final = subscription
        self._partition_bytes: Final = config.max_partition_fetch_bytes
        self._total_bytes: Final = max(config.fetch_max_bytes, 1)
        # Where the last fetch of each partition ended, valid for the generation only.
        self._ahead: dict[TopicPartition, Asked] = {}
        self._not_before: dict[TopicPartition, float] = {}
        # How often in a row each partition failed.
        self._failures: dict[TopicPartition, int] = {}

    def plan(
        self,
        snapshot: ClusterMetadata,
        now: float,
        *,
        unread: Mapping[TopicPartition, int],
        busy: Collection[int],
        is_reachable: Callable[[int], bool],
    ) -> FetchPlan:
        """Return the fetch requests to send now.

        Args:
            snapshot: The cluster.
            now: Monotonic seconds.
            unread: Bytes that are fetched and unread, by partition.
            busy: The brokers with a fetch in flight.
            is_reachable: Whether a broker may be asked now; False during a back-off.
        """
        plan = FetchPlan()
        fetchable = self._subscription.fetchable(now)
        self._forget_others(fetchable)
        # What was fetched of paused partitions must not hold back those that are read.
        has_room = sum(unread.get(each.topic_partition, 0) for each in fetchable) < self._total_bytes
        full: set[int] = set()
        for each in fetchable:
            partition = each.topic_partition
            node = self._node(each, snapshot, plan)
            if node is None or node in busy or not is_reachable(node):
                continue
            not_before = self._not_before.get(partition, 0.0)
            if not_before > now:
                plan.retry_at = min(not_before, plan.retry_at or not_before)
                continue
            if not has_room or unread.get(partition, 0) > self._partition_bytes:
                plan.needs_room = True
                full.add(node)
                continue
            ahead = self._ahead.get(partition)
            is_ahead = ahead is not None and ahead.generation == each.generation
            offset = ahead.offset if ahead is not None and is_ahead else each.position.offset
            fetch = plan.fetches.setdefault(node, NodeFetch())
            fetch.asked[partition] = Asked(each.generation, offset)
            # Metadata without the topic has no id. By its name, a topic that is created again would be read
            # from the position of the deleted one.
            topic_id = each.topic_id if each.topic_id != ZERO_UUID else snapshot.topic_id(partition.topic)
            fetch.targets[partition] = FetchTarget(
                topic_id, offset, each.position.leader.epoch, self._partition_bytes
            )
        for node in full:
            plan.fetches.pop(node, None)
        return plan

    def bytes_wanted(self, unread: Mapping[TopicPartition, int]) -> int:
        """Return the largest number of bytes for the next request."""
        return max(self._total_bytes - sum(unread.values()), 1)

    def excess(self, unread: Mapping[TopicPartition, int]) -> list[TopicPartition]:
        """Return the paused partitions whose records must go, so that all unread records stay in bounds."""
        too_many = sum(unread.values()) - 2 * self._total_bytes
        given_up: list[TopicPartition] = []
        for partition, size in unread.items():
            if too_many <= 0:
                break
            if not self._subscription.is_fetchable(partition):
                given_up.append(partition)
                too_many -= size
        return given_up

    def is_wanted(self, partition: TopicPartition, asked: Asked) -> bool:
        """Whether what a request asked for still continues what was fetched before."""
        if not self._subscription.is_current(partition, asked.generation):
            return False
        ahead = self._ahead.get(partition)
        return ahead is None or ahead.generation != asked.generation or ahead.offset == asked.offset

    def received(self, partition: TopicPartition, asked: Asked, records: memoryview) -> str | None:
        """Take the records of a response; return what is wrong with them, None if nothing is."""
        scan = scan_batches(records, asked.offset)
        if not scan.whole_bytes:
            return f"the broker sent {len(records)} bytes without a whole batch"
        if scan.next_offset > OFFSET_MAX:
            return f"a batch ends at offset {scan.next_offset - 1}, which no offset can follow"
        if scan.next_offset <= asked.offset:
            return f"the broker sent only batches that end below offset {asked.offset}"
        self._ahead[partition] = Asked(asked.generation, scan.next_offset)
        self._failures.pop(partition, None)
        return None

    def failed(self, partition: TopicPartition, now: float, backoff: ExponentialBackoff) -> None:
        """Ask for a partition again after a back-off, and after the others, so that those get their turn."""
        failures = self._failures[partition] = self._failures.get(partition, 0) + 1
        self._not_before[partition] = now + backoff.seconds(failures)
        self._subscription.move_to_end(partition)

    def _forget_others(self, fetchable: Collection[Fetchable]) -> None:
        if len(self._ahead) + len(self._not_before) > 2 * len(fetchable):
            current = {each.topic_partition for each in fetchable}
            assigned = current.union(self._subscription.assigned())
            self._ahead = {key: value for key, value in self._ahead.items() if key in assigned}
            self._not_before = {key: value for key, value in self._not_before.items() if key in assigned}
            self._failures = {key: value for key, value in self._failures.items() if key in assigned}

    def _node(self, each: Fetchable, snapshot: ClusterMetadata, plan: FetchPlan) -> int | None:
        """Return the broker to fetch from: the closest replica if the leader named one, else the leader."""
        leader_id = each.position.leader.leader_id
        if leader_id == NO_LEADER or leader_id not in snapshot.brokers:
            plan.needs_metadata = True
            return None
        replica = each.preferred_replica
        if replica is None:
            return leader_id
        partition = snapshot.partition(each.topic_partition)
        is_offline = partition is None or replica in partition.offline_replicas
        if is_offline or replica not in snapshot.brokers:
            self._subscription.clear_preferred_replica(each.topic_partition)
            plan.needs_metadata = True
            return leader_id
        return replica


def leader_of(snapshot: ClusterMetadata, partition: TopicPartition) -> LeaderAndEpoch:
    """Return a partition's leader and its epoch; both -1 where the partition has none."""
    found = snapshot.partition(partition)
    return LeaderAndEpoch() if found is None else LeaderAndEpoch(found.leader_id, found.leader_epoch)


def data_of(data: PartitionData) -> memoryview:
    """Return the records of a partition in a response, without a copy."""
    records = data.records
    if records is None:
        return memoryview(b"")
    assert isinstance(records, bytes | bytearray | memoryview), "decoding gives views of the response"
    return memoryview(records)

"""One partition of which this broker has a replica: its leadership, in-sync replicas, high watermark.

It decides and keeps state; it does no request handling and writes nothing to coordination. The controller's
requests change it (`become_leader`, `become_follower`), appends and follower fetches move the high watermark:

    ISR {1, 2}, leader 1 at end offset 10, follower 2 fetches from 7  ->  high watermark 7
    follower 2 fetches from 10                                        ->  high watermark 10

What a maintainer must not break: the high watermark of a leader is never above the end offset of any member
of the ISR, or a record that was acknowledged to acks=all could be lost with the leader.
"""

import uuid
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import NO_PARTITION_LEADER, TopicPartition
from kalda.controller.effects import PartitionLeadership
from kalda.storage.unified_log import LogAppendInfo, UnifiedLog

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that only the broker and Kafka's admin client write to."""

ACKS_ALL: Final = -1
NO_EPOCH: Final = -1
"""The current leader epoch of a client that knows none; any other is compared, below zero too."""
DEBUGGING_REPLICA_ID: Final = -2
"""A reader that asks for any replica's data as it is, not the leader's."""


class FollowerState:
    """What the leader knows of one follower from its fetches."""

    __slots__ = (
        "last_caught_up",
        "last_fetch",
        "last_fetch_leader_end_offset",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self) -> None:
        self.log_end_offset = -1
        self.log_start_offset = -1
        self.last_caught_up = 0.0
        """Monotonic seconds of the last moment at which it had all that the leader had."""
        self.last_fetch = 0.0
        self.last_fetch_leader_end_offset = -1

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, now: float) -> None:
        """Take note of a fetch from `offset`: everything below it is on the follower's disk."""
        if offset >= leader_end_offset:
            self.last_caught_up = max(self.last_caught_up, now)
        elif offset >= self.last_fetch_leader_end_offset:
            # It has what the leader had at its previous fetch, so it was caught up then: a follower of a
            # busy leader is always a little behind the end.
            self.last_caught_up = max(self.last_caught_up, self.last_fetch)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.last_fetch = now
        self.last_fetch_leader_end_offset = leader_end_offset


class Partition:
    """A replica on this broker, leader or follower."""

    __slots__ = (
        "broker_id",
        "followers",
        "is_internal",
        "is_leader",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "log",
        "name_bytes",
        "partition_epoch",
        "replicas",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, topic_id: uuid.UUID, broker_id: int, log: UnifiedLog
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.topic_id: Final = topic_id
        self.broker_id: Final = broker_id
        self.log: Final = log
        self.name_bytes: Final = topic_partition.topic.encode()
        self.is_internal: Final = topic_partition.topic in INTERNAL_TOPICS
        self.is_leader = False
        self.leader_id = NO_PARTITION_LEADER
        self.leader_epoch = -1
        self.leader_epoch_start_offset = -1
        """The end offset at which this leader's epoch began."""
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.followers: dict[int, FollowerState] = {}
        """The other replicas, while this broker leads; empty otherwise."""

    # What the controller decides.

    def become_leader(self, leadership: PartitionLeadership) -> bool:
        """Lead the partition from now on; return whether a new leader epoch began here.

        Raises:
            LogStorageError: the new epoch cannot be written down; the role is the one before.
        """
        is_new_epoch = leadership.leader_epoch > self.leader_epoch or not self.is_leader
        if is_new_epoch:
            self.log.assign_leader_epoch(leadership.leader_epoch)
        self._adopt(leadership)
        others = [replica for replica in leadership.replicas if replica != self.broker_id]
        if is_new_epoch:
            self.leader_epoch_start_offset = self.log.log_end_offset
            self.followers = {replica: FollowerState() for replica in others}
        else:
            known = self.followers
            self.followers = {replica: known.get(replica) or FollowerState() for replica in others}
        self.is_leader = True
        self.maybe_advance_high_watermark()
        return is_new_epoch

    def become_follower(self, leadership: PartitionLeadership) -> bool:
        """Follow another broker; return whether the leader or its epoch changed."""
        is_changed = self.is_leader or leadership.leader_epoch > self.leader_epoch
        self._adopt(leadership)
        self.is_leader = False
        self.followers = {}
        self.leader_epoch_start_offset = -1
        return is_changed

    def _adopt(self, leadership: PartitionLeadership) -> None:
        self.leader_id = leadership.leader
        self.leader_epoch = leadership.leader_epoch
        self.partition_epoch = leadership.partition_epoch
        self.replicas = leadership.replicas
        self.isr = leadership.isr

    # Writing.

    @property
    def min_in_sync_replicas(self) -> int:
        """``min.insync.replicas``, but never more than there are replicas."""
        return min(self.log.config.min_insync_replicas, len(self.followers) + 1)

    def append_as_leader(self, records: memoryview, acks: int) -> LogAppendInfo:
        """Append one batch as the leader and move the high watermark as far as it may go.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, or NOT_ENOUGH_REPLICAS for acks=all.
            StorageError: what the log refuses, with the code to answer.
        """
        if not self.is_leader:
            raise self.not_leader()
        followers = self.followers
        if acks == ACKS_ALL and followers and len(self.isr) < self.min_in_sync_replicas:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The in-sync replicas {list(self.isr)} of {self.topic_partition} are fewer than "
                f"min.insync.replicas={self.log.config.min_insync_replicas}.",
            )
        log = self.log
        info = log.append_as_leader(records, self.leader_epoch)
        if followers:
            self.maybe_advance_high_watermark()
        else:
            log.advance_high_watermark(log.log_end_offset)
        return info

    def maybe_advance_high_watermark(self) -> bool:
        """Move the high watermark to the least end offset of the ISR; return whether it moved.

        Below ``min.insync.replicas`` it stays, so that what acks=all could not have acknowledged does not
        become visible either (KIP-966).
        """
        log = self.log
        if self.followers and len(self.isr) < self.min_in_sync_replicas:
            return False
        target = log.log_end_offset
        for replica, state in self.followers.items():
            if replica in self.isr and state.log_end_offset < target:
                target = state.log_end_offset
        if target <= log.high_watermark:
            return False
        log.advance_high_watermark(target)
        return True

    def update_follower(self, replica: int, offset: int, log_start_offset: int, now: float) -> bool:
        """Take note of a follower's fetch; return whether the high watermark moved.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, UNKNOWN_LEADER_EPOCH where the broker is not a replica.
        """
        state = self.followers.get(replica)
        if state is None:
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"Broker {replica} is not a replica of {self.topic_partition} here yet.",
            )
        state.fetched(offset, log_start_offset, self.log.log_end_offset, now)
        return replica in self.isr and self.maybe_advance_high_watermark()

    # Reading.

    def check_leader_epoch(self, current_leader_epoch: int, leader_only: bool = True) -> None:
        """Fence a request by the leader epoch that it believes in (KIP-320); -1 believes in none.

        Raises:
            ApiError: FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, NOT_LEADER_OR_FOLLOWER.
        """
        epoch = self.leader_epoch
        if current_leader_epoch not in (NO_EPOCH, epoch):
            fenced = current_leader_epoch < epoch
            raise ApiError(ErrorCode.FENCED_LEADER_EPOCH if fenced else ErrorCode.UNKNOWN_LEADER_EPOCH)
        if leader_only and not self.is_leader:
            raise self.not_leader()

    def not_leader(self) -> ApiError:
        """Return the error for a request that only the leader may serve."""
        return ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {self.broker_id} does not lead {self.topic_partition}; the leader is {self.leader_id}.",
        )

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return f"Partition({self.topic_partition}, {role}, epoch {self.leader_epoch}, isr {list(self.isr)})"

"""One partition of which this broker has a replica: its leadership, in-sync replicas, high watermark.

It decides and keeps state; it does no request handling and writes nothing to coordination. The controller's
requests change it (`become_leader`, `become_follower`), appends and follower fetches move the high watermark:

    ISR {1, 2}, leader 1 at end offset 10, follower 2 fetches from 7  ->  high watermark 7
    follower 2 fetches from 10                                        ->  high watermark 10

A change of the ISR takes effect in two steps, because only coordination can say whether it did (KIP-497):
`propose_shrink` or `propose_expansion` makes it pending, `commit_isr` or `adopt_state` ends that. Meanwhile
the high watermark waits for every replica that is in the old or in the new ISR (`maximal_isr`).

What a maintainer must not break: the high watermark of a leader is never above the end offset of any member
of the ISR, or a record that was acknowledged to acks=all could be lost with the leader.
"""

import uuid
from typing import Final

from kalda.broker.replicas.in_sync import NEVER, FollowerState, IsrChange, ReplicationRules
from kalda.broker.replicas.topic_stats import BrokerTopicMetrics
from kalda.broker.topics.topic_names import is_internal_topic
from kalda.common.clock import SystemClock
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import NO_PARTITION_LEADER, TopicPartition
from kalda.controller.effects import PartitionLeadership
from kalda.storage.producer_state_manager import AppendOrigin
from kalda.storage.unified_log import LogAppendInfo, UnifiedLog
from kalda.zk.client.schema import PartitionState

ACKS_ALL: Final = -1
NO_EPOCH: Final = -1
"""The current leader epoch of a client that knows none; any other is compared, below zero too."""
DEBUGGING_REPLICA_ID: Final = -2
"""A reader that asks for any replica's data as it is, not the leader's."""

_NOBODY_ELSE: Final = ReplicationRules(SystemClock(), 30.0, lambda _: False)
"""For a replica that never leads others."""


class Partition:
    """A replica on this broker, leader or follower."""

    __slots__ = (
        "_rules",
        "broker_id",
        "controller_epoch",
        "followers",
        "is_gone",
        "is_internal",
        "is_leader",
        "is_offline",
        "isr",
        "leader_epoch",
        "leader_epoch_start_offset",
        "leader_id",
        "leading_since",
        "log",
        "log_end_key",
        "maximal_isr",
        "name_bytes",
        "partition_epoch",
        "pending_isr",
        "replicas",
        "topic_id",
        "topic_metrics",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        broker_id: int,
        log: UnifiedLog,
        rules: ReplicationRules = _NOBODY_ELSE,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.topic_id: Final = topic_id
        self.broker_id: Final = broker_id
        self.log: Final = log
        self.name_bytes: Final = topic_partition.topic.encode()
        self.is_internal: Final = is_internal_topic(topic_partition.topic)
        self.log_end_key: Final = object()
        """What a follower's fetch waits for: an append. Other waits are for the partition itself."""
        self._rules: Final = rules
        self.is_leader = False
        self.is_gone = False
        """Whether the broker no longer hosts it; whoever still holds it must look it up anew."""
        self.is_offline = False
        """Whether its log directory failed; the replica is not served again before a restart."""
        self.leader_id = NO_PARTITION_LEADER
        self.leader_epoch = -1
        self.leader_epoch_start_offset = -1
        """The end offset at which this leader's epoch began."""
        self.leading_since = -1
        """The epoch since which this broker leads without a break: nothing was cut off the log since."""
        self.partition_epoch = -1
        """The version of the partition's znode that this broker knows."""
        self.controller_epoch = -1
        """Of the controller that made the last decision; a change of the ISR carries it on."""
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        """The in-sync replicas that coordination is known to hold."""
        self.maximal_isr: tuple[int, ...] = ()
        """`isr`, and whoever a pending expansion adds. A shrink leaves it whole until it is committed."""
        self.pending_isr: IsrChange | None = None
        self.followers: dict[int, FollowerState] = {}
        """The other replicas, while this broker leads; empty otherwise."""
        self.topic_metrics = BrokerTopicMetrics()
        """The counters of its topic on this broker, shared with its other partitions once it is hosted."""

    # What the controller decides.

    def become_leader(self, leadership: PartitionLeadership) -> bool:
        """Lead the partition from now on; return whether a new leader epoch began here.

        Raises:
            LogStorageError: the new epoch cannot be written down; the role is the one before.
        """
        was_leader = self.is_leader
        is_new_epoch = leadership.leader_epoch > self.leader_epoch or not was_leader
        if is_new_epoch:
            self.log.assign_leader_epoch(leadership.leader_epoch)
        self._adopt(leadership)
        if not was_leader:
            self.leading_since = leadership.leader_epoch
        now = self._rules.clock.monotonic()
        known = self.followers
        self.followers = {
            # A follower outside the ISR must not hold the high watermark back before it is heard of.
            replica: known.get(replica) or FollowerState(now if replica in self.isr else NEVER)
            for replica in leadership.replicas
            if replica != self.broker_id
        }
        if is_new_epoch:
            end = self.log.log_end_offset
            self.leader_epoch_start_offset = end
            if was_leader:
                for replica, state in self.followers.items():
                    state.begin_epoch(end, now, is_in_sync=replica in self.isr)
        self.is_leader = True
        self.maybe_advance_high_watermark(now)
        return is_new_epoch

    def become_follower(self, leadership: PartitionLeadership) -> bool:
        """Follow another broker; return whether the leader or its epoch changed."""
        is_changed = self.is_leader or leadership.leader_epoch > self.leader_epoch
        self._adopt(leadership)
        self.resign()
        return is_changed

    def resign(self) -> None:
        """Lead no longer; what is pending is settled by whoever leads now."""
        self.is_leader = False
        self.followers = {}
        self.leader_epoch_start_offset = -1
        self.pending_isr = None
        self.maximal_isr = self.isr

    def _adopt(self, leadership: PartitionLeadership) -> None:
        self.leader_id = leadership.leader
        self.leader_epoch = leadership.leader_epoch
        self.partition_epoch = leadership.partition_epoch
        self.controller_epoch = leadership.controller_epoch
        self.replicas = leadership.replicas
        self._set_isr(leadership.isr)

    # The in-sync replicas.

    def _set_isr(self, isr: tuple[int, ...]) -> None:
        self.isr = self.maximal_isr = isr
        self.pending_isr = None

    def out_of_sync_replicas(self, now: float) -> tuple[int, ...]:
        """Return the members of the ISR that have lagged for longer than they may."""
        lag_seconds = self._rules.lag_seconds
        end = self.log.log_end_offset
        return tuple(
            replica
            for replica, state in self.followers.items()
            if replica in self.isr and not state.is_caught_up(end, now, lag_seconds)
        )

    def propose_shrink(self, now: float) -> IsrChange | None:
        """Make the removal of the replicas that lag pending, and return it for coordination to decide."""
        if self.pending_isr is not None or not self.is_leader:
            return None
        gone = self.out_of_sync_replicas(now)
        if not gone:
            return None
        return self._propose(tuple(each for each in self.isr if each not in gone), is_expansion=False)

    def propose_expansion(self, replica: int) -> IsrChange | None:
        """Make the addition of a follower that has caught up pending, and return it likewise.

        It must have all that is committed, and all that was in the log when this leader's epoch began:
        part of that may have been committed by the leader before.
        """
        if self.pending_isr is not None or replica in self.isr:
            return None
        state = self.followers.get(replica)
        if state is None or not (
            state.log_end_offset >= self.log.high_watermark
            and state.log_end_offset >= self.leader_epoch_start_offset
            and self._rules.is_alive(replica)
        ):
            return None
        change = self._propose((*self.isr, replica), is_expansion=True)
        # It counts at once: whether or not the change succeeds, waiting for one more replica is safe.
        self.maximal_isr = change.isr
        return change

    def _propose(self, isr: tuple[int, ...], *, is_expansion: bool) -> IsrChange:
        wanted = PartitionState(
            self.broker_id, self.leader_epoch, isr, self.controller_epoch, self.partition_epoch
        )
        change = IsrChange(self.topic_partition, wanted, is_expansion)
        self.pending_isr = change
        return change

    def commit_isr(self, change: IsrChange, partition_epoch: int) -> bool:
        """Take over what coordination now holds; return whether the high watermark moved."""
        assert self.pending_isr is change, f"{self} has another change pending than {change}"
        self.partition_epoch = partition_epoch
        self._set_isr(change.isr)
        return self.maybe_advance_high_watermark(self._rules.clock.monotonic())

    def adopt_state(self, state: PartitionState) -> bool:
        """Take over what coordination holds for this leader's own epoch; tell whether the watermark moved."""
        assert state.leader_epoch == self.leader_epoch, f"{self} cannot adopt {state}"
        self.partition_epoch = state.version
        self._set_isr(state.isr)
        return self.maybe_advance_high_watermark(self._rules.clock.monotonic())

    @property
    def low_watermark(self) -> int:
        """The least start of the logs of all live replicas; what lies below is gone for good."""
        low = self.log.log_start_offset
        for replica, state in self.followers.items():
            if state.log_start_offset < low and self._rules.is_alive(replica):
                low = state.log_start_offset
        return low

    @property
    def is_under_replicated(self) -> bool:
        """Whether it is led here and a replica is out of sync."""
        return self.is_leader and len(self.isr) <= len(self.followers)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether it is led here with fewer replicas in sync than ``min.insync.replicas``."""
        return self.is_leader and len(self.isr) < self.min_in_sync_replicas

    @property
    def is_at_min_isr(self) -> bool:
        """Whether one replica fewer in sync would be too few."""
        return self.is_leader and len(self.isr) == self.min_in_sync_replicas

    # Writing.

    @property
    def min_in_sync_replicas(self) -> int:
        """``min.insync.replicas``, but never more than there are replicas."""
        return min(self.log.config.min_insync_replicas, len(self.followers) + 1)

    def append_as_leader(
        self, records: memoryview, acks: int, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> LogAppendInfo:
        """Append one batch as the leader and move the high watermark as far as it may go.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, or NOT_ENOUGH_REPLICAS for acks=all (_AFTER_APPEND where it is a
                retry of what is in the log).
            StorageError: what the log refuses, with the code to answer.
        """
        if not self.is_leader:
            raise self.not_leader()
        followers = self.followers
        if acks == ACKS_ALL and followers and len(self.isr) < self.min_in_sync_replicas:
            # A producer that is told "not appended" of a batch that is in the log may send its records again
            # in another batch, which cannot be in sequence: librdkafka fails for good then.
            is_retry = self.log.is_retry(records)
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if is_retry else ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The in-sync replicas {list(self.isr)} of {self.topic_partition} are fewer than "
                f"min.insync.replicas={self.log.config.min_insync_replicas}.",
            )
        log = self.log
        info = log.append_as_leader(records, self.leader_epoch, origin=origin)
        if not followers:
            log.advance_high_watermark(log.log_end_offset)
        elif len(self.maximal_isr) == 1:
            # With others in sync it is their fetches that move the high watermark.
            self.maybe_advance_high_watermark(self._rules.clock.monotonic())
        return info

    def maybe_advance_high_watermark(self, now: float) -> bool:
        """Move the high watermark to the least end offset of the ISR; return whether it moved.

        Below ``min.insync.replicas`` it stays, so that what acks=all could not have acknowledged does not
        become visible either (KIP-966). It also waits for a follower that is caught up but not in the ISR
        yet: else it would run away from a follower of a busy leader, which then could never join.
        """
        log = self.log
        followers = self.followers
        end = target = log.log_end_offset
        if log.high_watermark >= end or (followers and len(self.isr) < self.min_in_sync_replicas):
            return False
        maximal_isr = self.maximal_isr
        for replica, state in followers.items():
            if state.log_end_offset < target and (
                replica in maximal_isr or self._is_joining(replica, state, end, now)
            ):
                target = state.log_end_offset
        return target > log.high_watermark and log.advance_high_watermark(target)

    def _is_joining(self, replica: int, state: FollowerState, end: int, now: float) -> bool:
        rules = self._rules
        return state.is_caught_up(end, now, rules.lag_seconds) and rules.is_alive(replica)

    def update_follower(
        self, replica: int, offset: int, log_start_offset: int, now: float, broker_epoch: int = -1
    ) -> bool:
        """Take note of a follower's fetch; return whether the high watermark moved.

        Raises:
            ApiError: UNKNOWN_LEADER_EPOCH where the broker is not a replica; NOT_LEADER_OR_FOLLOWER where the
                fetch is one of an earlier life of the broker, whose log may have lost records since.
        """
        self.check_follower(replica, self.leader_epoch)
        state = self.followers[replica]
        if broker_epoch != NO_EPOCH:
            if broker_epoch < state.broker_epoch:
                raise ApiError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER,
                    f"Broker {replica} fetched {self.topic_partition} with broker epoch {broker_epoch}; "
                    f"{state.broker_epoch} is known.",
                )
            state.broker_epoch = broker_epoch
        state.fetched(offset, log_start_offset, self.log.log_end_offset, now)
        return self.maybe_advance_high_watermark(now)

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

    def check_follower(self, replica: int, current_leader_epoch: int) -> None:
        """Refuse the fetch of a broker that is not a replica, as far as this one was told.

        Raises:
            ApiError: UNKNOWN_LEADER_EPOCH; NOT_LEADER_OR_FOLLOWER for one that names no leader epoch, since
                then either side may be the one that does not know yet.
        """
        if replica not in self.followers:
            named = current_leader_epoch != NO_EPOCH
            raise ApiError(
                ErrorCode.UNKNOWN_LEADER_EPOCH if named else ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"Broker {replica} is not a replica of {self.topic_partition} here yet.",
            )

    def not_leader(self) -> ApiError:
        """Return the error for a request that only the leader may serve."""
        return ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"Broker {self.broker_id} does not lead {self.topic_partition}; the leader is {self.leader_id}.",
        )

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return f"Partition({self.topic_partition}, {role}, epoch {self.leader_epoch}, isr {list(self.isr)})"

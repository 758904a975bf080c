"""Represents a partition with a replica on this broker: its role, in-sync replicas and high watermark.

`Partition` keeps this state and decides how it changes. It handles no requests and writes nothing to
ZooKeeper. The controller's requests change the role (`become_leader`, `become_follower`); appends and the
fetches of followers move the high watermark:

    ISR {1, 2}, leader 1 at end offset 10, follower 2 fetches from 7  ->  high watermark 7
    follower 2 fetches from 10                                        ->  high watermark 10

A change of the ISR takes two steps, because only ZooKeeper decides whether it takes effect (KIP-497):
`propose_shrink` or `propose_expansion` makes the change pending, and `commit_isr` or `adopt_state` settles
it. In between the high watermark waits for every replica of the old and of the new ISR (`maximal_isr`).

A leader never moves the high watermark above the end offset of a member of the ISR. Otherwise a record that
was acknowledged to an acks=all producer could be lost with the leader.
"""

from typing import Final

from kalda.broker.replicas.in_sync import NEVER, FollowerState, IsrChange, ReplicationRules
from kalda.broker.replicas.topic_stats import BrokerTopicMetrics
from kalda.broker.topics.topic_names import is_internal_topic
from kalda.cluster.schema import PartitionState
from kalda.common import invariants
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import NO_PARTITION_LEADER, UUID, ZERO_UUID, TopicPartition
from kalda.controller.effects import PartitionLeadership
from kalda.storage.log_config import INT64_MAX
from kalda.storage.log_validator import Prepared
from kalda.storage.producer_state_manager import AppendOrigin
from kalda.storage.unified_log import LogAppendInfo, UnifiedLog

ACKS_ALL: Final = -1
NO_EPOCH: Final = -1
"""The leader epoch in a request that names none; any other value is compared, also one below zero."""
DEBUGGING_REPLICA_ID: Final = -2
"""The replica id of a reader that wants the data of the replica it asks, whether that leads or not."""


class Partition:
    """A replica on this broker, as leader or follower of its partition."""

    __slots__ = (
        "_rules",
        "broker_id",
        "controller_epoch",
        "followers",
        "is_being_reassigned",
        "is_gone",
        "is_internal",
        "is_leader",
        "is_named_by_id",
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
        topic_id: UUID,
        broker_id: int,
        log: UnifiedLog,
        rules: ReplicationRules,
        topic_metrics: BrokerTopicMetrics | None = None,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.topic_id = topic_id
        """`ZERO_UUID` until a controller sends one; once known it stays."""
        self.is_named_by_id = topic_id != ZERO_UUID
        """Whether the controller's last role had the topic id; else the leader may know only the name."""
        self.broker_id: Final = broker_id
        self.log = log
        """Another object after a move to another log directory: code that awaits reads it again."""
        self.name_bytes: Final = topic_partition.topic.encode()
        self.is_internal: Final = is_internal_topic(topic_partition.topic)
        self.log_end_key: Final = object()
        """The purgatory key for appends, which followers wait for. All others wait for the partition
        itself."""
        self._rules: Final = rules
        self.is_leader = False
        self.is_gone = False
        """Whether the broker no longer hosts it; code that still holds the object must look it up again."""
        self.is_offline = False
        """Whether its log directory failed; the replica stays out of service until a restart."""
        self.leader_id = NO_PARTITION_LEADER
        self.leader_epoch = -1
        self.leader_epoch_start_offset = -1
        """The log end offset when this leader's epoch began; -1 for a follower."""
        self.leading_since = -1
        """The first epoch of this broker's uninterrupted leadership, in which nothing is cut off the log."""
        self.partition_epoch = -1
        """The version of the partition's znode, as far as this broker knows."""
        self.controller_epoch = -1
        """The epoch of the controller that set the role; a change of the ISR keeps it in the znode."""
        self.replicas: tuple[int, ...] = ()
        self.is_being_reassigned = False
        """Whether the controller waits for replicas that are being added to join the ISR."""
        self.isr: tuple[int, ...] = ()
        """The in-sync replicas that ZooKeeper is known to hold. At the end of a reassignment a controller of
        Kafka sends the new replicas before it removes the others from the ISR."""
        self.maximal_isr: tuple[int, ...] = ()
        """`isr` and what a pending expansion adds; a pending shrink removes nothing before it is
        committed."""
        self.pending_isr: IsrChange | None = None
        self.followers: dict[int, FollowerState] = {}
        """The other replicas while this broker leads; empty while it follows."""
        self.topic_metrics: Final = topic_metrics or BrokerTopicMetrics()
        """The counters of the topic on this broker; all hosted partitions of the topic share them."""

    # Roles.

    def become_leader(self, leadership: PartitionLeadership) -> bool:
        """Lead the partition from now on; return whether a new leader epoch begins here.

        Raises:
            LogStorageError: the epoch checkpoint cannot be written; the role does not change.
        """
        assert leadership.partition_epoch >= self.partition_epoch, f"{self} gets the older {leadership}"
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
            # A follower outside the ISR must not hold the high watermark back before its first fetch.
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
        if invariants.enabled:
            self.check_invariants()
        return is_new_epoch

    def become_follower(self, leadership: PartitionLeadership) -> bool:
        """Follow another broker from now on; return whether the leader or its epoch changes."""
        is_changed = self.is_leader or leadership.leader_epoch > self.leader_epoch
        self._adopt(leadership)
        self.resign()
        self.log.leader_epochs.forget_unwritten()
        return is_changed

    def resign(self) -> None:
        """Stop leading; a pending change of the ISR is dropped, since the new leader decides."""
        self.is_leader = False
        self.followers = {}
        self.leader_epoch_start_offset = -1
        self._set_isr(self.isr)
        if invariants.enabled:
            self.check_invariants()

    def _adopt(self, leadership: PartitionLeadership) -> None:
        assert leadership.leader_epoch >= self.leader_epoch, f"{self} gets the older {leadership}"
        self.leader_id = leadership.leader
        self.leader_epoch = leadership.leader_epoch
        self.partition_epoch = leadership.partition_epoch
        self.controller_epoch = leadership.controller_epoch
        self.replicas = leadership.replicas
        self.is_being_reassigned = bool(leadership.adding_replicas)
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

    def lag_of(self, replica: int, now: float) -> dict[str, int | float | None]:
        """Return how far a follower is behind: in records, and in seconds since it fetched and caught up."""
        state = self.followers.get(replica)
        lag: dict[str, int | float | None] = {"broker": replica, "records": None, "fetched_s": None}
        if state is not None:
            if state.log_end_offset >= 0:
                lag["records"] = max(self.log.log_end_offset - state.log_end_offset, 0)
            if state.last_fetch != NEVER:
                lag["fetched_s"] = round(now - state.last_fetch, 1)
        return lag

    def propose_shrink(self, now: float) -> IsrChange | None:
        """Make the removal of lagging replicas pending; return the change for ZooKeeper, None without one."""
        if self.pending_isr is not None or not self.is_leader:
            return None
        lagging = self.out_of_sync_replicas(now)
        if not lagging:
            return None
        return self._propose(tuple(each for each in self.isr if each not in lagging), is_expansion=False)

    def propose_expansion(self, replica: int) -> IsrChange | None:
        """Make the addition of a follower that has caught up pending; return the change, None without one.

        The follower must have everything that is committed, and everything that was in the log when this
        leader's epoch began, as the leader before may have committed it.
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
        return self._propose((*self.isr, replica), is_expansion=True)

    def _propose(self, isr: tuple[int, ...], *, is_expansion: bool) -> IsrChange:
        wanted = PartitionState(
            self.broker_id, self.leader_epoch, isr, self.controller_epoch, self.partition_epoch
        )
        change = self.pending_isr = IsrChange(self.topic_partition, wanted, is_expansion)
        if is_expansion:
            # It counts at once: whether or not the change succeeds, waiting for one more replica is safe.
            self.maximal_isr = isr
        if invariants.enabled:
            self.check_invariants()
        return change

    def commit_isr(self, change: IsrChange, partition_epoch: int) -> bool:
        """Settle the pending change, which ZooKeeper holds now; return whether the high watermark moves."""
        assert self.pending_isr is change, f"{self} has another change pending than {change}"
        assert partition_epoch > self.partition_epoch, f"{self}: {partition_epoch} is not new"
        return self._take_over(change.isr, partition_epoch)

    def adopt_state(self, state: PartitionState) -> bool:
        """Take over what ZooKeeper holds for this leader's epoch; return whether the high watermark moves."""
        # The version may be lower than `partition_epoch`: that of a topic created again under the same name.
        assert state.leader_epoch == self.leader_epoch, f"{self} cannot adopt {state}"
        return self._take_over(state.isr, state.version)

    def _take_over(self, isr: tuple[int, ...], partition_epoch: int) -> bool:
        self.partition_epoch = partition_epoch
        self._set_isr(isr)
        if invariants.enabled:
            self.check_invariants()
        return self.maybe_advance_high_watermark(self._rules.clock.monotonic())

    @property
    def low_watermark(self) -> int:
        """The lowest log start offset of all live replicas: no leader can show a record below it again."""
        low = self.log.log_start_offset
        for replica, state in self.followers.items():
            if state.log_start_offset < low and self._rules.is_alive(replica):
                low = state.log_start_offset
        return low

    @property
    def is_under_replicated(self) -> bool:
        """Whether this broker leads it and a replica is out of sync."""
        return self.is_leader and len(self.isr) <= len(self.followers)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether this broker leads it with fewer in-sync replicas than ``min.insync.replicas``."""
        return self.is_leader and len(self.isr) < self.min_in_sync_replicas

    @property
    def is_at_min_isr(self) -> bool:
        """Whether this broker leads it with just as many in-sync replicas as ``min.insync.replicas``."""
        return self.is_leader and len(self.isr) == self.min_in_sync_replicas

    # Writing.

    @property
    def min_in_sync_replicas(self) -> int:
        """``min.insync.replicas``, limited to the number of replicas."""
        return min(self.log.config.min_insync_replicas, len(self.followers) + 1)

    def append_as_leader(
        self,
        records: memoryview,
        acks: int,
        prepared: Prepared | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Append one batch as the leader and move the high watermark as far as it may go.

        Raises:
            ApiError: NOT_LEADER_OR_FOLLOWER, or NOT_ENOUGH_REPLICAS for acks=all (with _AFTER_APPEND for a
                retry of a batch that is in the log).
            StorageError: the log refuses the batch; its `code` goes into the response.
        """
        if not self.is_leader:
            raise self.not_leader()
        followers = self.followers
        if acks == ACKS_ALL and followers and len(self.isr) < self.min_in_sync_replicas:
            # A producer that gets "not appended" for a batch that is in the log may send its records again
            # in another batch, which cannot be in sequence: librdkafka then fails for good.
            is_retry = self.log.producer_state.is_retry(records)
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if is_retry else ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The in-sync replicas {list(self.isr)} of {self.topic_partition} are fewer than "
                f"min.insync.replicas={self.log.config.min_insync_replicas}.",
            )
        log = self.log
        info = log.append_as_leader(records, self.leader_epoch, prepared, origin)
        if not followers:
            # To the log's end, which is the limit.
            log.advance_high_watermark(INT64_MAX)
        elif len(self.maximal_isr) == 1:
            # With other replicas in sync, their fetches move the high watermark.
            self.maybe_advance_high_watermark(self._rules.clock.monotonic())
        return info

    def maybe_advance_high_watermark(self, now: float) -> bool:
        """Move the high watermark to the lowest end offset of the ISR; return whether it moves.

        It stays while the ISR is smaller than ``min.insync.replicas``: what acks=all could not have
        acknowledged does not become visible either (KIP-966). It also waits for a follower that is caught up
        but not in the ISR yet, since a follower of a busy leader could never join otherwise.
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
        is_moved = target > log.high_watermark and log.advance_high_watermark(target)
        if is_moved and invariants.enabled:
            for replica in maximal_isr:
                known = followers[replica].log_end_offset if replica in followers else end
                assert log.high_watermark <= known, (
                    f"{self}: {log.high_watermark} is committed, {replica} has {known}"
                )
        return is_moved

    def _is_joining(self, replica: int, state: FollowerState, end: int, now: float) -> bool:
        rules = self._rules
        return state.is_caught_up(end, now, rules.lag_seconds) and rules.is_alive(replica)

    def update_follower(
        self, replica: int, offset: int, log_start_offset: int, now: float, broker_epoch: int = -1
    ) -> bool:
        """Note the offsets of a follower's fetch; return whether the high watermark moves.

        Raises:
            ApiError: UNKNOWN_LEADER_EPOCH if the broker is not a replica; NOT_LEADER_OR_FOLLOWER if the fetch
                is from an earlier registration of the broker, whose log may have lost records since.
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

    def truncate_end(self, offset: int) -> None:
        """Truncate the log of this leader to `offset`, above which nothing is committed nor at any replica.

        Raises:
            LogStorageError: the disk failed; call again.
        """
        assert self.is_leader, f"{self} follows"
        self.log.truncate_to(offset)
        self.log.assign_leader_epoch(self.leader_epoch)
        self.leader_epoch_start_offset = min(self.leader_epoch_start_offset, offset)

    def check_leader_epoch(self, current_leader_epoch: int, leader_only: bool = True) -> None:
        """Fence a request by the leader epoch that it names (KIP-320); -1 names none.

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
        """Refuse the fetch of a broker that is not a replica according to the last request of the controller.

        Raises:
            ApiError: UNKNOWN_LEADER_EPOCH; NOT_LEADER_OR_FOLLOWER for a fetch without a leader epoch, because
                then either broker may be the one with old metadata.
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

    def check_invariants(self) -> None:
        """Assert what holds for role, replicas and in-sync replicas after each change of them."""
        log, isr, pending = self.log, self.isr, self.pending_isr
        assert log.log_start_offset <= log.high_watermark <= log.log_end_offset, f"{self}: bounds of {log}"
        assert len(isr) == len(set(isr)), f"{self}: one is in sync twice"
        assert self.maximal_isr == (pending.isr if pending and pending.is_expansion else isr), (
            f"{self}: waits for {self.maximal_isr} with {pending}"
        )
        if not self.is_leader:
            assert pending is None, f"{self}: changes the ISR: {pending}"
            assert not self.followers, f"{self}: has followers {list(self.followers)}"
            return
        assert self.broker_id in isr, f"{self}: leader {self.broker_id} is out of sync"
        assert not self.is_gone, f"{self}: leads after it has left"
        assert self.leading_since <= self.leader_epoch, f"{self}: leads since epoch {self.leading_since}"
        assert self.followers.keys() | {self.broker_id} == set(self.replicas), f"{self}: {self.replicas}"
        if pending is not None:
            expected = self.leader_epoch, self.partition_epoch
            assert expected == (pending.wanted.leader_epoch, pending.wanted.version), f"{self}: {pending}"

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else "follower"
        return f"Partition({self.topic_partition}, {role}, epoch {self.leader_epoch}, isr {list(self.isr)})"

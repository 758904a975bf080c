"""The replicas that this broker hosts: looks them up, appends to them, reads them and keeps the ISR current.

Everything runs on the event loop, so a request sees the partitions as they are and nothing needs a lock.
`ReplicaManager` delegates changes of roles to `kalda.broker.replicas.role_changes`. The wire format, fetch
sessions and waiting (`kalda.broker.fetching`) are elsewhere.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field
from typing import Final, NamedTuple, Protocol

from kalda.broker.replicas.follower.ports import FollowerFetching
from kalda.broker.replicas.hosted_replicas import NO_PARTITIONS, HostedReplicas
from kalda.broker.replicas.in_sync import ReplicationRules
from kalda.broker.replicas.isr_changes import IsrChanges
from kalda.broker.replicas.missing_records import MissingRecords
from kalda.broker.replicas.partition import DEBUGGING_REPLICA_ID, NO_EPOCH, Partition
from kalda.broker.replicas.replica_selector import RackAwareReplicaSelector
from kalda.broker.replicas.replication_quota import ReplicationQuota
from kalda.broker.replicas.role_changes import RoleChanges
from kalda.cluster.schema import PartitionState
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.common.types import TopicPartition
from kalda.protocol.fast.fetch import FetchAnswer, FetchEntry, FetchPartitionFields, PartitionFetchResult
from kalda.runtime.clock import Clock
from kalda.storage.errors import LOG_ERRORS, HeavyBatchError, OffsetOutOfRangeError, RecordsMissingError
from kalda.storage.file_records import EMPTY_SLICE
from kalda.storage.log_manager import LogManager
from kalda.storage.log_validator import Prepared
from kalda.storage.producer_state_manager import AppendOrigin
from kalda.storage.unified_log import FetchIsolation, LogAppendInfo

logger: Final = logging.getLogger(__name__)

CONSUMER_ID: Final = -1
"""The replica id of a reader that is not a replica."""


class PartitionListener(Protocol):
    """Is notified of changes of the partitions of internal topics."""

    def on_role(self, partition: Partition) -> None:
        """The partition got a role, possibly the same as before, or is gone."""
        ...

    def on_high_watermark(self, partition: Partition) -> None:
        """The high watermark may have moved."""
        ...


class ConsumerPlace(NamedTuple):
    """The rack and listener of a consumer that may read from a follower (KIP-392)."""

    rack: str
    listener: str


@dataclass(slots=True, kw_only=True)
class FetchParams:
    """The parameters of one fetch request that are the same for all its partitions."""

    by_id: bool
    """Whether topic keys are ids instead of names."""
    replica_id: int
    is_follower: bool = field(init=False)
    leader_only: bool = field(init=False)
    """Whether only the leader may serve it."""
    replica_epoch: int = NO_EPOCH
    """The broker epoch of the follower that fetches (KIP-903); -1 if the request names none."""
    may_read_follower: InitVar[bool] = False
    place: ConsumerPlace | None = None
    """Set for a consumer with a rack."""
    isolation: FetchIsolation
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    one_batch_each: bool
    """Whether each partition's first batch is returned however large it is, as before Fetch v3; from then on
    only the first one of the response is (KIP-74)."""
    names_leader: bool
    """Whether an error names the partition's new leader (Fetch v16 on, KIP-951)."""

    def __post_init__(self, may_read_follower: bool) -> None:
        self.is_follower = self.replica_id >= 0
        self.leader_only = self.is_follower or (self.replica_id == CONSUMER_ID and not may_read_follower)


class ReplicaManager:
    """The partitions of one broker.

    `partition_is_known` and `is_alive` look partitions and brokers up in the metadata cache.
    """

    def __init__(
        self,
        broker_id: int,
        log_manager: LogManager,
        clock: Clock,
        fetch_purgatory: DelayedOperationPurgatory,
        produce_purgatory: DelayedOperationPurgatory,
        partition_is_known: Callable[[TopicPartition], bool],
        topic_name_by_id: Callable[[bytes], str | None],
        fetching: FollowerFetching,
        *,
        isr_changes: IsrChanges,
        is_alive: Callable[[int], bool],
        delete_purgatory: DelayedOperationPurgatory,
        lag_seconds: float,
        selector: RackAwareReplicaSelector | None,
        leader_quota: ReplicationQuota,
        missing: MissingRecords,
        on_hosted: Callable[[Partition], None],
    ) -> None:
        """`selector` is None if consumers read from leaders only."""
        self.resources: Final = log_manager.resources
        """What the logs of this broker share, such as what takes events."""
        self._clock: Final = clock
        self._fetch_purgatory: Final = fetch_purgatory
        self._produce_purgatory: Final = produce_purgatory
        self._delete_purgatory: Final = delete_purgatory
        self._topic_name_by_id: Final = topic_name_by_id
        self._isr_changes: Final = isr_changes
        self._selector: Final = selector
        self._leader_quota: Final = leader_quota
        self._hosted: Final = HostedReplicas(partition_is_known)
        self._by_name: Final = self._hosted.by_name
        self._by_id: Final = self._hosted.by_id
        self.lag_seconds: Final = lag_seconds
        """``replica.lag.time.max.ms``."""
        rules = ReplicationRules(clock, lag_seconds, is_alive)
        self.roles: Final = RoleChanges(
            broker_id,
            self._hosted,
            log_manager,
            rules,
            fetching,
            self.wake_all,
            missing,
            on_internal_role=self._notify_role,
            on_recovered=self._notify_recovered,
            on_hosted=on_hosted,
        )
        self._listener: PartitionListener | None = None
        self._on_recovered: Callable[[], None] = lambda: None
        self.topic_stats: Final = self._hosted.topic_stats

    # Looking up.

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """The hosted partitions."""
        return self._hosted.partitions

    @property
    def offline_partitions(self) -> Mapping[TopicPartition, str]:
        """The replicas in failed log directories, with the directory."""
        return self._hosted.offline

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """Return a hosted partition.

        Raises:
            ApiError: as `absence_error`.
        """
        partition = self._hosted.partitions.get(topic_partition)
        if partition is None:
            raise ApiError(self.absence_error(topic_partition))
        return partition

    def find(self, name: bytes, index: int) -> Partition | None:
        """Return a hosted partition by the bytes of its topic's name, or None."""
        return self._by_name.get(name, NO_PARTITIONS).get(index)

    def find_by_id(self, topic_id: bytes, index: int) -> Partition | None:
        """Return a hosted partition by the bytes of its topic's id, or None."""
        return self._by_id.get(topic_id, NO_PARTITIONS).get(index)

    def absence_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Return the error for a partition that is not hosted; see `HostedReplicas.absence_error`."""
        return self._hosted.absence_error(topic_partition)

    # Notifications.

    def watch_recovery(self, on_recovered: Callable[[], None]) -> None:
        """Call `on_recovered` whenever a retry took roles that the disk had refused."""
        self._on_recovered = on_recovered

    def step_down(self, partition: Partition, state: PartitionState) -> None:
        """Follow the leader that ZooKeeper names, without waiting for the controller's request."""
        self.roles.step_down(partition, state)

    def listen(self, listener: PartitionListener) -> None:
        """Notify `listener` of changes of the partitions of internal topics from now on."""
        assert self._listener is None, "there is a listener already"
        self._listener = listener

    def _notify_role(self, partition: Partition) -> None:
        if self._listener is not None:
            self._listener.on_role(partition)

    def _notify_recovered(self) -> None:
        self._on_recovered()

    def wake(self, partition: Partition) -> None:
        """Complete the operations whose wait ends with the partition's high watermark."""
        if partition.is_internal and self._listener is not None:
            self._listener.on_high_watermark(partition)
        self._produce_purgatory.check_and_complete(partition)
        self._fetch_purgatory.check_and_complete(partition)

    def wake_all(self, partition: Partition) -> None:
        """Complete every operation that a change of the partition's role ends."""
        self.wake(partition)
        self._fetch_purgatory.check_and_complete(partition.log_end_key)
        self._delete_purgatory.check_and_complete(partition)

    # In-sync replicas.

    def shrink_isrs(self) -> None:
        """Propose the removal of lagging followers; called every half of ``replica.lag.time.max.ms``."""
        now = self._clock.monotonic()
        for partition in tuple(self._hosted.partitions.values()):
            if not partition.followers:
                continue
            change = partition.propose_shrink(now)
            if change is not None:
                self._isr_changes.submit(partition, change)
            # A follower that was about to join may have held the high watermark back, and may be gone now.
            elif partition.maybe_advance_high_watermark(now):
                self.wake(partition)

    # Appending.

    def append(
        self,
        partition: Partition,
        records: memoryview,
        acks: int,
        prepared: Prepared | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Append one batch to a partition that this broker leads, and complete the fetches that wait for it.

        `prepared` is what the log's validator made of the batch before.

        Raises:
            ApiError: as `Partition.append_as_leader`.
            HeavyBatchError: as `UnifiedLog.append_as_leader`.
            StorageError, RecordsError: the log refuses the batch; the `code` goes into the response.
        """
        log = partition.log
        before = log.high_watermark
        metrics = partition.topic_metrics
        metrics.produces += 1
        try:
            info = partition.append_as_leader(records, acks, prepared, origin)
        except HeavyBatchError:
            # It comes again.
            metrics.produces -= 1
            raise
        except (ApiError, *LOG_ERRORS):
            metrics.failed_produces += 1
            raise
        metrics.bytes_in += info.size
        metrics.messages_in += info.record_count
        metrics.produce_conversions += info.converted_count
        if partition.followers:
            self._fetch_purgatory.check_and_complete(partition.log_end_key)
            if log.high_watermark > before:
                # The leader is alone in the ISR: earlier appends may be committed as well.
                self.wake(partition)
        else:
            self._fetch_purgatory.check_and_complete(partition)
        return info

    # Reading.

    def find_by_key(self, params: FetchParams, key: bytes, index: int) -> Partition | None:
        """Return the hosted partition that a fetch request names, or None."""
        table = self._by_id if params.by_id else self._by_name
        return table.get(key, NO_PARTITIONS).get(index)

    def read(
        self, params: FetchParams, entries: Sequence[FetchEntry], *, note_follower: bool = True
    ) -> tuple[list[FetchAnswer], int, bool]:
        """Read partitions in order until `max_bytes` is used up.

        Returns the answers, the size of their records, and whether one of them is an error or something else
        that must not wait. With `note_follower`, which is for the first read of a request, it also notes the
        offsets of the follower that fetches.
        """
        answers: list[FetchAnswer] = []
        left = params.max_bytes
        min_one_batch = True
        total = 0
        urgent = False
        table = self._by_id if params.by_id else self._by_name
        moved: list[Partition] | None = [] if note_follower and params.is_follower else None
        for key, requested in entries:
            partition = table.get(key, NO_PARTITIONS).get(requested.partition)
            if partition is None:
                result = PartitionFetchResult(
                    requested.partition, self._fetch_absence(params, key, requested)
                )
                urgent = True
            else:
                max_bytes = requested.max_bytes if requested.max_bytes < left else left
                result = self._read_partition(params, partition, requested, max_bytes, min_one_batch, moved)
                records = result.records
                if records is not None:
                    size = records.size
                    if size:
                        min_one_batch = params.one_batch_each
                        total += size
                        left = left - size if left > size else 0
                if (
                    result.error_code != 0
                    or result.diverging_epoch is not None
                    or result.preferred_read_replica >= 0
                ):
                    urgent = True
            answers.append((key, result))
        if moved:
            # Last, so that a consumer that waits for several of these partitions sees all of them moved.
            for partition in moved:
                self.wake(partition)
        return answers, total, urgent

    def _read_partition(
        self,
        params: FetchParams,
        partition: Partition,
        requested: FetchPartitionFields,
        max_bytes: int,
        min_one_batch: bool,
        moved: list[Partition] | None,
    ) -> PartitionFetchResult:
        index = requested.partition
        log = partition.log
        partition.topic_metrics.fetches += 1
        try:
            epoch = requested.current_leader_epoch
            if epoch not in (NO_EPOCH, partition.leader_epoch) or not partition.is_leader:
                partition.check_leader_epoch(epoch, params.leader_only)
            if params.is_follower:
                if params.replica_id not in partition.followers:
                    partition.check_follower(params.replica_id, epoch)
            elif params.place is not None and partition.is_leader:
                result = self._redirect(params.place, partition, requested)
                if result is not None:
                    return result
            if requested.last_fetched_epoch >= 0:
                diverging = self._diverging_epoch(partition, requested)
                if diverging is not None:
                    return PartitionFetchResult(
                        index,
                        0,
                        log.high_watermark,
                        log.last_stable_offset,
                        log.log_start_offset,
                        diverging_epoch=diverging,
                    )
            data = log.read(requested.fetch_offset, max_bytes, params.isolation, min_one_batch)
            if moved is not None:
                self._note_follower(params, partition, requested, moved)
        except ApiError as error:
            return _read_error(params, partition, index, error.code)
        except LOG_ERRORS as error:
            code: ErrorCode = error.code
            if isinstance(error, RecordsMissingError) and params.replica_id == DEBUGGING_REPLICA_ID:
                # The other replica searches for the same records, which this one does not have either.
                code = ErrorCode.OFFSET_NOT_AVAILABLE
            if code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                # The log itself logs disk errors, at intervals instead of per request.
                partition.topic_metrics.failed_fetches += 1
            return _read_error(params, partition, index, code)
        records = data.records
        high_watermark = data.high_watermark
        if params.is_follower:
            # This fetch may have moved it; the sooner the follower has it, the sooner its readers do.
            high_watermark = log.high_watermark
            if self.is_throttled(params, partition):
                records = EMPTY_SLICE
        aborted = data.aborted_transactions
        return PartitionFetchResult(
            index,
            0,
            high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
            -1,
            records,
        )

    def _redirect(
        self, place: ConsumerPlace, partition: Partition, requested: FetchPartitionFields
    ) -> PartitionFetchResult | None:
        """Return the answer that sends a consumer to a replica in its rack; None to serve it here."""
        if self._selector is None:
            return None
        preferred = self._selector.select(partition, place.rack, place.listener, requested.fetch_offset)
        if preferred is None:
            return None
        log = partition.log
        return PartitionFetchResult(
            requested.partition,
            0,
            log.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            preferred_read_replica=preferred,
        )

    def is_throttled(self, params: FetchParams, partition: Partition) -> bool:
        """Return whether the throttle applies to a follower now; it never does to one in sync."""
        quota = self._leader_quota
        return (
            quota.is_limited
            and params.replica_id not in partition.isr
            and quota.is_throttled(partition.topic_partition)
            and quota.is_exceeded()
        )

    def count_sent(self, params: FetchParams, answers: Sequence[FetchAnswer], size: int) -> None:
        """Count the records of a fetch response: by topic for a consumer, for the throttle for a follower."""
        quota = self._leader_quota
        if params.is_follower:
            self.topic_stats.replication_bytes_out += size
            if not quota.is_limited:
                return
        for key, result in answers:
            records = result.records
            if records is not None and records.size:
                partition = self.find_by_key(params, key, result.partition)
                if partition is None:
                    continue
                if not params.is_follower:
                    partition.topic_metrics.bytes_out += records.size
                elif quota.is_throttled(partition.topic_partition):
                    quota.record(records.size)

    def _diverging_epoch(
        self, partition: Partition, requested: FetchPartitionFields
    ) -> tuple[int, int] | None:
        """Return the epoch and end offset at which a follower's log diverges (KIP-595), or None."""
        log = partition.log
        epoch, end_offset = log.end_offset_for_epoch(requested.last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise OffsetOutOfRangeError(
                f"no end offset is known for epoch {requested.last_fetched_epoch} of {partition}"
            )
        if requested.fetch_offset < log.log_start_offset:
            # A follower whose next offset is deleted here has to start over, wherever the logs diverge.
            raise OffsetOutOfRangeError(
                f"offset {requested.fetch_offset} of {partition} is below {log.log_start_offset}"
            )
        if epoch < requested.last_fetched_epoch or end_offset < requested.fetch_offset:
            return epoch, end_offset
        return None

    def _note_follower(
        self,
        params: FetchParams,
        partition: Partition,
        requested: FetchPartitionFields,
        moved: list[Partition],
    ) -> None:
        """Note the offsets of a follower; add the partition to `moved` if its high watermark moves.

        Raises:
            ApiError: the fetch is from an earlier registration of the broker.
        """
        replica = params.replica_id
        now = self._clock.monotonic()
        start_before = partition.followers[replica].log_start_offset
        if partition.update_follower(
            replica, requested.fetch_offset, requested.log_start_offset, now, params.replica_epoch
        ):
            moved.append(partition)
        if requested.log_start_offset != start_before:
            self._delete_purgatory.check_and_complete(partition)
        if replica not in partition.maximal_isr:
            change = partition.propose_expansion(replica)
            if change is not None:
                self._isr_changes.submit(partition, change)

    def _fetch_absence(self, params: FetchParams, key: bytes, requested: FetchPartitionFields) -> int:
        if params.by_id:
            name = self._topic_name_by_id(key)
            if name is None:
                return int(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            name = key.decode(errors="replace")
        return int(self.absence_error(TopicPartition(name, requested.partition)))


def _read_error(
    params: FetchParams, partition: Partition, index: int, code: ErrorCode
) -> PartitionFetchResult:
    moved = code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
    leader = (partition.leader_id, partition.leader_epoch) if moved and params.names_leader else None
    return PartitionFetchResult(index, int(code), current_leader=leader)

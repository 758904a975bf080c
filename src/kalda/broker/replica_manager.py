"""The replicas that this broker hosts: found by name or id, changed by the controller, appended to and read.

Everything runs on the event loop, so a request sees the partitions as they are and nothing needs a lock. The
tables are keyed by the bytes of a topic's name and id as they come from the wire: the data path looks a
partition up without decoding a string. What is not here: the wire, fetch sessions and waiting
(`kalda.broker.delayed`).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from kalda.broker.fetch_session import FetchAnswer, FetchEntry
from kalda.broker.partition import NO_EPOCH, Partition
from kalda.broker.purgatory import DelayedOperationPurgatory
from kalda.broker.replication.ports import FollowerFetching
from kalda.common.clock import Clock
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.controller.effects import LeaderAndIsr, PartitionLeadership, StopReplica
from kalda.protocol.fast.fetch import FetchPartitionFields, PartitionFetchResult
from kalda.storage.errors import LOG_ERRORS, OffsetOutOfRangeError
from kalda.storage.log_manager import LogManager
from kalda.storage.unified_log import FetchIsolation, LogAppendInfo

logger = logging.getLogger(__name__)

LEADER_DURING_DELETE: Final = -2
"""The leader epoch of a StopReplica that holds whatever the replica's is: its topic is being deleted."""

RETRIES_PER_STEP: Final = 50
"""Refused roles tried between two turns of requests. Making a log takes about half a millisecond."""

RETRY_FAILURES_MAX: Final = 10
"""Failures that end a round of retries: a full disk refuses the others too. The next begins with those."""

_NO_PARTITIONS: Final[dict[int, Partition]] = {}


class FetchParams:
    """What one fetch request asks for, whatever the partition."""

    __slots__ = (
        "by_id",
        "is_follower",
        "isolation",
        "leader_only",
        "max_bytes",
        "max_wait_ms",
        "min_bytes",
        "min_one_batch",
        "replica_id",
        "tells_leader",
    )

    def __init__(
        self,
        *,
        by_id: bool,
        replica_id: int,
        isolation: FetchIsolation,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        min_one_batch: bool,
        tells_leader: bool,
    ) -> None:
        self.by_id: Final = by_id
        """Whether topic keys are ids instead of names."""
        self.replica_id: Final = replica_id
        self.is_follower: Final = replica_id >= 0
        self.leader_only: Final = replica_id >= -1
        self.isolation: Final = isolation
        self.max_wait_ms: Final = max_wait_ms
        self.min_bytes: Final = min_bytes
        self.max_bytes: Final = max_bytes
        self.min_one_batch: Final = min_one_batch
        """Whether the first batch is returned however large it is (Fetch v3 on, KIP-74)."""
        self.tells_leader: Final = tells_leader
        """Whether an answer names the partition's new leader (Fetch v16 on, KIP-951)."""


class ReplicaManager:
    """The partitions of one broker.

    `partition_is_known` asks the metadata cache about a partition that is not here: an unknown partition and
    one that lives elsewhere get different errors.
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
        fetching: FollowerFetching | None = None,
    ) -> None:
        self._broker_id: Final = broker_id
        self._log_manager: Final = log_manager
        self._clock: Final = clock
        self._fetch_purgatory: Final = fetch_purgatory
        self._produce_purgatory: Final = produce_purgatory
        self._partition_is_known: Final = partition_is_known
        self._topic_name_by_id: Final = topic_name_by_id
        self._fetching: Final = fetching
        self._partitions: Final[dict[TopicPartition, Partition]] = {}
        self._by_name: Final[dict[bytes, dict[int, Partition]]] = {}
        self._by_id: Final[dict[bytes, dict[int, Partition]]] = {}
        self._refused: Final[dict[TopicPartition, PartitionLeadership]] = {}
        """Roles that the disk kept us from. The controller does not send them again: see `retry_refused`."""
        self._controller_epoch = -1
        # Counters of the data path, read by the metrics when they are rendered.
        self.bytes_in = 0
        self.messages_in = 0
        self.bytes_out = 0
        self.produce_failures = 0
        self.fetch_failures = 0

    # Looking up.

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """The hosted partitions."""
        return self._partitions

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """Return a hosted partition.

        Raises:
            ApiError: as `absence_error`.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None:
            raise ApiError(self.absence_error(topic_partition))
        return partition

    def find(self, name: bytes, index: int) -> Partition | None:
        """Return a hosted partition by the bytes of its topic's name, or None."""
        return self._by_name.get(name, _NO_PARTITIONS).get(index)

    def absence_error(self, topic_partition: TopicPartition) -> ErrorCode:
        """Tell why a partition is not hosted here.

        KAFKA_STORAGE_ERROR where its log cannot be opened at present, NOT_LEADER_OR_FOLLOWER where another
        broker has it, else UNKNOWN_TOPIC_OR_PARTITION. Clients try again after all three.
        """
        if topic_partition in self._refused:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if self._partition_is_known(topic_partition):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    # What the controller decides.

    def apply_leader_and_isr(self, request: LeaderAndIsr) -> dict[TopicPartition, ErrorCode]:
        """Lead or follow the partitions of a request; return what went wrong with which."""
        if request.controller_epoch < self._controller_epoch:
            return {
                leadership.topic_partition: ErrorCode.STALE_CONTROLLER_EPOCH
                for leadership in request.partitions
            }
        self._controller_epoch = request.controller_epoch
        errors: dict[TopicPartition, ErrorCode] = {}
        followed: list[Partition] = []
        for leadership in request.partitions:
            code = self._apply_leadership(leadership, followed)
            if code is not ErrorCode.NONE:
                errors[leadership.topic_partition] = code
        self._follow(followed)
        return errors

    def apply_stop_replica(self, request: StopReplica) -> dict[TopicPartition, ErrorCode]:
        """Stop serving partitions, and delete their logs where the request says so."""
        if request.controller_epoch < self._controller_epoch:
            return dict.fromkeys(request.partitions, ErrorCode.STALE_CONTROLLER_EPOCH)
        self._controller_epoch = request.controller_epoch
        errors: dict[TopicPartition, ErrorCode] = {}
        for topic_partition in request.partitions:
            partition = self._partitions.get(topic_partition)
            epoch = request.leader_epochs.get(topic_partition, LEADER_DURING_DELETE)
            if 0 <= epoch < self._known_leader_epoch(topic_partition):
                errors[topic_partition] = ErrorCode.FENCED_LEADER_EPOCH
                continue
            self._refused.pop(topic_partition, None)
            if partition is not None:
                self._unfollow(topic_partition)
                self._forget(partition)
            if request.delete and self._log_manager.get(topic_partition) is not None:
                try:
                    self._log_manager.delete(topic_partition)
                except LOG_ERRORS as error:
                    logger.error("Cannot delete the log of %s: %s", topic_partition, error)
                    errors[topic_partition] = ErrorCode.KAFKA_STORAGE_ERROR
        return errors

    def retry_refused(self) -> bool:
        """Try some of the roles again that the disk refused; tell whether to go on at once with others.

        Called about once a second, so that a partition serves soon after the disk has space, or the process
        has descriptors, again.
        """
        failures = 0
        followed: list[Partition] = []
        for topic_partition, leadership in tuple(islice(self._refused.items(), RETRIES_PER_STEP)):
            if self._apply_leadership(leadership, followed) is ErrorCode.NONE:
                logger.info("Serving %s: its log can be opened now", topic_partition)
            else:
                failures += 1
                if failures == RETRY_FAILURES_MAX:
                    break
        self._follow(followed)
        return failures < RETRY_FAILURES_MAX and failures < len(self._refused)

    def _known_leader_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the newest leader epoch that the controller told us, -1 without one."""
        known = self._refused.get(topic_partition) or self._partitions.get(topic_partition)
        return -1 if known is None else known.leader_epoch

    def _apply_leadership(self, leadership: PartitionLeadership, followed: list[Partition]) -> ErrorCode:
        """Take one role; a partition that follows from now on is added to `followed`."""
        topic_partition = leadership.topic_partition
        if self._broker_id not in leadership.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if leadership.topic_id not in (partition.topic_id, ZERO_UUID):
                return ErrorCode.INCONSISTENT_TOPIC_ID
            if leadership.leader_epoch == partition.leader_epoch:
                return ErrorCode.NONE
        if leadership.leader_epoch < self._known_leader_epoch(topic_partition):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        try:
            self._take_role(partition, leadership, followed)
        except LOG_ERRORS as error:
            return self._refuse(leadership, error.code, error)
        self._refused.pop(topic_partition, None)
        return ErrorCode.NONE

    def _take_role(
        self, partition: Partition | None, leadership: PartitionLeadership, followed: list[Partition]
    ) -> None:
        topic_partition = leadership.topic_partition
        hosted = partition
        if hosted is None:
            log = self._log_manager.get_or_create(topic_partition, leadership.topic_id)
            hosted = Partition(topic_partition, leadership.topic_id, self._broker_id, log)
        if leadership.leader == self._broker_id:
            # Nobody else may append to the log of a leader.
            self._unfollow(topic_partition)
            hosted.become_leader(leadership)
        else:
            if hosted.become_follower(leadership):
                self.wake(hosted)
            followed.append(hosted)
        if partition is None:
            self._host(hosted)

    def _follow(self, partitions: Sequence[Partition]) -> None:
        if self._fetching is not None and partitions:
            self._fetching.follow(partitions)

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        if self._fetching is not None:
            self._fetching.unfollow((topic_partition,))

    def _refuse(self, leadership: PartitionLeadership, code: ErrorCode, error: Exception) -> ErrorCode:
        """Take note of a role that the disk keeps us from; what no retry can mend is only told."""
        topic_partition = leadership.topic_partition
        # One that is tried again goes to the end: each round begins with those that wait longest.
        is_known = self._refused.pop(topic_partition, None) is not None
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            self._refused[topic_partition] = leadership
        if not is_known:
            logger.error("Cannot serve %s for now: %s", topic_partition, error)
        return code

    def _host(self, partition: Partition) -> None:
        topic_partition = partition.topic_partition
        self._partitions[topic_partition] = partition
        self._by_name.setdefault(partition.name_bytes, {})[topic_partition.partition] = partition
        if partition.topic_id != ZERO_UUID:
            self._by_id.setdefault(partition.topic_id.bytes, {})[topic_partition.partition] = partition

    def _forget(self, partition: Partition) -> None:
        topic_partition = partition.topic_partition
        del self._partitions[topic_partition]
        for table, key in (
            (self._by_name, partition.name_bytes),
            (self._by_id, partition.topic_id.bytes),
        ):
            siblings = table.get(key)
            if siblings is not None:
                siblings.pop(topic_partition.partition, None)
                if not siblings:
                    del table[key]
        partition.is_leader = False
        self.wake(partition)

    def wake(self, partition: Partition) -> None:
        """Complete what waits for the partition and can be completed: its high watermark or role changed."""
        self._produce_purgatory.check_and_complete(partition)
        self._fetch_purgatory.check_and_complete(partition)

    # Appending.

    def append(self, partition: Partition, records: memoryview, acks: int) -> LogAppendInfo:
        """Append one batch to a partition that this broker leads, and wake the fetches that wait for it.

        Raises:
            ApiError: as `Partition.append_as_leader`.
            StorageError, RecordsError: what the log refuses, with the code to answer.
        """
        try:
            info = partition.append_as_leader(records, acks)
        except (ApiError, *LOG_ERRORS):
            self.produce_failures += 1
            raise
        self.bytes_in += info.size
        self.messages_in += info.record_count
        self._fetch_purgatory.check_and_complete(partition)
        return info

    # Reading.

    def find_by_key(self, params: FetchParams, key: bytes, index: int) -> Partition | None:
        """Return the hosted partition that a fetch request means, or None."""
        table = self._by_id if params.by_id else self._by_name
        return table.get(key, _NO_PARTITIONS).get(index)

    def read(
        self, params: FetchParams, entries: Sequence[FetchEntry], *, note_follower: bool = True
    ) -> tuple[list[FetchAnswer], int, bool]:
        """Read partitions in order until `max_bytes` is used up.

        Returns the answers, how many bytes of records they have, and whether one of them is an error or
        something else that must not wait.
        """
        answers: list[FetchAnswer] = []
        left = params.max_bytes
        min_one_batch = params.min_one_batch
        total = 0
        urgent = False
        table = self._by_id if params.by_id else self._by_name
        for key, requested in entries:
            partition = table.get(key, _NO_PARTITIONS).get(requested.partition)
            if partition is None:
                result = PartitionFetchResult(
                    requested.partition, self._fetch_absence(params, key, requested)
                )
                urgent = True
            else:
                if note_follower and params.is_follower:
                    self._note_follower(params, partition, requested)
                max_bytes = requested.max_bytes if requested.max_bytes < left else left
                result = self._read_partition(params, partition, requested, max_bytes, min_one_batch)
                records = result.records
                if records is not None:
                    size = records.size
                    if size:
                        min_one_batch = False
                        total += size
                        left = left - size if left > size else 0
                if result.error_code != 0 or result.diverging_epoch is not None:
                    urgent = True
            answers.append((key, result))
        return answers, total, urgent

    def _read_partition(
        self,
        params: FetchParams,
        partition: Partition,
        requested: FetchPartitionFields,
        max_bytes: int,
        min_one_batch: bool,
    ) -> PartitionFetchResult:
        index = requested.partition
        log = partition.log
        try:
            epoch = requested.current_leader_epoch
            if epoch not in (NO_EPOCH, partition.leader_epoch) or not partition.is_leader:
                partition.check_leader_epoch(epoch, params.leader_only)
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
        except ApiError as error:
            return _read_error(params, partition, index, error.code)
        except LOG_ERRORS as error:
            code: ErrorCode = error.code
            if code is not ErrorCode.OFFSET_OUT_OF_RANGE:
                # What the disk did is logged by the log itself, once in a while instead of per request.
                self.fetch_failures += 1
            return _read_error(params, partition, index, code)
        aborted = data.aborted_transactions
        return PartitionFetchResult(
            index,
            0,
            data.high_watermark,
            log.last_stable_offset,
            log.log_start_offset,
            None if aborted is None else [(each.producer_id, each.first_offset) for each in aborted],
            -1,
            data.records,
        )

    def _diverging_epoch(
        self, partition: Partition, requested: FetchPartitionFields
    ) -> tuple[int, int] | None:
        """Return where a follower's log parts from this one's, if it does (KIP-595)."""
        log = partition.log
        epoch, end_offset = log.end_offset_for_epoch(requested.last_fetched_epoch)
        if epoch < 0 or end_offset < 0:
            raise OffsetOutOfRangeError(
                f"no end offset is known for epoch {requested.last_fetched_epoch} of {partition}"
            )
        if requested.fetch_offset < log.log_start_offset:
            # Where the logs part is of no use to a follower whose next offset is gone: it starts over.
            raise OffsetOutOfRangeError(
                f"offset {requested.fetch_offset} of {partition} is below {log.log_start_offset}"
            )
        if epoch < requested.last_fetched_epoch or end_offset < requested.fetch_offset:
            return epoch, end_offset
        return None

    def _note_follower(
        self, params: FetchParams, partition: Partition, requested: FetchPartitionFields
    ) -> None:
        try:
            moved = partition.update_follower(
                params.replica_id, requested.fetch_offset, requested.log_start_offset, self._clock.monotonic()
            )
        except ApiError as error:
            logger.info("Fetch of replica %d: %s", params.replica_id, error)
            return
        if moved:
            self.wake(partition)

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
    leader = (partition.leader_id, partition.leader_epoch) if moved and params.tells_leader else None
    return PartitionFetchResult(index, int(code), current_leader=leader)

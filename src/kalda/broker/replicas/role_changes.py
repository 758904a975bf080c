"""Changes the roles of this broker's replicas: leader, follower, or gone.

The controller's requests cause most changes; a failed disk, or a newer leader in ZooKeeper, cause the others.
A log has one writer: fetching stops before this broker leads a partition or gives it up, and begins after it
has become a follower. Any request can arrive twice, late, or from a controller that was replaced; leader
epochs, partition epochs and the controller epoch identify these.
"""

import logging
import os
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from kalda.broker.metadata.metadata_cache import TopicMetadata
from kalda.broker.replicas.follower.ports import FollowerFetching
from kalda.broker.replicas.hosted_replicas import HostedReplicas
from kalda.broker.replicas.in_sync import ReplicationRules
from kalda.broker.replicas.missing_records import MissingRecords
from kalda.broker.replicas.partition import Partition
from kalda.cluster.schema import LEADER_DURING_DELETE, PartitionState
from kalda.common import invariants
from kalda.common.errors import ErrorCode
from kalda.common.types import NO_PARTITION_LEADER, UUID, ZERO_UUID, TopicPartition, is_other_topic
from kalda.controller.effects import LeaderAndIsr, PartitionLeadership, StopReplica
from kalda.storage.errors import LOG_ERRORS
from kalda.storage.log_manager import LogManager
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)

RETRIES_PER_STEP: Final = 50
"""Refused roles that are retried in one step; creating a log takes about half a millisecond."""

RETRY_FAILURES_MAX: Final = 10
"""Failures that end a step: a full disk refuses the others too. The next step begins with the others."""


class RoleChanges:
    """Changes the roles of one broker's replicas; calls `wake` to complete operations of a partition."""

    def __init__(
        self,
        broker_id: int,
        replicas: HostedReplicas,
        log_manager: LogManager,
        rules: ReplicationRules,
        fetching: FollowerFetching,
        wake: Callable[[Partition], None],
        missing: MissingRecords,
        *,
        on_internal_role: Callable[[Partition], None],
        on_recovered: Callable[[], None],
        on_hosted: Callable[[Partition], None],
    ) -> None:
        """`on_hosted` is called with each partition that this broker begins to host.

        `on_internal_role` is called after each change of the role of an internal topic's partition.

        `on_recovered` is called when roles were taken that a disk had refused, which the controller takes for
        lost.
        """
        self._broker_id: Final = broker_id
        self._replicas: Final = replicas
        self._log_manager: Final = log_manager
        self._rules: Final = rules
        self._fetching: Final = fetching
        self._wake: Final = wake
        self._missing: Final = missing
        missing.listen(lambda partition: self._follow([partition]))
        self._controller_epoch = -1
        self._on_internal_role: Final = on_internal_role
        self._on_recovered: Final = on_recovered
        self._on_hosted: Final = on_hosted

    def apply_leader_and_isr(self, request: LeaderAndIsr) -> dict[TopicPartition, ErrorCode]:
        """Lead or follow the partitions of a request; return the errors by partition.

        INELIGIBLE_REPLICA means that the role was taken, but the disk is full.
        """
        if request.controller_epoch < self._controller_epoch:
            return {
                leadership.topic_partition: ErrorCode.STALE_CONTROLLER_EPOCH
                for leadership in request.partitions
            }
        self._controller_epoch = request.controller_epoch
        errors: dict[TopicPartition, ErrorCode] = {}
        followed: list[Partition] = []
        self._set_strays_aside(request)
        for leadership in request.partitions:
            code = self._apply(leadership, followed)
            if code is ErrorCode.NONE and not self._is_writable(leadership.topic_partition):
                code = ErrorCode.INELIGIBLE_REPLICA
            if code is not ErrorCode.NONE:
                errors[leadership.topic_partition] = code
        self._follow(followed)
        if invariants.enabled:
            self._replicas.check_invariants()
        return errors

    def apply_stop_replica(self, request: StopReplica) -> dict[TopicPartition, ErrorCode]:
        """Stop serving partitions, and delete their logs where the request says so."""
        if request.controller_epoch < self._controller_epoch:
            return dict.fromkeys(request.partitions, ErrorCode.STALE_CONTROLLER_EPOCH)
        self._controller_epoch = request.controller_epoch
        errors: dict[TopicPartition, ErrorCode] = {}
        for topic_partition in request.partitions:
            epoch = request.leader_epochs.get(topic_partition, LEADER_DURING_DELETE)
            code = self._stop(topic_partition, epoch, delete=request.delete)
            if code is not ErrorCode.NONE:
                errors[topic_partition] = code
        if invariants.enabled:
            self._replicas.check_invariants()
        return errors

    def retry_refused(self) -> bool:
        """Retry some of the roles that the disk refused; return whether to continue with others at once.

        Called about once a second, so that a partition is served soon after the disk has space again, or the
        process has file descriptors.
        """
        successes = failures = 0
        followed: list[Partition] = []
        refused = self._replicas.refused
        for topic_partition, leadership in tuple(islice(refused.items(), RETRIES_PER_STEP)):
            if self._apply(leadership, followed) is ErrorCode.NONE:
                successes += 1
                logger.info("Serving %s: its log can be opened again", topic_partition)
            else:
                failures += 1
                if failures == RETRY_FAILURES_MAX:
                    break
        self._follow(followed)
        if successes:
            self._on_recovered()
        return failures < RETRY_FAILURES_MAX and failures < len(refused)

    def step_down(self, partition: Partition, state: PartitionState) -> None:
        """Follow the leader that ZooKeeper names, without waiting for the controller's request.

        This broker was partitioned off or paused while another was elected. What it appended meanwhile was
        never committed, and is cut off when the log is truncated to the new leader's.
        """
        logger.warning(
            "Stopped leading %s: broker %d leads it in epoch %d, this broker led it in epoch %d",
            partition.topic_partition,
            state.leader,
            state.leader_epoch,
            partition.leader_epoch,
        )
        name = partition.topic_partition
        partition.become_follower(
            PartitionLeadership(
                name.topic,
                partition.topic_id,
                name.partition,
                state.controller_epoch,
                state.leader,
                state.leader_epoch,
                state.isr,
                state.version,
                partition.replicas,
            )
        )
        self._wake(partition)
        self._notify(partition)
        self._follow([partition])

    def take_offline(self, directory: str) -> list[TopicPartition]:
        """Stop hosting the replicas in a log directory that failed; return them."""
        replicas = self._replicas
        gone = self._log_manager.take_offline(directory)
        self._fetching.unfollow(gone)
        for topic_partition in gone:
            replicas.offline[topic_partition] = directory
            replicas.refused.pop(topic_partition, None)
            partition = replicas.partitions.get(topic_partition)
            if partition is not None:
                partition.is_offline = True
                self._forget(partition)
        return gone

    def pause_following(self, directory: str) -> int:
        """Stop fetching for the replicas in a log directory that is full; return how many there are.

        A follower that continued to fetch would rejoin the ISR, or hold the high watermark back.
        """
        in_directory = self._in_directory(directory)
        self._follow(in_directory)
        return len(in_directory)

    def resume_following(self, directory: str) -> int:
        """Fetch again for the replicas in a log directory that has space; return how many there are."""
        in_directory = self._in_directory(directory)
        self._follow([partition for partition in in_directory if not partition.is_leader])
        return len(in_directory)

    def resume_after_move(self, partition: Partition) -> None:
        """Fetch again for a replica that was moved out of a full log directory."""
        if not partition.is_leader:
            self._follow([partition])
        self._on_recovered()

    def _in_directory(self, directory: str) -> list[Partition]:
        partitions = self._replicas.partitions.values()
        return [each for each in partitions if os.path.dirname(each.log.directory) == directory]

    def _is_writable(self, topic_partition: TopicPartition) -> bool:
        partition = self._replicas.partitions.get(topic_partition)
        return partition is None or partition.log.is_writable

    def _set_strays_aside(self, request: LeaderAndIsr) -> None:
        """Move logs aside that belong to an earlier topic of the same name.

        The topic was deleted and created again while this broker was down or out of the cluster. Only a full
        request, which names everything that this broker should host, replaces a replica that is hosted.
        """
        for leadership in request.partitions:
            topic_partition = leadership.topic_partition
            log = self._log_manager.get(topic_partition)
            if log is None or not is_other_topic(leadership.topic_id, log.topic_id or ZERO_UUID):
                continue
            partition = self._replicas.partitions.get(topic_partition)
            if partition is not None:
                if not request.is_full:
                    continue
                self._unfollow(topic_partition)
                self._forget(partition)
            self._set_aside(topic_partition)

    def _set_aside(
        self, topic_partition: TopicPartition, reason: str = "it belongs to another topic of this name"
    ) -> None:
        try:
            self._log_manager.set_aside(topic_partition, reason)
        except LOG_ERRORS as error:
            logger.error("Cannot move the stray log of %s aside: %s", topic_partition, error)

    def set_unassigned_strays_aside(self, topic_id_of: Callable[[str], UUID]) -> None:
        """Move the logs aside that have no role and whose topic has another id in the cluster.

        Called after the roles and the metadata of every partition have arrived. A log whose topic is not in
        the metadata stays: its deletion may be under way.
        """
        for topic_partition, log in tuple(self._log_manager.logs().items()):
            if topic_partition in self._replicas.partitions:
                continue
            if is_other_topic(topic_id_of(topic_partition.topic), log.topic_id or ZERO_UUID):
                self._set_aside(topic_partition)

    def leave_unassigned(self, topic_of: Callable[[str], TopicMetadata | None]) -> None:
        """Stop serving the replicas that the cluster does not assign to this broker.

        The controller that took them away could not reach this broker, and was replaced before it could
        request their deletion. Called after the metadata of every partition has arrived, which `topic_of`
        returns. Nothing is deleted: a log whose partition other brokers have is moved aside, and one whose
        topic is gone loses its role only, since a znode that was lost may come back.
        """
        for topic_partition, log in tuple(self._log_manager.logs().items()):
            topic = topic_of(topic_partition.topic)
            partition = self._replicas.partitions.get(topic_partition)
            if topic is None:
                self._leave(partition, "the cluster has no such topic")
                continue
            state = topic.partitions.get(topic_partition.partition)
            if state is not None and self._is_taken_away(state, log):
                reason = "other brokers have the partition"
                self._replicas.refused.pop(topic_partition, None)
                self._leave(partition, reason)
                self._set_aside(topic_partition, reason)

    def _is_taken_away(self, state: PartitionLeadership, log: UnifiedLog) -> bool:
        """Return whether others have a partition, by a state that is not older than this broker's."""
        if state.leader == NO_PARTITION_LEADER or self._broker_id in (*state.replicas, *state.isr):
            # A removed replica that is in sync may be the only complete one.
            return False
        partition = self._replicas.partitions.get(state.topic_partition)
        if partition is None:
            known = self._replicas.known_leader_epoch(state.topic_partition)
            return state.leader_epoch >= max(known, log.leader_epochs.latest_epoch)
        if is_other_topic(state.topic_id, self._id_of(partition)):
            return True
        known_epochs = partition.leader_epoch, partition.partition_epoch
        return (state.leader_epoch, state.partition_epoch) >= known_epochs

    # One partition.

    def _leave(self, partition: Partition | None, reason: str) -> None:
        if partition is not None:
            logger.warning("Stopped serving %s: %s", partition.topic_partition, reason)
            self._unfollow(partition.topic_partition)
            self._forget(partition)

    def _apply(self, leadership: PartitionLeadership, followed: list[Partition]) -> ErrorCode:
        """Take one role; add the partition to `followed` if it follows from now on."""
        topic_partition = leadership.topic_partition
        replicas = self._replicas
        if self._broker_id not in leadership.replicas:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if topic_partition in replicas.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        partition = replicas.partitions.get(topic_partition)
        if partition is not None and is_other_topic(leadership.topic_id, self._id_of(partition)):
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if leadership.leader_epoch < replicas.known_leader_epoch(topic_partition):
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if partition is not None:
            if leadership.partition_epoch < partition.partition_epoch:
                return ErrorCode.NONE
            try:
                self._note_topic_id(partition, leadership.topic_id, followed)
            except LOG_ERRORS as error:
                return self._refuse(leadership, error.code, error)
            is_same_epoch = leadership.leader_epoch == partition.leader_epoch
            if is_same_epoch and leadership.partition_epoch == partition.partition_epoch:
                return ErrorCode.NONE
        if partition is None and not leadership.is_new and self._is_lost(topic_partition):
            return ErrorCode.KAFKA_STORAGE_ERROR
        try:
            self._take_role(partition, leadership, followed)
        except LOG_ERRORS as error:
            return self._refuse(leadership, error.code, error)
        replicas.refused.pop(topic_partition, None)
        return ErrorCode.NONE

    @staticmethod
    def _id_of(partition: Partition) -> UUID:
        """Return the topic id of the role, else that of the log, which may have one from an earlier role."""
        return partition.topic_id if partition.topic_id != ZERO_UUID else partition.log.topic_id or ZERO_UUID

    def _note_topic_id(self, partition: Partition, topic_id: UUID, followed: list[Partition]) -> None:
        """Adopt the topic id of a role, or follow by name if the role has none.

        A controller that begins to send ids does so without a new leader epoch.
        """
        is_named_by_id = topic_id != ZERO_UUID
        if is_named_by_id and partition.topic_id == ZERO_UUID:
            self._log_manager.get_or_create(partition.topic_partition, topic_id)
            self._replicas.adopt_topic_id(partition, topic_id)
        if is_named_by_id != partition.is_named_by_id:
            partition.is_named_by_id = is_named_by_id
            if not partition.is_leader:
                followed.append(partition)

    def _is_lost(self, topic_partition: TopicPartition) -> bool:
        """Return whether the log of an existing replica must be in a directory that could not be opened.

        Creating an empty log elsewhere would lose the records if this replica were elected.
        """
        failed = self._log_manager.offline_directories
        if not failed or self._log_manager.has(topic_partition):
            return False
        self._replicas.offline[topic_partition] = next(iter(failed))
        return True

    def _take_role(
        self, partition: Partition | None, leadership: PartitionLeadership, followed: list[Partition]
    ) -> None:
        topic_partition = leadership.topic_partition
        hosted = partition
        if hosted is None:
            log = self._log_manager.get_or_create(topic_partition, leadership.topic_id)
            hosted = Partition(
                topic_partition,
                leadership.topic_id,
                self._broker_id,
                log,
                self._rules,
                self._replicas.topic_stats.of(topic_partition.topic),
            )
        if leadership.leader == self._broker_id:
            self._unfollow(topic_partition)
            hosted.become_leader(leadership)
            self._missing.take(hosted)
            if partition is not None:
                # Waiting fetches of followers name the old epoch and must get an error now.
                self._wake(hosted)
        else:
            if topic_partition in self._replicas.refused:
                # Following writes nothing. On success the controller might elect this replica at once, get
                # an error because it cannot lead, and repeat this without a pause.
                hosted.log.check_writable()
            if hosted.become_follower(leadership):
                self._wake(hosted)
            followed.append(hosted)
        if partition is None:
            self._replicas.host(hosted)
            self._on_hosted(hosted)
        self._notify(hosted)

    def _refuse(self, leadership: PartitionLeadership, code: ErrorCode, error: Exception) -> ErrorCode:
        """Return the code of a role that the disk refuses; keep the role if a retry may succeed."""
        topic_partition = leadership.topic_partition
        refused = self._replicas.refused
        # A retried role goes to the end, so that each step begins with those that wait longest.
        is_known = refused.pop(topic_partition, None) is not None
        if code is ErrorCode.KAFKA_STORAGE_ERROR:
            refused[topic_partition] = leadership
        if not is_known:
            logger.error("Cannot serve %s for now: %s", topic_partition, error)
        return code

    def _stop(self, topic_partition: TopicPartition, epoch: int, *, delete: bool) -> ErrorCode:
        replicas = self._replicas
        if topic_partition in replicas.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if 0 <= epoch < replicas.known_leader_epoch(topic_partition):
            return ErrorCode.FENCED_LEADER_EPOCH
        replicas.refused.pop(topic_partition, None)
        partition = replicas.partitions.get(topic_partition)
        if partition is not None:
            self._unfollow(topic_partition)
            self._forget(partition)
        if delete:
            try:
                self._log_manager.delete(topic_partition)
            except LOG_ERRORS as error:
                logger.error("Cannot delete the log of %s: %s", topic_partition, error)
                return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _forget(self, partition: Partition) -> None:
        self._replicas.forget(partition)
        self._missing.drop(partition.topic_partition)
        partition.is_gone = True
        partition.resign()
        self._wake(partition)
        self._notify(partition)

    def _notify(self, partition: Partition) -> None:
        if partition.is_internal:
            self._on_internal_role(partition)

    def _follow(self, partitions: Sequence[Partition]) -> None:
        # A replica must not join the ISR while it lacks records that others have.
        partitions = [partition for partition in partitions if not self._missing.take(partition)]
        writable = [partition for partition in partitions if partition.log.is_writable]
        if len(writable) < len(partitions):
            self._fetching.unfollow([each.topic_partition for each in partitions if not each.log.is_writable])
        if writable:
            self._fetching.follow(writable)

    def _unfollow(self, topic_partition: TopicPartition) -> None:
        self._fetching.unfollow((topic_partition,))

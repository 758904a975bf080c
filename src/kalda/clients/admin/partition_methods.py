"""Holds the admin client's methods on partitions and their records."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.partitions import (
    DeletedRecords,
    ElectionType,
    ListOffsetsResultInfo,
    OffsetSpec,
    PartitionReassignment,
)
from kalda.clients.errors import ClientConfigError
from kalda.common.types import TopicPartition

_ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}


class PartitionMethods(AdminMethods):
    """Looks up offsets, deletes records, elects leaders and moves partitions."""

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: str = "read_uncommitted",
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, ListOffsetsResultInfo]:
        """Look up offsets: the ends of logs, or the first record from a time on.

        Args:
            specs: By partition, which offset to look up.
            isolation_level: With ``read_committed``, the end of a log is its last stable offset.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By partition, the offset or the error. A partition that does not exist fails after some seconds,
            because it may be on its way to the brokers.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
            ClientConfigError: `isolation_level` is no such word.
        """
        from kalda.clients.admin.partition_calls import ListOffsets

        level = _ISOLATION_LEVELS.get(isolation_level)
        if level is None:
            allowed = " or ".join(_ISOLATION_LEVELS)
            raise ClientConfigError(f"isolation_level={isolation_level!r} is not allowed: it takes {allowed}")
        return await self._run(ListOffsets(specs, level), specs, timeout_ms, outcomes=outcomes)

    async def delete_records(
        self,
        before_offsets: Mapping[TopicPartition, int],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, DeletedRecords]:
        """Delete the records before given offsets (KIP-107). They cannot be brought back.

        Args:
            before_offsets: By partition, the first offset to keep; -1 deletes all up to the high watermark.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By partition, the first offset that is left, or the error: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION
            for a topic that is only compacted, and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.partition_calls import DeleteRecords

        return await self._run(DeleteRecords(before_offsets), before_offsets, timeout_ms, outcomes=outcomes)

    async def elect_leaders(
        self,
        election_type: ElectionType,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Elect leaders: the preferred replicas, or any replica that is alive (KIP-460).

        Args:
            election_type: PREFERRED, or UNCLEAN, which may lose records.
            partitions: The partitions; None for all that need an election.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By partition, None or the error: ELECTION_NOT_NEEDED where the leader is the right one,
            PREFERRED_LEADER_NOT_AVAILABLE, ELIGIBLE_LEADERS_NOT_AVAILABLE and others.

        Raises:
            ClientError: an election failed and `outcomes` is not set, or the call for all partitions failed.
        """
        from kalda.clients.admin.partition_calls import ElectAllLeaders, ElectLeaders

        if partitions is None:
            elected = await self._run_one(ElectAllLeaders(election_type), timeout_ms)
            if not outcomes:
                elected.raise_for_errors()
            return elected
        return await self._run(ElectLeaders(election_type), partitions, timeout_ms, outcomes=outcomes)

    async def alter_partition_reassignments(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[TopicPartition, None]:
        """Move partitions to other brokers, or cancel a move (brokers 2.4 and newer, KIP-455).

        The call ends when the controller has taken the moves; `list_partition_reassignments` shows which are
        not done.

        Args:
            reassignments: By partition, the ids of the brokers that are to hold it, the preferred leader
                first; None cancels.
            allow_replication_factor_change: Whether a partition may get more or fewer replicas than it has;
                False needs brokers 4.1 or newer (KIP-860).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By partition, None or the error: INVALID_REPLICA_ASSIGNMENT,
            INVALID_REPLICATION_FACTOR, NO_REASSIGNMENT_IN_PROGRESS where
            there is nothing to cancel, UNKNOWN_TOPIC_OR_PARTITION and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.partition_calls import AlterPartitionReassignments

        operation = AlterPartitionReassignments(
            reassignments, allow_replication_factor_change=allow_replication_factor_change
        )
        return await self._run(operation, reassignments, timeout_ms, outcomes=outcomes)

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout_ms: int | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """List the partitions that move (brokers 2.4 and newer, KIP-455).

        Args:
            partitions: Only these partitions; None for all.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: the controller did not answer in time, or refused.
        """
        from kalda.clients.admin.partition_calls import ListPartitionReassignments

        return await self._run_one(ListPartitionReassignments(partitions), timeout_ms)

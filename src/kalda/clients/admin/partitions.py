"""Implements the admin client's operations on partitions and their records.

It holds the methods, the values that they take and return, and the requests and responses.
Names of values are those of Java's client.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, Self

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import LEADER_OF_PARTITION, Controller
from kalda.clients.errors import ClientConfigError, ClientError, UnsupportedApiError, error_for
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from kalda.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from kalda.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from kalda.protocol.messages.list_offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_PENDING_UPLOAD_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kalda.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

NO_OFFSET: Final = -1
HIGH_WATERMARK: Final = -1
"""Stands for the high watermark in `delete_records`."""


@public
@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Which offset of a partition to look up, e.g. ``OffsetSpec.for_timestamp(1_700_000_000_000)``."""

    timestamp_ms: int
    """Milliseconds since the epoch, or one of the protocol's negative numbers for special offsets."""

    @classmethod
    def earliest(cls) -> Self:
        """Return the first offset of the log."""
        return cls(EARLIEST_TIMESTAMP)

    @classmethod
    def latest(cls) -> Self:
        """Return the end of the log: the high watermark, or the last stable offset under read_committed."""
        return cls(LATEST_TIMESTAMP)

    @classmethod
    def for_timestamp(cls, timestamp_ms: int) -> Self:
        """Return the first offset whose record is not older than the time, in ms since the epoch.

        Raises:
            ClientConfigError: the time is negative.
        """
        if timestamp_ms < 0:
            raise ClientConfigError(f"timestamp_ms={timestamp_ms} is not allowed: it takes at least 0")
        return cls(timestamp_ms)

    @classmethod
    def max_timestamp(cls) -> Self:
        """Return the offset of the record with the largest timestamp (brokers 3.0 and newer, KIP-734)."""
        return cls(MAX_TIMESTAMP)

    @classmethod
    def earliest_local(cls) -> Self:
        """Return the first offset on the broker's own disks (brokers 3.6 and newer, KIP-405)."""
        return cls(EARLIEST_LOCAL_TIMESTAMP)

    @classmethod
    def latest_tiered(cls) -> Self:
        """Return the last offset in tiered storage (brokers 3.9 and newer, KIP-1005)."""
        return cls(LATEST_TIERED_TIMESTAMP)

    @classmethod
    def earliest_pending_upload(cls) -> Self:
        """Return the first offset that is not in tiered storage yet (brokers 4.3 and newer, KIP-1023)."""
        return cls(EARLIEST_PENDING_UPLOAD_TIMESTAMP)


@public
@dataclass(frozen=True, slots=True)
class ListOffsetsResultInfo:
    """An offset that was looked up."""

    offset: int
    """-1 where nothing fits, for example no record is as new as the time asked for."""
    timestamp_ms: int
    """The record's timestamp if the offset was looked up by time, else -1."""
    leader_epoch: int | None
    """The leader epoch of the offset, if the broker knows it."""

    @property
    def is_found(self) -> bool:
        """Whether there is such an offset."""
        return self.offset != NO_OFFSET


@public
@dataclass(frozen=True, slots=True)
class DeletedRecords:
    """A partition whose first records were deleted."""

    low_watermark: int
    """The first offset that is left."""


@public
class ElectionType(IntEnum):
    """How to elect a leader; the numbers are the protocol's."""

    PREFERRED = 0
    """The preferred replica, if it is in sync (KIP-183)."""
    UNCLEAN = 1
    """Any replica that is alive, where none is in sync; records may be lost (KIP-460)."""


@public
@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition that moves, as broker ids."""

    replicas: tuple[int, ...]
    """The present ones and the new ones together."""
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]


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
        return await self._run_one(ListPartitionReassignments(partitions), timeout_ms)


_CLIENT_REPLICA_ID: Final = -1
_NO_EPOCH: Final = -1
_SPECIAL_TIMESTAMPS: Final[Mapping[int, tuple[int, str]]] = {
    MAX_TIMESTAMP: (7, "3.0"),
    EARLIEST_LOCAL_TIMESTAMP: (8, "3.6"),
    LATEST_TIERED_TIMESTAMP: (9, "3.9"),
    EARLIEST_PENDING_UPLOAD_TIMESTAMP: (11, "4.3"),
}
"""The version of ListOffsets that adds a special timestamp, and the release of brokers with it."""
_ELECTION_TYPE_FROM: Final = 1
_FACTOR_CHANGE_FROM: Final = 1


class ListOffsets(AdminOperation[TopicPartition, ListOffsetsResultInfo]):
    """Looks up offsets by time, and the ends of logs."""

    title = "list offsets of"
    route = LEADER_OF_PARTITION

    def __init__(self, specs: Mapping[TopicPartition, OffsetSpec], isolation_level: int) -> None:
        self._specs: Final = specs
        self._isolation_level: Final = isolation_level

    def requests(
        self, keys: Sequence[TopicPartition], context: RequestContext
    ) -> Iterable[AdminRequest[TopicPartition, ListOffsetsResultInfo]]:
        """Ask one leader for all its partitions."""
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(
                        partition_index=each.partition, timestamp=self._specs[each].timestamp_ms
                    )
                    for each in partitions
                ],
            )
            for topic, partitions in by_topic(keys).items()
        ]
        message = ListOffsetsRequest(
            replica_id=_CLIENT_REPLICA_ID, isolation_level=self._isolation_level, topics=topics
        )
        yield AdminRequest.of(message, ListOffsetsResponse, keys, self._read)

    def refusal(self, key: TopicPartition, context: RequestContext) -> ClientError | None:
        """Refuse special offsets that the broker is too old for; it would take them for a time."""
        first, release = _SPECIAL_TIMESTAMPS.get(self._specs[key].timestamp_ms, (0, ""))
        if context.versions.latest(ApiKey.LIST_OFFSETS) >= first:
            return None
        return UnsupportedApiError(f"{self.what(key)}: brokers before {release} cannot look up this offset")

    @staticmethod
    def _read(response: ListOffsetsResponse, answers: Answers[TopicPartition, ListOffsetsResultInfo]) -> None:
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    answers.fail(partition, each.error_code)
                else:
                    epoch = None if each.leader_epoch == _NO_EPOCH else each.leader_epoch
                    answers.succeed(partition, ListOffsetsResultInfo(each.offset, each.timestamp, epoch))


class DeleteRecords(AdminOperation[TopicPartition, DeletedRecords]):
    """Deletes the records before given offsets (KIP-107)."""

    title = "delete records of"
    route = LEADER_OF_PARTITION

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self._offsets: Final = offsets

    def requests(
        self, keys: Sequence[TopicPartition], context: RequestContext
    ) -> Iterable[AdminRequest[TopicPartition, DeletedRecords]]:
        """Ask one leader for all its partitions."""
        topics = [
            DeleteRecordsTopic(
                name=topic,
                partitions=[
                    DeleteRecordsPartition(partition_index=each.partition, offset=self._offsets[each])
                    for each in partitions
                ],
            )
            for topic, partitions in by_topic(keys).items()
        ]
        message = DeleteRecordsRequest(topics=topics, timeout_ms=context.timeout_ms)
        yield AdminRequest.of(message, DeleteRecordsResponse, keys, self._read)

    @staticmethod
    def _read(response: DeleteRecordsResponse, answers: Answers[TopicPartition, DeletedRecords]) -> None:
        for topic in response.topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code:
                    answers.fail(partition, each.error_code)
                else:
                    answers.succeed(partition, DeletedRecords(each.low_watermark))


class ElectLeaders(AdminOperation[TopicPartition, None]):
    """Elects leaders of named partitions."""

    title = "elect the leader of"
    route = Controller()

    def __init__(self, election_type: ElectionType) -> None:
        self._election_type: Final = election_type

    def requests(
        self, keys: Sequence[TopicPartition], context: RequestContext
    ) -> Iterable[AdminRequest[TopicPartition, None]]:
        """Send all partitions in one request."""
        topics = [
            TopicPartitions(topic=topic, partitions=[each.partition for each in partitions])
            for topic, partitions in by_topic(keys).items()
        ]

        def read(response: ElectLeadersResponse, answers: Answers[TopicPartition, None]) -> None:
            if response.error_code:
                for key in keys:
                    answers.fail(key, response.error_code)
                return
            elected = _elected(response, self.title)
            for key in elected.results:
                answers.succeed(key, None)
            for key, error in elected.errors.items():
                answers.fail_with(key, error)

        message = _election(self._election_type, topics, context)
        yield AdminRequest.of(message, ElectLeadersResponse, keys, read)


class ElectAllLeaders(AdminOperation[None, Outcomes[TopicPartition, None]]):
    """Elects leaders of all partitions that need it. Its only key is None."""

    title = "elect leaders of all partitions"
    route = Controller()

    def __init__(self, election_type: ElectionType) -> None:
        self._election_type: Final = election_type

    def requests(
        self, keys: Sequence[None], context: RequestContext
    ) -> Iterable[AdminRequest[None, Outcomes[TopicPartition, None]]]:
        """Ask for all partitions."""

        def read(
            response: ElectLeadersResponse, answers: Answers[None, Outcomes[TopicPartition, None]]
        ) -> None:
            if response.error_code:
                answers.fail(None, response.error_code)
            else:
                answers.succeed(None, _elected(response, ElectLeaders.title))

        message = _election(self._election_type, None, context)
        yield AdminRequest.of(message, ElectLeadersResponse, keys, read)

    @override
    def what(self, key: None) -> str:
        return self.title


def _election(
    election_type: ElectionType, topics: list[TopicPartitions] | None, context: RequestContext
) -> ElectLeadersRequest:
    version = context.versions.latest(ApiKey.ELECT_LEADERS)
    if election_type is not ElectionType.PREFERRED and version < _ELECTION_TYPE_FROM:
        raise UnsupportedApiError("elect leaders: brokers before 2.4 elect preferred leaders only")
    return ElectLeadersRequest(
        election_type=election_type, topic_partitions=topics, timeout_ms=context.timeout_ms
    )


def _elected(response: ElectLeadersResponse, title: str) -> Outcomes[TopicPartition, None]:
    results: dict[TopicPartition, None] = {}
    errors: dict[TopicPartition, ClientError] = {}
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            partition = TopicPartition(topic.topic, each.partition_id)
            if each.error_code:
                code = ErrorCode.of(each.error_code)
                errors[partition] = error_for(code, f"{title} {partition}", each.error_message)
            else:
                results[partition] = None
    return Outcomes(results, errors)


class AlterPartitionReassignments(AdminOperation[TopicPartition, None]):
    """Moves partitions to other brokers, or cancels that (KIP-455)."""

    title = "reassign"
    route = Controller()

    def __init__(
        self,
        reassignments: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
    ) -> None:
        self._reassignments: Final = reassignments
        self._allow_factor_change: Final = allow_replication_factor_change

    def requests(
        self, keys: Sequence[TopicPartition], context: RequestContext
    ) -> Iterable[AdminRequest[TopicPartition, None]]:
        """Send all partitions in one request."""
        version = context.versions.latest(ApiKey.ALTER_PARTITION_REASSIGNMENTS)
        if not self._allow_factor_change and version < _FACTOR_CHANGE_FROM:
            raise UnsupportedApiError(
                "reassign: brokers before 4.1 cannot refuse a change of the replication factor (KIP-860)"
            )
        topics = [
            ReassignableTopic(name=topic, partitions=[self._partition(each) for each in partitions])
            for topic, partitions in by_topic(keys).items()
        ]

        def read(
            response: AlterPartitionReassignmentsResponse, answers: Answers[TopicPartition, None]
        ) -> None:
            if response.error_code:
                for key in keys:
                    answers.fail(key, response.error_code, response.error_message)
                return
            for topic in response.responses:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        answers.fail(partition, each.error_code, each.error_message)
                    else:
                        answers.succeed(partition, None)

        message = AlterPartitionReassignmentsRequest(
            timeout_ms=context.timeout_ms,
            allow_replication_factor_change=self._allow_factor_change,
            topics=topics,
        )
        yield AdminRequest.of(message, AlterPartitionReassignmentsResponse, keys, read)

    def _partition(self, partition: TopicPartition) -> ReassignablePartition:
        replicas = self._reassignments[partition]
        return ReassignablePartition(
            partition_index=partition.partition, replicas=None if replicas is None else list(replicas)
        )


class ListPartitionReassignments(AdminOperation[None, dict[TopicPartition, PartitionReassignment]]):
    """Lists the partitions that move. Its only key is None."""

    title = "list partition reassignments"
    route = Controller()

    def __init__(self, partitions: Iterable[TopicPartition] | None) -> None:
        self._partitions: Final = None if partitions is None else list(partitions)

    def requests(
        self, keys: Sequence[None], context: RequestContext
    ) -> Iterable[AdminRequest[None, dict[TopicPartition, PartitionReassignment]]]:
        """Ask for all partitions, or for the named ones."""
        topics = None
        if self._partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(
                    name=topic, partition_indexes=[each.partition for each in partitions]
                )
                for topic, partitions in by_topic(self._partitions).items()
            ]
        message = ListPartitionReassignmentsRequest(timeout_ms=context.timeout_ms, topics=topics)
        yield AdminRequest.of(message, ListPartitionReassignmentsResponse, keys, self._read)

    @staticmethod
    def _read(
        response: ListPartitionReassignmentsResponse,
        answers: Answers[None, dict[TopicPartition, PartitionReassignment]],
    ) -> None:
        if response.error_code:
            answers.fail(None, response.error_code, response.error_message)
            return
        moving = {
            TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
            )
            for topic in response.topics
            for each in topic.partitions
        }
        answers.succeed(None, {partition: moving[partition] for partition in sorted(moving)})

    @override
    def what(self, key: None) -> str:
        return self.title

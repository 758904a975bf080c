"""Implements the requests and responses of admin calls on partitions and their records. Sans-IO."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.partitions import (
    DeletedRecords,
    ElectionType,
    ListOffsetsResultInfo,
    OffsetSpec,
    PartitionReassignment,
)
from kalda.clients.admin.routes import Controller, PartitionLeader
from kalda.clients.errors import ClientError, UnsupportedApiError, error_for
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
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
    LATEST_TIERED_TIMESTAMP,
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

LEADER_OF_PARTITION: Final[PartitionLeader[TopicPartition]] = PartitionLeader(lambda partition: partition)

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

    def what(self, key: None) -> str:
        """Name the call."""
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

    def what(self, key: None) -> str:
        """Name the call."""
        return self.title

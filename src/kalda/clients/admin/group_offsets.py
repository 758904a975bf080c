"""Implements the admin client's operations on the committed offsets of groups."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.groups import (
    FetchedOffsets,
    PartitionOutcomes,
)
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import COORDINATOR_OF_GROUP
from kalda.clients.argument_checks import check_collection
from kalda.clients.errors import ClientError, UnsupportedApiError, error_for
from kalda.clients.values import OffsetAndMetadata
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kalda.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kalda.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)


class GroupOffsetMethods(AdminMethods):
    """Reads and changes the committed offsets of groups."""

    async def list_consumer_group_offsets(
        self,
        groups: Iterable[str] | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, FetchedOffsets]:
        """Return the offsets that groups have committed.

        Args:
            groups: The groups; a mapping also names the partitions of each, None for all with an offset.
            require_stable: Whether to wait for transactions that commit offsets (brokers 2.5 and newer,
                KIP-447).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the offsets by partition, or the error of the group. A partition that was named and
            has no committed offset is None. A group that does not exist has no offsets.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        check_collection("groups", groups)
        partitions: Mapping[str, Iterable[TopicPartition] | None] = (
            groups if isinstance(groups, Mapping) else dict.fromkeys(groups)
        )
        operation = ListGroupOffsets(partitions, require_stable)
        return await self._run(operation, partitions, timeout_ms, outcomes=outcomes)

    async def alter_consumer_group_offsets(
        self,
        offsets: Mapping[str, Mapping[TopicPartition, int | OffsetAndMetadata]],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, PartitionOutcomes]:
        """Commit offsets for groups that have no members; a group that does not exist is created.

        Args:
            offsets: By group id and partition, the offset of the next record to consume.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the outcome of each partition, e.g. UNKNOWN_MEMBER_ID where the group has members, or
            the error of the group.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        given = {
            group_id: {
                partition: each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
                for partition, each in of_group.items()
            }
            for group_id, of_group in offsets.items()
        }
        return await self._run(AlterGroupOffsets(given), given, timeout_ms, outcomes=outcomes)

    async def delete_consumer_group_offsets(
        self,
        partitions: Mapping[str, Iterable[TopicPartition]],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, PartitionOutcomes]:
        """Delete committed offsets of partitions without a subscribed member (KIP-496, brokers from 2.4).

        Args:
            partitions: By group id, the partitions.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the outcome of each partition, e.g. GROUP_SUBSCRIBED_TO_TOPIC, or the error of the
            group: GROUP_ID_NOT_FOUND and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        operation = DeleteGroupOffsets(partitions)
        return await self._run(operation, operation.partitions, timeout_ms, outcomes=outcomes)


AskedTopic = TypeVar("AskedTopic", OffsetFetchRequestTopic, OffsetFetchRequestTopics)

_STABLE_FROM: Final = 7
_MANY_GROUPS_FROM: Final = 8
_LAST_WITH_NAMES: Final = 9
"""Later versions of OffsetCommit and OffsetFetch name topics by id."""
_NO_OFFSET: Final = -1
_NO_EPOCH: Final = -1
_HAS_MEMBERS: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH})
"""What a coordinator answers to a commit from outside a group that has members."""


class ListGroupOffsets(AdminOperation[str, FetchedOffsets]):
    """Returns the committed offsets of groups."""

    title = "list offsets of group"
    route = COORDINATOR_OF_GROUP
    retry_codes = frozenset({ErrorCode.UNSTABLE_OFFSET_COMMIT})

    def __init__(
        self, partitions: Mapping[str, Iterable[TopicPartition] | None], require_stable: bool
    ) -> None:
        self._partitions: Final = {
            group_id: None if each is None else list(each) for group_id, each in partitions.items()
        }
        self._require_stable: Final = require_stable

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, FetchedOffsets]]:
        """Ask for all groups of a coordinator together, or for each alone if the broker is older than 3.0."""
        version = context.versions.latest(ApiKey.OFFSET_FETCH)
        if self._require_stable and version < _STABLE_FROM:
            raise UnsupportedApiError(
                f"{self.title}: the broker is older than 2.5 and does not know which offsets are stable; "
                "call without `require_stable`"
            )
        if version >= _MANY_GROUPS_FROM:
            groups = [
                OffsetFetchRequestGroup(group_id=key, topics=self._topics(key, OffsetFetchRequestTopics))
                for key in keys
            ]
            message = OffsetFetchRequest(groups=groups, require_stable=self._require_stable)
            yield AdminRequest.of(
                message, OffsetFetchResponse, keys, self._read_groups, version_max=_LAST_WITH_NAMES
            )
            return
        for key in keys:
            message = OffsetFetchRequest(
                group_id=key,
                topics=self._topics(key, OffsetFetchRequestTopic),
                require_stable=self._require_stable,
            )
            yield self._for_one_group(message, key)

    def _for_one_group(self, message: OffsetFetchRequest, key: str) -> AdminRequest[str, FetchedOffsets]:
        def read(response: OffsetFetchResponse, answers: Answers[str, FetchedOffsets]) -> None:
            self._take(key, response.error_code, response.topics, answers)

        return AdminRequest.of(message, OffsetFetchResponse, (key,), read)

    def _read_groups(self, response: OffsetFetchResponse, answers: Answers[str, FetchedOffsets]) -> None:
        for group in response.groups:
            self._take(group.group_id, group.error_code, group.topics, answers)

    def _take(
        self,
        group_id: str,
        code: int,
        topics: Sequence[OffsetFetchResponseTopic] | Sequence[OffsetFetchResponseTopics],
        answers: Answers[str, FetchedOffsets],
    ) -> None:
        if code:
            answers.fail(group_id, code)
            return
        offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
        errors: dict[TopicPartition, ClientError] = {}
        for topic in topics:
            for each in topic.partitions:
                partition = TopicPartition(topic.name, each.partition_index)
                if each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                    answers.fail(group_id, each.error_code)
                    return
                if each.error_code:
                    what = f"offset of group {group_id} in {partition}"
                    errors[partition] = error_for(ErrorCode.of(each.error_code), what)
                elif each.committed_offset == _NO_OFFSET:
                    offsets[partition] = None
                else:
                    epoch = each.committed_leader_epoch
                    offsets[partition] = OffsetAndMetadata(
                        each.committed_offset, each.metadata or "", None if epoch == _NO_EPOCH else epoch
                    )
        answers.succeed(group_id, Outcomes(offsets, errors))

    def _topics(self, group_id: str, topic_class: type[AskedTopic]) -> list[AskedTopic] | None:
        partitions = self._partitions[group_id]
        if partitions is None:
            return None
        return [
            topic_class(name=topic, partition_indexes=[each.partition for each in asked])
            for topic, asked in by_topic(partitions).items()
        ]


class AlterGroupOffsets(AdminOperation[str, PartitionOutcomes]):
    """Commits offsets for groups without members."""

    title = "alter offsets of group"
    route = COORDINATOR_OF_GROUP
    retry_codes = frozenset({ErrorCode.REBALANCE_IN_PROGRESS})

    def __init__(self, offsets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]]) -> None:
        self._offsets: Final = offsets

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, PartitionOutcomes]]:
        """Send one request for each group."""
        for key in keys:
            yield self._request(key)

    def _request(self, group_id: str) -> AdminRequest[str, PartitionOutcomes]:
        offsets = self._offsets[group_id]
        topics = [
            OffsetCommitRequestTopic(
                name=topic, partitions=[_partition_to_commit(each, offsets[each]) for each in partitions]
            )
            for topic, partitions in by_topic(offsets).items()
        ]

        def read(response: OffsetCommitResponse, answers: Answers[str, PartitionOutcomes]) -> None:
            codes = {
                TopicPartition(topic.name, each.partition_index): each.error_code
                for topic in response.topics
                for each in topic.partitions
            }
            self._take(group_id, codes, answers)

        message = OffsetCommitRequest(group_id=group_id, topics=topics)
        return AdminRequest.of(message, OffsetCommitResponse, (group_id,), read, version_max=_LAST_WITH_NAMES)

    def _take(
        self, group_id: str, codes: Mapping[TopicPartition, int], answers: Answers[str, PartitionOutcomes]
    ) -> None:
        passing = self.retry_codes | self.route.moved_codes | self.route.retry_codes
        for code in codes.values():
            if code in passing:
                # It concerns the group as a whole; committing the same offsets once more does no harm.
                answers.fail(group_id, code)
                return
        text = "the group has members; stop them first, they would commit offsets of their own"
        errors: dict[TopicPartition, ClientError] = {}
        for partition, number in codes.items():
            if number:
                code = ErrorCode.of(number)
                message = text if code in _HAS_MEMBERS else None
                errors[partition] = error_for(
                    code, f"alter offset of group {group_id} in {partition}", message
                )
        answers.succeed(group_id, Outcomes({each: None for each in codes if each not in errors}, errors))


class DeleteGroupOffsets(AdminOperation[str, PartitionOutcomes]):
    """Deletes committed offsets of partitions that no member of the group subscribes to (KIP-496)."""

    title = "delete offsets of group"
    route = COORDINATOR_OF_GROUP

    def __init__(self, partitions: Mapping[str, Iterable[TopicPartition]]) -> None:
        self.partitions: Final = {group_id: list(each) for group_id, each in partitions.items()}

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, PartitionOutcomes]]:
        """Send one request for each group."""
        for key in keys:
            yield self._request(key)

    def _request(self, group_id: str) -> AdminRequest[str, PartitionOutcomes]:
        topics = [
            OffsetDeleteRequestTopic(
                name=topic,
                partitions=[
                    OffsetDeleteRequestPartition(partition_index=each.partition) for each in partitions
                ],
            )
            for topic, partitions in by_topic(self.partitions[group_id]).items()
        ]

        def read(response: OffsetDeleteResponse, answers: Answers[str, PartitionOutcomes]) -> None:
            if response.error_code:
                answers.fail(group_id, response.error_code)
                return
            done: dict[TopicPartition, None] = {}
            errors: dict[TopicPartition, ClientError] = {}
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        what = f"delete offset of group {group_id} in {partition}"
                        errors[partition] = error_for(ErrorCode.of(each.error_code), what)
                    else:
                        done[partition] = None
            answers.succeed(group_id, Outcomes(done, errors))

        message = OffsetDeleteRequest(group_id=group_id, topics=topics)
        return AdminRequest.of(message, OffsetDeleteResponse, (group_id,), read)


def _partition_to_commit(
    partition: TopicPartition, offset: OffsetAndMetadata
) -> OffsetCommitRequestPartition:
    epoch = offset.leader_epoch
    return OffsetCommitRequestPartition(
        partition_index=partition.partition,
        committed_offset=offset.offset,
        committed_leader_epoch=_NO_EPOCH if epoch is None else epoch,
        committed_metadata=offset.metadata,
    )

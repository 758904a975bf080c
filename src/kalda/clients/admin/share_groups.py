"""Implements the admin client's operations on share groups (KIP-932): members, and where partitions begin."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.acls import AclOperation, operations_from_bits
from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.groups import GroupState, PartitionOutcomes
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import COORDINATOR_OF_GROUP
from kalda.clients.errors import ClientError, error_for
from kalda.common.errors import ErrorCode
from kalda.common.public import public
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages import alter_share_group_offsets as alter_messages
from kalda.protocol.messages import delete_share_group_offsets as delete_messages
from kalda.protocol.messages import describe_share_group_offsets as describe_messages
from kalda.protocol.messages.share_group_describe import (
    DescribedGroup,
    ShareGroupDescribeRequest,
    ShareGroupDescribeResponse,
)


@public
@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """A member of a share group."""

    member_id: str
    client_id: str
    host: str
    epoch: int
    topics: tuple[str, ...]
    """The topics that the member subscribes to."""
    partitions: tuple[TopicPartition, ...]
    """The partitions that it is assigned; other members may have them, too."""


@public
@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group."""

    group_id: str
    members: tuple[ShareMemberDescription, ...]
    state: GroupState
    coordinator_id: int
    """The broker that coordinates the group."""
    group_epoch: int
    target_assignment_epoch: int
    authorized_operations: frozenset[AclOperation] | None = None
    """What this client may do with the group; None if that was not asked for."""


@public
@dataclass(frozen=True, slots=True)
class SharePartitionOffset:
    """Where a share group begins in a partition."""

    start_offset: int
    """Every record below it is done."""
    lag: int | None
    """How many records from there to the high watermark are not done; None if it is not known (KIP-1226)."""


class ShareGroupMethods(AdminMethods):
    """Describes share groups, and reads and changes where they begin."""

    async def describe_share_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, ShareGroupDescription]:
        """Describe share groups (brokers 4.1 and newer, KIP-932).

        Args:
            group_ids: The groups.
            include_authorized_operations: Whether to return what this client may do.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the state and the members, or the error, e.g. GROUP_ID_NOT_FOUND.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        operation = DescribeShareGroups(include_authorized_operations)
        return await self._run(operation, group_ids, timeout_ms, outcomes=outcomes)

    async def list_share_group_offsets(
        self, group_ids: Iterable[str], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, dict[TopicPartition, SharePartitionOffset | None]]:
        """Return where share groups begin in the partitions that they have read.

        Args:
            group_ids: The groups.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the offset and the lag by partition, None where the group has not begun, or the
            error, e.g. GROUP_ID_NOT_FOUND.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(ListShareGroupOffsets(), group_ids, timeout_ms, outcomes=outcomes)

    async def alter_share_group_offsets(
        self,
        offsets: Mapping[str, Mapping[TopicPartition, int]],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, PartitionOutcomes]:
        """Set where share groups without members begin.

        Args:
            offsets: By group id, the offset of each partition.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the outcome of each partition, or the error, e.g. NON_EMPTY_GROUP.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(AlterShareGroupOffsets(offsets), offsets, timeout_ms, outcomes=outcomes)

    async def delete_share_group_offsets(
        self,
        topics: Mapping[str, Iterable[str]],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, Outcomes[str, None]]:
        """Delete what share groups without members keep of topics.

        Args:
            topics: By group id, the topics.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the outcome of each topic, or the error, e.g. NON_EMPTY_GROUP.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(DeleteShareGroupOffsets(topics), topics, timeout_ms, outcomes=outcomes)


class DescribeShareGroups(AdminOperation[str, ShareGroupDescription]):
    """Describes share groups."""

    title = "describe share group"
    route = COORDINATOR_OF_GROUP

    def __init__(self, include_authorized_operations: bool) -> None:
        self._include: Final = include_authorized_operations

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, ShareGroupDescription]]:
        """Ask for all groups of one coordinator."""

        def read(response: ShareGroupDescribeResponse, answers: Answers[str, ShareGroupDescription]) -> None:
            for group in response.groups:
                if group.error_code:
                    answers.fail(group.group_id, group.error_code, group.error_message)
                else:
                    answers.succeed(group.group_id, self._described(group, context.broker_id))

        message = ShareGroupDescribeRequest(group_ids=list(keys), include_authorized_operations=self._include)
        yield AdminRequest.of(message, ShareGroupDescribeResponse, keys, read)

    def _described(self, group: DescribedGroup, coordinator_id: int) -> ShareGroupDescription:
        members = tuple(
            ShareMemberDescription(
                each.member_id,
                each.client_id,
                each.client_host,
                each.member_epoch,
                tuple(each.subscribed_topic_names),
                tuple(
                    TopicPartition(topic.topic_name, number)
                    for topic in each.assignment.topic_partitions
                    for number in topic.partitions
                ),
            )
            for each in group.members
        )
        operations = operations_from_bits(group.authorized_operations) if self._include else None
        return ShareGroupDescription(
            group.group_id,
            members,
            GroupState.of(group.group_state),
            coordinator_id,
            group.group_epoch,
            group.assignment_epoch,
            operations,
        )


class ListShareGroupOffsets(AdminOperation[str, "dict[TopicPartition, SharePartitionOffset | None]"]):
    """Reads where share groups begin."""

    title = "list offsets of share group"
    route = COORDINATOR_OF_GROUP

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, dict[TopicPartition, SharePartitionOffset | None]]]:
        """Ask for all groups of one coordinator."""

        def read(
            response: describe_messages.DescribeShareGroupOffsetsResponse,
            answers: Answers[str, dict[TopicPartition, SharePartitionOffset | None]],
        ) -> None:
            for group in response.groups:
                codes = [each.error_code for topic in group.topics for each in topic.partitions]
                failed = group.error_code or next((code for code in codes if code), 0)
                if failed:
                    answers.fail(group.group_id, failed, group.error_message)
                    continue
                answers.succeed(
                    group.group_id,
                    {
                        TopicPartition(topic.topic_name, each.partition_index): _offset(each)
                        for topic in group.topics
                        for each in topic.partitions
                    },
                )

        message = describe_messages.DescribeShareGroupOffsetsRequest(
            groups=[describe_messages.RequestGroup(group_id=key, topics=None) for key in keys]
        )
        yield AdminRequest.of(message, describe_messages.DescribeShareGroupOffsetsResponse, keys, read)


def _offset(each: describe_messages.ResponsePartition) -> SharePartitionOffset | None:
    if each.start_offset < 0:
        return None
    return SharePartitionOffset(each.start_offset, None if each.lag < 0 else each.lag)


class AlterShareGroupOffsets(AdminOperation[str, PartitionOutcomes]):
    """Sets where share groups begin."""

    title = "alter offsets of share group"
    route = COORDINATOR_OF_GROUP

    def __init__(self, offsets: Mapping[str, Mapping[TopicPartition, int]]) -> None:
        self._offsets: Final = {group_id: dict(each) for group_id, each in offsets.items()}

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, PartitionOutcomes]]:
        """Send one request for each group."""
        for key in keys:
            yield self._request(key)

    def _request(self, group_id: str) -> AdminRequest[str, PartitionOutcomes]:
        offsets = self._offsets[group_id]

        def read(
            response: alter_messages.AlterShareGroupOffsetsResponse,
            answers: Answers[str, PartitionOutcomes],
        ) -> None:
            if response.error_code:
                answers.fail(group_id, response.error_code, response.error_message)
                return
            done: dict[TopicPartition, None] = {}
            errors: dict[TopicPartition, ClientError] = {}
            for topic in response.responses:
                for each in topic.partitions:
                    partition = TopicPartition(topic.topic_name, each.partition_index)
                    if each.error_code:
                        what = f"alter offset of share group {group_id} in {partition}"
                        errors[partition] = error_for(ErrorCode.of(each.error_code), what)
                    else:
                        done[partition] = None
            answers.succeed(group_id, Outcomes(done, errors))

        message = alter_messages.AlterShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[
                alter_messages.RequestTopic(
                    topic_name=topic,
                    partitions=[
                        alter_messages.RequestPartition(
                            partition_index=each.partition, start_offset=offsets[each]
                        )
                        for each in partitions
                    ],
                )
                for topic, partitions in by_topic(offsets).items()
            ],
        )
        return AdminRequest.of(message, alter_messages.AlterShareGroupOffsetsResponse, (group_id,), read)


class DeleteShareGroupOffsets(AdminOperation[str, Outcomes[str, None]]):
    """Deletes what share groups keep of topics."""

    title = "delete offsets of share group"
    route = COORDINATOR_OF_GROUP

    def __init__(self, topics: Mapping[str, Iterable[str]]) -> None:
        self._topics: Final = {group_id: list(each) for group_id, each in topics.items()}

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, Outcomes[str, None]]]:
        """Send one request for each group."""
        for key in keys:
            yield self._request(key)

    def _request(self, group_id: str) -> AdminRequest[str, Outcomes[str, None]]:
        def read(
            response: delete_messages.DeleteShareGroupOffsetsResponse,
            answers: Answers[str, Outcomes[str, None]],
        ) -> None:
            if response.error_code:
                answers.fail(group_id, response.error_code, response.error_message)
                return
            done: dict[str, None] = {}
            errors: dict[str, ClientError] = {}
            for topic in response.responses:
                if topic.error_code:
                    what = f"delete offsets of share group {group_id} in {topic.topic_name}"
                    errors[topic.topic_name] = error_for(ErrorCode.of(topic.error_code), what)
                else:
                    done[topic.topic_name] = None
            answers.succeed(group_id, Outcomes(done, errors))

        message = delete_messages.DeleteShareGroupOffsetsRequest(
            group_id=group_id,
            topics=[delete_messages.RequestTopic(topic_name=each) for each in self._topics[group_id]],
        )
        return AdminRequest.of(message, delete_messages.DeleteShareGroupOffsetsResponse, (group_id,), read)

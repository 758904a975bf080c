"""Implements the requests and responses of admin calls that describe groups. Sans-IO.

A coordinator describes groups of the consumer protocol (KIP-848) and classic groups by two APIs, and a caller
who asks for groups of consumers need not know which of them uses which.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kalda.clients.admin.acl_operation import AclOperation, operations_from_bits
from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.group_calls import COORDINATOR_OF_GROUP
from kalda.clients.admin.groups import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroupDescription,
    ConsumerGroupDescription,
    GroupState,
    GroupType,
    MemberDescription,
)
from kalda.clients.admin.member_protocol import assigned_partitions, subscribed_topics
from kalda.clients.errors import UnsupportedApiError, error_for
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages import consumer_group_describe
from kalda.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kalda.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import Message
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_OPERATIONS_FROM: Final = 3
_UNKNOWN_GROUP_ERROR_FROM: Final = 6
_MEMBER_TYPE_CLASSIC: Final = 0
_MEMBER_TYPE_UNKNOWN: Final = -1


class DescribeClassicGroups(AdminOperation[str, ClassicGroupDescription]):
    """Describes groups of the classic protocol."""

    title = "describe group"
    route = COORDINATOR_OF_GROUP

    def __init__(self, include_authorized_operations: bool) -> None:
        self._include_authorized_operations: Final = include_authorized_operations

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, ClassicGroupDescription]]:
        """Ask for all groups of one coordinator."""
        include, version = (
            self._include_authorized_operations,
            context.versions.latest(ApiKey.DESCRIBE_GROUPS),
        )
        if include and version < _OPERATIONS_FROM:
            raise UnsupportedApiError(
                f"{self.title}: the broker is older than 2.3 and returns no authorised operations; "
                "call without `include_authorized_operations`"
            )

        def read(response: DescribeGroupsResponse, answers: Answers[str, ClassicGroupDescription]) -> None:
            for group in response.groups:
                code = group.error_code
                if not code and version < _UNKNOWN_GROUP_ERROR_FROM and group.group_state == GroupState.DEAD:
                    # Newer brokers return this error (KIP-1043), older ones only the state.
                    code = ErrorCode.GROUP_ID_NOT_FOUND
                if code:
                    answers.fail(group.group_id, code, group.error_message)
                else:
                    answers.succeed(group.group_id, self._described(group, context.broker_id))

        message = DescribeGroupsRequest(groups=list(keys), include_authorized_operations=include)
        yield AdminRequest.of(message, DescribeGroupsResponse, keys, read)

    def _described(self, group: DescribedGroup, coordinator_id: int) -> ClassicGroupDescription:
        is_consumer = group.protocol_type == CONSUMER_PROTOCOL_TYPE
        return ClassicGroupDescription(
            group.group_id,
            group.protocol_type,
            group.protocol_data,
            tuple(_classic_member(each, is_consumer) for each in group.members),
            GroupState.of(group.group_state),
            coordinator_id,
            _operations(group.authorized_operations, self._include_authorized_operations),
        )


class DescribeConsumerGroups(AdminOperation[str, ConsumerGroupDescription]):
    """Describes groups of consumers: as groups of the consumer protocol first, then as classic ones."""

    title = "describe group"
    route = COORDINATOR_OF_GROUP

    def __init__(self, include_authorized_operations: bool) -> None:
        self._include_authorized_operations: Final = include_authorized_operations
        self._classic: Final = DescribeClassicGroups(include_authorized_operations)
        # The groups that are not of the consumer protocol, as far as the coordinators answered.
        self._classic_ids: Final[set[str]] = set()

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, ConsumerGroupDescription]]:
        """Ask for all groups of one coordinator, by what is known of their protocols."""
        if not context.versions.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
            self._classic_ids.update(keys)
        modern = [key for key in keys if key not in self._classic_ids]
        if modern:
            yield self._modern(modern, context)
        classic = [key for key in keys if key in self._classic_ids]
        if classic:
            for request in self._classic.requests(classic, context):
                yield _as_consumer_group(request)

    def _modern(
        self, keys: Sequence[str], context: RequestContext
    ) -> AdminRequest[str, ConsumerGroupDescription]:
        def read(
            response: ConsumerGroupDescribeResponse, answers: Answers[str, ConsumerGroupDescription]
        ) -> None:
            for group in response.groups:
                if group.error_code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                    self._classic_ids.add(group.group_id)
                    answers.ask_again(group.group_id)
                elif group.error_code:
                    answers.fail(group.group_id, group.error_code, group.error_message)
                else:
                    answers.succeed(group.group_id, self._described(group, context.broker_id))

        message = ConsumerGroupDescribeRequest(
            group_ids=list(keys), include_authorized_operations=self._include_authorized_operations
        )
        return AdminRequest.of(message, ConsumerGroupDescribeResponse, keys, read)

    def _described(
        self, group: consumer_group_describe.DescribedGroup, coordinator_id: int
    ) -> ConsumerGroupDescription:
        return ConsumerGroupDescription(
            group.group_id,
            False,
            tuple(_member(each) for each in group.members),
            group.assignor_name,
            GroupType.CONSUMER,
            GroupState.of(group.group_state),
            coordinator_id,
            _operations(group.authorized_operations, self._include_authorized_operations),
            group.group_epoch,
            group.assignment_epoch,
        )


def _as_consumer_group(
    request: AdminRequest[str, ClassicGroupDescription],
) -> AdminRequest[str, ConsumerGroupDescription]:
    """Return the request with answers that are groups of consumers, or errors for groups of other things."""

    def read(response: Message) -> Answers[str, ConsumerGroupDescription]:
        classic = request.read(response)
        answers: Answers[str, ConsumerGroupDescription] = Answers()
        answers.errors.update(classic.errors)
        for group_id, group in classic.results.items():
            if group.protocol_type in ("", CONSUMER_PROTOCOL_TYPE):
                answers.succeed(group_id, _consumer_group(group))
            else:
                text = (
                    f"the group's protocol type is {group.protocol_type!r}, not 'consumer'; "
                    "use describe_classic_groups"
                )
                error = error_for(ErrorCode.INVALID_GROUP_ID, f"describe group {group_id}", text)
                answers.fail_with(group_id, error)
        return answers

    return AdminRequest(request.message, request.response_class, request.keys, read)


def _consumer_group(group: ClassicGroupDescription) -> ConsumerGroupDescription:
    return ConsumerGroupDescription(
        group.group_id,
        group.is_simple_consumer_group,
        group.members,
        group.protocol_data,
        GroupType.CLASSIC,
        group.state,
        group.coordinator_id,
        group.authorized_operations,
    )


def _classic_member(member: DescribedGroupMember, is_consumer: bool) -> MemberDescription:
    assignment: frozenset[TopicPartition] = frozenset()
    topics: tuple[str, ...] = ()
    if is_consumer:
        try:
            assignment = assigned_partitions(member.member_assignment)
            topics = subscribed_topics(member.member_metadata)
        except ProtocolError:
            # A member with a format of its own must not hide the others.
            logger.info("member %s has no consumer's metadata or assignment", member.member_id)
    return MemberDescription(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        assignment,
        subscribed_topics=topics,
    )


def _member(member: consumer_group_describe.Member) -> MemberDescription:
    is_known = member.member_type != _MEMBER_TYPE_UNKNOWN
    return MemberDescription(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        _partitions(member.assignment),
        _partitions(member.target_assignment),
        member.member_epoch,
        member.member_type == _MEMBER_TYPE_CLASSIC if is_known else None,
        member.rack_id,
        tuple(sorted(member.subscribed_topic_names)),
        member.subscribed_topic_regex or None,
    )


def _partitions(assignment: consumer_group_describe.Assignment) -> frozenset[TopicPartition]:
    return frozenset(
        TopicPartition(each.topic_name, partition)
        for each in assignment.topic_partitions
        for partition in each.partitions
    )


def _operations(bits: int, was_asked: bool) -> frozenset[AclOperation] | None:
    return operations_from_bits(bits) if was_asked else None

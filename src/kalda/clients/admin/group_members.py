"""Implements the admin client's operations on the members of groups: it describes and removes them.

A coordinator describes groups of the consumer protocol (KIP-848) and classic groups by two APIs, and a caller
who asks for groups of consumers need not know which of them uses which. The values are in `groups`.
"""

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct, error
from typing import Final, TypeVar

from kalda.clients.admin.acls import AclOperation, operations_from_bits
from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.groups import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroupDescription,
    ConsumerGroupDescription,
    GroupState,
    GroupType,
    MemberDescription,
    MemberToRemove,
)
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import COORDINATOR_OF_GROUP
from kalda.clients.errors import ClientError, UnsupportedApiError, error_for
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol import codec
from kalda.protocol.messages import consumer_group_describe
from kalda.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kalda.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kalda.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from kalda.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import Message
from kalda.runtime.system.loop_logger import loop_logger


class GroupMemberMethods(AdminMethods):
    """Describes groups with their members, and removes members."""

    async def describe_consumer_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, ConsumerGroupDescription]:
        """Describe groups of consumers, of the classic and of the consumer protocol.

        Args:
            group_ids: The groups.
            include_authorized_operations: Whether to return what this client may do (brokers 2.3 and newer).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the state, the members and what they consume, or the error: GROUP_ID_NOT_FOUND;
            INVALID_GROUP_ID for a group of another protocol type, see `describe_classic_groups`.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        operation = DescribeConsumerGroups(include_authorized_operations)
        return await self._run(operation, group_ids, timeout_ms, outcomes=outcomes)

    async def describe_classic_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, ClassicGroupDescription]:
        """Describe groups of the classic protocol with any protocol type (KIP-1043).

        Args:
            group_ids: The groups.
            include_authorized_operations: Whether to return what this client may do (brokers 2.3 and newer).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the description or the error, e.g. GROUP_ID_NOT_FOUND.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        operation = DescribeClassicGroups(include_authorized_operations)
        return await self._run(operation, group_ids, timeout_ms, outcomes=outcomes)

    async def remove_members_from_consumer_group(
        self,
        members: Mapping[str, Iterable[MemberToRemove] | None],
        *,
        reason: str | None = None,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, Outcomes[MemberToRemove, None]]:
        """Remove members from classic groups. A member that still runs joins again, unless it is static.

        Args:
            members: By group id, the members to remove; None removes all.
            reason: A text for the coordinator's log (brokers 3.2 and newer, KIP-800).
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for each round of requests; `default.api.timeout.ms` unless given.

        Returns:
            By group id, the outcome of each member, or the error of the group.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        named = {group_id: tuple(each) for group_id, each in members.items() if each is not None}
        whole = [group_id for group_id, each in members.items() if each is None]
        described = await self.describe_consumer_groups(whole, outcomes=True, timeout_ms=timeout_ms)
        for group_id, group in described.results.items():
            named[group_id] = tuple(
                MemberToRemove(group_instance_id=each.group_instance_id)
                if each.group_instance_id is not None
                else MemberToRemove(each.member_id)
                for each in group.members
            )
        operation = RemoveMembers({group_id: each for group_id, each in named.items() if each}, reason)
        removed = await self._run(operation, operation.members, timeout_ms, outcomes=True)
        nothing: dict[str, Outcomes[MemberToRemove, None]] = {
            group_id: Outcomes({}) for group_id, each in named.items() if not each
        }
        ended = Outcomes({**removed.results, **nothing}, {**removed.errors, **described.errors})
        if not outcomes:
            ended.raise_for_errors()
        return ended


logger: Final = loop_logger(__name__)

M = TypeVar("M", bound=Message)

_OPERATIONS_FROM: Final = 3
_MANY_MEMBERS_FROM: Final = 3
_UNKNOWN_GROUP_ERROR_FROM: Final = 6
_MEMBER_TYPE_CLASSIC: Final = 0
_MEMBER_TYPE_UNKNOWN: Final = -1
_VERSION_OF_MEMBER_BYTES: Final = Struct(">h")


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
        """Build the requests for all groups of one coordinator, by the known protocol of each."""
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


class RemoveMembers(AdminOperation[str, Outcomes[MemberToRemove, None]]):
    """Removes members from classic groups, which rebalance without waiting for their session time-out."""

    title = "remove members from group"
    route = COORDINATOR_OF_GROUP

    def __init__(self, members: Mapping[str, Iterable[MemberToRemove]], reason: str | None) -> None:
        self.members: Final = {group_id: tuple(each) for group_id, each in members.items()}
        self._reason: Final = reason

    def requests(
        self, keys: Sequence[str], context: RequestContext
    ) -> Iterable[AdminRequest[str, Outcomes[MemberToRemove, None]]]:
        """Send one request for each group."""
        version = context.versions.latest(ApiKey.LEAVE_GROUP)
        for group_id in keys:
            yield self._request(group_id, version)

    def _request(self, group_id: str, version: int) -> AdminRequest[str, Outcomes[MemberToRemove, None]]:
        members = self.members[group_id]
        if version >= _MANY_MEMBERS_FROM:
            identities = [
                MemberIdentity(
                    member_id=each.member_id, group_instance_id=each.group_instance_id, reason=self._reason
                )
                for each in members
            ]
            message = LeaveGroupRequest(group_id=group_id, members=identities)
        elif len(members) == 1 and members[0].group_instance_id is None:
            message = LeaveGroupRequest(group_id=group_id, member_id=members[0].member_id)
        else:
            raise UnsupportedApiError(
                f"{self.what(group_id)}: brokers before 2.4 remove one member at a time, by member id"
            )

        def read(response: LeaveGroupResponse, answers: Answers[str, Outcomes[MemberToRemove, None]]) -> None:
            if response.error_code:
                answers.fail(group_id, response.error_code)
                return
            by_instance = {each.group_instance_id: each.error_code for each in response.members}
            by_member = {each.member_id: each.error_code for each in response.members}
            errors: dict[MemberToRemove, ClientError] = {}
            for each in members:
                instance = each.group_instance_id
                # Brokers before 2.4 return no list; the one member is removed if there is no error above.
                code = by_member.get(each.member_id, 0) if instance is None else by_instance.get(instance, 0)
                if code:
                    errors[each] = error_for(ErrorCode.of(code), f"remove {each} from group {group_id}")
            answers.succeed(
                group_id, Outcomes({each: None for each in members if each not in errors}, errors)
            )

        return AdminRequest.of(message, LeaveGroupResponse, (group_id,), read)


def assigned_partitions(data: bytes) -> frozenset[TopicPartition]:
    """Read a member's assignment; empty without bytes, as in a group that rebalances.

    Raises:
        ProtocolError: the bytes are not an assignment of a consumer.
    """
    if not data:
        return frozenset()
    assignment = _decode(ConsumerProtocolAssignment, data)
    return frozenset(
        TopicPartition(each.topic, partition)
        for each in assignment.assigned_partitions
        for partition in each.partitions
    )


def subscribed_topics(data: bytes) -> tuple[str, ...]:
    """Read the topics that a member subscribes to; none without bytes.

    Raises:
        ProtocolError: the bytes are not a subscription of a consumer.
    """
    return tuple(sorted(_decode(ConsumerProtocolSubscription, data).topics)) if data else ()


def _decode(message_class: type[M], data: bytes) -> M:
    try:
        (version,) = _VERSION_OF_MEMBER_BYTES.unpack_from(data)
    except error:
        raise ProtocolError(f"{len(data)} bytes hold no version") from None
    # Newer versions add fields at the end.
    known = min(version, message_class.SCHEMA.versions.highest)
    return codec.decode(message_class, known, data, _VERSION_OF_MEMBER_BYTES.size, allow_excess=True)

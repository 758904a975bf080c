"""Checks requests about groups and their offsets against the ACLs."""

from typing import Any, Final

from kalda.broker.requests.checks.check import (
    Call,
    Check,
    Refusal,
    cluster,
    each,
    in_steps,
    whole,
    with_changes,
)
from kalda.broker.requests.requested_partitions import PARTITIONS_PER_STEP
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.protocol.messages import AUTHORIZED_OPERATIONS_UNKNOWN
from kalda.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from kalda.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kalda.protocol.messages.find_coordinator import KEY_TYPE_SHARE, FindCoordinatorRequest
from kalda.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kalda.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kalda.protocol.schema import Message
from kalda.security.acl.model import RESOURCE_OPERATIONS, AclOperation, ResourceType

GROUP: Final = ResourceType.GROUP
DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_TOPIC_DENIED: Final = int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
_MANY_GROUPS_FROM: Final = 8
_TRANSACTIONS: Final = 1
_MANY_KEYS_FROM: Final = 4
_NO_OFFSET: Final = -1


def of_request(operation: AclOperation) -> Check:
    """Return a check of the one group of a request."""
    return whole(operation, GROUP, lambda request: request.group_id, DENIED)


def named(operation: AclOperation, items: str, results: str) -> Check:
    """Return a check of each group that a request names."""
    return each(operation, GROUP, DENIED, items=items, results=results, name_of=str)


def described(items: str) -> Check:
    """Return a check of each group to describe, which fills in the authorized operations."""
    check_each = named(AclOperation.DESCRIBE, items, "groups")

    def check(call: Call[Any]) -> Refusal:
        call.amend_in_steps(lambda response: _set_operations(call, response))
        return check_each(call)

    return check


def _set_operations(call: Call[Any], response: Any) -> Steps[None]:
    for group in response.groups:
        yield
        if group.authorized_operations != AUTHORIZED_OPERATIONS_UNKNOWN:
            group.authorized_operations = call.parts.authorizer.operations(
                call.context.connection, GROUP, group.group_id, RESOURCE_OPERATIONS[GROUP]
            )


@in_steps
def consumer_group_heartbeat(call: Call[ConsumerGroupHeartbeatRequest]) -> Steps[Message | None]:
    """Demand READ on the group and DESCRIBE on each topic that is named: the assignment shows topics.

    Topics that a regular expression finds are filtered where it is resolved.
    """
    request = call.request
    if not call.allows(AclOperation.READ, GROUP, request.group_id):
        return (yield from call.refusal(DENIED))
    is_denied = False
    for topic in request.subscribed_topic_names or ():
        yield
        # Each denial is noted.
        is_denied = not _may_describe(call, topic) or is_denied
    if is_denied:
        return (yield from call.refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    return None


def consumer_group_describe(call: Call[ConsumerGroupDescribeRequest]) -> Refusal:
    """Demand DESCRIBE on each group and on every topic that its members have; else the members are hidden."""
    refused = described("group_ids")(call)
    call.amends.insert(0, lambda response: first_turn(_hide_members(call, response)))
    return refused


def _hide_members(
    call: Call[ConsumerGroupDescribeRequest], response: ConsumerGroupDescribeResponse
) -> Steps[None]:
    for group in response.groups:
        yield
        topics = {
            topic.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for topic in assignment.topic_partitions
        }
        if not all(_may_describe(call, topic) for topic in sorted(topics)):
            group.members = []
            group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            group.error_message = "The group has topics that the client is not authorized to describe."


def list_groups(call: Call[ListGroupsRequest]) -> Refusal:
    """Hide groups without DESCRIBE from clients that may not describe the cluster."""
    if call.allows_cluster(AclOperation.DESCRIBE, is_noted=False):
        return None

    def amend(response: ListGroupsResponse) -> Steps[None]:
        visible = []
        for group in response.groups:
            yield
            if call.allows(AclOperation.DESCRIBE, GROUP, group.group_id, is_noted=False):
                visible.append(group)
        response.groups = visible

    call.amend_in_steps(amend)
    return None


def find_coordinator(call: Call[FindCoordinatorRequest]) -> Refusal:
    """Demand DESCRIBE on each group or transactional id; share coordinators are for brokers."""
    if call.request.key_type == KEY_TYPE_SHARE:
        return cluster(AclOperation.CLUSTER_ACTION)(call)
    is_transaction = call.request.key_type == _TRANSACTIONS
    kind = ResourceType.TRANSACTIONAL_ID if is_transaction else GROUP
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_transaction else DENIED
    if call.context.api_version >= _MANY_KEYS_FROM:
        return each(
            AclOperation.DESCRIBE, kind, code, items="coordinator_keys", results="coordinators", name_of=str
        )(call)
    return whole(AclOperation.DESCRIBE, kind, lambda request: request.key, code)(call)


@in_steps
def offset_fetch(call: Call[OffsetFetchRequest]) -> Steps[Message | None]:
    """Demand DESCRIBE on the group and on each topic; topics that were not named are left out."""
    if call.context.api_version < _MANY_GROUPS_FROM:
        return (yield from _offset_fetch_of_one(call))
    refused: list[OffsetFetchResponseGroup] = []
    denied: dict[str, list[OffsetFetchResponseTopics]] = {}
    groups = []
    for group in call.request.groups:
        yield
        if not call.allows(AclOperation.DESCRIBE, GROUP, group.group_id):
            refused.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=DENIED))
            continue
        if group.topics is not None:
            for topic in group.topics:
                yield
                # From version 10 on, topics have ids. What has no name stays, and is unknown to the handler.
                topic.name = topic.name or call.parts.cache.topic_name(topic.topic_id) or ""
            group, denied[group.group_id] = yield from _without_hidden(
                call, group, OffsetFetchResponseTopics, OffsetFetchResponsePartitions
            )
        groups.append(group)
    call.request = with_changes(call.request, groups=groups)

    def amend(response: OffsetFetchResponse) -> Steps[None]:
        for group in response.groups:
            # Also where topics were named: a request may name a group twice, once for all of its topics.
            visible = yield from _visible(call, group.topics)
            group.topics = [*visible, *denied.get(group.group_id, ())]
        response.groups = [*response.groups, *refused]

    call.amend_in_steps(amend)
    return None


def _offset_fetch_of_one(call: Call[OffsetFetchRequest]) -> Steps[Message | None]:
    request = call.request
    if not call.allows(AclOperation.DESCRIBE, GROUP, request.group_id):
        return (yield from call.refusal(DENIED))
    if request.topics is None:
        call.amend_in_steps(lambda response: _show_visible(call, response))
        return None
    call.request, denied = yield from _without_hidden(
        call, request, OffsetFetchResponseTopic, OffsetFetchResponsePartition
    )
    call.amends.append(lambda response: response.topics.extend(denied))
    return None


def _without_hidden(
    call: Call[Any], asked: Any, topic_class: Any, partition_class: Any
) -> Steps[tuple[Any, list[Any]]]:
    """Return a request, or its part for a group, without topics that are hidden, and the answers of those."""
    visible, denied = [], []
    for topic in asked.topics:
        yield
        if not topic.name or _may_describe(call, topic.name):
            visible.append(topic)
            continue
        partitions = []
        for number, index in enumerate(topic.partition_indexes):
            if number % PARTITIONS_PER_STEP == PARTITIONS_PER_STEP - 1:
                yield
            partitions.append(
                partition_class(
                    partition_index=index,
                    committed_offset=_NO_OFFSET,
                    committed_leader_epoch=_NO_OFFSET,
                    metadata="",
                    error_code=_TOPIC_DENIED,
                )
            )
        denied.append(topic_class(**_identity(topic), partitions=partitions))
    return with_changes(asked, topics=visible), denied


def _identity(topic: Any) -> dict[str, Any]:
    if isinstance(topic, OffsetFetchRequestTopics):
        return {"name": topic.name, "topic_id": topic.topic_id}
    return {"name": topic.name}


def _may_describe(call: Call[Any], topic: str) -> bool:
    return call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


def _show_visible(call: Call[OffsetFetchRequest], response: OffsetFetchResponse) -> Steps[None]:
    response.topics = yield from _visible(call, response.topics)


def _visible(call: Call[Any], topics: list[Any]) -> Steps[list[Any]]:
    visible = []
    for topic in topics:
        yield
        if not topic.name or call.allows(
            AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name, is_noted=False
        ):
            visible.append(topic)
    return visible


MEMBERS: Final = of_request(AclOperation.READ)
"""Of requests of members of a group."""

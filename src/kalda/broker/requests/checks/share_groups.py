"""Checks requests about share groups (KIP-932) against the ACLs."""

from collections.abc import Callable
from typing import Any

from kalda.broker.requests.checks.check import Call, Refusal, in_steps, with_changes
from kalda.broker.requests.checks.groups import DENIED, GROUP, described
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.protocol.messages.alter_share_group_offsets import AlterShareGroupOffsetsRequest
from kalda.protocol.messages.alter_share_group_offsets import ResponsePartition as AlteredPartition
from kalda.protocol.messages.alter_share_group_offsets import ResponseTopic as AlteredTopic
from kalda.protocol.messages.delete_share_group_offsets import DeleteShareGroupOffsetsRequest
from kalda.protocol.messages.delete_share_group_offsets import ResponseTopic as DeletedTopic
from kalda.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    RequestGroup,
    ResponseGroup,
    ResponsePartition,
    ResponseTopic,
)
from kalda.protocol.messages.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from kalda.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from kalda.protocol.schema import Message
from kalda.security.acl.model import AclOperation, ResourceType


@in_steps
def share_group_heartbeat(call: Call[ShareGroupHeartbeatRequest]) -> Steps[Message | None]:
    """Demand READ on the group and DESCRIBE on each topic that is named: the assignment shows topics."""
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


def share_group_describe(call: Call[ShareGroupDescribeRequest]) -> Refusal:
    """Demand DESCRIBE on each group and on every topic that its members have; else the members are hidden."""
    refused = described("group_ids")(call)
    call.amends.insert(0, lambda response: first_turn(_hide_members(call, response)))
    return refused


def _hide_members(call: Call[ShareGroupDescribeRequest], response: ShareGroupDescribeResponse) -> Steps[None]:
    for group in response.groups:
        yield
        topics = {
            topic.topic_name for member in group.members for topic in member.assignment.topic_partitions
        }
        if not all(_may_describe(call, topic) for topic in sorted(topics)):
            group.members = []
            group.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            group.error_message = "The group has topics that the client is not authorized to describe."


def of_member(call: Call[Any]) -> Refusal:
    """Demand READ on the group; the handler asks for READ on each topic, which has an id only."""
    if call.allows(AclOperation.READ, GROUP, call.request.group_id or ""):
        return None
    return first_turn(call.refusal(DENIED))


def _may_describe(call: Call[Any], topic: str) -> bool:
    return call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic)


@in_steps
def describe_offsets(call: Call[DescribeShareGroupOffsetsRequest]) -> Steps[Message | None]:
    """Demand DESCRIBE on each group and on each topic; topics that were not named are left out."""
    refused: list[ResponseGroup] = []
    allowed: list[RequestGroup] = []
    denied: dict[str, list[ResponseTopic]] = {}
    for group in call.request.groups:
        yield
        if not call.allows(AclOperation.DESCRIBE, GROUP, group.group_id):
            refused.append(ResponseGroup(group_id=group.group_id, error_code=DENIED))
            continue
        if group.topics is not None:
            visible = []
            for topic in group.topics:
                yield
                if _may_describe(call, topic.topic_name):
                    visible.append(topic)
                else:
                    denied.setdefault(group.group_id, []).append(_denied(topic.topic_name, topic.partitions))
            group = with_changes(group, topics=visible)
        allowed.append(group)
    call.request = with_changes(call.request, groups=allowed)

    def amend(response: DescribeShareGroupOffsetsResponse) -> Steps[None]:
        for group in response.groups:
            found = []
            for topic in group.topics:
                yield
                if call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic_name, is_noted=False):
                    found.append(topic)
            group.topics = [*found, *denied.get(group.group_id, ())]
        response.groups = [*response.groups, *refused]

    call.amend_in_steps(amend)
    return None


def _denied(name: str, partitions: list[int]) -> ResponseTopic:
    return ResponseTopic(
        topic_name=name,
        partitions=[
            ResponsePartition(
                partition_index=each,
                start_offset=-1,
                leader_epoch=-1,
                error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            )
            for each in partitions
        ],
    )


def alter_offsets(call: Call[AlterShareGroupOffsetsRequest]) -> Refusal:
    """Demand READ on the group and on each topic."""
    if not call.allows(AclOperation.READ, GROUP, call.request.group_id):
        return first_turn(call.refusal(DENIED))
    return _without_denied(
        call,
        lambda topic: AlteredTopic(
            topic_name=topic.topic_name,
            partitions=[
                AlteredPartition(
                    partition_index=each.partition_index, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
                )
                for each in topic.partitions
            ],
        ),
    )


def delete_offsets(call: Call[DeleteShareGroupOffsetsRequest]) -> Refusal:
    """Demand DELETE on the group and READ on each topic."""
    if not call.allows(AclOperation.DELETE, GROUP, call.request.group_id):
        return first_turn(call.refusal(DENIED))
    return _without_denied(
        call,
        lambda topic: DeletedTopic(
            topic_name=topic.topic_name, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED
        ),
    )


def _without_denied(call: Call[Any], refused: Callable[[Any], Any]) -> Refusal:
    """Take the topics out of a request that the client may not read, and answer for them."""
    return first_turn(_take_denied(call, refused))


def _take_denied(call: Call[Any], refused: Callable[[Any], Any]) -> Steps[Message | None]:
    allowed, denied = [], []
    for topic in call.request.topics:
        yield
        if call.allows(AclOperation.READ, ResourceType.TOPIC, topic.topic_name):
            allowed.append(topic)
        else:
            denied.append(refused(topic))
    call.request = with_changes(call.request, topics=allowed)
    call.amends.append(lambda response: response.responses.extend(denied))
    return None

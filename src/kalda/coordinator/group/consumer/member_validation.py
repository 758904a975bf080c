"""Validates ConsumerGroupHeartbeat requests: by themselves, and against the member that they name.

The error messages are Kafka's, because clients show them to users.
"""

from collections.abc import Collection
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Assignment,
    Member,
    is_within,
)
from kalda.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

_MEMBER_ID_IS_GIVEN: Final = 1
"""The version from which the client makes the member id (KIP-1082)."""


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]
) -> None:
    """Check the fields of a request.

    Raises:
        ApiError: INVALID_REQUEST, UNSUPPORTED_ASSIGNOR.
    """
    epoch = request.member_epoch
    if api_version >= _MEMBER_ID_IS_GIVEN or epoch > 0 or epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
        _check_not_empty(request.member_id, "MemberId")
    _check_not_empty(request.group_id, "GroupId")
    _check_not_empty(request.instance_id, "InstanceId")
    _check_not_empty(request.rack_id, "RackId")
    if epoch == JOIN_EPOCH:
        _check_join(request)
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise ApiError(ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid.")
    wanted = request.server_assignor
    if wanted is not None and wanted not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {wanted} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise ApiError(ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise ApiError(ErrorCode.INVALID_REQUEST, "TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        )


def _check_not_empty(value: str | None, name: str) -> None:
    # Kafka counts a string of blanks as empty, too.
    if value is not None and not value.strip():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


def check_epoch(member: Member, epoch: int, owned: Assignment | None) -> None:
    """Check that a request carries the member's epoch.

    Two other epochs pass: 0 from a member that gave up its partitions and joins again (KAFKA-19233), and the
    previous epoch, because the response with the new epoch may be lost, if the member owns nothing beyond its
    assignment.

    Raises:
        ApiError: FENCED_MEMBER_EPOCH.
    """
    if epoch in (member.epoch, JOIN_EPOCH):
        return
    if epoch > member.epoch:
        relation = "greater"
    elif epoch == member.previous_epoch and owned is not None and is_within(owned, member.assigned):
        return
    else:
        relation = "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {relation} member epoch ({epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def check_instance_is_released(present: Member, member_id: str, instance_id: str) -> None:
    """Check that the member with the instance id has left temporarily.

    Raises:
        ApiError: UNRELEASED_INSTANCE_ID.
    """
    if present.epoch != LEAVE_STATIC_EPOCH:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} cannot join the group because the "
            f"instance id is owned by {present.member_id} member.",
        )


def check_not_fenced(present: Member, member_id: str, instance_id: str) -> None:
    """Check that the instance id still belongs to this member.

    Raises:
        ApiError: FENCED_INSTANCE_ID.
    """
    if present.member_id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{present.member_id}.",
        )

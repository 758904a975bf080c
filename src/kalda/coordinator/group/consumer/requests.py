"""What a ConsumerGroupHeartbeat must look like, before any group is looked at."""

from collections.abc import Collection

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH
from kalda.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

__all__ = ["check_heartbeat"]

_MEMBER_ID_IS_GIVEN = 1
"""From this version the client makes the member id (KIP-1082)."""


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Collection[str]
) -> None:
    """Check a request by itself.

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
    # Kafka takes blanks alone for empty, too.
    if value is not None and not value.strip():
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")

"""OffsetForLeaderEpoch (key 23), versions 0-4: returns where an epoch ended in the leader's log (KIP-101).

v1 adds the epoch found (KIP-279), v2 fencing by the current epoch (KIP-320), v3 the replica id of the
sender, v4 is flexible. librdkafka uses version 2 only.
"""

from functools import partial
from typing import Final

from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import topics as topic_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.common.types import TopicPartition
from kalda.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


def handle(
    replicas: ReplicaManager, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> OffsetForLeaderEpochResponse | Steps[OffsetForLeaderEpochResponse]:
    """Return the end offset of each epoch, or an error for its partition."""
    return first_turn(_look_up_each(replicas, request))


def _look_up_each(
    replicas: ReplicaManager, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        result = OffsetForLeaderTopicResult(topic=topic.topic)
        response.topics.append(result)
        for wanted in topic.partitions:
            result.partitions.append(_look_up(replicas, topic.topic, wanted))
            yield
    return response


def _look_up(replicas: ReplicaManager, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    try:
        partition = replicas.partition(TopicPartition(topic, wanted.partition))
        partition.check_leader_epoch(wanted.current_leader_epoch)
    except ApiError as error:
        return EpochEndOffset(partition=wanted.partition, error_code=error.code)
    epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)


def error_response(request: OffsetForLeaderEpochRequest, code: ErrorCode) -> OffsetForLeaderEpochResponse:
    """Return a response with the error for each partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[
                    EpochEndOffset(partition=wanted.partition, error_code=code) for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.OFFSET_FOR_LEADER_EPOCH,
    versions=(0, 4),
    build=lambda services: partial(handle, services.replica_manager),
    error_response=error_response,
    access=topic_checks.offset_for_leader_epoch,
)

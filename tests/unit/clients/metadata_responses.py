"""Builds Metadata responses for tests."""

from uuid import UUID

from kalda.common.errors import ErrorCode
from kalda.common.types import ZERO_UUID
from kalda.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def partition(
    number: int, leader: int, epoch: int, error: ErrorCode = ErrorCode.NONE
) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        error_code=int(error), partition_index=number, leader_id=leader, leader_epoch=epoch
    )


def topic(
    name: str,
    *partitions: MetadataResponsePartition,
    topic_id: UUID = ZERO_UUID,
    error: ErrorCode = ErrorCode.NONE,
) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=name, topic_id=topic_id, error_code=int(error), partitions=list(partitions)
    )


def response(*topics: MetadataResponseTopic, brokers: tuple[int, ...] = (0, 1)) -> MetadataResponse:
    return MetadataResponse(
        cluster_id="c",
        controller_id=0,
        brokers=[MetadataResponseBroker(node_id=each, host="h", port=9000 + each) for each in brokers],
        topics=list(topics),
    )

"""DescribeProducers (key 61), version 0: the producers that a partition's log knows (KIP-664).

Every replica answers for its own log: a copy that lacks a marker is found so. It is how a hanging transaction
is found, and what `kafka-transactions.sh abort` needs to know to end it.
"""

from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.broker.topics.topic_names import validate_topic_name
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


def handle(
    services: BrokerServices, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse:
    """List the producers of each partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    _describe(services, TopicPartition(topic.name, index))
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


def _describe(services: BrokerServices, topic_partition: TopicPartition) -> PartitionResponse:
    index = topic_partition.partition
    try:
        validate_topic_name(topic_partition.topic)
        partition = services.replica_manager.partition(topic_partition)
    except ApiError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return PartitionResponse(
        partition_index=index,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_transaction_first_offset,
            )
            for entry in partition.log.producer_state.producers.values()
        ],
    )


def error_response(request: DescribeProducersRequest, code: ErrorCode) -> DescribeProducersResponse:
    """Answer every partition with one error."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics
        ]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_PRODUCERS, versions=(0, 0), handle=handle, error_response=error_response
)

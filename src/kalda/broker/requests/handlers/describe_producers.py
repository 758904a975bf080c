"""DescribeProducers (key 61), version 0: returns the producers in a partition's producer state (KIP-664).

Each replica answers from its own log, which shows a replica that lacks a marker. Operators find hanging
transactions with it, and `kafka-transactions.sh abort` takes its arguments from it.
"""

from functools import partial
from typing import Final

from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import topics as topic_checks
from kalda.broker.topics.topic_names import validate_topic_name
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.common.types import TopicPartition
from kalda.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kalda.security.acl.model import AclOperation


def handle(
    replicas: ReplicaManager, request: DescribeProducersRequest, context: RequestContext
) -> DescribeProducersResponse | Steps[DescribeProducersResponse]:
    """Return the producers of each partition."""
    return first_turn(_describe_each(replicas, request))


def _describe_each(
    replicas: ReplicaManager, request: DescribeProducersRequest
) -> Steps[DescribeProducersResponse]:
    response = DescribeProducersResponse()
    for topic in request.topics:
        described = TopicResponse(name=topic.name)
        response.topics.append(described)
        for index in topic.partition_indexes:
            found = yield from _describe(replicas, TopicPartition(topic.name, index))
            described.partitions.append(found)
    return response


def _describe(replicas: ReplicaManager, topic_partition: TopicPartition) -> Steps[PartitionResponse]:
    yield
    index = topic_partition.partition
    try:
        validate_topic_name(topic_partition.topic)
        partition = replicas.partition(topic_partition)
    except ApiError as error:
        return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    response = PartitionResponse(partition_index=index)
    for entry in tuple(partition.log.producer_state.producers.values()):
        yield
        response.active_producers.append(
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.producer_epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.current_transaction_first_offset,
            )
        )
    return response


def error_response(request: DescribeProducersRequest, code: ErrorCode) -> DescribeProducersResponse:
    """Return a response with the error for each partition."""
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
    key=ApiKey.DESCRIBE_PRODUCERS,
    versions=(0, 0),
    build=lambda services: partial(handle, services.replica_manager),
    error_response=error_response,
    access=topic_checks.by_name(AclOperation.READ),
)

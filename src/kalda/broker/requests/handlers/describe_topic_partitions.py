"""DescribeTopicPartitions (key 75), version 0: topics and partitions, page by page (KIP-966).

Java's admin client, and through it Spark, asks this before Metadata. No eligible leader replicas are kept, so
those lists are empty. Topics come in order of name; a page has at most the lower of what the client wants and
``max.request.partition.size.limit`` partitions, and its cursor says where the next one begins.
"""

from collections.abc import Iterable
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache, TopicMetadata
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.authorized_operations import ALL_TOPIC_OPERATIONS
from kalda.broker.requests.partition_views import view_partition
from kalda.broker.requests.services import BrokerServices
from kalda.broker.topics.topic_names import is_internal_topic, topic_name_problem
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


def handle(
    services: BrokerServices, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    """Answer one page.

    Raises:
        ApiError: INVALID_REQUEST, the cursor is not within what was asked for.
    """
    names = _names_from_cursor(services.metadata_cache, request)
    limit = max(1, min(request.response_partition_limit, services.config.max_request_partition_size_limit))
    return _page(services.metadata_cache, names, request, limit, context.listener)


def error_response(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Answer with the error for each topic; the protocol has no place for it elsewhere."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name) for topic in request.topics
        ]
    )


def _names_from_cursor(cache: MetadataCache, request: DescribeTopicPartitionsRequest) -> list[str]:
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    asked: Iterable[str] = sorted({topic.name for topic in request.topics}) or cache.topic_names
    names = [name for name in asked if name >= first]
    if cursor is not None:
        if request.topics and cursor.topic_name not in names:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"The cursor's topic {cursor.topic_name} is not among those asked."
            )
        if cursor.partition_index < 0:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"The cursor's partition {cursor.partition_index} is negative."
            )
    return names


def _page(
    cache: MetadataCache,
    names: list[str],
    request: DescribeTopicPartitionsRequest,
    limit: int,
    listener: str,
) -> DescribeTopicPartitionsResponse:
    response = DescribeTopicPartitionsResponse()
    remaining = limit
    for name in names:
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = cache.topic(name)
        if topic is None:
            # When everything was asked, a topic that has gone meanwhile is no error.
            if request.topics:
                response.topics.append(_unknown_topic(name))
            continue
        cursor = request.cursor
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        numbers = [number for number in topic.partitions if number >= start]
        response.topics.append(_topic(cache, topic, numbers[:remaining], listener))
        if len(numbers) > remaining:
            response.next_cursor = Cursor(topic_name=name, partition_index=numbers[remaining])
            break
        remaining -= len(numbers)
    return response


def _topic(
    cache: MetadataCache, topic: TopicMetadata, numbers: list[int], listener: str
) -> DescribeTopicPartitionsResponseTopic:
    views = [view_partition(topic.partitions[number], cache.brokers, listener) for number in numbers]
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal_topic(topic.name),
        partitions=[
            DescribeTopicPartitionsResponsePartition(
                error_code=view.error,
                partition_index=view.partition,
                leader_id=view.leader,
                leader_epoch=view.leader_epoch,
                replica_nodes=view.replicas,
                isr_nodes=view.isr,
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=view.offline_replicas,
            )
            for view in views
        ],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def _unknown_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = (
        ErrorCode.INVALID_TOPIC_EXCEPTION
        if topic_name_problem(name)
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    return DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        is_internal=is_internal_topic(name),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions=(0, 0), handle=handle, error_response=error_response
)

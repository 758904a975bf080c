"""DescribeTopicPartitions (key 75), version 0: returns topics and their partitions, page by page (KIP-966).

Java's admin client, and through it Spark, sends this before Metadata. Topics are ordered by name. A page has
at most `response_partition_limit` and ``max.request.partition.size.limit`` partitions; its cursor names the
first partition of the next page. Eligible leader replicas are not implemented, so their lists are empty.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache, TopicMetadata
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.authorized_operations import ALL_TOPIC_OPERATIONS
from kalda.broker.requests.checks import topics as topic_checks
from kalda.broker.requests.partition_metadata import partition_metadata
from kalda.broker.topics.topic_names import is_internal_topic, unknown_topic_error
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kalda.settings import BrokerConfig


def handle(
    cache: MetadataCache,
    config: BrokerConfig,
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
) -> DescribeTopicPartitionsResponse | Steps[DescribeTopicPartitionsResponse]:
    """Return one page.

    Raises:
        ApiError: INVALID_REQUEST, the cursor names a topic that was not requested or a negative partition.
    """
    names = _names_from_cursor(cache, request)
    limit = max(1, min(request.response_partition_limit, config.max_request_partition_size_limit))
    return first_turn(_page(cache, names, request, limit, context.listener))


def error_response(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Return a response with the error for each topic; the protocol has no other place for it."""
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
) -> Steps[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    remaining = limit
    for name in names:
        yield
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = cache.topic(name)
        if topic is None:
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
    partitions = [
        partition_metadata(
            DescribeTopicPartitionsResponsePartition, topic.partitions[number], cache.brokers, listener
        )
        for number in numbers
    ]
    for each in partitions:
        each.eligible_leader_replicas, each.last_known_elr = [], []
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal_topic(topic.name),
        partitions=partitions,
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def _unknown_topic(name: str) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        error_code=unknown_topic_error(name),
        name=name,
        is_internal=is_internal_topic(name),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    versions=(0, 0),
    build=lambda services: partial(handle, services.metadata_cache, services.config),
    error_response=error_response,
    access=topic_checks.describe_topic_partitions,
)

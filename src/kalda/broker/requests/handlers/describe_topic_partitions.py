"""DescribeTopicPartitions (key 75), version 0: returns topics and their partitions, page by page (KIP-966).

Java's admin client, and through it Spark, sends this before Metadata. Topics are ordered by name. A page has
at most `response_partition_limit` and ``max.request.partition.size.limit`` partitions; its cursor names the
first partition of the next page. Eligible leader replicas are not implemented, so their lists are empty.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from functools import partial
from heapq import merge
from itertools import islice
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
from kalda.controller.effects import PartitionLeadership
from kalda.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from kalda.settings import BrokerConfig

_NAMES_PER_STEP: Final = 32


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
    limit = max(1, min(request.response_partition_limit, config.max_request_partition_size_limit))
    return first_turn(_page(cache, request, limit, context.listener))


def error_response(
    request: DescribeTopicPartitionsRequest, code: ErrorCode
) -> DescribeTopicPartitionsResponse:
    """Return a response with the error for each topic; the protocol has no other place for it."""
    return DescribeTopicPartitionsResponse(
        topics=[
            DescribeTopicPartitionsResponseTopic(error_code=code, name=topic.name) for topic in request.topics
        ]
    )


def _names_from_cursor(cache: MetadataCache, request: DescribeTopicPartitionsRequest) -> Steps[Iterator[str]]:
    """Return the names of the page and of all later ones, in order; a name may come more than once."""
    cursor = request.cursor
    first = cursor.topic_name if cursor is not None else ""
    names: Iterable[str]
    if request.topics:
        has_first = False
        parts: list[list[str]] = []
        for start in range(0, len(request.topics), _NAMES_PER_STEP):
            part = [topic.name for topic in request.topics[start : start + _NAMES_PER_STEP]]
            has_first |= first in part
            parts.append(sorted(name for name in part if name >= first))
            yield
        names = merge(*parts)
        if cursor is not None and not has_first:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, f"The cursor's topic {cursor.topic_name} is not among those asked."
            )
    else:
        names = islice(cache.topic_names, bisect_left(cache.topic_names, first), None)
    if cursor is not None and cursor.partition_index < 0:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"The cursor's partition {cursor.partition_index} is negative."
        )
    return iter(names)


def _page(
    cache: MetadataCache, request: DescribeTopicPartitionsRequest, limit: int, listener: str
) -> Steps[DescribeTopicPartitionsResponse]:
    response = DescribeTopicPartitionsResponse()
    remaining = limit
    cursor, last = request.cursor, None
    names = yield from _names_from_cursor(cache, request)
    for name in names:
        yield
        if name == last:
            continue
        last = name
        if remaining == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        topic = cache.topic(name)
        if topic is None:
            response.topics.append(_unknown_topic(name))
            continue
        start = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        described = _topic(topic)
        response.topics.append(described)
        for number, partition in topic.partitions.items():
            if number < start:
                continue
            if remaining == 0:
                response.next_cursor = Cursor(topic_name=name, partition_index=number)
                return response
            described.partitions.append(_partition(cache, partition, listener))
            remaining -= 1
            yield
    return response


def _topic(topic: TopicMetadata) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=is_internal_topic(topic.name),
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def _partition(
    cache: MetadataCache, partition: PartitionLeadership, listener: str
) -> DescribeTopicPartitionsResponsePartition:
    described = partition_metadata(
        DescribeTopicPartitionsResponsePartition, partition, cache.brokers, listener
    )
    described.eligible_leader_replicas, described.last_known_elr = [], []
    return described


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

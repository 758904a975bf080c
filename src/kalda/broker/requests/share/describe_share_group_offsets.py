"""Handles DescribeShareGroupOffsets."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.checks import share_groups as share_checks
from kalda.broker.requests.request_slices import value_of
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.share_responses import error_fields
from kalda.broker.share.end_offsets import EndOffsets
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Turns
from kalda.common.types import UUID, ZERO_UUID, TopicPartition
from kalda.coordinator.group.share.share_group_coordinator import ShareGroupCoordinator, StartOffset
from kalda.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
    RequestGroup,
    ResponseGroup,
    ResponsePartition,
    ResponseTopic,
)

_UNKNOWN: Final = -1


def handle(
    coordinator: ShareGroupCoordinator,
    cache: MetadataCache,
    ends: EndOffsets,
    request: DescribeShareGroupOffsetsRequest,
    context: RequestContext,
) -> Coroutine[Any, Any, DescribeShareGroupOffsetsResponse]:
    """Answer when the share coordinators, and for the lag the leaders, have answered."""
    return _describe(coordinator, cache, ends, request)


async def _describe(
    coordinator: ShareGroupCoordinator,
    cache: MetadataCache,
    ends: EndOffsets,
    request: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse:
    groups: list[ResponseGroup] = []
    for group in request.groups:
        groups.append(await _group(coordinator, cache, ends, group))
        # A request may name many groups, each with all partitions of the cluster.
        await Turns.of_running_loop().wait()
    return DescribeShareGroupOffsetsResponse(groups=groups)


async def _group(
    coordinator: ShareGroupCoordinator, cache: MetadataCache, ends: EndOffsets, group: RequestGroup
) -> ResponseGroup:
    response = ResponseGroup(group_id=group.group_id)
    wanted: dict[UUID, list[int]] | None = None
    if group.topics is not None:
        wanted = {}
        for topic in group.topics:
            topic_id = cache.topic_id(topic.topic_name)
            count = cache.partition_count(topic.topic_name) if topic_id != ZERO_UUID else 0
            numbers = dict.fromkeys(topic.partitions)
            unknown = [each for each in numbers if not 0 <= each < count]
            if unknown or topic_id == ZERO_UUID:
                response.topics.append(_unknown(topic.topic_name, unknown))
            if len(unknown) < len(numbers):
                wanted[topic_id] = [each for each in numbers if 0 <= each < count]
    try:
        if not coordinator.is_enabled():
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
        found = await value_of(coordinator.start_offsets(group.group_id, wanted))
    except ApiError as error:
        return ResponseGroup(group_id=group.group_id, **error_fields(error))
    response.topics += await _topics(cache.topic_name, ends, found)
    return response


async def _topics(
    name_of: Callable[[UUID], str | None], ends: EndOffsets, found: Mapping[UUID, list[StartOffset]]
) -> list[ResponseTopic]:
    asked = {
        (topic_id, each.partition): ends.get(TopicPartition(name, each.partition))
        for topic_id, offsets in found.items()
        if (name := name_of(topic_id)) is not None
        for each in offsets
        if each.start_offset >= 0
    }
    topics: list[ResponseTopic] = []
    for topic_id, offsets in found.items():
        name = name_of(topic_id)
        if name is None:
            continue
        partitions: list[ResponsePartition] = []
        for each in offsets:
            end = asked.get((topic_id, each.partition))
            partitions.append(_partition(each, None if end is None else await value_of(end)))
        topics.append(ResponseTopic(topic_name=name, topic_id=topic_id, partitions=partitions))
    return topics


def _partition(offset: StartOffset, end_offset: int | None) -> ResponsePartition:
    if offset.error is not None:
        return ResponsePartition(
            partition_index=offset.partition,
            start_offset=_UNKNOWN,
            leader_epoch=_UNKNOWN,
            **error_fields(offset.error),
        )
    lag = _UNKNOWN
    if end_offset is not None and offset.complete_count >= 0:
        # The high watermark may be older than what the share coordinator has.
        lag = max(end_offset - offset.start_offset - offset.complete_count, 0)
    return ResponsePartition(
        partition_index=offset.partition,
        start_offset=offset.start_offset,
        leader_epoch=max(offset.leader_epoch, 0),
        lag=lag,
    )


def _unknown(name: str, partitions: list[int]) -> ResponseTopic:
    error = error_fields(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return ResponseTopic(
        topic_name=name,
        partitions=[
            ResponsePartition(partition_index=each, start_offset=_UNKNOWN, leader_epoch=_UNKNOWN, **error)
            for each in partitions
        ],
    )


def error_response(
    request: DescribeShareGroupOffsetsRequest, code: ErrorCode
) -> DescribeShareGroupOffsetsResponse:
    """Return a response with the error for each group."""
    return DescribeShareGroupOffsetsResponse(
        groups=[ResponseGroup(group_id=each.group_id, error_code=code) for each in request.groups]
    )


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, services.share.groups, services.metadata_cache, services.share.ends)


ACCESS: Final = share_checks.describe_offsets

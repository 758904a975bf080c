"""OffsetFetch (key 9), versions 0-9: returns a group's committed offsets.

v0 reads from ZooKeeper, all others from the group's coordinator. v2 may ask for all partitions and adds an
error for the whole request. v5 adds the leader epoch (KIP-320). v7 adds require_stable, which refuses offsets
with a pending transactional commit (KIP-447). v8 takes many groups (KIP-709). v9 checks the member's epoch
(KIP-848).
"""

from collections.abc import Coroutine, Sequence
from typing import Any, Final, TypeVar

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.request_slices import answer_in_slices
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending, gather
from kalda.common.turns import Steps, first_turn
from kalda.common.types import TopicPartition
from kalda.coordinator.group.offset_operations import FetchedOffset, FetchedOffsets
from kalda.coordinator.group.offset_records import NO_LEADER_EPOCH
from kalda.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kalda.zk.client.consumer_offsets import read_offset
from kalda.zk.client.zookeeper_errors import BadArgumentsError, ZooKeeperError

_ERROR_FOR_ALL_FROM: Final = 2
_MANY_GROUPS_FROM: Final = 8
_NO_OFFSET: Final = -1

Answered = TypeVar("Answered", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


Answer = Pending[OffsetFetchResponse] | Pending[OffsetFetchResponse | Steps[OffsetFetchResponse]]


def handle(
    services: BrokerServices, request: OffsetFetchRequest, context: RequestContext
) -> Answer | Coroutine[Any, Any, OffsetFetchResponse]:
    """Answer when everything in the response is committed."""
    if context.api_version == 0:
        return _fetch_from_zookeeper(services, request)
    if context.api_version >= _MANY_GROUPS_FROM:
        return answer_in_slices(
            request.groups,
            lambda groups: _fetch_groups(services, groups, require_stable=request.require_stable),
            lambda groups: OffsetFetchResponse(groups=groups),
        )
    fetched = services.group_coordinator.fetch_offsets(
        request.group_id, _wanted(request.topics), require_stable=request.require_stable
    )
    return fetched.then(lambda done: first_turn(_single(request, done.value, context.api_version)))


def _fetch_groups(
    services: BrokerServices, groups: Sequence[OffsetFetchRequestGroup], *, require_stable: bool
) -> Pending[list[OffsetFetchResponseGroup]]:
    fetches = [
        services.group_coordinator.fetch_offsets(
            group.group_id,
            _wanted(group.topics),
            member_id=group.member_id,
            epoch=group.member_epoch,
            require_stable=require_stable,
        )
        for group in groups
    ]
    return gather(fetches, lambda done: [_group(each.value) for each in done])


def _wanted(
    topics: Sequence[OffsetFetchRequestTopic] | Sequence[OffsetFetchRequestTopics] | None,
) -> list[tuple[str, list[int]]] | None:
    if topics is None:
        return None
    return [(topic.name, topic.partition_indexes) for topic in topics]


def _single(request: OffsetFetchRequest, found: FetchedOffsets, version: int) -> Steps[OffsetFetchResponse]:
    """Return the response of versions up to 7; below version 2 each partition carries the group's error."""
    if found.error is not ErrorCode.NONE:
        if version >= _ERROR_FOR_ALL_FROM:
            return OffsetFetchResponse(error_code=found.error)
        return error_response(request, found.error)
    response = OffsetFetchResponse()
    for topic, partitions in found.topics:
        answered = OffsetFetchResponseTopic(name=topic)
        response.topics.append(answered)
        for each in partitions:
            answered.partitions.append(_partition(OffsetFetchResponsePartition, each))
            yield
    return response


def _partition(struct: type[Answered], found: FetchedOffset) -> Answered:
    """Return one partition in either layout; both have the same fields."""
    partition, committed, code = found
    return struct(
        partition_index=partition,
        committed_offset=_NO_OFFSET if committed is None else committed.offset,
        committed_leader_epoch=NO_LEADER_EPOCH if committed is None else committed.leader_epoch,
        metadata="" if committed is None else committed.metadata,
        error_code=code,
    )


def _group(found: FetchedOffsets) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=found.group_id,
        error_code=found.error,
        topics=[
            OffsetFetchResponseTopics(
                name=topic,
                partitions=[_partition(OffsetFetchResponsePartitions, each) for each in partitions],
            )
            for topic, partitions in found.topics
        ],
    )


async def _fetch_from_zookeeper(services: BrokerServices, request: OffsetFetchRequest) -> OffsetFetchResponse:
    """Read each offset from its znode; without a znode the partition is unknown, as in Kafka."""
    topics = []
    for topic in request.topics or ():
        count = services.metadata_cache.partition_count(topic.name)
        results = []
        for index in topic.partition_indexes:
            offset, code = None, ErrorCode.NONE
            if 0 <= index < count:
                partition = TopicPartition(topic.name, index)
                try:
                    offset = await read_offset(services.cluster_store.zookeeper, request.group_id, partition)
                except BadArgumentsError:
                    # A znode cannot have the group's name.
                    code = ErrorCode.INVALID_GROUP_ID
                except ZooKeeperError:
                    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if offset is None and code is ErrorCode.NONE:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            results.append(
                OffsetFetchResponsePartition(
                    partition_index=index,
                    committed_offset=_NO_OFFSET if offset is None else offset,
                    metadata="",
                    error_code=code,
                )
            )
        topics.append(OffsetFetchResponseTopic(name=topic.name, partitions=results))
    return OffsetFetchResponse(topics=topics)


def error_response(request: OffsetFetchRequest, code: ErrorCode) -> OffsetFetchResponse:
    """Return a response with the error in each place where one of the versions has it."""
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    _partition(OffsetFetchResponsePartition, (index, None, code))
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
        groups=[
            OffsetFetchResponseGroup(group_id=group.group_id, error_code=code) for group in request.groups
        ],
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.OFFSET_FETCH, versions=(0, 9), handle=handle, error_response=error_response
)

"""OffsetFetch (key 9), versions 0-10: returns a group's committed offsets.

v0 reads from ZooKeeper, all others from the group's coordinator. v2 may ask for all partitions and adds an
error for the whole request. v5 adds the leader epoch (KIP-320). v7 adds require_stable, which refuses offsets
with a pending transactional commit (KIP-447). v8 takes many groups (KIP-709). v9 checks the member's epoch
(KIP-848). v10 names topics by id; one that was deleted since gets UNKNOWN_TOPIC_ID.
"""

import copy
from collections.abc import Callable, Coroutine, Iterator, Sequence
from functools import partial
from typing import Any, Final, TypeVar

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.requests.request_slices import answer_in_slices, value_of
from kalda.broker.requests.requested_partitions import take_unnamed
from kalda.cluster.consumer_offsets import read_offset
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending, gather
from kalda.common.turns import Steps, Turns, first_turn, result_of
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.coordinator.group.group_coordinator import GroupCoordinator
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
from kalda.zookeeper.errors import BadArgumentsError, ZooKeeperError
from kalda.zookeeper.port import ZooKeeperClient

_ERROR_FOR_ALL_FROM: Final = 2
_MANY_GROUPS_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10
_NO_OFFSET: Final = -1

_PARTITIONS_PER_PART: Final = 128
"""What is looked up at once for a large request, topics included: some 0.2 ms."""

Asked = TypeVar("Asked", OffsetFetchRequestTopic, OffsetFetchRequestTopics)
Answered = TypeVar("Answered", OffsetFetchResponsePartition, OffsetFetchResponsePartitions)


Answer = Pending[OffsetFetchResponse] | Pending[OffsetFetchResponse | Steps[OffsetFetchResponse]]


def handle(
    cache: MetadataCache,
    zookeeper: ZooKeeperClient,
    coordinator: GroupCoordinator,
    request: OffsetFetchRequest,
    context: RequestContext,
) -> Answer | Coroutine[Any, Any, OffsetFetchResponse]:
    """Answer when everything in the response is committed."""
    if context.api_version == 0:
        return _fetch_from_zookeeper(cache, zookeeper, request)
    if context.large is not None:
        return _fetch_in_turns(cache, coordinator, request, context.api_version)
    if context.api_version >= _MANY_GROUPS_FROM:
        return answer_in_slices(
            request.groups,
            _fetch_of(cache, coordinator, request, context.api_version),
            lambda groups: OffsetFetchResponse(groups=groups),
        )
    fetched = coordinator.fetch_offsets(
        request.group_id, _wanted(request.topics), require_stable=request.require_stable
    )
    return fetched.then(lambda done: first_turn(_single(request, done.value, context.api_version)))


def _fetch_of(
    cache: MetadataCache, coordinator: GroupCoordinator, request: OffsetFetchRequest, version: int
) -> Callable[[Sequence[OffsetFetchRequestGroup]], Pending[list[OffsetFetchResponseGroup]]]:
    """Return what fetches the offsets of some groups of a request."""
    if version < _TOPIC_IDS_FROM:
        return partial(_fetch_groups, coordinator, require_stable=request.require_stable)
    return partial(_fetch_groups_by_id, cache, coordinator, require_stable=request.require_stable)


def _fetch_groups(
    coordinator: GroupCoordinator, groups: Sequence[OffsetFetchRequestGroup], *, require_stable: bool
) -> Pending[list[OffsetFetchResponseGroup]]:
    fetches = [
        coordinator.fetch_offsets(
            group.group_id,
            _wanted(group.topics),
            member_id=group.member_id,
            epoch=group.member_epoch,
            require_stable=require_stable,
        )
        for group in groups
    ]
    return gather(fetches, lambda done: [_group(each.value) for each in done])


def _fetch_groups_by_id(
    cache: MetadataCache,
    coordinator: GroupCoordinator,
    groups: Sequence[OffsetFetchRequestGroup],
    *,
    require_stable: bool,
) -> Pending[list[OffsetFetchResponseGroup]]:
    """Fetch of topics that are named by id; of all topics, those that have none are left out."""
    unknown = [_unknown(result_of(take_unnamed(cache, group.topics or []))) for group in groups]
    asked = [{topic.name: topic.topic_id for topic in group.topics or ()} for group in groups]

    def identified(done: Pending[list[OffsetFetchResponseGroup]]) -> list[OffsetFetchResponseGroup]:
        for group, ids, refused in zip(done.value, asked, unknown, strict=True):
            for topic in group.topics:
                topic.topic_id = ids.get(topic.name) or cache.topic_id(topic.name)
            group.topics = [topic for topic in group.topics if topic.topic_id != ZERO_UUID]
            if group.error_code == ErrorCode.NONE:
                group.topics += refused
        return done.value

    return _fetch_groups(coordinator, groups, require_stable=require_stable).then(identified)


async def _fetch_in_turns(
    cache: MetadataCache, coordinator: GroupCoordinator, request: OffsetFetchRequest, version: int
) -> OffsetFetchResponse:
    """Fetch the offsets of a large request part by part, which are not of the same moment then."""
    turns, response = Turns.of_running_loop(), OffsetFetchResponse()
    fetch = _fetch_of(cache, coordinator, request, version)
    for group in request.groups:
        whole = OffsetFetchResponseGroup(group_id=group.group_id)
        response.groups.append(whole)
        for topics in _parts(group.topics):
            part = copy.copy(group)
            part.topics = topics
            (found,) = await value_of(fetch([part]))
            await turns.wait()
            whole.error_code = found.error_code
            if whole.error_code != ErrorCode.NONE:
                whole.topics = []
                break
            _add(whole.topics, found.topics)
    for asked in _parts(request.topics) if version < _MANY_GROUPS_FROM else ():
        offsets = coordinator.fetch_offsets(
            request.group_id, _wanted(asked), require_stable=request.require_stable
        )
        fetched = await value_of(offsets)
        answered = await turns.result(_single(request, fetched, version))
        if fetched.error is not ErrorCode.NONE:
            return answered
        _add(response.topics, answered.topics)
        await turns.wait()
    return response


def _parts(topics: list[Asked] | None) -> Iterator[list[Asked] | None]:
    """Yield topics with a bounded number of partitions together, the parts of one topic as topics."""
    if not topics:
        yield topics
        return
    part: list[Asked] = []
    left = _PARTITIONS_PER_PART
    for topic in topics:
        indexes = topic.partition_indexes
        for start in range(0, max(1, len(indexes)), _PARTITIONS_PER_PART):
            some = copy.copy(topic)
            some.partition_indexes = indexes[start : start + _PARTITIONS_PER_PART]
            part.append(some)
            left -= len(some.partition_indexes) + 1
            if left <= 0:
                yield part
                part, left = [], _PARTITIONS_PER_PART
    if part:
        yield part


def _add(whole: list[Any], part: Sequence[Any]) -> None:
    """Add topics of a response, of which the first may go on with the last one."""
    for topic in part:
        if (
            whole
            and whole[-1].name == topic.name
            and getattr(whole[-1], "topic_id", None) == getattr(topic, "topic_id", None)
        ):
            whole[-1].partitions += topic.partitions
        else:
            whole.append(topic)


def _unknown(topics: Sequence[OffsetFetchRequestTopics]) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            topic_id=topic.topic_id,
            partitions=[
                _partition(OffsetFetchResponsePartitions, (index, None, ErrorCode.UNKNOWN_TOPIC_ID))
                for index in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


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


async def _fetch_from_zookeeper(
    cache: MetadataCache, zookeeper: ZooKeeperClient, request: OffsetFetchRequest
) -> OffsetFetchResponse:
    """Read each offset from its znode; without a znode the partition is unknown, as in Kafka."""
    topics = []
    for topic in request.topics or ():
        count = cache.partition_count(topic.name)
        results = []
        for index in topic.partition_indexes:
            offset, code = None, ErrorCode.NONE
            if 0 <= index < count:
                partition = TopicPartition(topic.name, index)
                try:
                    offset = await read_offset(zookeeper, request.group_id, partition)
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
    key=ApiKey.OFFSET_FETCH,
    versions=(0, 10),
    build=lambda services: partial(
        handle, services.metadata_cache, services.cluster_store.zookeeper, services.group_coordinator
    ),
    error_response=error_response,
    access=group_checks.offset_fetch,
)

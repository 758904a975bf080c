"""OffsetCommit (key 8), versions 0-10: commits a group's offsets.

v0 writes each offset to its znode, without metadata. Later versions append to the partition of the group's
coordinator and respond when the records are committed. v1 has a timestamp per partition, v2 to v4 a retention
time, which v5 removes. v6 adds the leader epoch (KIP-320), v7 static members (KIP-345). v8 is flexible. v9
also accepts the member epochs of the consumer protocol (KIP-848). v10 names topics by id: a commit for a
topic that was deleted since is refused, also where another one has its name.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.requests.checks import topics as topic_checks
from kalda.broker.requests.checks.check import in_turn
from kalda.broker.requests.requested_partitions import (
    merge_topics,
    take_unknown,
    take_unnamed,
    topic_errors,
    with_ids,
)
from kalda.cluster.consumer_offsets import write_offset
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.turns import Steps, first_turn, result_of
from kalda.common.types import TopicPartition
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kalda.security.acl.model import AclOperation
from kalda.zookeeper.errors import BadArgumentsError, ZooKeeperError
from kalda.zookeeper.port import ZooKeeperClient

_TOPIC_IDS_FROM: Final = 10

Answer = OffsetCommitResponse | Pending[OffsetCommitResponse] | Coroutine[Any, Any, OffsetCommitResponse]


def handle(
    cache: MetadataCache,
    coordinator: GroupCoordinator,
    zookeeper: ZooKeeperClient,
    request: OffsetCommitRequest,
    context: RequestContext,
) -> Answer | Steps[Answer]:
    """Commit offsets; respond when they are committed. Each unknown partition gets its own error."""
    commit = _commit if context.api_version < _TOPIC_IDS_FROM else _commit_by_id
    return first_turn(commit(cache, coordinator, zookeeper, request, context))


def _commit_by_id(
    cache: MetadataCache,
    coordinator: GroupCoordinator,
    zookeeper: ZooKeeperClient,
    request: OffsetCommitRequest,
    context: RequestContext,
) -> Steps[Answer]:
    unnamed = yield from take_unnamed(cache, request.topics)
    unknown = yield from _errors(unnamed, ErrorCode.UNKNOWN_TOPIC_ID)
    if not request.topics:
        return OffsetCommitResponse(topics=unknown)
    identified = with_ids(request.topics, unknown)
    answer = yield from _commit(cache, coordinator, zookeeper, request, context)
    if isinstance(answer, Pending):
        return answer.then(lambda done: identified(_value(request, done)))
    assert isinstance(answer, OffsetCommitResponse), "only version 0 uses ZooKeeper"
    return identified(answer)


def _commit(
    cache: MetadataCache,
    coordinator: GroupCoordinator,
    zookeeper: ZooKeeperClient,
    request: OffsetCommitRequest,
    context: RequestContext,
) -> Steps[Answer]:
    unknown = yield from take_unknown(cache, request.topics)
    refused = yield from _errors(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if refused and not request.topics:
        return OffsetCommitResponse(topics=refused)
    if context.api_version == 0:
        return _commit_to_zookeeper(coordinator, zookeeper, request, refused)
    answer = coordinator.commit_offsets(request, context.api_version, context.author)
    if not refused:
        return answer

    def merge(done: Pending[OffsetCommitResponse]) -> OffsetCommitResponse:
        return OffsetCommitResponse(topics=merge_topics(_value(request, done).topics, refused))

    return answer.then(merge)


def _value(request: OffsetCommitRequest, done: Pending[OffsetCommitResponse]) -> OffsetCommitResponse:
    try:
        return done.value
    except ApiError as error:
        return error_response(request, error.code)


async def _commit_to_zookeeper(
    coordinator: GroupCoordinator,
    zookeeper: ZooKeeperClient,
    request: OffsetCommitRequest,
    refused: list[OffsetCommitResponseTopic],
) -> OffsetCommitResponse:
    """Write each offset to its znode, one after the other. A znode has no room for metadata."""
    metadata_max = coordinator.config.offset_metadata_max_bytes
    topics = []
    for topic in request.topics:
        results = []
        for each in topic.partitions:
            code = ErrorCode.NONE
            if len(each.committed_metadata or "") > metadata_max:
                code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                partition = TopicPartition(topic.name, each.partition_index)
                try:
                    await write_offset(
                        zookeeper,
                        request.group_id,
                        partition,
                        each.committed_offset,
                    )
                except BadArgumentsError:
                    # A znode cannot have the group's name.
                    code = ErrorCode.INVALID_GROUP_ID
                except ZooKeeperError:
                    code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            results.append(
                OffsetCommitResponsePartition(partition_index=each.partition_index, error_code=code)
            )
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=results))
    return OffsetCommitResponse(topics=merge_topics(topics, refused))


def _errors(
    topics: list[OffsetCommitRequestTopic], code: ErrorCode
) -> Steps[list[OffsetCommitResponseTopic]]:
    found = yield from topic_errors(topics, code, OffsetCommitResponseTopic, OffsetCommitResponsePartition)
    for topic, refused in zip(topics, found, strict=True):
        refused.topic_id = topic.topic_id
    return found


def error_response(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    """Return a response with the error for each partition."""
    return OffsetCommitResponse(topics=result_of(_errors(request.topics, code)))


HANDLER: Final = ApiHandler(
    key=ApiKey.OFFSET_COMMIT,
    versions=(0, 10),
    build=lambda services: partial(
        handle, services.metadata_cache, services.group_coordinator, services.cluster_store.zookeeper
    ),
    error_response=error_response,
    access=in_turn(
        group_checks.MEMBERS, topic_checks.named_from(10), topic_checks.by_name(AclOperation.READ)
    ),
)

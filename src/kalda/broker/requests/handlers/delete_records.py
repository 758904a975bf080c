"""Handles DeleteRecords (key 21), versions 0-2: raises the log start offset of partitions (KIP-107).

The next retention check deletes the files below the new start. The response waits until the live followers
have raised their log start too; a partition with one replica is done at once.
"""

from functools import partial
from typing import Final

from kalda.broker.replicas.delayed_delete_records import DelayedDeleteRecords, DeleteWait
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.requests.api import ApiHandler, Pending, RequestContext
from kalda.broker.requests.checks import topics as topic_checks
from kalda.cluster.history.author import author_details
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.common.turns import Steps, first_turn
from kalda.common.types import TopicPartition
from kalda.events.event import EventKind
from kalda.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kalda.security.acl.model import AclOperation
from kalda.storage.errors import LOG_ERRORS

_NO_LOW_WATERMARK: Final = -1


def handle(
    replicas: ReplicaManager,
    purgatory: DelayedOperationPurgatory,
    request: DeleteRecordsRequest,
    context: RequestContext,
) -> Pending[DeleteRecordsResponse] | Steps[Pending[DeleteRecordsResponse]]:
    """Raise the log start of each partition; errors are returned by partition."""
    return first_turn(_delete_each(replicas, purgatory, request, context))


def _delete_each(
    replicas: ReplicaManager,
    purgatory: DelayedOperationPurgatory,
    request: DeleteRecordsRequest,
    context: RequestContext,
) -> Steps[Pending[DeleteRecordsResponse]]:
    topics: list[DeleteRecordsTopicResult] = []
    waits: list[tuple[DeleteWait, DeleteRecordsPartitionResult]] = []
    for topic in request.topics:
        results = []
        for wanted in topic.partitions:
            yield
            try:
                wait = _delete(replicas, topic.name, wanted, context)
            except (ApiError, *LOG_ERRORS) as error:
                results.append(_failure(wanted.partition_index, error.code))
                continue
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index)
            results.append(result)
            waits.append((wait, result))
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    response = DeleteRecordsResponse(topics=topics)
    pending: Pending[DeleteRecordsResponse] = Pending()

    def respond() -> None:
        for wait, result in waits:
            result.error_code, result.low_watermark = int(wait.code), wait.low_watermark
        pending.complete(response)

    operation = DelayedDeleteRecords(request.timeout_ms, [wait for wait, _ in waits], respond)
    purgatory.try_complete_else_watch(operation, operation.keys)
    return pending


def _delete(
    replicas: ReplicaManager, topic: str, wanted: DeleteRecordsPartition, context: RequestContext
) -> DeleteWait:
    partition = replicas.partition(TopicPartition(topic, wanted.partition_index))
    if partition.is_internal:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if not partition.is_leader:
        raise partition.not_leader()
    config = partition.log.config
    if config.is_compacted and not config.is_deleted:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    before = partition.log.log_start_offset
    start = partition.log.delete_records_before(wanted.offset)
    if start > before:
        replicas.resources.events.emit(
            EventKind.RECORDS_DELETED,
            {"topic": topic, "partition": wanted.partition_index},
            {
                "from": before,
                "to": start,
                "reason": "delete-records",
                **author_details(context.author()),
            },
        )
    return DeleteWait(partition, start if wanted.offset < 0 else wanted.offset)


def _failure(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=code
    )


def error_response(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """Return a response with one error for every partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_failure(wanted.partition_index, code) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.DELETE_RECORDS,
    versions=(0, 2),
    build=lambda services: partial(handle, services.replica_manager, services.purgatories["delete_records"]),
    error_response=error_response,
    access=topic_checks.by_name(AclOperation.DELETE),
    audit=lambda request: (topic.name for topic in request.topics),
)

"""DeleteRecords (key 21), versions 0-2: raise the start of partitions' logs (KIP-107).

The files below the new start go with the next retention pass. Waiting until the followers have raised theirs
comes with replication: a partition with one replica is done at once.
"""

from typing import Final

from kalda.broker.api import ApiHandler, RequestContext
from kalda.broker.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kalda.storage.errors import LOG_ERRORS

_NO_LOW_WATERMARK: Final = -1


def handle(
    services: BrokerServices, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse:
    """Raise each log's start; errors are told by partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_delete(services, topic.name, wanted) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _delete(
    services: BrokerServices, topic: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    try:
        partition = services.replica_manager.partition(TopicPartition(topic, wanted.partition_index))
        if partition.is_internal:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
        if not partition.is_leader:
            raise partition.not_leader()
        if not partition.log.config.is_deleted:
            raise ApiError(ErrorCode.POLICY_VIOLATION)
        start = partition.log.delete_records_before(wanted.offset)
    except (ApiError, *LOG_ERRORS) as error:
        return _failure(wanted.partition_index, error.code)
    return DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=start)


def _failure(index: int, code: ErrorCode) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=index, low_watermark=_NO_LOW_WATERMARK, error_code=code
    )


def error_response(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    """Answer with an error for each partition."""
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
    key=ApiKey.DELETE_RECORDS, versions=(0, 2), handle=handle, error_response=error_response
)

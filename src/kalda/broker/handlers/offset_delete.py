"""OffsetDelete (key 47), version 0: forget committed offsets of topics nobody subscribes to (KIP-496)."""

from typing import Final

from kalda.broker.api import ApiHandler, RequestContext
from kalda.broker.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    services: BrokerServices, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
    """Delete; topics that do not exist are told apart from offsets that do not."""
    cache = services.metadata_cache
    unknown = [topic for topic in request.topics if topic.name not in cache]
    if not unknown:
        return services.group_coordinator.delete_offsets(request)
    known = OffsetDeleteRequest(
        group_id=request.group_id, topics=[topic for topic in request.topics if topic.name in cache]
    )
    answer = services.group_coordinator.delete_offsets(known)
    if not isinstance(answer, Pending):
        return answer
    response: Pending[OffsetDeleteResponse] = Pending()

    def add_unknown(done: Pending[OffsetDeleteResponse]) -> None:
        if done.error is not None:
            response.fail(done.error)
            return
        if not done.value.error_code:
            done.value.topics.extend(_refused(topic) for topic in unknown)
        response.complete(done.value)

    answer.add_done(add_unknown)
    return response


def _refused(topic: OffsetDeleteRequestTopic) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=each.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for each in topic.partitions
        ],
    )


def error_response(request: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    """Answer with an error for the group."""
    return OffsetDeleteResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.OFFSET_DELETE, versions=(0, 0), handle=handle, error_response=error_response
)

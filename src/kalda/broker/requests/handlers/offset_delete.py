"""OffsetDelete (key 47), version 0: forget committed offsets of topics nobody subscribes to (KIP-496)."""

from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.requested_partitions import merge_answers, take_known
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    services: BrokerServices, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Pending[OffsetDeleteResponse]:
    """Delete; partitions that do not exist are told apart from offsets that do not."""
    known, refused = take_known(
        services.metadata_cache,
        request.topics,
        lambda name, partitions: OffsetDeleteRequestTopic(name=name, partitions=partitions),
        _refused,
    )
    answer = services.group_coordinator.delete_offsets(
        OffsetDeleteRequest(group_id=request.group_id, topics=known)
    )
    if not refused or not isinstance(answer, Pending):
        return answer

    def add_refused(done: Pending[OffsetDeleteResponse]) -> OffsetDeleteResponse:
        if not done.value.error_code:
            done.value.topics = merge_answers(done.value.topics, refused)
        return done.value

    return answer.then(add_refused)


def _refused(topic: str, partitions: list[OffsetDeleteRequestPartition]) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic,
        partitions=[
            OffsetDeleteResponsePartition(
                partition_index=each.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
            for each in partitions
        ],
    )


def error_response(request: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    """Answer with an error for the group."""
    return OffsetDeleteResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.OFFSET_DELETE, versions=(0, 0), handle=handle, error_response=error_response
)

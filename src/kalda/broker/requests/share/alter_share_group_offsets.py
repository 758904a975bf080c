"""Handles AlterShareGroupOffsets."""

from functools import partial
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.checks import share_groups as share_checks
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.share_responses import error_fields
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import UUID
from kalda.coordinator.group.share.share_group_coordinator import ShareGroupCoordinator
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
    ResponsePartition,
    ResponseTopic,
)


def handle(
    coordinator: ShareGroupCoordinator,
    cache: MetadataCache,
    request: AlterShareGroupOffsetsRequest,
    context: RequestContext,
) -> AlterShareGroupOffsetsResponse | Pending[AlterShareGroupOffsetsResponse]:
    """Answer when the share coordinators have the new offsets."""
    if not coordinator.is_enabled():
        return error_response(request, ErrorCode.UNSUPPORTED_VERSION)
    unknown: list[ResponseTopic] = []
    wanted: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        count = cache.partition_count(topic.topic_name)
        offsets = {each.partition_index: each.start_offset for each in topic.partitions}
        present = {each: max(offset, 0) for each, offset in offsets.items() if 0 <= each < count}
        missing = [each for each in offsets if each not in present]
        if missing:
            error = error_fields(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            partitions = [ResponsePartition(partition_index=each, **error) for each in missing]
            unknown.append(ResponseTopic(topic_name=topic.topic_name, partitions=partitions))
        if present:
            wanted[topic.topic_name] = present

    def answer(done: Pending[dict[SharePartitionKey, ApiError | None]]) -> AlterShareGroupOffsetsResponse:
        if isinstance(done.error, ApiError):
            return AlterShareGroupOffsetsResponse(**error_fields(done.error))
        topics: dict[UUID, list[ResponsePartition]] = {}
        for key, error in done.value.items():
            result = ResponsePartition(partition_index=key.partition)
            if error is not None:
                result.error_code, result.error_message = error.code, error.message
            topics.setdefault(key.topic_id, []).append(result)
        found = [
            ResponseTopic(topic_name=cache.topic_name(each) or "", topic_id=each, partitions=partitions)
            for each, partitions in topics.items()
        ]
        return AlterShareGroupOffsetsResponse(responses=[*found, *unknown])

    return coordinator.alter_offsets(request.group_id, wanted, context.author).then(answer)


def error_response(request: AlterShareGroupOffsetsRequest, code: ErrorCode) -> AlterShareGroupOffsetsResponse:
    """Return a response with the error."""
    return AlterShareGroupOffsetsResponse(error_code=code)


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, services.share.groups, services.metadata_cache)


ACCESS: Final = share_checks.alter_offsets

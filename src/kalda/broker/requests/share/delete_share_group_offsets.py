"""Handles DeleteShareGroupOffsets."""

from functools import partial
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.checks import share_groups as share_checks
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.share_responses import error_fields
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import UUID, ZERO_UUID
from kalda.coordinator.group.share.share_group_coordinator import ShareGroupCoordinator
from kalda.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    ResponseTopic,
)


def handle(
    coordinator: ShareGroupCoordinator,
    cache: MetadataCache,
    request: DeleteShareGroupOffsetsRequest,
    context: RequestContext,
) -> DeleteShareGroupOffsetsResponse | Pending[DeleteShareGroupOffsetsResponse]:
    """Answer when the share coordinators have deleted the state."""
    if not coordinator.is_enabled():
        return error_response(request, ErrorCode.UNSUPPORTED_VERSION)
    ids = {topic.topic_name: cache.topic_id(topic.topic_name) for topic in request.topics}
    error = error_fields(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    unknown = [
        ResponseTopic(topic_name=name, **error) for name, topic_id in ids.items() if topic_id == ZERO_UUID
    ]
    known = {topic_id: name for name, topic_id in ids.items() if topic_id != ZERO_UUID}

    def answer(done: Pending[dict[UUID, ApiError | None]]) -> DeleteShareGroupOffsetsResponse:
        if isinstance(done.error, ApiError):
            return DeleteShareGroupOffsetsResponse(**error_fields(done.error))
        outcomes = done.value
        deleted: list[ResponseTopic] = []
        for topic_id, name in known.items():
            topic = ResponseTopic(topic_name=name, topic_id=topic_id)
            failed = outcomes.get(topic_id)
            if failed is not None:
                topic.error_code, topic.error_message = failed.code, failed.message
            deleted.append(topic)
        return DeleteShareGroupOffsetsResponse(responses=[*deleted, *unknown])

    return coordinator.delete_offsets(request.group_id, known, context.author).then(answer)


def error_response(
    request: DeleteShareGroupOffsetsRequest, code: ErrorCode
) -> DeleteShareGroupOffsetsResponse:
    """Return a response with the error."""
    return DeleteShareGroupOffsetsResponse(error_code=code)


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, services.share.groups, services.metadata_cache)


ACCESS: Final = share_checks.delete_offsets

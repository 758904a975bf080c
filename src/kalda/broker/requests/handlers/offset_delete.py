"""OffsetDelete (key 47), version 0: deletes committed offsets of topics without subscribers (KIP-496)."""

from functools import partial
from itertools import chain
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.requests.checks import topics as topic_checks
from kalda.broker.requests.checks.check import in_turn
from kalda.broker.requests.requested_partitions import merge_topics, take_unknown, topic_errors
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.common.turns import Steps, first_turn
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kalda.security.acl.model import AclOperation

Answer = OffsetDeleteResponse | Pending[OffsetDeleteResponse]


def handle(
    cache: MetadataCache, coordinator: GroupCoordinator, request: OffsetDeleteRequest, context: RequestContext
) -> Answer | Steps[Answer]:
    """Delete offsets; a partition that does not exist gets UNKNOWN_TOPIC_OR_PARTITION."""
    return first_turn(_delete(cache, coordinator, request, context))


def _delete(
    cache: MetadataCache, coordinator: GroupCoordinator, request: OffsetDeleteRequest, context: RequestContext
) -> Steps[Answer]:
    unknown = yield from take_unknown(cache, request.topics)
    refused = yield from topic_errors(
        unknown,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        OffsetDeleteResponseTopic,
        OffsetDeleteResponsePartition,
    )
    answer = coordinator.delete_offsets(request, context.author)
    if not refused or not isinstance(answer, Pending):
        return answer

    def add_refused(done: Pending[OffsetDeleteResponse]) -> OffsetDeleteResponse:
        if not done.value.error_code:
            done.value.topics = merge_topics(done.value.topics, refused)
        return done.value

    return answer.then(add_refused)


def error_response(request: OffsetDeleteRequest, code: ErrorCode) -> OffsetDeleteResponse:
    """Return a response with the error."""
    return OffsetDeleteResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.OFFSET_DELETE,
    versions=(0, 0),
    build=lambda services: partial(handle, services.metadata_cache, services.group_coordinator),
    error_response=error_response,
    access=in_turn(group_checks.of_request(AclOperation.DELETE), topic_checks.by_name(AclOperation.READ)),
    audit=lambda request: chain((request.group_id,), (topic.name for topic in request.topics)),
)

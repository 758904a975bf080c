"""CreatePartitions (key 37), versions 0-3: adds partitions to topics. Only the controller serves it.

v1 throttles after the response, v2 is flexible, v3 may return THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from collections import Counter
from collections.abc import Coroutine
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import topics as topic_checks
from kalda.broker.requests.throttling import mutation_budget
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.broker.topics.topic_admin import Take, TopicAdmin
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopicResult,
)
from kalda.security.acl.model import AclOperation

_STRICT_FROM: Final = 3
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


def handle(
    topic_admin: TopicAdmin,
    throttle: ClientThrottle,
    request: CreatePartitionsRequest,
    context: RequestContext,
) -> CreatePartitionsResponse | Coroutine[None, None, CreatePartitionsResponse]:
    """Return NOT_CONTROLLER if this broker is not the controller; else add the partitions."""
    if not topic_admin.is_controller:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    return _grow(topic_admin, request, mutation_budget(throttle, context, strict_from=_STRICT_FROM))


def error_response(request: CreatePartitionsRequest, code: ErrorCode) -> CreatePartitionsResponse:
    """Return a response with the error for each topic."""
    names = {topic.name: None for topic in request.topics}
    return CreatePartitionsResponse(results=[_result(name, ApiError(code)) for name in names])


async def _grow(
    topic_admin: TopicAdmin, request: CreatePartitionsRequest, take: Take
) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    outcomes = await topic_admin.create_partitions(
        [topic for topic in request.topics if counts[topic.name] == 1],
        request.timeout_ms,
        validate_only=request.validate_only,
        take=take,
    )
    duplicate = ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic in request.")
    return CreatePartitionsResponse(
        results=[_result(name, outcomes[name] if count == 1 else duplicate) for name, count in counts.items()]
    )


def _result(name: str, error: ApiError | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    return CreatePartitionsTopicResult(name=name, error_code=error.code, error_message=error.message)


HANDLER: Final = ApiHandler(
    key=ApiKey.CREATE_PARTITIONS,
    versions=(0, 3),
    build=lambda services: partial(handle, services.topic_admin, services.access.throttle),
    error_response=error_response,
    access=topic_checks.by_name(AclOperation.ALTER, results="results"),
    audit=lambda request: (topic.name for topic in request.topics),
)

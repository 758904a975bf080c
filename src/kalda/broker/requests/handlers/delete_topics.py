"""DeleteTopics (key 20), versions 0-6: deletes topics by name or, from v6, by id.

Versions below 3 return INVALID_REQUEST instead of TOPIC_DELETION_DISABLED. v5 adds error messages. Only the
controller serves it.
"""

from collections.abc import Coroutine
from functools import partial
from itertools import chain
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import topics as topic_checks
from kalda.broker.requests.throttling import mutation_budget
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.broker.topics.topic_admin import Take, TopicAdmin
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import between
from kalda.common.types import ZERO_UUID
from kalda.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from kalda.settings import BrokerConfig

_DISABLED_FROM: Final = 3
_STRICT_FROM: Final = 5
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


def handle(
    topic_admin: TopicAdmin,
    config: BrokerConfig,
    cache: MetadataCache,
    throttle: ClientThrottle,
    request: DeleteTopicsRequest,
    context: RequestContext,
) -> DeleteTopicsResponse | Coroutine[None, None, DeleteTopicsResponse]:
    """Return an error if this broker cannot delete topics; else delete them."""
    if not topic_admin.is_controller:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    if not config.delete_topic_enable:
        has_code = context.api_version >= _DISABLED_FROM
        return error_response(
            request, ErrorCode.TOPIC_DELETION_DISABLED if has_code else ErrorCode.INVALID_REQUEST
        )
    return _delete(cache, topic_admin, request, mutation_budget(throttle, context, strict_from=_STRICT_FROM))


def error_response(request: DeleteTopicsRequest, code: ErrorCode) -> DeleteTopicsResponse:
    """Return a response with the error for each topic."""
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(
                name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=_message(code)
            )
            for topic in _topics(request)
        ]
    )


async def _delete(
    cache: MetadataCache, topic_admin: TopicAdmin, request: DeleteTopicsRequest, take: Take
) -> DeleteTopicsResponse:
    results: list[DeletableTopicResult] = []
    for index, topic in enumerate(_topics(request)):
        await between(index)
        if topic.name is not None and topic.topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "A topic is named both by name and by id.")
        name = topic.name if topic.topic_id == ZERO_UUID else cache.topic_name(topic.topic_id)
        code = ErrorCode.NONE
        if topic.topic_id != ZERO_UUID and name is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
        elif name not in cache:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        results.append(
            DeletableTopicResult(
                name=name, topic_id=topic.topic_id, error_code=code, error_message=_message(code)
            )
        )
    deletable = [result for result in results if result.error_code == ErrorCode.NONE]
    names = dict.fromkeys(result.name for result in deletable if result.name is not None)
    codes = await topic_admin.delete_topics(names, request.timeout_ms, take=take)
    for result in deletable:
        code = codes[result.name or ""]
        result.error_code = code
        result.error_message = _message(code)
    return DeleteTopicsResponse(responses=results)


def _topics(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    """Return the topics of a request of any version in the form of v6."""
    return [*request.topics, *(DeleteTopicState(name=name) for name in request.topic_names)]


def _message(code: ErrorCode) -> str | None:
    return None if code is ErrorCode.NONE else code.message


HANDLER: Final = ApiHandler(
    key=ApiKey.DELETE_TOPICS,
    versions=(0, 6),
    build=lambda services: partial(
        handle, services.topic_admin, services.config, services.metadata_cache, services.access.throttle
    ),
    error_response=error_response,
    access=topic_checks.delete_topics,
    audit=lambda request: chain(
        (topic.name or topic.topic_id for topic in request.topics), request.topic_names
    ),
)

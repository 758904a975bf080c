"""FindCoordinator (key 10), versions 0-6: returns the broker that coordinates a group or a transactional id.

v1 adds the key's type and an error message, v4 takes many keys (KIP-699), v6 adds share partitions (KIP-932),
whose key is their group, topic id and partition.

A key's coordinator is the leader of the partition of an internal topic that the key hashes to. If the topic
does not exist the handler creates it, and the client gets COORDINATOR_NOT_AVAILABLE and asks again.
"""

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.topics.topic_names import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
)
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.protocol.messages.find_coordinator import (
    KEY_TYPE_GROUP,
    KEY_TYPE_SHARE,
    KEY_TYPE_TRANSACTION,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

MANY_KEYS_FROM: Final = 4

_TOPICS: Final = {
    KEY_TYPE_GROUP: GROUP_METADATA_TOPIC,
    KEY_TYPE_TRANSACTION: TRANSACTION_STATE_TOPIC,
    KEY_TYPE_SHARE: SHARE_GROUP_STATE_TOPIC,
}

_NO_NODE: Final = -1
_NO_PORT: Final = -1


def handle(
    internal_topics: InternalTopics,
    cache: MetadataCache,
    request: FindCoordinatorRequest,
    context: RequestContext,
    *,
    serves_share_groups: Callable[[], bool] = lambda: False,
) -> FindCoordinatorResponse | Steps[FindCoordinatorResponse] | Coroutine[Any, Any, FindCoordinatorResponse]:
    """Return the coordinator of each key."""
    many = context.api_version >= MANY_KEYS_FROM
    keys = request.coordinator_keys if many else [request.key]
    topic = _TOPICS.get(request.key_type)
    if topic is None or (topic == SHARE_GROUP_STATE_TOPIC and not serves_share_groups()):
        message = f"There is no coordinator for key type {request.key_type}."
        return _answer_each(keys, lambda key: _failure(key, ErrorCode.INVALID_REQUEST, message), many)
    if not internal_topics.is_served(topic):
        # Producers do not ask again after this one.
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        message = "This version of the broker does not serve transactions."
        return _answer_each(keys, lambda key: _failure(key, code, message), many)
    if topic not in cache:
        return _create(internal_topics, topic, keys, many)
    return _answer_each(keys, partial(_find, internal_topics, topic, context.listener), many)


def _answer_each(
    keys: list[str], answer: Callable[[str], Coordinator], many: bool
) -> FindCoordinatorResponse | Steps[FindCoordinatorResponse]:
    def steps() -> Steps[FindCoordinatorResponse]:
        found = []
        for key in keys:
            found.append(answer(key))
            yield
        return _response(found, many)

    return first_turn(steps())


async def _create(
    internal_topics: InternalTopics, topic: str, keys: list[str], many: bool
) -> FindCoordinatorResponse:
    await internal_topics.create_topic(topic)
    return _response([_failure(key, ErrorCode.COORDINATOR_NOT_AVAILABLE) for key in keys], many)


def _find(internal_topics: InternalTopics, topic: str, listener: str, key: str) -> Coordinator:
    endpoint = internal_topics.coordinator(topic, key, listener)
    if endpoint is None:
        return _failure(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    return Coordinator(
        key=key, node_id=endpoint.id, host=endpoint.host, port=endpoint.port, error_code=0, error_message=None
    )


def _failure(key: str, code: ErrorCode, message: str | None = None) -> Coordinator:
    return Coordinator(
        key=key,
        node_id=_NO_NODE,
        host="",
        port=_NO_PORT,
        error_code=code,
        error_message=message or code.message,
    )


def _response(found: list[Coordinator], many: bool) -> FindCoordinatorResponse:
    if many:
        return FindCoordinatorResponse(coordinators=found)
    (only,) = found
    return FindCoordinatorResponse(
        error_code=only.error_code,
        error_message=only.error_message,
        node_id=only.node_id,
        host=only.host,
        port=only.port,
    )


def error_response(request: FindCoordinatorRequest, code: ErrorCode) -> FindCoordinatorResponse:
    """Return a response with the error for each key."""
    many = bool(request.coordinator_keys)
    keys = request.coordinator_keys if many else [request.key]
    return _response([_failure(key, code) for key in keys], many)


HANDLER: Final = ApiHandler(
    key=ApiKey.FIND_COORDINATOR,
    versions=(0, 6),
    build=lambda services: partial(
        handle,
        services.internal_topics,
        services.metadata_cache,
        serves_share_groups=lambda: services.features.share_version > 0,
    ),
    error_response=error_response,
    access=group_checks.find_coordinator,
)

"""Metadata (key 3), versions 0-13: returns the brokers, the controller, topics and their partitions.

v0: an empty list of topics requests all of them, and unreachable replicas are left out. From v1 an empty list
requests none and null all. Below v4 a client cannot forbid the creation of unknown topics. v6 adds
LISTENER_NOT_FOUND. v8 to v10 carry the cluster's authorized operations, v8 and up the topics'. v10 returns
topic ids, v12 takes them. v13 adds an error for the whole response.

The handler creates an unknown topic where the broker and the client allow it; the client gets
LEADER_NOT_AVAILABLE and asks again.
"""

from collections.abc import Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from kalda.broker.metadata.metadata_cache import MetadataCache, TopicMetadata
from kalda.broker.requests.api import ApiHandler, Handle, RequestContext
from kalda.broker.requests.authorized_operations import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS
from kalda.broker.requests.checks import topics as topic_checks
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.throttling import mutation_budget
from kalda.broker.requests.topic_responses import TopicResponses
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.broker.topics.topic_names import is_internal_topic, unknown_topic_error
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, Turns, between, first_turn
from kalda.common.types import UUID, ZERO_UUID
from kalda.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kalda.settings import BrokerConfig

_CLUSTER_OPERATIONS_VERSIONS: Final = range(8, 11)
_REQUEST_BY_ID_FROM: Final = 12

_TOPICS_PER_STEP: Final = 32
"""Topics of a request that are looked at in one step: 10 microseconds."""

_PARTITIONS_PER_STEP: Final = 64


Answer = MetadataResponse | Coroutine[Any, Any, MetadataResponse]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataParts:
    """The parts of a broker that Metadata requests need."""

    cache: MetadataCache
    cluster_id: str
    config: BrokerConfig
    responses: TopicResponses
    throttle: ClientThrottle
    topic_admin: TopicAdmin


def handle(parts: MetadataParts, request: MetadataRequest, context: RequestContext) -> Answer | Steps[Answer]:
    """Answer at once, unless topics have to be created or are many."""
    version = context.api_version
    if request.topics is None or (version == 0 and not request.topics):
        return first_turn(_respond_to_all(parts, request, context))
    return first_turn(_respond_to_named(parts, request, request.topics, context))


def _respond_to_all(
    parts: MetadataParts, request: MetadataRequest, context: RequestContext
) -> Steps[MetadataResponse]:
    responses, listener, version = parts.responses, context.listener, context.api_version
    topics: list[MetadataResponseTopic] = []
    for number, topic in enumerate(list(parts.cache.all_topics())):
        if number % _TOPICS_PER_STEP == _TOPICS_PER_STEP - 1:
            yield
        found = responses.find(topic, listener, version)
        topics.append(found or (yield from responses.make(topic, listener, version)))
        yield from _size_of(topic)
    return (yield from _response(parts, request, context, topics))


def _respond_to_named(
    parts: MetadataParts,
    request: MetadataRequest,
    requested: list[MetadataRequestTopic],
    context: RequestContext,
) -> Steps[Answer]:
    topics, missing = yield from _requested_topics(parts, requested, context)
    if missing and request.allow_auto_topic_creation and parts.config.auto_create_topics_enable:
        return _create_and_respond(parts, request, context, topics, missing)
    for name in missing:
        topics.append(_error_topic(name, unknown_topic_error(name)))
        yield
    return (yield from _response(parts, request, context, topics))


def error_response(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    """Return a response with the error for each topic; below version 13 there is no other place for it."""
    return MetadataResponse(
        error_code=code,
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or []
        ],
    )


def _requested_topics(
    parts: MetadataParts, requested: list[MetadataRequestTopic], context: RequestContext
) -> Steps[tuple[list[MetadataResponseTopic], list[str]]]:
    """Return the requested topics that exist, each once, and the names of those that do not.

    Raises:
        ApiError: INVALID_REQUEST, a topic has no name, or has an id where the version takes none.
    """
    version, listener = context.api_version, context.listener
    cache, responses = parts.cache, parts.responses
    found: list[MetadataResponseTopic] = []
    missing: list[str] = []
    ids: dict[UUID, None] = {}
    names: dict[str, None] = {}
    for number, topic in enumerate(requested):
        if number % _TOPICS_PER_STEP == _TOPICS_PER_STEP - 1:
            yield
        if topic.topic_id != ZERO_UUID:
            ids[topic.topic_id] = None
        names[topic.name or ""] = None
        if version < _REQUEST_BY_ID_FROM and (topic.name is None or topic.topic_id != ZERO_UUID):
            raise ApiError(ErrorCode.INVALID_REQUEST, f"version {version} requests topics by name only")
    # As in Kafka, names are ignored if there is an id.
    for topic_id in ids:
        yield
        known = cache.topic(cache.topic_name(topic_id) or "")
        if known is None:
            code = ErrorCode.UNKNOWN_TOPIC_ID
            found.append(MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id))
        else:
            response = responses.find(known, listener, version)
            found.append(response or (yield from responses.make(known, listener, version)))
            yield from _size_of(known)
    for name in () if ids else names:
        yield
        known = cache.topic(name)
        if known is None:
            missing.append(name)
        else:
            response = responses.find(known, listener, version)
            found.append(response or (yield from responses.make(known, listener, version)))
            yield from _size_of(known)
    return found, missing


def _size_of(topic: TopicMetadata) -> Steps[None]:
    """Take a step for some partitions each: a response of many is encoded in turns as well."""
    for _ in range(len(topic.partitions) // _PARTITIONS_PER_STEP):
        yield


def _error_topic(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal_topic(name))


async def _create_and_respond(
    parts: MetadataParts,
    request: MetadataRequest,
    context: RequestContext,
    topics: list[MetadataResponseTopic],
    missing: list[str],
) -> MetadataResponse:
    outcomes = await parts.topic_admin.auto_create(missing, mutation_budget(parts.throttle, context))
    for index, (name, code) in enumerate(outcomes.items()):
        await between(index)
        topics.append(_error_topic(name, code))
    return await Turns.of_running_loop().result(_response(parts, request, context, topics))


def _response(
    parts: MetadataParts,
    request: MetadataRequest,
    context: RequestContext,
    topics: list[MetadataResponseTopic],
) -> Steps[MetadataResponse]:
    cache = parts.cache
    brokers = [
        MetadataResponseBroker(node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in cache.endpoints(context.listener)
    ]
    response = MetadataResponse(
        brokers=brokers,
        cluster_id=parts.cluster_id,
        controller_id=cache.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations and context.api_version in _CLUSTER_OPERATIONS_VERSIONS:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    if request.include_topic_authorized_operations:
        response.topics = []
        for topic in topics:
            yield
            response.topics.append(_with_operations(topic))
    return response


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    """Return a copy of a topic, which other responses share, with the authorized operations."""
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def _build(services: BrokerServices) -> Handle:
    return partial(
        handle,
        MetadataParts(
            cache=services.metadata_cache,
            cluster_id=services.cluster_id,
            config=services.config,
            responses=services.topic_responses,
            throttle=services.access.throttle,
            topic_admin=services.topic_admin,
        ),
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.METADATA,
    versions=(0, 13),
    build=_build,
    error_response=error_response,
    access=topic_checks.metadata,
)

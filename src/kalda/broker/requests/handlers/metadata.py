"""Metadata (key 3), versions 0-12: brokers, controller, topics, partitions.

v0: an empty list of topics asks for all, and unreachable replicas are left out; from v1 an empty list
asks for none and null for all. Below v4 a client cannot say that unknown topics are not to be created. v6
tells LISTENER_NOT_FOUND apart. v8 to v10 carry the cluster's authorised operations, v8 and up the
topics'. v10 answers with topic ids, v12 takes them.

The answer for a topic is built once and kept until the topic or the brokers change, so that a client that
asks for everything costs little more than the encoding. An unknown topic is created here where both the
broker and the client allow it; the client is told LEADER_NOT_AVAILABLE and asks again.
"""

from collections.abc import Coroutine
from typing import Final
from weakref import WeakKeyDictionary

from kalda.broker.metadata.metadata_cache import MetadataCache, TopicMetadata
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.authorized_operations import ALL_CLUSTER_OPERATIONS, ALL_TOPIC_OPERATIONS
from kalda.broker.requests.partition_views import view_partition
from kalda.broker.requests.services import BrokerServices
from kalda.broker.topics.topic_names import is_internal_topic, topic_name_problem
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import ZERO_UUID
from kalda.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

_RACKS_FROM_VERSION: Final = 1
_LISTENER_NOT_FOUND_FROM_VERSION: Final = 6
_CLUSTER_OPERATIONS_VERSIONS: Final = range(8, 11)
_REQUEST_BY_ID_FROM_VERSION: Final = 12


def handle(
    services: BrokerServices, request: MetadataRequest, context: RequestContext
) -> MetadataResponse | Coroutine[None, None, MetadataResponse]:
    """Answer at once; only the creation of topics takes a task."""
    cache = services.metadata_cache
    answers = _answers_of(cache)
    if _asks_for_all(request, context.api_version):
        topics = [answers.topic(cache_topic, context) for cache_topic in cache.all_topics()]
        return _response(services, request, context, topics)
    topics, missing = _requested_topics(cache, answers, request.topics or [], context)
    if missing and request.allow_auto_topic_creation and services.config.auto_create_topics_enable:
        return _create_and_respond(services, request, context, topics, missing)
    topics.extend(_unknown_topic(name) for name in missing)
    return _response(services, request, context, topics)


def error_response(request: MetadataRequest, code: ErrorCode) -> MetadataResponse:
    """Answer with the error for each topic; the protocol has no place for it elsewhere."""
    return MetadataResponse(
        topics=[
            MetadataResponseTopic(error_code=code, name=topic.name or "", topic_id=topic.topic_id)
            for topic in request.topics or []
        ]
    )


class _TopicAnswers:
    """The answers for topics, kept while what they were made from is unchanged."""

    __slots__ = ("_by_kind", "_cache", "_generation")

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._generation = -1
        # (listener, tells LISTENER_NOT_FOUND) -> name -> what it was made from, answer.
        self._by_kind: dict[tuple[str, bool], dict[str, tuple[TopicMetadata, MetadataResponseTopic]]] = {}

    def topic(self, topic: TopicMetadata, context: RequestContext) -> MetadataResponseTopic:
        """Return a topic as the client of this request is to see it."""
        if context.api_version < _RACKS_FROM_VERSION:
            return self._make(topic, context)
        if self._generation != self._cache.brokers_generation:
            self._by_kind.clear()
            self._generation = self._cache.brokers_generation
        kind = (context.listener, context.api_version >= _LISTENER_NOT_FOUND_FROM_VERSION)
        made = self._by_kind.get(kind)
        if made is None:
            made = self._by_kind[kind] = {}
        found = made.get(topic.name)
        if found is None or found[0] is not topic:
            found = made[topic.name] = (topic, self._make(topic, context))
            if len(made) > 2 * len(self._cache) + 100:
                # Topics come and go; what is left of deleted ones must not gather.
                made.clear()
        return found[1]

    def _make(self, topic: TopicMetadata, context: RequestContext) -> MetadataResponseTopic:
        version = context.api_version
        views = [
            view_partition(
                partition,
                self._cache.brokers,
                context.listener,
                tells_missing_listener=version >= _LISTENER_NOT_FOUND_FROM_VERSION,
                hides_unreachable=version < _RACKS_FROM_VERSION,
            )
            for partition in topic.partitions.values()
        ]
        return MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=is_internal_topic(topic.name),
            partitions=[
                MetadataResponsePartition(
                    error_code=view.error,
                    partition_index=view.partition,
                    leader_id=view.leader,
                    leader_epoch=view.leader_epoch,
                    replica_nodes=view.replicas,
                    isr_nodes=view.isr,
                    offline_replicas=view.offline_replicas,
                )
                for view in views
            ],
        )


_answers: "WeakKeyDictionary[MetadataCache, _TopicAnswers]" = WeakKeyDictionary()


def _answers_of(cache: MetadataCache) -> _TopicAnswers:
    found = _answers.get(cache)
    if found is None:
        found = _answers[cache] = _TopicAnswers(cache)
    return found


def _asks_for_all(request: MetadataRequest, version: int) -> bool:
    return request.topics is None or (version == 0 and not request.topics)


def _requested_topics(
    cache: MetadataCache,
    answers: _TopicAnswers,
    requested: list[MetadataRequestTopic],
    context: RequestContext,
) -> tuple[list[MetadataResponseTopic], list[str]]:
    """Return the answers for what is known, and the names that are not; each topic once.

    Raises:
        ApiError: INVALID_REQUEST, a topic has no name, or an id where the version takes none.
    """
    takes_ids = context.api_version >= _REQUEST_BY_ID_FROM_VERSION
    if not takes_ids:
        for topic in requested:
            if topic.name is None or topic.topic_id != ZERO_UUID:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"version {context.api_version} asks for topics by name only",
                )
    found: list[MetadataResponseTopic] = []
    missing: list[str] = []
    ids = {topic.topic_id: None for topic in requested if topic.topic_id != ZERO_UUID}
    if ids:
        # As soon as there is an id, names do not count.
        for topic_id in ids:
            known = cache.topic(cache.topic_name(topic_id) or "")
            if known is None:
                code = ErrorCode.UNKNOWN_TOPIC_ID
                found.append(MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id))
            else:
                found.append(answers.topic(known, context))
        return found, missing
    for name in {topic.name or "": None for topic in requested}:
        known = cache.topic(name)
        if known is None:
            missing.append(name)
        else:
            found.append(answers.topic(known, context))
    return found, missing


def _unknown_topic(name: str) -> MetadataResponseTopic:
    code = (
        ErrorCode.INVALID_TOPIC_EXCEPTION
        if topic_name_problem(name)
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    return MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal_topic(name))


async def _create_and_respond(
    services: BrokerServices,
    request: MetadataRequest,
    context: RequestContext,
    topics: list[MetadataResponseTopic],
    missing: list[str],
) -> MetadataResponse:
    outcomes = await services.topic_admin.auto_create(missing)
    topics.extend(
        MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal_topic(name))
        for name, code in outcomes.items()
    )
    return _response(services, request, context, topics)


def _response(
    services: BrokerServices,
    request: MetadataRequest,
    context: RequestContext,
    topics: list[MetadataResponseTopic],
) -> MetadataResponse:
    cache = services.metadata_cache
    brokers = [
        MetadataResponseBroker(node_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
        for broker in cache.endpoints(context.listener)
    ]
    response = MetadataResponse(
        brokers=brokers,
        cluster_id=services.cluster_id,
        controller_id=cache.controller_id,
        topics=topics,
    )
    if request.include_cluster_authorized_operations and context.api_version in _CLUSTER_OPERATIONS_VERSIONS:
        response.cluster_authorized_operations = ALL_CLUSTER_OPERATIONS
    if request.include_topic_authorized_operations:
        response.topics = [_with_operations(topic) for topic in topics]
    return response


def _with_operations(topic: MetadataResponseTopic) -> MetadataResponseTopic:
    """Copy an answer, which others share, and tell what the client may do."""
    return MetadataResponseTopic(
        error_code=topic.error_code,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=topic.partitions,
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.METADATA, versions=(0, 12), handle=handle, error_response=error_response
)

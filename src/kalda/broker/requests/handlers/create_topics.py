"""CreateTopics (key 19), versions 0-7: creates topics, or validates that they can be created.

v1 adds validate_only and error messages, v4 -1 for the broker's defaults, v5 the topic's settings in the
response, v6 THROTTLING_QUOTA_EXCEEDED (KIP-599), v7 the topic id. Only the controller serves it; clients find
the controller in the metadata.
"""

from collections import Counter
from collections.abc import Coroutine
from functools import partial
from typing import Final

from kalda.broker.config.describe import describe_topic
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import topics as topic_checks
from kalda.broker.requests.throttling import mutation_budget
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.broker.topics.topic_admin import Outcome, Take, TopicAdmin
from kalda.broker.topics.topic_names import CLUSTER_METADATA_TOPIC
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import between
from kalda.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kalda.settings import BrokerConfig

_STRICT_FROM: Final = 6
"""The first version whose clients know THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


def handle(
    topic_admin: TopicAdmin,
    config: BrokerConfig,
    throttle: ClientThrottle,
    request: CreateTopicsRequest,
    context: RequestContext,
) -> CreateTopicsResponse | Coroutine[None, None, CreateTopicsResponse]:
    """Return NOT_CONTROLLER if this broker is not the controller; else create the topics."""
    if not topic_admin.is_controller:
        return error_response(request, ErrorCode.NOT_CONTROLLER)
    return _create(topic_admin, config, request, mutation_budget(throttle, context, strict_from=_STRICT_FROM))


def error_response(request: CreateTopicsRequest, code: ErrorCode) -> CreateTopicsResponse:
    """Return a response with the error for each topic."""
    return CreateTopicsResponse(topics=[_failed(topic.name, ApiError(code)) for topic in request.topics])


async def _create(
    topic_admin: TopicAdmin, config: BrokerConfig, request: CreateTopicsRequest, take: Take
) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    refused: dict[str, ApiError] = {}
    wanted: list[CreatableTopic] = []
    for index, topic in enumerate(request.topics):
        await between(index)
        if topic.name == CLUSTER_METADATA_TOPIC:
            message = f"Creation of the internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            refused[topic.name] = ApiError(ErrorCode.INVALID_REQUEST, message)
        elif counts[topic.name] > 1:
            message = "Found multiple entries for this topic."
            refused[topic.name] = ApiError(ErrorCode.INVALID_REQUEST, message)
        else:
            wanted.append(topic)
    outcomes = await topic_admin.create_topics(
        wanted, request.timeout_ms, validate_only=request.validate_only, take=take
    )
    outcomes.update(refused)
    response = CreateTopicsResponse()
    for index, topic in enumerate(request.topics):
        await between(index)
        response.topics.append(_result(config, topic.name, outcomes[topic.name]))
    return response


def _result(config: BrokerConfig, name: str, outcome: Outcome) -> CreatableTopicResult:
    if isinstance(outcome, ApiError):
        return _failed(name, outcome)
    return CreatableTopicResult(
        name=name,
        topic_id=outcome.topic_id,
        error_message=None,
        num_partitions=len(outcome.assignment),
        replication_factor=outcome.replication_factor,
        configs=[
            CreatableTopicConfigs(
                name=entry.name,
                value=entry.value,
                read_only=entry.is_read_only,
                config_source=entry.source,
                is_sensitive=entry.is_sensitive,
            )
            for entry in describe_topic(config, outcome.config)
        ],
    )


def _failed(name: str, error: ApiError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.message, configs=[])


HANDLER: Final = ApiHandler(
    key=ApiKey.CREATE_TOPICS,
    versions=(0, 7),
    build=lambda services: partial(handle, services.topic_admin, services.config, services.access.throttle),
    error_response=error_response,
    access=topic_checks.create_topics,
    audit=lambda request: (topic.name for topic in request.topics),
)

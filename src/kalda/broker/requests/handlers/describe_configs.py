"""DescribeConfigs (key 32), versions 0-4: returns settings, their values and the sources of the values.

v0 has only whether a value is the default, v1 its source and, on request, its synonyms, v3 its type and, on
request, its documentation. Resources are topics, this broker (by its id), the dynamic defaults of all brokers
(by the empty name), the loggers of this broker (KIP-412), subscriptions to client metrics (KIP-714), of which
those that do not exist have no settings, and groups, whether they exist or not.

The settings of topics with a replica here are at hand; those of others are read from ZooKeeper, as Kafka's
broker reads all.
"""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from kalda.broker.config import ConfigStore
from kalda.broker.config.broker_loggers import describe_loggers
from kalda.broker.config.client_metrics import ENTITY_TYPE as CLIENT_METRICS
from kalda.broker.config.config_admin import GROUPS, ResourceType, require_this_broker
from kalda.broker.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_default,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import configs as config_checks
from kalda.broker.topics.topic_names import validate_topic_name
from kalda.cluster.cluster_store import ClusterStore
from kalda.common.api_keys import ApiKey
from kalda.common.config_values import ConfigSource
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.sanitizer import sanitize
from kalda.common.turns import Steps, Turns, first_turn
from kalda.common.types import TopicPartition
from kalda.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kalda.security.acl.model import AclOperation
from kalda.settings import BrokerConfig

_ENTRIES_PER_STEP: Final = 8
_TOPICS_READ_AT_ONCE: Final = 500


class Hosted(Protocol):
    """The replicas of this broker."""

    @property
    def partitions(self) -> Mapping[TopicPartition, object]:
        """The partitions that have one."""
        ...


def handle(
    cache: MetadataCache,
    config: BrokerConfig,
    config_store: ConfigStore,
    cluster: ClusterStore,
    replicas: Hosted,
    broker_id: int,
    request: DescribeConfigsRequest,
    context: RequestContext,
) -> DescribeConfigsResponse | Steps[DescribeConfigsResponse] | Coroutine[Any, Any, DescribeConfigsResponse]:
    """Describe each resource; one that fails does not affect the others."""

    def steps(stored: Mapping[str, Mapping[str, str]]) -> Steps[DescribeConfigsResponse]:
        describe = partial(_describe, cache, config, config_store, stored, broker_id)
        return _describe_each(describe, request, context.api_version)

    async def read_and_describe(topics: Sequence[str]) -> DescribeConfigsResponse:
        stored: dict[str, Mapping[str, str]] = {}
        for start in range(0, len(topics), _TOPICS_READ_AT_ONCE):
            some = topics[start : start + _TOPICS_READ_AT_ONCE]
            stored |= await config_store.stored_topics(cluster, some)
        return await Turns.of_running_loop().result(steps(stored))

    elsewhere = _topics_elsewhere(cache, replicas, request)
    return read_and_describe(elsewhere) if elsewhere else first_turn(steps({}))


def _topics_elsewhere(cache: MetadataCache, replicas: Hosted, request: DescribeConfigsRequest) -> list[str]:
    """Return the topics of a request that exist and have no replica here."""
    names = {
        each.resource_name: None
        for each in request.resources
        if each.resource_type == ResourceType.TOPIC and each.resource_name in cache
    }
    hosted = replicas.partitions
    return [
        name
        for name in names
        if not any(TopicPartition(name, number) in hosted for number in range(cache.partition_count(name)))
    ]


def _describe_each(
    describe: Callable[[DescribeConfigsResource], list[ConfigEntry]],
    request: DescribeConfigsRequest,
    version: int,
) -> Steps[DescribeConfigsResponse]:
    results = []
    for resource in request.resources:
        yield
        try:
            entries = describe(resource)
        except ApiError as error:
            results.append(_failed(resource, error))
            continue
        results.append(
            DescribeConfigsResult(
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[_result(entry, request, version) for entry in entries],
            )
        )
        # All settings of a topic take some 200 microseconds.
        for _ in range(len(entries) // _ENTRIES_PER_STEP):
            yield
    return DescribeConfigsResponse(results=results)


def error_response(request: DescribeConfigsRequest, code: ErrorCode) -> DescribeConfigsResponse:
    """Return a response with the error for each resource."""
    return DescribeConfigsResponse(
        results=[_failed(resource, ApiError(code)) for resource in request.resources]
    )


def _describe(
    cache: MetadataCache,
    config: BrokerConfig,
    config_store: ConfigStore,
    stored: Mapping[str, Mapping[str, str]],
    broker_id: int,
    resource: DescribeConfigsResource,
) -> list[ConfigEntry]:
    name, wanted = resource.resource_name, resource.configuration_keys
    if resource.resource_type == ResourceType.TOPIC:
        validate_topic_name(name)
        if name not in cache:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        overrides = stored[name] if name in stored else config_store.topic_overrides(name)
        return describe_topic(config, overrides, wanted)
    if resource.resource_type == ResourceType.BROKER:
        if not name:
            return describe_broker_default(config, wanted)
        require_this_broker(name, broker_id)
        return describe_broker(config, wanted)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        require_this_broker(name, broker_id)
        return describe_loggers(wanted)
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return describe_client_metrics(config_store.entity(CLIENT_METRICS, sanitize(name)), wanted)
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(config, config_store.entity(GROUPS, sanitize(name)), wanted)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}")


def _result(
    entry: ConfigEntry, request: DescribeConfigsRequest, version: int
) -> DescribeConfigsResourceResult:
    result = DescribeConfigsResourceResult(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        config_type=entry.config_type,
        documentation=entry.documentation if request.include_documentation else None,
    )
    if version == 0:
        result.is_default = entry.source is ConfigSource.DEFAULT_CONFIG
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
    return result


def _failed(resource: DescribeConfigsResource, error: ApiError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_CONFIGS,
    versions=(0, 4),
    build=lambda services: partial(
        handle,
        services.metadata_cache,
        services.config,
        services.config_store,
        services.cluster_store,
        services.replica_manager,
        services.broker_id,
    ),
    error_response=error_response,
    access=config_checks.of_resources(AclOperation.DESCRIBE_CONFIGS, "results"),
)

"""ListConfigResources (key 74), versions 0-1: lists the resources that may have settings (KIP-1142).

v0 was ListClientMetricsResources and lists the subscriptions to clients' metrics only. v1 asks for types of
resources, all that are supported if it names none; of groups, those that have settings of their own.
"""

from collections.abc import Coroutine
from functools import partial
from typing import Final

from kalda.broker.config.client_metrics import ENTITY_TYPE as CLIENT_METRICS
from kalda.broker.config.config_admin import GROUPS
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import cluster
from kalda.cluster.cluster_store import ClusterStore
from kalda.common.api_keys import ApiKey
from kalda.common.config_values import ConfigResourceType
from kalda.common.errors import ErrorCode
from kalda.common.sanitizer import desanitize
from kalda.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from kalda.security.acl.model import AclOperation

_SUPPORTED: Final = frozenset(
    {
        ConfigResourceType.TOPIC,
        ConfigResourceType.BROKER,
        ConfigResourceType.BROKER_LOGGER,
        ConfigResourceType.CLIENT_METRICS,
        ConfigResourceType.GROUP,
    }
)

_STORED: Final = {ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS, ConfigResourceType.GROUP: GROUPS}
"""The types whose names are those of the znodes under ``/config/<type>``."""


def handle(
    cache: MetadataCache,
    cluster_store: ClusterStore,
    request: ListConfigResourcesRequest,
    context: RequestContext,
) -> ListConfigResourcesResponse | Coroutine[None, None, ListConfigResourcesResponse]:
    """Return UNSUPPORTED_VERSION for an unknown type; otherwise list the cluster's resources."""
    if context.api_version == 0:
        return _list(cache, cluster_store, frozenset({ConfigResourceType.CLIENT_METRICS}))
    wanted = frozenset(request.resource_types) or _SUPPORTED
    if not wanted <= _SUPPORTED:
        return error_response(request, ErrorCode.UNSUPPORTED_VERSION)
    return _list(cache, cluster_store, wanted)


def error_response(_: ListConfigResourcesRequest, code: ErrorCode) -> ListConfigResourcesResponse:
    """Return a response with the error."""
    return ListConfigResourcesResponse(error_code=code)


async def _list(
    cache: MetadataCache, cluster_store: ClusterStore, wanted: frozenset[int]
) -> ListConfigResourcesResponse:
    brokers = [str(broker_id) for broker_id in cache.brokers]
    names: dict[ConfigResourceType, list[str]] = {
        ConfigResourceType.TOPIC: list(cache.topic_names),
        ConfigResourceType.BROKER: brokers,
        ConfigResourceType.BROKER_LOGGER: brokers,
    }
    for kind, entity_type in _STORED.items():
        if kind in wanted:
            found = await cluster_store.configs(entity_type)
            # A subscription that was deleted, and a group without settings, leave their empty znodes.
            names[kind] = sorted(desanitize(name) for name, settings in found.items() if settings)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type, of_type in names.items()
            if resource_type in wanted
            for name in of_type
        ]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.LIST_CONFIG_RESOURCES,
    versions=(0, 1),
    build=lambda services: partial(handle, services.metadata_cache, services.cluster_store),
    error_response=error_response,
    access=cluster(AclOperation.DESCRIBE_CONFIGS),
)

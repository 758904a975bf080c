"""IncrementalAlterConfigs (key 44), versions 0-1: changes single dynamic settings (KIP-339).

A setting is set, deleted, or, if it is a list, appended to or subtracted from. Resources are topics, brokers
(this broker by its id, all brokers by the empty name), the loggers of this broker (KIP-412) and subscriptions
to client metrics (KIP-714), which end with their last setting. v1 is flexible.
"""

from functools import partial
from typing import Final

from kalda.broker.config.config_admin import alter_each, resource_response
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import configs as config_checks
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.common.api_keys import ApiKey
from kalda.common.config_values import AlterConfigOpType
from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kalda.security.acl.model import AclOperation
from kalda.settings.change_rules import ConfigChangeRequest

_OPERATIONS: Final = frozenset(AlterConfigOpType)


async def handle(
    topic_admin: TopicAdmin, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> IncrementalAlterConfigsResponse:
    """Change the settings of each resource; one that fails does not affect the others."""

    async def alter(resource: AlterConfigsResource) -> None:
        await topic_admin.configs.alter(
            resource.resource_type,
            resource.resource_name,
            [_change(config) for config in resource.configs],
            keeps_others=True,
            validate_only=request.validate_only,
        )

    responses = await alter_each(request.resources, alter, AlterConfigsResourceResponse)
    return IncrementalAlterConfigsResponse(responses=responses)


def _change(config: AlterableConfig) -> ConfigChangeRequest:
    if config.config_operation not in _OPERATIONS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation {config.config_operation}.")
    return ConfigChangeRequest(config.name, AlterConfigOpType(config.config_operation), config.value)


def error_response(
    request: IncrementalAlterConfigsRequest, code: ErrorCode
) -> IncrementalAlterConfigsResponse:
    """Return a response with the error for each resource."""
    error = ApiError(code)
    return IncrementalAlterConfigsResponse(
        responses=[resource_response(AlterConfigsResourceResponse, each, error) for each in request.resources]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS,
    versions=(0, 1),
    build=lambda services: partial(handle, services.topic_admin),
    error_response=error_response,
    access=config_checks.of_resources(AclOperation.ALTER_CONFIGS, "responses"),
    audit=lambda request: (each.resource_name for each in request.resources),
)

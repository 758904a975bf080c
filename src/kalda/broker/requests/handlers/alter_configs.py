"""AlterConfigs (key 33), versions 0-2: replaces the dynamic settings of topics and brokers.

A resource keeps only the settings that the request names; all others go back to their defaults.
IncrementalAlterConfigs replaces this API (KIP-339). v1 throttles after the response, v2 is flexible.
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
from kalda.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from kalda.security.acl.model import AclOperation
from kalda.settings.change_rules import ConfigChangeRequest


async def handle(
    topic_admin: TopicAdmin, request: AlterConfigsRequest, context: RequestContext
) -> AlterConfigsResponse:
    """Replace the settings of each resource; one that fails does not affect the others."""

    async def alter(resource: AlterConfigsResource) -> None:
        await topic_admin.configs.alter(
            resource.resource_type,
            resource.resource_name,
            [ConfigChangeRequest(each.name, AlterConfigOpType.SET, each.value) for each in resource.configs],
            keeps_others=False,
            validate_only=request.validate_only,
        )

    responses = await alter_each(request.resources, alter, AlterConfigsResourceResponse)
    return AlterConfigsResponse(responses=responses)


def error_response(request: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    """Return a response with the error for each resource."""
    error = ApiError(code)
    return AlterConfigsResponse(
        responses=[resource_response(AlterConfigsResourceResponse, each, error) for each in request.resources]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.ALTER_CONFIGS,
    versions=(0, 2),
    build=lambda services: partial(handle, services.topic_admin),
    error_response=error_response,
    access=config_checks.of_resources(AclOperation.ALTER_CONFIGS, "responses"),
    audit=lambda request: (each.resource_name for each in request.resources),
)

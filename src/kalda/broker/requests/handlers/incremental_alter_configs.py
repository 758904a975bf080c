"""IncrementalAlterConfigs (key 44), versions 0-1: set, delete, append to and subtract from single settings.

Topics, brokers (this one by its id, all of them by the empty name) and this broker's loggers (KIP-412).
"""

from collections import Counter
from collections.abc import Coroutine
from typing import Final

from kalda.broker.config.config_admin import ConfigChangeRequest, ConfigOperation
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

_OPERATIONS: Final = frozenset(ConfigOperation)


def handle(
    services: BrokerServices, request: IncrementalAlterConfigsRequest, context: RequestContext
) -> Coroutine[None, None, IncrementalAlterConfigsResponse]:
    """Change each resource on its own: one that fails leaves the others be."""
    return _alter(services, request)


def error_response(
    request: IncrementalAlterConfigsRequest, code: ErrorCode
) -> IncrementalAlterConfigsResponse:
    """Answer with the error for each resource."""
    return IncrementalAlterConfigsResponse(
        responses=[_response(resource, ApiError(code)) for resource in request.resources]
    )


async def _alter(
    services: BrokerServices, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        error: ApiError | None = None
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            await services.topic_admin.configs.change(
                resource.resource_type,
                resource.resource_name,
                [_change(config) for config in resource.configs],
                validate_only=request.validate_only,
            )
        except ApiError as caught:
            error = caught
        responses.append(_response(resource, error))
    return IncrementalAlterConfigsResponse(responses=responses)


def _change(config: AlterableConfig) -> ConfigChangeRequest:
    if config.config_operation not in _OPERATIONS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation {config.config_operation}.")
    return ConfigChangeRequest(config.name, ConfigOperation(config.config_operation), config.value)


def _response(resource: AlterConfigsResource, error: ApiError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error is not None else ErrorCode.NONE,
        error_message=error.message if error is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.INCREMENTAL_ALTER_CONFIGS, versions=(0, 1), handle=handle, error_response=error_response
)

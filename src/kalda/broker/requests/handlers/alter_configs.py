"""AlterConfigs (key 33), versions 0-2: give a resource exactly the settings named, and no others.

Tools use IncrementalAlterConfigs now; old ones still send this.
"""

from collections import Counter
from collections.abc import Coroutine
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)


def handle(
    services: BrokerServices, request: AlterConfigsRequest, context: RequestContext
) -> Coroutine[None, None, AlterConfigsResponse]:
    """Change each resource on its own: one that fails leaves the others be."""
    return _alter(services, request)


def error_response(request: AlterConfigsRequest, code: ErrorCode) -> AlterConfigsResponse:
    """Answer with the error for each resource."""
    return AlterConfigsResponse(
        responses=[_response(resource, ApiError(code)) for resource in request.resources]
    )


async def _alter(services: BrokerServices, request: AlterConfigsRequest) -> AlterConfigsResponse:
    counts = Counter((resource.resource_type, resource.resource_name) for resource in request.resources)
    responses = []
    for resource in request.resources:
        error: ApiError | None = None
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise ApiError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            names = [config.name for config in resource.configs]
            if len(set(names)) != len(names):
                raise ApiError(ErrorCode.INVALID_REQUEST, "A setting is named twice for one resource.")
            await services.topic_admin.configs.replace(
                resource.resource_type,
                resource.resource_name,
                {config.name: config.value for config in resource.configs},
                validate_only=request.validate_only,
            )
        except ApiError as caught:
            error = caught
        responses.append(_response(resource, error))
    return AlterConfigsResponse(responses=responses)


def _response(resource: AlterConfigsResource, error: ApiError | None) -> AlterConfigsResourceResponse:
    return AlterConfigsResourceResponse(
        error_code=error.code if error is not None else ErrorCode.NONE,
        error_message=error.message if error is not None else None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.ALTER_CONFIGS, versions=(0, 2), handle=handle, error_response=error_response
)

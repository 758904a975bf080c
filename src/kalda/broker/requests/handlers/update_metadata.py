"""UpdateMetadata (key 6), versions 0-8: replaces brokers and partitions in the metadata cache.

The controller sends it. The versions differ in layout only. Whether the sender is a KRaft controller (v8,
KIP-866) makes no difference.
"""

from functools import partial
from typing import Final

from kalda.broker.control_plane.request_builders import read_update_metadata
from kalda.broker.control_plane.requests import ControllerRequests
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import CLUSTER_ACTION
from kalda.broker.requests.large_requests import CONTROLLER_ELEMENTS_MAX
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import Turns
from kalda.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


async def handle(
    controller_requests: ControllerRequests, request: UpdateMetadataRequest, context: RequestContext
) -> UpdateMetadataResponse:
    """Apply the request after those that arrived before it."""
    wanted = await Turns.of_brokers().result(read_update_metadata(request))
    await controller_requests.apply(wanted, request.broker_epoch)
    return UpdateMetadataResponse()


def error_response(request: UpdateMetadataRequest, code: ErrorCode) -> UpdateMetadataResponse:
    """Return a response with the error."""
    return UpdateMetadataResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.UPDATE_METADATA,
    versions=(0, 8),
    build=lambda services: partial(handle, services.controller_requests),
    error_response=error_response,
    elements_max=CONTROLLER_ELEMENTS_MAX,
    access=CLUSTER_ACTION,
    is_of_brokers=True,
    is_throttled=False,
    is_served_early=True,
)

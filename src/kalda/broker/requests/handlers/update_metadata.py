"""UpdateMetadata (key 6), versions 0-8: learn from the controller what to tell clients.

The versions differ in form only. Whether a KRaft controller sends it (v8, KIP-866) makes no difference here.
"""

from typing import Final

from kalda.broker.control_plane.wire import read_update_metadata
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


async def handle(
    services: BrokerServices, request: UpdateMetadataRequest, context: RequestContext
) -> UpdateMetadataResponse:
    """Apply the request behind those that came before."""
    await services.controller_requests.apply(read_update_metadata(request), request.broker_epoch)
    return UpdateMetadataResponse()


def error_response(request: UpdateMetadataRequest, code: ErrorCode) -> UpdateMetadataResponse:
    """Answer with an error."""
    return UpdateMetadataResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.UPDATE_METADATA, versions=(0, 8), handle=handle, error_response=error_response
)

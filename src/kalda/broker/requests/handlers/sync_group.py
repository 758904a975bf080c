"""SyncGroup (key 14), versions 0-5: a member's part of the assignment, which the leader's request brings.

v3 adds static members (KIP-345). v5 tells the protocol's type and name, which must be the group's (KIP-559).
"""

from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_NAMES_REQUIRED_FROM: Final = 5
"""From this version on a request must name the protocol's type and name."""


def handle(
    services: BrokerServices, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    """Answer when the leader's assignment is stored."""
    names_missing = request.protocol_type is None or request.protocol_name is None
    if context.api_version >= _NAMES_REQUIRED_FROM and names_missing:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return services.group_coordinator.sync_group(request)


def error_response(request: SyncGroupRequest, code: ErrorCode) -> SyncGroupResponse:
    """Answer with an error."""
    return SyncGroupResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.SYNC_GROUP, versions=(0, 5), handle=handle, error_response=error_response
)

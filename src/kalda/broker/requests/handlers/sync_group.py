"""SyncGroup (key 14), versions 0-5: distributes the assignment that the group's leader computed.

v3 adds static members (KIP-345). v5 adds the protocol's type and name, which must be the group's (KIP-559).
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_NAMES_REQUIRED_FROM: Final = 5
"""The first version whose requests must have the protocol's type and name."""


def handle(
    coordinator: GroupCoordinator, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Pending[SyncGroupResponse]:
    """Return the member's assignment, once the leader's request has been stored."""
    names_missing = request.protocol_type is None or request.protocol_name is None
    if context.api_version >= _NAMES_REQUIRED_FROM and names_missing:
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    return coordinator.sync_group(request)


def error_response(request: SyncGroupRequest, code: ErrorCode) -> SyncGroupResponse:
    """Return a response with the error."""
    return SyncGroupResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.SYNC_GROUP,
    versions=(0, 5),
    build=lambda services: partial(handle, services.group_coordinator),
    error_response=error_response,
    access=group_checks.MEMBERS,
)

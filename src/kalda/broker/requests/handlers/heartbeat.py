"""Heartbeat (key 12), versions 0-4: keeps a member of a classic group alive and reports rebalances to it.

v2 throttles after the response, v3 adds static members (KIP-345), v4 is flexible.
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    coordinator: GroupCoordinator, request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse:
    """Return REBALANCE_IN_PROGRESS if the member must join again."""
    return HeartbeatResponse(error_code=coordinator.heartbeat(request))


def error_response(request: HeartbeatRequest, code: ErrorCode) -> HeartbeatResponse:
    """Return a response with the error."""
    return HeartbeatResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.HEARTBEAT,
    versions=(0, 4),
    build=lambda services: partial(handle, services.group_coordinator),
    error_response=error_response,
    access=group_checks.MEMBERS,
)

"""Handles ShareGroupHeartbeat."""

from functools import partial
from typing import Final

from kalda.broker.requests.api import Handle, RequestContext
from kalda.broker.requests.checks import share_groups as share_checks
from kalda.broker.requests.services import BrokerServices
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.share.share_group_coordinator import ShareGroupCoordinator
from kalda.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


def handle(
    coordinator: ShareGroupCoordinator, request: ShareGroupHeartbeatRequest, context: RequestContext
) -> Pending[ShareGroupHeartbeatResponse]:
    """Answer when the change that the heartbeat makes is replicated."""
    return coordinator.heartbeat(request, context.client_id or "", f"/{context.connection.peer_address}")


def error_response(request: ShareGroupHeartbeatRequest, code: ErrorCode) -> ShareGroupHeartbeatResponse:
    """Return a response with the error."""
    return ShareGroupHeartbeatResponse(error_code=code)


def build(services: BrokerServices) -> Handle:
    """Bind the handler to the parts of a broker."""
    return partial(handle, services.share.groups)


ACCESS: Final = share_checks.share_group_heartbeat

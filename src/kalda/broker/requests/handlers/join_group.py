"""JoinGroup (key 11), versions 0-9: a member joins a classic group and waits for its next generation.

v1 adds the rebalance timeout. From v4 a new member joins twice (KIP-394); clients of v3 treat
MEMBER_ID_REQUIRED as a failure. v5 adds static members (KIP-345), v7 the protocol type (KIP-559), v8 a
reason, which is logged (KIP-800), v9 skip_assignment for a static leader (KIP-814).
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.classic.join import Requester
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse


def handle(
    coordinator: GroupCoordinator, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Pending[JoinGroupResponse]:
    """Join the group; the response may take as long as the group's rebalance timeout."""
    # Java writes addresses with a leading slash, and tools print the host in the group's record.
    host = f"/{context.connection.peer_address}"
    requester = Requester(context.client_id or "", host, context.api_version)
    return coordinator.join_group(request, requester)


def error_response(request: JoinGroupRequest, code: ErrorCode) -> JoinGroupResponse:
    """Return a response with the error."""
    return JoinGroupResponse(error_code=code, member_id=request.member_id)


HANDLER: Final = ApiHandler(
    key=ApiKey.JOIN_GROUP,
    versions=(0, 9),
    build=lambda services: partial(handle, services.group_coordinator),
    error_response=error_response,
    access=group_checks.MEMBERS,
)

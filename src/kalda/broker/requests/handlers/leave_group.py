"""LeaveGroup (key 13), versions 0-5: members leave a group, or an administrator removes them.

v3 takes many members, static ones by their instance id alone (KIP-345). v5 adds reasons, which are logged
(KIP-800).
"""

import copy
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.requests.request_slices import value_of
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.common.turns import Turns
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_MANY_FROM: Final = 3

_LEAVE_AT_ONCE: Final = 500
"""Members that leave at once, some 0.2 ms; a group has fewer."""


def handle(
    coordinator: GroupCoordinator, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Pending[LeaveGroupResponse] | Coroutine[Any, Any, LeaveGroupResponse]:
    """Remove the members; if the group becomes empty, answer when its record is replicated."""
    if context.api_version < _MANY_FROM:
        request = LeaveGroupRequest(
            group_id=request.group_id, members=[MemberIdentity(member_id=request.member_id)]
        )
    if len(request.members) > _LEAVE_AT_ONCE:
        return _leave_in_turns(coordinator, request)
    response = coordinator.leave_group(request)
    if context.api_version >= _MANY_FROM or not isinstance(response, Pending):
        return response

    def flatten(done: Pending[LeaveGroupResponse]) -> LeaveGroupResponse:
        # Below v3 the error of the one member is the error of the response.
        (member,) = done.value.members
        return LeaveGroupResponse(error_code=member.error_code)

    return response.then(flatten)


async def _leave_in_turns(coordinator: GroupCoordinator, request: LeaveGroupRequest) -> LeaveGroupResponse:
    """Remove some members after the other, as several requests would."""
    response = LeaveGroupResponse()
    for start in range(0, len(request.members), _LEAVE_AT_ONCE):
        part = copy.copy(request)
        part.members = request.members[start : start + _LEAVE_AT_ONCE]
        left = coordinator.leave_group(part)
        done = await value_of(left) if isinstance(left, Pending) else left
        await Turns.of_running_loop().wait()
        if done.error_code != ErrorCode.NONE:
            return done
        response.members += done.members
    return response


def error_response(request: LeaveGroupRequest, code: ErrorCode) -> LeaveGroupResponse:
    """Return a response with the error."""
    return LeaveGroupResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.LEAVE_GROUP,
    versions=(0, 5),
    build=lambda services: partial(handle, services.group_coordinator),
    error_response=error_response,
    access=group_checks.MEMBERS,
)

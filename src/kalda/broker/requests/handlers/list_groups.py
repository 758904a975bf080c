"""ListGroups (key 16), versions 0-5: returns the groups that this broker coordinates.

v4 filters by state (KIP-518), v5 by type (KIP-848); both ignore case. While partitions are loading, the
response has the groups loaded so far and COORDINATOR_LOAD_IN_PROGRESS.
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.common.turns import Steps, first_turn
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

_NAMES_PER_STEP: Final = 32


def handle(
    coordinator: GroupCoordinator, request: ListGroupsRequest, context: RequestContext
) -> Pending[ListGroupsResponse] | Steps[Pending[ListGroupsResponse]]:
    """Answer when everything in the response is committed."""
    return first_turn(_list(coordinator, request))


def _list(coordinator: GroupCoordinator, request: ListGroupsRequest) -> Steps[Pending[ListGroupsResponse]]:
    def answer(done: Pending[tuple[ErrorCode, list[ListedGroup]]]) -> ListGroupsResponse:
        code, groups = done.value
        return ListGroupsResponse(error_code=code, groups=groups)

    states = yield from _distinct(request.states_filter)
    types = yield from _distinct(request.types_filter)
    listed = yield from coordinator.list_groups(states, types)
    return listed.then(answer)


def _distinct(names: list[str]) -> Steps[set[str]]:
    """Return each name once, in lowercase."""
    found: set[str] = set()
    for number, name in enumerate(names):
        if number % _NAMES_PER_STEP == _NAMES_PER_STEP - 1:
            yield
        found.add(name.strip().lower())
    return found


def error_response(request: ListGroupsRequest, code: ErrorCode) -> ListGroupsResponse:
    """Return a response with the error."""
    return ListGroupsResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.LIST_GROUPS,
    versions=(0, 5),
    build=lambda services: partial(handle, services.group_coordinator),
    error_response=error_response,
    access=group_checks.list_groups,
)

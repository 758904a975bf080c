"""DescribeGroups (key 15), versions 0-6: returns the state and the members of classic groups.

v3 adds the authorized operations (KIP-430), v4 the instance ids of static members (KIP-345). A group that
does not exist, or uses another protocol, is GROUP_ID_NOT_FOUND from v6 (KIP-1043) and in state Dead before.
"""

from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any, Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.authorized_operations import set_group_operations
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.requests.request_slices import answer_in_slices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(
    coordinator: GroupCoordinator, request: DescribeGroupsRequest, context: RequestContext
) -> Pending[DescribeGroupsResponse] | Coroutine[Any, Any, DescribeGroupsResponse]:
    """Answer when everything in the response is committed."""

    def respond(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            set_group_operations(groups)
        return DescribeGroupsResponse(groups=groups)

    def describe(group_ids: Sequence[str]) -> Pending[list[DescribedGroup]]:
        return coordinator.describe_groups(group_ids, context.api_version)

    return answer_in_slices(request.groups, describe, respond)


def error_response(request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    """Return a response with the error for each group."""
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.groups]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_GROUPS,
    versions=(0, 6),
    build=lambda services: partial(handle, services.group_coordinator),
    error_response=error_response,
    access=group_checks.described("groups"),
)

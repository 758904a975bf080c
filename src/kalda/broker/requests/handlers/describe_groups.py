"""DescribeGroups (key 15), versions 0-6: state and members of classic groups.

v3 tells what the client may do with a group (KIP-430), v4 the static members' instance ids (KIP-345). From v6
on a group that does not exist, or speaks another protocol, is GROUP_ID_NOT_FOUND (KIP-1043); before, Dead.
"""

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.authorized_operations import tell_group_operations
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.slices import SLICE, in_slices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.protocol.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(
    services: BrokerServices, request: DescribeGroupsRequest, context: RequestContext
) -> Pending[DescribeGroupsResponse] | Coroutine[Any, Any, DescribeGroupsResponse]:
    """Answer when everything that is told is committed."""

    def answer(groups: list[DescribedGroup]) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            tell_group_operations(groups)
        return DescribeGroupsResponse(groups=groups)

    def describe(group_ids: Sequence[str]) -> Pending[list[DescribedGroup]]:
        return services.group_coordinator.describe_groups(group_ids, context.api_version)

    if len(request.groups) > SLICE:
        return _describe_many(request.groups, describe, answer)
    return describe(request.groups).then(lambda done: answer(done.value))


async def _describe_many(
    group_ids: Sequence[str],
    describe: Callable[[Sequence[str]], Pending[list[DescribedGroup]]],
    answer: Callable[[list[DescribedGroup]], DescribeGroupsResponse],
) -> DescribeGroupsResponse:
    return answer(await in_slices(group_ids, describe))


def error_response(request: DescribeGroupsRequest, code: ErrorCode) -> DescribeGroupsResponse:
    """Answer with an error for each group."""
    return DescribeGroupsResponse(
        groups=[DescribedGroup(group_id=group_id, error_code=code) for group_id in request.groups]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_GROUPS, versions=(0, 6), handle=handle, error_response=error_response
)

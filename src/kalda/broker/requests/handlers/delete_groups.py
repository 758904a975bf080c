"""DeleteGroups (key 42), versions 0-2: forget groups without members, and their offsets (KIP-229).

v1 throttles after the response, v2 is flexible.
"""

from collections.abc import Coroutine
from typing import Any, Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.slices import SLICE, in_slices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(
    services: BrokerServices, request: DeleteGroupsRequest, context: RequestContext
) -> Pending[DeleteGroupsResponse] | Coroutine[Any, Any, DeleteGroupsResponse]:
    """Answer when every deletion is committed or refused."""
    if len(request.groups_names) > SLICE:
        return _delete_many(services, request)
    deleted = services.group_coordinator.delete_groups(request.groups_names)
    return deleted.then(lambda done: DeleteGroupsResponse(results=_results(done.value)))


async def _delete_many(services: BrokerServices, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    coordinator = services.group_coordinator
    codes = await in_slices(
        list(dict.fromkeys(request.groups_names)),
        lambda names: coordinator.delete_groups(names).then(lambda done: list(done.value.items())),
    )
    return DeleteGroupsResponse(results=_results(dict(codes)))


def error_response(request: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    """Answer with an error for each group."""
    return DeleteGroupsResponse(results=_results(dict.fromkeys(request.groups_names, code)))


def _results(codes: dict[str, ErrorCode]) -> list[DeletableGroupResult]:
    return [DeletableGroupResult(group_id=group_id, error_code=code) for group_id, code in codes.items()]


HANDLER: Final = ApiHandler(
    key=ApiKey.DELETE_GROUPS, versions=(0, 2), handle=handle, error_response=error_response
)

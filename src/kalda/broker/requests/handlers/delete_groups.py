"""DeleteGroups (key 42), versions 0-3: deletes groups without members, with their offsets (KIP-229).

v1 throttles after the response, v2 is flexible, v3 adds messages.
"""

from collections.abc import Coroutine, Sequence
from functools import partial
from itertools import starmap
from typing import Any, Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import groups as group_checks
from kalda.broker.requests.request_slices import answer_in_slices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from kalda.security.acl.model import AclOperation


def handle(
    coordinator: GroupCoordinator, request: DeleteGroupsRequest, context: RequestContext
) -> Pending[DeleteGroupsResponse] | Coroutine[Any, Any, DeleteGroupsResponse]:
    """Answer when each deletion is committed or refused."""

    def delete(names: Sequence[str]) -> Pending[list[DeletableGroupResult]]:
        deleted = coordinator.delete_groups(names, context.author)
        return deleted.then(lambda done: list(starmap(_result, done.value.items())))

    return answer_in_slices(list(dict.fromkeys(request.groups_names)), delete, _response)


def _response(results: list[DeletableGroupResult]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=results)


def _result(group_id: str, code: ErrorCode) -> DeletableGroupResult:
    return DeletableGroupResult(
        group_id=group_id,
        error_code=code,
        error_message=None if code is ErrorCode.NONE else code.message,
    )


def error_response(request: DeleteGroupsRequest, code: ErrorCode) -> DeleteGroupsResponse:
    """Return a response with the error for each group."""
    return _response([_result(name, code) for name in dict.fromkeys(request.groups_names)])


HANDLER: Final = ApiHandler(
    key=ApiKey.DELETE_GROUPS,
    versions=(0, 3),
    build=lambda services: partial(handle, services.group_coordinator),
    error_response=error_response,
    access=group_checks.named(AclOperation.DELETE, "groups_names", "results"),
    audit=lambda request: request.groups_names,
)

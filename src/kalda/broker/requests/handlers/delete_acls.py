"""DeleteAcls (key 31), versions 0-3: deletes the ACLs that match filters (KIP-140, KIP-290)."""

import logging
from collections.abc import Coroutine
from functools import partial
from typing import Final

from kalda.broker.requests.acl_bindings import DISABLED, read_filter, write_error
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import ALTER_CLUSTER
from kalda.broker.security.authorizer import Authorizer
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, between, first_turn, result_of
from kalda.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kalda.security.acl.model import AclBinding, ResourcePattern
from kalda.zookeeper.errors import BadArgumentsError, ZooKeeperError

logger: Final = logging.getLogger(__name__)


def handle(
    authorizer: Authorizer | None, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse | Steps[DeleteAclsResponse] | Coroutine[None, None, DeleteAclsResponse]:
    """Delete what each filter matches."""
    if authorizer is None:
        return first_turn(_answer(request, ErrorCode.SECURITY_DISABLED, DISABLED))
    return _delete(authorizer, request, context)


async def _delete(
    authorizer: Authorizer, request: DeleteAclsRequest, context: RequestContext
) -> DeleteAclsResponse:
    results = []
    for index, each in enumerate(request.filters):
        await between(index)
        result = DeleteAclsFilterResult()
        try:
            result.matching_acls = await _delete_matching(authorizer, each, context)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    return DeleteAclsResponse(filter_results=results)


async def _delete_matching(
    authorizer: Authorizer, wanted: DeleteAclsFilter, context: RequestContext
) -> list[DeleteAclsMatchingAcl]:
    """Delete what one filter matches, and return it.

    Raises:
        ApiError: INVALID_REQUEST, the filter has an unknown number; or ZooKeeper does not answer.
    """
    read = read_filter(
        wanted.resource_type_filter,
        wanted.resource_name_filter,
        wanted.pattern_type_filter,
        wanted.principal_filter,
        wanted.host_filter,
        wanted.operation,
        wanted.permission_type,
    )
    if read.only_pattern is not None:
        # Else a right that another broker has just given would stay, and the answer be that there is none.
        try:
            await authorizer.refresh(read.only_pattern)
        except BadArgumentsError:
            # No ACL can have such a name.
            return []
        except ZooKeeperError as error:
            text = f"ACLs of {read.only_pattern} could not be read: {error}"
            raise ApiError(write_error(error), text) from error
    found = authorizer.find(read)
    by_pattern: dict[ResourcePattern, list[AclBinding]] = {}
    for binding in found:
        by_pattern.setdefault(binding.pattern, []).append(binding)
    matching = []
    for pattern, bindings in by_pattern.items():
        code, message = ErrorCode.NONE, None
        try:
            await authorizer.delete(pattern, [binding.entry for binding in bindings])
            logger.info("principal %s deleted %d ACLs of %s", context.principal, len(bindings), pattern)
        except ZooKeeperError as error:
            code, message = write_error(error), f"ACLs of {pattern} could not be deleted: {error}"
        matching += [_matched(binding, code, message) for binding in bindings]
    return matching


def _matched(binding: AclBinding, code: ErrorCode, message: str | None) -> DeleteAclsMatchingAcl:
    pattern, entry = binding.pattern, binding.entry
    return DeleteAclsMatchingAcl(
        error_code=code,
        error_message=message,
        resource_type=pattern.resource_type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def error_response(request: DeleteAclsRequest, code: ErrorCode) -> DeleteAclsResponse:
    """Return a response with the error for each filter."""
    return result_of(_answer(request, code, code.message))


def _answer(request: DeleteAclsRequest, code: ErrorCode, message: str) -> Steps[DeleteAclsResponse]:
    response = DeleteAclsResponse()
    for _ in request.filters:
        yield
        response.filter_results.append(DeleteAclsFilterResult(error_code=code, error_message=message))
    return response


HANDLER: Final = ApiHandler(
    key=ApiKey.DELETE_ACLS,
    versions=(0, 3),
    build=lambda services: partial(handle, services.access.authorizer),
    error_response=error_response,
    access=ALTER_CLUSTER,
    audit=lambda request: (each.resource_name_filter for each in request.filters),
)

"""CreateAcls (key 30), versions 0-3: adds ACLs (KIP-140, KIP-290)."""

import logging
from collections.abc import Coroutine
from functools import partial
from typing import Final

from kalda.broker.requests.acl_bindings import DISABLED, read_binding, write_error
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import ALTER_CLUSTER
from kalda.broker.security.authorizer import Authorizer
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, between, first_turn, result_of
from kalda.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kalda.security.acl.model import AclBinding, ResourcePattern
from kalda.zookeeper.errors import ZooKeeperError

logger: Final = logging.getLogger(__name__)


def handle(
    authorizer: Authorizer | None, request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse | Steps[CreateAclsResponse] | Coroutine[None, None, CreateAclsResponse]:
    """Add the ACLs; those of one pattern are added together."""
    if authorizer is None:
        return first_turn(_answer(request, ErrorCode.SECURITY_DISABLED, DISABLED))
    return _create(authorizer, request, context)


async def _create(
    authorizer: Authorizer, request: CreateAclsRequest, context: RequestContext
) -> CreateAclsResponse:
    results: list[AclCreationResult] = []
    by_pattern: dict[ResourcePattern, list[tuple[int, AclBinding]]] = {}
    for index, creation in enumerate(request.creations):
        await between(index)
        results.append(AclCreationResult())
        try:
            binding = read_binding(
                creation.resource_type,
                creation.resource_name,
                creation.resource_pattern_type,
                creation.principal,
                creation.host,
                creation.operation,
                creation.permission_type,
            )
        except ApiError as error:
            results[index].error_code, results[index].error_message = error.code, error.message
        else:
            by_pattern.setdefault(binding.pattern, []).append((index, binding))
    for pattern, found in by_pattern.items():
        try:
            await authorizer.create([binding for _, binding in found])
        except ZooKeeperError as error:
            for index, _ in found:
                results[index].error_code = write_error(error)
                results[index].error_message = f"ACLs of {pattern} could not be written: {error}"
        else:
            logger.info("principal %s added %d ACLs to %s", context.principal, len(found), pattern)
    return CreateAclsResponse(results=results)


def error_response(request: CreateAclsRequest, code: ErrorCode) -> CreateAclsResponse:
    """Return a response with the error for each ACL."""
    return result_of(_answer(request, code, code.message))


def _answer(request: CreateAclsRequest, code: ErrorCode, message: str) -> Steps[CreateAclsResponse]:
    response = CreateAclsResponse()
    for _ in request.creations:
        yield
        response.results.append(AclCreationResult(error_code=code, error_message=message))
    return response


HANDLER: Final = ApiHandler(
    key=ApiKey.CREATE_ACLS,
    versions=(0, 3),
    build=lambda services: partial(handle, services.access.authorizer),
    error_response=error_response,
    access=ALTER_CLUSTER,
    audit=lambda request: (each.resource_name for each in request.creations),
)

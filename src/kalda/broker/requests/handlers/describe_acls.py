"""DescribeAcls (key 29), versions 0-3: lists the ACLs that match a filter (KIP-140, KIP-290)."""

from functools import partial
from typing import Final

from kalda.broker.requests.acl_bindings import DISABLED, read_filter
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import DESCRIBE_CLUSTER
from kalda.broker.security.authorizer import Authorizer
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from kalda.security.acl.model import PatternType, ResourcePattern


def handle(
    authorizer: Authorizer | None, request: DescribeAclsRequest, context: RequestContext
) -> DescribeAclsResponse:
    """Return the patterns with matching entries.

    Raises:
        ApiError: INVALID_REQUEST, the filter has an unknown number.
    """
    if authorizer is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=DISABLED)
    wanted = read_filter(
        request.resource_type_filter,
        request.resource_name_filter,
        request.pattern_type_filter,
        request.principal_filter,
        request.host_filter,
        request.operation,
        request.permission_type,
    )
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    for binding in authorizer.find(wanted):
        pattern, entry = binding.pattern, binding.entry
        if pattern not in resources:
            resources[pattern] = DescribeAclsResource(
                resource_type=pattern.resource_type,
                resource_name=pattern.name,
                pattern_type=pattern.pattern_type,
            )
        resources[pattern].acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    found = list(resources.values())
    if context.api_version == 0:
        # Clients of this version know literal patterns only.
        found = [each for each in found if each.pattern_type == PatternType.LITERAL]
    return DescribeAclsResponse(resources=found)


def error_response(request: DescribeAclsRequest, code: ErrorCode) -> DescribeAclsResponse:
    """Return a response with the error."""
    return DescribeAclsResponse(error_code=code, error_message=code.message)


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_ACLS,
    versions=(0, 3),
    build=lambda services: partial(handle, services.access.authorizer),
    error_response=error_response,
    access=DESCRIBE_CLUSTER,
)

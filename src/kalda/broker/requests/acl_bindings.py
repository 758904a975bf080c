"""Reads bindings and filters of ACLs from requests, with Kafka's checks."""

from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.security.acl.hosts import check_host
from kalda.security.acl.model import (
    CLUSTER_NAME,
    RESOURCE_OPERATIONS,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)
from kalda.zookeeper.errors import ConnectionLossError, SessionExpiredError, ZooKeeperError

DISABLED: Final = "No Authorizer is configured on the broker"
_CONCRETE_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_CONCRETE_PERMISSIONS: Final = (PermissionType.ALLOW, PermissionType.DENY)


def read_filter(
    resource_type: int,
    name: str | None,
    pattern_type: int,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """Return a filter.

    Raises:
        ApiError: INVALID_REQUEST, a number is not known.
    """
    found = AclFilter(
        ResourceType.of(resource_type),
        name,
        PatternType.of(pattern_type),
        principal,
        host,
        AclOperation.of(operation),
        PermissionType.of(permission),
    )
    if 0 in (found.resource_type, found.pattern_type, found.operation, found.permission):
        raise ApiError(ErrorCode.INVALID_REQUEST, "The ACL filter contains unknown elements.")
    return found


def read_binding(
    resource_type: int,
    name: str,
    pattern_type: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> AclBinding:
    """Return a binding to add.

    Raises:
        ApiError: INVALID_REQUEST, or UNSUPPORTED_VERSION where Kafka has it, with the reason.
    """
    kind = ResourceType.of(resource_type)
    binding = AclBinding(
        ResourcePattern(kind, name, PatternType.of(pattern_type)),
        AccessControlEntry(principal, host, AclOperation.of(operation), PermissionType.of(permission)),
    )
    reason = _objection(binding)
    if reason is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, reason)
    return binding


def _objection(binding: AclBinding) -> str | None:
    pattern, entry = binding.pattern, binding.entry
    kind = pattern.resource_type
    if kind not in RESOURCE_OPERATIONS:
        return f"Resource type {kind.name} is not allowed here."
    if pattern.pattern_type not in _CONCRETE_PATTERNS:
        return f"Pattern type {pattern.pattern_type.name} is not allowed here; use LITERAL or PREFIXED."
    if entry.permission not in _CONCRETE_PERMISSIONS:
        return f"Permission type {entry.permission.name} is not allowed here; use ALLOW or DENY."
    if entry.operation is not AclOperation.ALL and entry.operation not in RESOURCE_OPERATIONS[kind]:
        return f"Operation {entry.operation.name} is not possible on a {kind.title}."
    if not pattern.name:
        return "The resource name is empty."
    if kind is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if "/" in pattern.name:
        return f"The resource name {pattern.name} has a slash, which ZooKeeper cannot keep."
    principal_type, separator, principal_name = entry.principal.partition(":")
    if not separator or not principal_type or not principal_name:
        return f"The principal {entry.principal} is not of the form TYPE:NAME, such as User:alice."
    try:
        check_host(entry.host)
    except ValueError as error:
        return str(error)
    return None


def write_error(error: ZooKeeperError) -> ErrorCode:
    """Return the code of ACLs that could not be written; clients send the request again after some."""
    if isinstance(error, ConnectionLossError | SessionExpiredError):
        # The change may or may not have been made; made twice it is the same.
        return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.UNKNOWN_SERVER_ERROR

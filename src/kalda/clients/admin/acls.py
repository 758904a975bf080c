"""Implements the admin client's operations on ACLs: methods, requests and responses.

The values are those that brokers and clients share.
"""

from collections.abc import Callable, Iterable, Sequence

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import AnyBroker
from kalda.clients.errors import UnsupportedApiError
from kalda.common.api_keys import ApiKey
from kalda.common.overriding import override
from kalda.protocol.messages import AUTHORIZED_OPERATIONS_UNKNOWN
from kalda.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from kalda.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kalda.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kalda.security.acl.model import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    PermissionType,
    ResourcePattern,
    ResourceType,
)

__all__ = [
    "AccessControlEntry",
    "AclBinding",
    "AclFilter",
    "AclOperation",
    "PatternType",
    "PermissionType",
    "ResourcePattern",
    "ResourceType",
]


_ALL = AclFilter()


class AclMethods(AdminMethods):
    """Describes, creates and deletes ACLs (KIP-140, KIP-290)."""

    async def describe_acls(
        self, wanted: AclFilter = _ALL, *, timeout_ms: int | None = None
    ) -> list[AclBinding]:
        """List ACLs.

        Args:
            wanted: Which; all unless given.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Raises:
            ClientError: no broker answered in time, or this client may not describe the cluster.
        """
        return (await self._run(DescribeAcls(), [wanted], timeout_ms, outcomes=False))[wanted]

    async def create_acls(
        self, bindings: Iterable[AclBinding], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[AclBinding, None]:
        """Add ACLs; existing ones stay.

        Args:
            bindings: The ACLs.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By ACL, None or the error: INVALID_REQUEST, SECURITY_DISABLED and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(CreateAcls(), dict.fromkeys(bindings), timeout_ms, outcomes=outcomes)

    async def delete_acls(
        self, filters: Iterable[AclFilter], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[AclFilter, list[AclBinding]]:
        """Delete the ACLs that filters match.

        Args:
            filters: Which.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By filter, the ACLs that were deleted, or the error.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        return await self._run(DeleteAcls(), dict.fromkeys(filters), timeout_ms, outcomes=outcomes)


_PATTERNS_FROM = 1


class DescribeAcls(AdminOperation[AclFilter, list[AclBinding]]):
    """Lists the ACLs that a filter matches; the key is the filter."""

    title = "describe ACLs"
    route = AnyBroker()

    def requests(
        self, keys: Sequence[AclFilter], context: RequestContext
    ) -> Iterable[AdminRequest[AclFilter, list[AclBinding]]]:
        """Ask for each filter."""
        version = context.versions.latest(ApiKey.DESCRIBE_ACLS)
        for key in keys:
            _check_version(key.pattern_type, version)
            yield AdminRequest.of(_describe(key, version), DescribeAclsResponse, [key], _reader(key))

    @override
    def what(self, key: AclFilter) -> str:
        return self.title


def _reader(key: AclFilter) -> Callable[[DescribeAclsResponse, Answers[AclFilter, list[AclBinding]]], None]:
    def read(response: DescribeAclsResponse, answers: Answers[AclFilter, list[AclBinding]]) -> None:
        if response.error_code:
            answers.fail(key, response.error_code, response.error_message)
            return
        answers.succeed(
            key,
            [
                AclBinding(
                    ResourcePattern(
                        ResourceType.of(resource.resource_type),
                        resource.resource_name,
                        PatternType.of(resource.pattern_type),
                    ),
                    _entry(acl.principal, acl.host, acl.operation, acl.permission_type),
                )
                for resource in response.resources
                for acl in resource.acls
            ],
        )

    return read


class CreateAcls(AdminOperation[AclBinding, None]):
    """Adds ACLs."""

    title = "create ACL"
    route = AnyBroker()

    def requests(
        self, keys: Sequence[AclBinding], context: RequestContext
    ) -> Iterable[AdminRequest[AclBinding, None]]:
        """Send all in one request."""
        version = context.versions.latest(ApiKey.CREATE_ACLS)
        for key in keys:
            _check_version(key.pattern.pattern_type, version)
        message = CreateAclsRequest(
            creations=[
                AclCreation(
                    resource_type=key.pattern.resource_type,
                    resource_name=key.pattern.name,
                    resource_pattern_type=key.pattern.pattern_type,
                    principal=key.entry.principal,
                    host=key.entry.host,
                    operation=key.entry.operation,
                    permission_type=key.entry.permission,
                )
                for key in keys
            ]
        )

        def read(response: CreateAclsResponse, answers: Answers[AclBinding, None]) -> None:
            for key, result in zip(keys, response.results, strict=True):
                if result.error_code:
                    answers.fail(key, result.error_code, result.error_message)
                else:
                    answers.succeed(key, None)

        yield AdminRequest.of(message, CreateAclsResponse, keys, read)

    @override
    def what(self, key: AclBinding) -> str:
        return f"{self.title} of {key.pattern}"


class DeleteAcls(AdminOperation[AclFilter, list[AclBinding]]):
    """Deletes the ACLs that filters match."""

    title = "delete ACLs"
    route = AnyBroker()

    def requests(
        self, keys: Sequence[AclFilter], context: RequestContext
    ) -> Iterable[AdminRequest[AclFilter, list[AclBinding]]]:
        """Send all in one request."""
        version = context.versions.latest(ApiKey.DELETE_ACLS)
        for key in keys:
            _check_version(key.pattern_type, version)
        message = DeleteAclsRequest(filters=[_delete(key, version) for key in keys])

        def read(response: DeleteAclsResponse, answers: Answers[AclFilter, list[AclBinding]]) -> None:
            for key, result in zip(keys, response.filter_results, strict=True):
                failed = next((acl for acl in result.matching_acls if acl.error_code), None)
                if result.error_code:
                    answers.fail(key, result.error_code, result.error_message)
                elif failed is not None:
                    answers.fail(key, failed.error_code, failed.error_message)
                else:
                    answers.succeed(key, [_matched(acl) for acl in result.matching_acls])

        yield AdminRequest.of(message, DeleteAclsResponse, keys, read)

    @override
    def what(self, key: AclFilter) -> str:
        return self.title


def _check_version(pattern_type: PatternType, version: int) -> None:
    """Refuse patterns that are not literal for a broker before 2.0, which would misread them.

    Raises:
        UnsupportedApiError: the broker is older.
    """
    if version < _PATTERNS_FROM and pattern_type not in (PatternType.LITERAL, PatternType.ANY):
        raise UnsupportedApiError(
            f"brokers before 2.0 have no ACLs of pattern type {pattern_type.name}; use LITERAL"
        )


def _pattern_type(wanted: AclFilter, version: int) -> PatternType:
    return PatternType.LITERAL if version < _PATTERNS_FROM else wanted.pattern_type


def _describe(wanted: AclFilter, version: int) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=_pattern_type(wanted, version),
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _delete(wanted: AclFilter, version: int) -> DeleteAclsFilter:
    return DeleteAclsFilter(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=_pattern_type(wanted, version),
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _matched(acl: DeleteAclsMatchingAcl) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            ResourceType.of(acl.resource_type), acl.resource_name, PatternType.of(acl.pattern_type)
        ),
        _entry(acl.principal, acl.host, acl.operation, acl.permission_type),
    )


def _entry(principal: str, host: str, operation: int, permission: int) -> AccessControlEntry:
    return AccessControlEntry(principal, host, AclOperation.of(operation), PermissionType.of(permission))


def operations_from_bits(bits: int) -> frozenset[AclOperation] | None:
    """Read a response's bit set, in which bit n stands for operation n; None when the broker did not fill it.

    Operations that only a newer broker knows are left out.

    >>> sorted(operations_from_bits(0b1001000))
    [<AclOperation.READ: 3>, <AclOperation.DELETE: 6>]
    """
    if bits == AUTHORIZED_OPERATIONS_UNKNOWN:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)

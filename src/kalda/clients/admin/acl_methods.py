"""Holds the admin client's methods on ACLs."""

from collections.abc import Iterable

from kalda.clients.admin.acls import AclBinding, AclFilter
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes

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
        from kalda.clients.admin.acl_calls import DescribeAcls

        return (await self._run(DescribeAcls(), [wanted], timeout_ms, outcomes=False))[wanted]

    async def create_acls(
        self, bindings: Iterable[AclBinding], *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[AclBinding, None]:
        """Add ACLs; one that is there already stays.

        Args:
            bindings: The ACLs.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By ACL, None or the error: INVALID_REQUEST, SECURITY_DISABLED and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.acl_calls import CreateAcls

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
        from kalda.clients.admin.acl_calls import DeleteAcls

        return await self._run(DeleteAcls(), dict.fromkeys(filters), timeout_ms, outcomes=outcomes)

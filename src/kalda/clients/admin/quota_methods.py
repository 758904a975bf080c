"""Holds the admin client's methods on client quotas."""

from collections.abc import Iterable

from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.quotas import QuotaAlteration, QuotaEntity, QuotaFilter


class QuotaMethods(AdminMethods):
    """Describes and alters quotas of users, client ids and addresses (brokers 2.6 and newer, KIP-546)."""

    async def describe_client_quotas(
        self, filters: Iterable[QuotaFilter] = (), *, strict: bool = False, timeout_ms: int | None = None
    ) -> dict[QuotaEntity, dict[str, float]]:
        """Describe the quotas of entities.

        Args:
            filters: What the parts of an entity's name must be; without a filter, all entities.
            strict: Whether entities with other parts in their names are left out.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By entity, the values of its quotas by name.

        Raises:
            ClientError: a filter is not possible, or no broker answered in time.
        """
        from kalda.clients.admin.quota_calls import DescribeQuotas

        return await self._run_one(DescribeQuotas(filters, is_strict=strict), timeout_ms)

    async def alter_client_quotas(
        self,
        alterations: Iterable[QuotaAlteration],
        *,
        validate_only: bool = False,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[QuotaEntity, None]:
        """Set and remove quotas.

        Args:
            alterations: What to change; the changes of one entity are made together or not at all.
            validate_only: Whether to check the changes only.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By entity, None or the error: INVALID_REQUEST for a quota that does not exist or a bad value.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.quota_calls import AlterQuotas

        operation = AlterQuotas(alterations, validate_only=validate_only)
        return await self._run(operation, operation.entities, timeout_ms, outcomes=outcomes)

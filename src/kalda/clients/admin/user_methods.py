"""Holds the admin client's methods on users and their credentials."""

from collections.abc import Iterable

from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.users import ScramCredentialAlteration, ScramCredentialInfo


class UserMethods(AdminMethods):
    """Describes and alters the SCRAM credentials of users (brokers 2.7 and newer, KIP-554)."""

    async def describe_user_scram_credentials(
        self, users: Iterable[str] | None = None, *, outcomes: bool = False, timeout_ms: int | None = None
    ) -> Outcomes[str, list[ScramCredentialInfo]]:
        """Describe by which mechanisms users can log in.

        Args:
            users: The users; None for all that have a credential.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By user, the credentials without their secrets, or the error: RESOURCE_NOT_FOUND.

        Raises:
            ClientError: one of them failed and `outcomes` is not set, or `users` is
                None and no broker answered in time.
        """
        from kalda.clients.admin.user_calls import DescribeUser, DescribeUsers

        if users is not None:
            return await self._run(DescribeUser(), users, timeout_ms, outcomes=outcomes)
        found = await self._run_one(DescribeUsers(), timeout_ms)
        return Outcomes(found)

    async def alter_user_scram_credentials(
        self,
        alterations: Iterable[ScramCredentialAlteration],
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[str, None]:
        """Set and delete credentials. Passwords are hashed by this client and never sent.

        Args:
            alterations: What to set and delete; the changes of one user are made together or not at all.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By user, None or the error: RESOURCE_NOT_FOUND, UNACCEPTABLE_CREDENTIAL and others.

        Raises:
            ClientError: one of them failed, and `outcomes` is not set.
        """
        from kalda.clients.admin.user_calls import AlterUsers

        operation = AlterUsers(alterations)
        return await self._run(operation, operation.users, timeout_ms, outcomes=outcomes)

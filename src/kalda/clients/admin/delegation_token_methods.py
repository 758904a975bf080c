"""Holds the admin client's methods on delegation tokens."""

from collections.abc import Iterable

from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.delegation_tokens import DelegationToken
from kalda.security.principal import KafkaPrincipal


class DelegationTokenMethods(AdminMethods):
    """Creates, renews, ends and lists delegation tokens (brokers 1.1 and newer, KIP-48).

    All methods raise `BrokerResponseError`: DELEGATION_TOKEN_AUTH_DISABLED if the cluster has no tokens,
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED if this client has not logged in, or did so with a token.
    """

    async def create_delegation_token(
        self,
        renewers: Iterable[KafkaPrincipal] = (),
        *,
        owner: KafkaPrincipal | None = None,
        max_lifetime_ms: int = -1,
        timeout_ms: int | None = None,
    ) -> DelegationToken:
        """Make a token.

        Args:
            renewers: Who may renew it besides its owner.
            owner: Who logs in by it; this client's principal unless given.
            max_lifetime_ms: How long it can live with renewals; the broker's limit unless given.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.
        """
        from kalda.clients.admin.delegation_token_calls import CreateDelegationToken

        operation = CreateDelegationToken(owner, tuple(renewers), max_lifetime_ms)
        return await self._run_one(operation, timeout_ms)

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Let a token end `renew_period_ms` from now, the broker's default unless given.

        Returns:
            When it ends, in milliseconds since 1970; never later than its limit.
        """
        from kalda.clients.admin.delegation_token_calls import MoveDelegationTokenEnd

        return await self._run_one(MoveDelegationTokenEnd(hmac, renew_period_ms, renews=True), timeout_ms)

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Let a token end `expiry_period_ms` from now, or delete it unless given.

        Returns:
            When it ends, in milliseconds since 1970.
        """
        from kalda.clients.admin.delegation_token_calls import MoveDelegationTokenEnd

        return await self._run_one(MoveDelegationTokenEnd(hmac, expiry_period_ms, renews=False), timeout_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[KafkaPrincipal] | None = None, *, timeout_ms: int | None = None
    ) -> list[DelegationToken]:
        """List the tokens that this client may see: those of `owners`, or all."""
        from kalda.clients.admin.delegation_token_calls import DescribeDelegationTokens

        operation = DescribeDelegationTokens(None if owners is None else list(owners))
        return await self._run_one(operation, timeout_ms)

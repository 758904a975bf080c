"""Implements the admin client's operations on delegation tokens (KIP-48).

It holds the methods, the values, and the requests and responses. Each call has the one key None.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.routes import AnyBroker
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kalda.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kalda.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kalda.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kalda.security.principal import KafkaPrincipal


@public
@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token with its secret. Times are milliseconds since 1970.

    A client logs in by SCRAM with `token_id` as its name, the HMAC in base64 as its password, and
    ``tokenauth="true"`` among the options of its ``ScramLoginModule``.
    """

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_at_ms: int
    expires_at_ms: int
    max_at_ms: int
    hmac: bytes

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, owner={self.owner}, expires_at_ms={self.expires_at_ms})"


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
        operation = CreateDelegationToken(owner, tuple(renewers), max_lifetime_ms)
        return await self._run_one(operation, timeout_ms)

    async def renew_delegation_token(
        self, hmac: bytes, *, renew_period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Make a token expire `renew_period_ms` from now, by default after the broker's period.

        Returns:
            When it ends, in milliseconds since 1970; never later than its limit.
        """
        return await self._run_one(MoveDelegationTokenEnd(hmac, renew_period_ms, renews=True), timeout_ms)

    async def expire_delegation_token(
        self, hmac: bytes, *, expiry_period_ms: int = -1, timeout_ms: int | None = None
    ) -> int:
        """Make a token expire `expiry_period_ms` from now; without a period, delete it.

        Returns:
            When it ends, in milliseconds since 1970.
        """
        return await self._run_one(MoveDelegationTokenEnd(hmac, expiry_period_ms, renews=False), timeout_ms)

    async def describe_delegation_tokens(
        self, owners: Iterable[KafkaPrincipal] | None = None, *, timeout_ms: int | None = None
    ) -> list[DelegationToken]:
        """List the tokens that this client may see: those of `owners`, or all."""
        operation = DescribeDelegationTokens(None if owners is None else list(owners))
        return await self._run_one(operation, timeout_ms)


class CreateDelegationToken(AdminOperation[None, DelegationToken]):
    """Makes a token."""

    title = "create a delegation token"
    route = AnyBroker()

    def __init__(
        self, owner: KafkaPrincipal | None, renewers: Sequence[KafkaPrincipal], max_lifetime_ms: int
    ) -> None:
        self._owner: Final = owner
        self._renewers: Final = tuple(renewers)
        self._max_lifetime_ms: Final = max_lifetime_ms

    def requests(
        self, keys: Sequence[None], context: RequestContext
    ) -> Iterable[AdminRequest[None, DelegationToken]]:
        """Build the request that creates the token."""
        owner = self._owner
        message = CreateDelegationTokenRequest(
            owner_principal_type=None if owner is None else owner.type,
            owner_principal_name=None if owner is None else owner.name,
            renewers=[
                CreatableRenewers(principal_type=each.type, principal_name=each.name)
                for each in self._renewers
            ],
            max_lifetime_ms=self._max_lifetime_ms,
        )
        yield AdminRequest.of(message, CreateDelegationTokenResponse, keys, self._read)

    @override
    def what(self, key: None) -> str:
        return self.title

    def _read(self, response: CreateDelegationTokenResponse, answers: Answers[None, DelegationToken]) -> None:
        if response.error_code:
            answers.fail(None, response.error_code)
            return
        owner = KafkaPrincipal(response.principal_type, response.principal_name)
        requester = owner
        if response.token_requester_principal_name:
            requester = KafkaPrincipal(
                response.token_requester_principal_type, response.token_requester_principal_name
            )
        token = DelegationToken(
            response.token_id,
            owner,
            requester,
            self._renewers,
            response.issue_timestamp_ms,
            response.expiry_timestamp_ms,
            response.max_timestamp_ms,
            response.hmac,
        )
        answers.succeed(None, token)


class MoveDelegationTokenEnd(AdminOperation[None, int]):
    """Renews or ends a token; the result is when it ends."""

    title = "change the end of a delegation token"
    route = AnyBroker()

    def __init__(self, hmac: bytes, period_ms: int, *, renews: bool) -> None:
        self._hmac: Final = hmac
        self._period_ms: Final = period_ms
        self._renews: Final = renews

    def requests(self, keys: Sequence[None], context: RequestContext) -> Iterable[AdminRequest[None, int]]:
        """Send the token's secret and the period."""
        if self._renews:
            renewal = RenewDelegationTokenRequest(hmac=self._hmac, renew_period_ms=self._period_ms)
            yield AdminRequest.of(renewal, RenewDelegationTokenResponse, keys, _read_end)
        else:
            end = ExpireDelegationTokenRequest(hmac=self._hmac, expiry_time_period_ms=self._period_ms)
            yield AdminRequest.of(end, ExpireDelegationTokenResponse, keys, _read_end)

    def what(self, key: None) -> str:
        """Name the call."""
        return self.title


class DescribeDelegationTokens(AdminOperation[None, list[DelegationToken]]):
    """Lists tokens."""

    title = "describe delegation tokens"
    route = AnyBroker()

    def __init__(self, owners: Sequence[KafkaPrincipal] | None) -> None:
        self._owners: Final = owners

    def requests(
        self, keys: Sequence[None], context: RequestContext
    ) -> Iterable[AdminRequest[None, list[DelegationToken]]]:
        """Ask for the tokens of the owners, or for all."""
        owners = None
        if self._owners is not None:
            owners = [
                DescribeDelegationTokenOwner(principal_type=each.type, principal_name=each.name)
                for each in self._owners
            ]

        def read(
            response: DescribeDelegationTokenResponse, answers: Answers[None, list[DelegationToken]]
        ) -> None:
            if response.error_code:
                answers.fail(None, response.error_code)
            else:
                answers.succeed(None, [_described(each) for each in response.tokens])

        message = DescribeDelegationTokenRequest(owners=owners)
        yield AdminRequest.of(message, DescribeDelegationTokenResponse, keys, read)

    @override
    def what(self, key: None) -> str:
        return self.title


def _read_end(
    response: RenewDelegationTokenResponse | ExpireDelegationTokenResponse, answers: Answers[None, int]
) -> None:
    if response.error_code:
        answers.fail(None, response.error_code)
    else:
        answers.succeed(None, response.expiry_timestamp_ms)


def _described(token: DescribedDelegationToken) -> DelegationToken:
    owner = KafkaPrincipal(token.principal_type, token.principal_name)
    requester = owner
    if token.token_requester_principal_name:
        requester = KafkaPrincipal(token.token_requester_principal_type, token.token_requester_principal_name)
    return DelegationToken(
        token.token_id,
        owner,
        requester,
        tuple(KafkaPrincipal(each.principal_type, each.principal_name) for each in token.renewers),
        token.issue_timestamp,
        token.expiry_timestamp,
        token.max_timestamp,
        token.hmac,
    )

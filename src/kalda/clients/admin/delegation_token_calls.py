"""Implements the requests and responses of admin calls on delegation tokens. Sans-IO.

Each call has the one key None.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.delegation_tokens import DelegationToken
from kalda.clients.admin.routes import AnyBroker
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
        """Send what the token is to be."""
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

    def what(self, key: None) -> str:
        """Name the call."""
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

    def what(self, key: None) -> str:
        """Name the call."""
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

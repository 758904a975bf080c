"""CreateDelegationToken (key 38), versions 0-3: makes a token by which its owner can log in (KIP-48).

From v3 a user may ask for a token of another, and the response names who asked (KIP-373).
"""

from collections.abc import Coroutine
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext, nothing_named
from kalda.broker.requests.checks import delegation_tokens as token_checks
from kalda.broker.requests.token_requests import REQUESTER_FROM, require_token_requests
from kalda.broker.security.delegation_tokens import DelegationTokens
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from kalda.security.principal import USER, KafkaPrincipal
from kalda.settings import BrokerConfig

_NEVER: Final = -1


async def _create(
    tokens: DelegationTokens, request: CreateDelegationTokenRequest, requester: KafkaPrincipal, version: int
) -> CreateDelegationTokenResponse:
    owner = _owner(request, requester)
    renewers = tuple(KafkaPrincipal(each.principal_type, each.principal_name) for each in request.renewers)
    token = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    names_requester = version >= REQUESTER_FROM
    return CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type if names_requester else "",
        token_requester_principal_name=requester.name if names_requester else "",
        issue_timestamp_ms=token.issued_at_ms,
        expiry_timestamp_ms=token.expires_at_ms,
        max_timestamp_ms=token.max_at_ms,
        token_id=token.token_id,
        hmac=tokens.secret(token),
    )


def _owner(request: CreateDelegationTokenRequest, requester: KafkaPrincipal) -> KafkaPrincipal:
    if not request.owner_principal_name:
        return requester
    return KafkaPrincipal(request.owner_principal_type or USER, request.owner_principal_name)


def handle(
    config: BrokerConfig,
    tokens: DelegationTokens,
    request: CreateDelegationTokenRequest,
    context: RequestContext,
) -> Coroutine[None, None, CreateDelegationTokenResponse]:
    """Make a token.

    Raises:
        ApiError: the client may not ask for tokens, or a renewer is no user.
    """
    require_token_requests(config, context)
    if any(each.principal_type != USER for each in request.renewers):
        raise ApiError(ErrorCode.INVALID_PRINCIPAL_TYPE)
    return _create(tokens, request, context.principal, context.api_version)


def error_response(request: CreateDelegationTokenRequest, code: ErrorCode) -> CreateDelegationTokenResponse:
    """Return a response with the error."""
    return CreateDelegationTokenResponse(
        error_code=code, issue_timestamp_ms=_NEVER, expiry_timestamp_ms=_NEVER, max_timestamp_ms=_NEVER
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.CREATE_DELEGATION_TOKEN,
    versions=(0, 3),
    build=lambda services: partial(handle, services.config, services.access.delegation_tokens),
    error_response=error_response,
    access=token_checks.create,
    audit=nothing_named,
)

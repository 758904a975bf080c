"""RenewDelegationToken (key 39), versions 0-2: extends the life of a token (KIP-48)."""

from collections.abc import Coroutine
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext, nothing_named
from kalda.broker.requests.token_requests import require_token_requests
from kalda.broker.security.delegation_tokens import DelegationTokens
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kalda.security.principal import KafkaPrincipal
from kalda.settings import BrokerConfig

_NEVER: Final = -1


async def _renew(
    tokens: DelegationTokens, request: RenewDelegationTokenRequest, principal: KafkaPrincipal
) -> RenewDelegationTokenResponse:
    end_ms = await tokens.renew(principal, request.hmac, request.renew_period_ms)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=end_ms)


def handle(
    config: BrokerConfig,
    tokens: DelegationTokens,
    request: RenewDelegationTokenRequest,
    context: RequestContext,
) -> Coroutine[None, None, RenewDelegationTokenResponse]:
    """Move the end of a token, as its owner or a renewer may.

    Raises:
        ApiError: the client may not ask for tokens.
    """
    require_token_requests(config, context)
    return _renew(tokens, request, context.principal)


def error_response(request: RenewDelegationTokenRequest, code: ErrorCode) -> RenewDelegationTokenResponse:
    """Return a response with the error."""
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=_NEVER)


HANDLER: Final = ApiHandler(
    key=ApiKey.RENEW_DELEGATION_TOKEN,
    versions=(0, 2),
    build=lambda services: partial(handle, services.config, services.access.delegation_tokens),
    error_response=error_response,
    access=None,
    audit=nothing_named,
)

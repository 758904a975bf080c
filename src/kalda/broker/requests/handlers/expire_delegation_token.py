"""ExpireDelegationToken (key 40), versions 0-2: lets a token end sooner, or at once (KIP-48)."""

from collections.abc import Coroutine
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext, nothing_named
from kalda.broker.requests.token_requests import require_token_requests
from kalda.broker.security.delegation_tokens import DelegationTokens
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from kalda.security.principal import KafkaPrincipal
from kalda.settings import BrokerConfig

_NEVER: Final = -1


async def _expire(
    tokens: DelegationTokens, request: ExpireDelegationTokenRequest, principal: KafkaPrincipal
) -> ExpireDelegationTokenResponse:
    end_ms = await tokens.expire(principal, request.hmac, request.expiry_time_period_ms)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=end_ms)


def handle(
    config: BrokerConfig,
    tokens: DelegationTokens,
    request: ExpireDelegationTokenRequest,
    context: RequestContext,
) -> Coroutine[None, None, ExpireDelegationTokenResponse]:
    """Move the end of a token, as its owner or a renewer may.

    Raises:
        ApiError: the client may not ask for tokens.
    """
    require_token_requests(config, context)
    return _expire(tokens, request, context.principal)


def error_response(request: ExpireDelegationTokenRequest, code: ErrorCode) -> ExpireDelegationTokenResponse:
    """Return a response with the error."""
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=_NEVER)


HANDLER: Final = ApiHandler(
    key=ApiKey.EXPIRE_DELEGATION_TOKEN,
    versions=(0, 2),
    build=lambda services: partial(handle, services.config, services.access.delegation_tokens),
    error_response=error_response,
    access=None,
    audit=nothing_named,
)

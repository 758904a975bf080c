"""RenewDelegationToken (key 39), versions 0-2: let a token end later (KIP-48)."""

from collections.abc import Coroutine
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.token_requests import require_token_requests
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)
from kalda.security.principal import KafkaPrincipal

_NEVER: Final = -1


async def _renew(
    services: BrokerServices, request: RenewDelegationTokenRequest, principal: KafkaPrincipal
) -> RenewDelegationTokenResponse:
    tokens = services.access.delegation_tokens
    end_ms = await tokens.renew(principal, request.hmac, request.renew_period_ms)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=end_ms)


def handle(
    services: BrokerServices, request: RenewDelegationTokenRequest, context: RequestContext
) -> Coroutine[None, None, RenewDelegationTokenResponse]:
    """Move the end of a token, as its owner or a renewer may.

    Raises:
        ApiError: the client may not ask for tokens.
    """
    require_token_requests(services, context)
    return _renew(services, request, context.principal)


def error_response(request: RenewDelegationTokenRequest, code: ErrorCode) -> RenewDelegationTokenResponse:
    """Return a response with the error."""
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=_NEVER)


HANDLER: Final = ApiHandler(
    key=ApiKey.RENEW_DELEGATION_TOKEN,
    versions=(0, 2),
    handle=handle,
    error_response=error_response,
    access=None,
    is_audited=True,
)

"""DescribeDelegationToken (key 41), versions 0-3: lists the tokens that a client may see (KIP-48).

From v3 the response names who asked for a token (KIP-373).
"""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import delegation_tokens as token_checks
from kalda.broker.requests.token_requests import REQUESTER_FROM, require_token_requests
from kalda.broker.security.delegation_tokens import DelegationTokens
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kalda.security.principal import KafkaPrincipal
from kalda.settings import BrokerConfig


def handle(
    config: BrokerConfig,
    tokens: DelegationTokens,
    request: DescribeDelegationTokenRequest,
    context: RequestContext,
) -> DescribeDelegationTokenResponse:
    """Return the tokens of the owners, with their secrets.

    Raises:
        ApiError: the client may not ask for tokens, or there are none in this cluster.
    """
    require_token_requests(config, context)
    owners = None
    if request.owners is not None:
        owners = frozenset(
            KafkaPrincipal(each.principal_type, each.principal_name) for each in request.owners
        )
    names_requester = context.api_version >= REQUESTER_FROM
    return DescribeDelegationTokenResponse(
        tokens=[
            DescribedDelegationToken(
                principal_type=token.owner.type,
                principal_name=token.owner.name,
                token_requester_principal_type=token.requester.type if names_requester else "",
                token_requester_principal_name=token.requester.name if names_requester else "",
                issue_timestamp=token.issued_at_ms,
                expiry_timestamp=token.expires_at_ms,
                max_timestamp=token.max_at_ms,
                token_id=token.token_id,
                hmac=tokens.secret(token),
                renewers=[
                    DescribedDelegationTokenRenewer(principal_type=each.type, principal_name=each.name)
                    for each in token.renewers
                ],
            )
            for token in tokens.tokens_of(owners)
        ]
    )


def error_response(
    request: DescribeDelegationTokenRequest, code: ErrorCode
) -> DescribeDelegationTokenResponse:
    """Return a response with the error."""
    return DescribeDelegationTokenResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_DELEGATION_TOKEN,
    versions=(0, 3),
    build=lambda services: partial(handle, services.config, services.access.delegation_tokens),
    error_response=error_response,
    access=token_checks.describe,
)

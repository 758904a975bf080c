"""Decides who may ask for delegation tokens, as Kafka does: only clients that logged in by other means.

Otherwise a token could be used to make further ones, and would outlive its end.
"""

from typing import Final

from kalda.broker.requests.api import RequestContext
from kalda.common.errors import ApiError, ErrorCode
from kalda.protocol.namespaces.namespace import base_listener
from kalda.security.principal import ANONYMOUS
from kalda.settings import BrokerConfig

REQUESTER_FROM: Final = 3
"""The first version of the requests whose responses name who asked for a token (KIP-373)."""


def may_request_tokens(config: BrokerConfig, context: RequestContext) -> bool:
    """Whether a connection may carry requests about tokens.

    Its client has to be authenticated, by other means than a token, and the listener must not be PLAINTEXT.
    """
    protocols = {each.name: each.security_protocol for each in config.listeners}
    protocol, principal = protocols.get(base_listener(context.listener)), context.principal
    is_anonymous = protocol == "SSL" and principal == ANONYMOUS
    return not (principal.token_authenticated or protocol in (None, "PLAINTEXT") or is_anonymous)


def require_token_requests(config: BrokerConfig, context: RequestContext) -> None:
    """Raise ApiError if a connection may not carry requests about tokens."""
    if not may_request_tokens(config, context):
        raise ApiError(ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)

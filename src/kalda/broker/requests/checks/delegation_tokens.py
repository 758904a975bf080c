"""Checks of requests about delegation tokens (KIP-48, KIP-373)."""

from typing import Any

from kalda.broker.requests.checks.check import Call
from kalda.broker.requests.token_requests import may_request_tokens
from kalda.common.errors import ErrorCode
from kalda.common.turns import first_turn
from kalda.security.acl.model import AclOperation, ResourceType
from kalda.security.principal import KafkaPrincipal
from kalda.security.sasl.delegation_token import DelegationToken


def create(call: Call) -> Any:
    """Demand CREATE_TOKENS on the owner, if that is another user."""
    request, requester = call.request, call.context.principal
    if not request.owner_principal_name or not may_request_tokens(call.services, call.context):
        # The handler refuses what this connection may not ask for.
        return None
    owner = KafkaPrincipal(request.owner_principal_type, request.owner_principal_name)
    if owner == requester or call.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return None
    return first_turn(call.refusal(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED))


def describe(call: Call) -> Any:
    """Hide tokens of others without DESCRIBE on the token or DESCRIBE_TOKENS on its owner."""
    me = call.context.principal

    def is_visible(token: DelegationToken) -> bool:
        return (
            token.is_of(me)
            or call.allows(
                AclOperation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id, is_noted=False
            )
            or call.allows(AclOperation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner), is_noted=False)
        )

    def amend(response: Any) -> None:
        # Not by the response, which does not name the requester in old versions.
        find = call.services.access.delegation_tokens.get
        found = ((each, find(each.token_id)) for each in response.tokens)
        response.tokens = [each for each, token in found if token is not None and is_visible(token)]

    call.amends.append(amend)
    return None

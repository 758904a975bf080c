"""Checks requests about delegation tokens (KIP-48, KIP-373) against the ACLs."""

from kalda.broker.requests.checks.check import Call, Refusal
from kalda.broker.requests.token_requests import may_request_tokens
from kalda.common.errors import ErrorCode
from kalda.common.turns import first_turn
from kalda.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kalda.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from kalda.security.acl.model import AclOperation, ResourceType
from kalda.security.principal import USER, KafkaPrincipal
from kalda.security.sasl.delegation_token import DelegationToken


def create(call: Call[CreateDelegationTokenRequest]) -> Refusal:
    """Demand CREATE_TOKENS on the owner, if that is another user."""
    request, requester = call.request, call.context.principal
    if not request.owner_principal_name or not may_request_tokens(call.parts.config, call.context):
        # The handler refuses what this connection may not ask for.
        return None
    owner = KafkaPrincipal(request.owner_principal_type or USER, request.owner_principal_name)
    if owner == requester or call.allows(AclOperation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return None
    return first_turn(call.refusal(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED))


def describe(call: Call[DescribeDelegationTokenRequest]) -> Refusal:
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

    def amend(response: DescribeDelegationTokenResponse) -> None:
        # Not by the response, which does not name the requester in old versions.
        find = call.parts.tokens.get
        found = ((each, find(each.token_id)) for each in response.tokens)
        response.tokens = [each for each, token in found if token is not None and is_visible(token)]

    call.amends.append(amend)
    return None

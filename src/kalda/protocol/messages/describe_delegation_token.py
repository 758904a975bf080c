"""DescribeDelegationToken (key 41): list tokens with their secrets (KIP-48).

v1 is v0; v2 is flexible; v3 returns who asked for each token.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BYTES, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class DescribeDelegationTokenOwner(Struct):
    """An owner whose tokens are asked for."""

    principal_type: str = wire(STRING, "0+")
    principal_name: str = wire(STRING, "0+")


class DescribeDelegationTokenRequest(
    Message, api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="0-3", flexible="2+"
):
    """The owners; None for all tokens that the requester may see."""

    owners: list[DescribeDelegationTokenOwner] | None = wire(
        array(DescribeDelegationTokenOwner), "0+", nullable="0+"
    )


class DescribedDelegationTokenRenewer(Struct):
    """A principal that may renew a token."""

    principal_type: str = wire(STRING, "0+")
    principal_name: str = wire(STRING, "0+")


class DescribedDelegationToken(Struct):
    """A token."""

    principal_type: str = wire(STRING, "0+")
    principal_name: str = wire(STRING, "0+")
    token_requester_principal_type: str = wire(STRING, "3+")
    token_requester_principal_name: str = wire(STRING, "3+")
    issue_timestamp: int = wire(INT64, "0+")
    expiry_timestamp: int = wire(INT64, "0+")
    max_timestamp: int = wire(INT64, "0+")
    token_id: str = wire(STRING, "0+")
    hmac: bytes = wire(BYTES, "0+")
    renewers: list[DescribedDelegationTokenRenewer] = wire(array(DescribedDelegationTokenRenewer), "0+")


class DescribeDelegationTokenResponse(
    Message, api_key=ApiKey.DESCRIBE_DELEGATION_TOKEN, versions="0-3", flexible="2+"
):
    """The tokens."""

    error_code: int = wire(INT16, "0+")
    tokens: list[DescribedDelegationToken] = wire(array(DescribedDelegationToken), "0+")
    throttle_time_ms: int = wire(INT32, "0+")

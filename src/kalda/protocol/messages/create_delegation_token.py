"""CreateDelegationToken (key 38): make a token by which its owner can log in (KIP-48).

v1 is v0; v2 is flexible; v3 names the owner, where it is not the requester, and returns the requester.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BYTES, INT16, INT32, INT64, STRING, Message, Struct, array, wire


class CreatableRenewers(Struct):
    """A principal that may renew the token."""

    principal_type: str = wire(STRING, "0+")
    principal_name: str = wire(STRING, "0+")


class CreateDelegationTokenRequest(
    Message, api_key=ApiKey.CREATE_DELEGATION_TOKEN, versions="0-3", flexible="2+"
):
    """The owner of the new token, its renewers, and its maximum lifetime."""

    owner_principal_type: str | None = wire(STRING, "3+", nullable="3+")
    owner_principal_name: str | None = wire(STRING, "3+", nullable="3+")
    """None for the requester."""
    renewers: list[CreatableRenewers] = wire(array(CreatableRenewers), "0+")
    max_lifetime_ms: int = wire(INT64, "0+")
    """-1 for the broker's default."""


class CreateDelegationTokenResponse(
    Message, api_key=ApiKey.CREATE_DELEGATION_TOKEN, versions="0-3", flexible="2+"
):
    """The token; its HMAC is the secret."""

    error_code: int = wire(INT16, "0+")
    principal_type: str = wire(STRING, "0+")
    principal_name: str = wire(STRING, "0+")
    token_requester_principal_type: str = wire(STRING, "3+")
    token_requester_principal_name: str = wire(STRING, "3+")
    issue_timestamp_ms: int = wire(INT64, "0+")
    expiry_timestamp_ms: int = wire(INT64, "0+")
    max_timestamp_ms: int = wire(INT64, "0+")
    token_id: str = wire(STRING, "0+")
    hmac: bytes = wire(BYTES, "0+")
    throttle_time_ms: int = wire(INT32, "0+")

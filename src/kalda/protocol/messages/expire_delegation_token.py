"""ExpireDelegationToken (key 40): let a token end sooner, or at once (KIP-48). v1 is v0; v2 is flexible."""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BYTES, INT16, INT32, INT64, Message, wire


class ExpireDelegationTokenRequest(
    Message, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="0-2", flexible="2+"
):
    """The token's secret, and when it is to end."""

    hmac: bytes = wire(BYTES, "0+")
    expiry_time_period_ms: int = wire(INT64, "0+")
    """From now; below 0 deletes the token."""


class ExpireDelegationTokenResponse(
    Message, api_key=ApiKey.EXPIRE_DELEGATION_TOKEN, versions="0-2", flexible="2+"
):
    """When the token ends now."""

    error_code: int = wire(INT16, "0+")
    expiry_timestamp_ms: int = wire(INT64, "0+")
    throttle_time_ms: int = wire(INT32, "0+")

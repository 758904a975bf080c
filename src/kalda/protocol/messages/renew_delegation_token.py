"""RenewDelegationToken (key 39): let a token end later (KIP-48). v1 is v0; v2 is flexible."""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BYTES, INT16, INT32, INT64, Message, wire


class RenewDelegationTokenRequest(
    Message, api_key=ApiKey.RENEW_DELEGATION_TOKEN, versions="0-2", flexible="2+"
):
    """The token's secret, and for how long to renew it."""

    hmac: bytes = wire(BYTES, "0+")
    renew_period_ms: int = wire(INT64, "0+")
    """Below 0 for the broker's default."""


class RenewDelegationTokenResponse(
    Message, api_key=ApiKey.RENEW_DELEGATION_TOKEN, versions="0-2", flexible="2+"
):
    """When the token ends now."""

    error_code: int = wire(INT16, "0+")
    expiry_timestamp_ms: int = wire(INT64, "0+")
    throttle_time_ms: int = wire(INT32, "0+")

"""SaslAuthenticate (key 36): carry one message of a SASL mechanism (KIP-152).

v1 returns how long the session lasts (KIP-368). v2 is flexible.
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import BYTES, INT16, INT64, STRING, Message, wire


class SaslAuthenticateRequest(Message, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    """The client's message."""

    auth_bytes: bytes = wire(BYTES, "0+")


class SaslAuthenticateResponse(Message, api_key=ApiKey.SASL_AUTHENTICATE, versions="0-2", flexible="2+"):
    """The broker's message, or why the login failed."""

    error_code: int = wire(INT16, "0+")
    error_message: str | None = wire(STRING, "0+", nullable="0+")
    auth_bytes: bytes = wire(BYTES, "0+")
    session_lifetime_ms: int = wire(INT64, "1+", ignorable=True)

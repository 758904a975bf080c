"""SaslHandshake (key 17): choose the mechanism of a login.

After v0 the mechanism's messages follow as frames of their own; after v1 in SaslAuthenticate (KIP-152).
"""

from kalda.common.api_keys import ApiKey
from kalda.protocol.schema import INT16, STRING, Message, array, wire


class SaslHandshakeRequest(Message, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """Names a mechanism."""

    mechanism: str = wire(STRING, "0+")


class SaslHandshakeResponse(Message, api_key=ApiKey.SASL_HANDSHAKE, versions="0-1"):
    """An error, and the mechanisms that the listener offers."""

    error_code: int = wire(INT16, "0+")
    mechanisms: list[str] = wire(array(STRING), "0+")

"""Signs webhooks as Standard Webhooks asks: HMAC with SHA-256 over id, time and body.

Source: github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final

PREFIX: Final = "whsec_"
SECRET_BYTES_MIN: Final = 24
SECRET_BYTES_MAX: Final = 64


def new_secret() -> str:
    """Return a random secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def check_secret(text: object) -> str:
    """Return a secret that is allowed.

    Raises:
        ValueError: it is not ``whsec_`` and the base64 of 24 to 64 bytes. The message does not have it.
    """
    allowed = f"secret is not {PREFIX} and the base64 of {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes"
    if not isinstance(text, str) or not text.startswith(PREFIX):
        raise ValueError(allowed)
    try:
        size = len(base64.b64decode(text.removeprefix(PREFIX), validate=True))
    except (binascii.Error, ValueError):
        raise ValueError(allowed) from None
    if not SECRET_BYTES_MIN <= size <= SECRET_BYTES_MAX:
        raise ValueError(allowed)
    return text


def signature_headers(secret: str, message_id: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """Return the headers of a signed webhook.

    Args:
        secret: A secret that was checked.
        message_id: The same for each attempt to deliver the message.
        timestamp_s: The time of the attempt, in seconds since the epoch.
        body: The body of the request.
    """
    key = base64.b64decode(secret.removeprefix(PREFIX))
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp_s, body)
    digest = base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": f"v1,{digest}",
    }

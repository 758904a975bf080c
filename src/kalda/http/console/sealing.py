"""Seals small documents into text for cookies: encrypted, authenticated, with an end. No I/O.

The console keeps no sessions. A login is in the visitor's cookie, which only processes with the same key can
read, so any number of them serve the same visitor.
"""

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_NONCE_BYTES: Final = 12
_NONCE_CHARACTERS: Final = _NONCE_BYTES * 4 // 3
"""A text begins with its nonce, in whole characters."""
USED_SECONDS: Final = 900
"""How long the texts that were used are known, as long as a question can be confirmed."""
_USED_MAX: Final = 10_000
"""Ten a second of these; a megabyte."""
_KEY_BYTES_MIN: Final = 16
SEALED_CHARACTERS_MAX: Final = 3_900
"""Browsers keep cookies of up to 4,096 bytes, name and attributes included."""


class Seal:
    """Seals and opens documents with one key.

    Args:
        key: The secret, at least 16 bytes.
        random_bytes: Returns as many random bytes as asked for.

    Raises:
        ValueError: the key is too short.
    """

    def __init__(self, key: bytes, random_bytes: Callable[[int], bytes]) -> None:
        if len(key) < _KEY_BYTES_MIN:
            raise ValueError(f"the key of the console's cookies has {len(key)} bytes; it takes at least 16")
        self._cipher: Final = AESGCM(hashlib.sha256(b"kalda-console-seal\0" + key).digest())
        self._token_key: Final = hashlib.sha256(b"kalda-console-token\0" + key).digest()
        self._random_bytes: Final = random_bytes
        self._used: Final[dict[str, float]] = {}
        """When texts were used, by their nonces, the first one first."""

    def seal(self, purpose: str, document: Mapping[str, object], until_s: float) -> str:
        """Return a document as text that only `open` with the same purpose reads, up to a time.

        Args:
            purpose: What the text is for; one for logins does not open as a message.
            document: What JSON can hold.
            until_s: The end, in seconds since the epoch.

        Raises:
            ValueError: the text would be too long for a cookie.
        """
        content = json.dumps({"until": until_s, "document": dict(document)}, ensure_ascii=False).encode()
        nonce = self._random_bytes(_NONCE_BYTES)
        sealed = nonce + self._cipher.encrypt(nonce, content, purpose.encode())
        text = _text(sealed)
        if len(text) > SEALED_CHARACTERS_MAX:
            raise ValueError(f"{purpose}: {len(text)} characters are too many for a cookie")
        return text

    def open(self, purpose: str, text: str, now_s: float) -> dict[str, object] | None:
        """Return the document; None if the text is another's, was changed, or is too old."""
        if len(text) > SEALED_CHARACTERS_MAX:
            return None
        try:
            sealed = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            if _text(sealed) != text:
                return None  # decoding skips foreign characters: a text would have many forms, each unused
            content = self._cipher.decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], purpose.encode())
        except (InvalidTag, binascii.Error, ValueError):
            return None
        opened = json.loads(content)
        if now_s >= opened["until"]:
            return None
        document: dict[str, object] = opened["document"]
        return document

    def is_first_use(self, text: str, now_s: float) -> bool:
        """Return whether this process has not seen the text in the last 15 minutes, and remember it."""
        while self._used and (
            len(self._used) >= _USED_MAX or next(iter(self._used.values())) < now_s - USED_SECONDS
        ):
            del self._used[next(iter(self._used))]
        nonce = text[:_NONCE_CHARACTERS]
        is_first = nonce not in self._used
        self._used[nonce] = now_s
        return is_first

    def form_token(self, visitor_id: str) -> str:
        """Return the token that the forms of a visitor carry; see `is_form_token`."""
        return hmac.new(self._token_key, visitor_id.encode(), hashlib.sha256).hexdigest()

    def is_form_token(self, visitor_id: str, token: str) -> bool:
        """Return whether a form came from a page of the same visitor.

        The visitor's id is in a cookie that scripts and other sites cannot read, and the token can be made of
        it only with the key, so another site can neither read nor make one.
        """
        return hmac.compare_digest(self.form_token(visitor_id).encode(), token.encode())


def _text(sealed: bytes) -> str:
    return base64.urlsafe_b64encode(sealed).decode().rstrip("=")

"""Implements PLAIN (RFC 4616): the client sends its name and password, which only TLS protects."""

from collections.abc import Callable
from typing import Final

from kalda.security.principal import USER, KafkaPrincipal
from kalda.security.sasl.mechanism import PLAIN, SaslError

Verify = Callable[[str, str], bool]
"""Returns whether a user has a password."""


class PlainServer:
    """The broker's side."""

    def __init__(self, verify: Verify) -> None:
        self._verify: Final = verify
        self.principal: KafkaPrincipal | None = None
        self.expires_at_ms: int | None = None

    def respond(self, token: bytes) -> bytes:
        """Check ``[authorization id] NUL name NUL password``.

        Raises:
            SaslError: the message is malformed, or the password is wrong.
        """
        try:
            parts = token.decode("utf-8").split("\0")
        except UnicodeDecodeError:
            raise SaslError("Authentication failed: the PLAIN message is not UTF-8") from None
        if len(parts) != 3:
            raise SaslError(f"Authentication failed: the PLAIN message has {len(parts)} parts instead of 3")
        authorization_id, name, password = parts
        if not name:
            raise SaslError("Authentication failed: username not specified")
        if not password:
            raise SaslError("Authentication failed: password not specified")
        if not self._verify(name, password):
            raise SaslError("Authentication failed: Invalid username or password")
        if authorization_id not in ("", name):
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.principal = KafkaPrincipal(USER, name)
        return b""


class PlainClient:
    """The client's side."""

    def __init__(self, name: str, password: str) -> None:
        self.mechanism: Final = PLAIN
        self._message: Final = f"\0{name}\0{password}".encode()
        self.is_complete = False

    def respond(self, challenge: bytes) -> bytes:
        """Return the only message there is."""
        self.is_complete = True
        return self._message

"""Defines what every SASL mechanism looks like from outside: messages in, messages out, and an identity."""

from typing import Final, Protocol

from kalda.security.principal import KafkaPrincipal

PLAIN: Final = "PLAIN"
SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
OAUTHBEARER: Final = "OAUTHBEARER"
GSSAPI: Final = "GSSAPI"


class SaslError(Exception):
    """A login failed. The message goes to the peer: it never names what would help to guess."""

    def __init__(self, message: str, detail: str | None = None) -> None:
        super().__init__(message)
        self.detail: Final = message if detail is None else detail
        """Why, for the own log; without secrets."""


class SaslServer(Protocol):
    """A broker's side of one login."""

    @property
    def principal(self) -> KafkaPrincipal | None:
        """The identity of the client; None until it has logged in."""

    @property
    def expires_at_ms(self) -> int | None:
        """When the credentials end, in milliseconds since 1970; None if they do not."""

    def respond(self, token: bytes) -> bytes:
        """Take a message of the client and return the answer, which may be empty.

        Raises:
            SaslError: the login failed.
        """


class SaslClient(Protocol):
    """A client's side of one login."""

    @property
    def mechanism(self) -> str:
        """The mechanism's name."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing more is to be sent, and the broker has proved what the mechanism lets it prove."""

    def respond(self, challenge: bytes) -> bytes:
        """Take the broker's answer, empty at first, and return the next message.

        Raises:
            SaslError: the broker broke the protocol, or it does not know the secret.
        """

"""Defines `KafkaPrincipal`, the identity of a client."""

from dataclasses import dataclass, field
from typing import Final

from kalda.common.public import public

USER: Final = "User"
"""The type of the principals that Kafka's own authenticators make."""


@public
@dataclass(frozen=True, slots=True)
class KafkaPrincipal:
    """An identity: a type, which is ``User`` unless an authenticator of its own says otherwise, and a name.

    >>> str(KafkaPrincipal("User", "alice"))
    'User:alice'
    """

    type: str
    name: str
    token_authenticated: bool = field(default=False, compare=False)
    """Whether the client logged in with a delegation token (KIP-48). It does not make another identity."""

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = KafkaPrincipal(USER, "ANONYMOUS")
"""The principal of a client that did not authenticate."""

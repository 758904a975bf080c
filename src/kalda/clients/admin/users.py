"""Defines the values of admin calls on users and their SCRAM credentials (KIP-554)."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from kalda.common.public import public

DEFAULT_ITERATIONS: Final = 4096


@public
class ScramMechanism(Enum):
    """A mechanism for which a cluster keeps credentials."""

    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


@public
@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """A credential of a user, without its secret."""

    mechanism: ScramMechanism
    iterations: int


@public
@dataclass(frozen=True, slots=True)
class ScramCredentialUpsertion:
    """A credential to set. The password is salted and hashed here; it is never sent."""

    user: str
    mechanism: ScramMechanism
    password: str
    iterations: int = DEFAULT_ITERATIONS
    salt: bytes | None = None
    """Random, unless given."""

    def __repr__(self) -> str:
        return f"ScramCredentialUpsertion({self.user!r}, {self.mechanism}, iterations={self.iterations})"


@public
@dataclass(frozen=True, slots=True)
class ScramCredentialDeletion:
    """A credential to delete."""

    user: str
    mechanism: ScramMechanism


ScramCredentialAlteration = ScramCredentialUpsertion | ScramCredentialDeletion

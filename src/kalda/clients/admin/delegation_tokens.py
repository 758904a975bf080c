"""Defines the values of admin calls on delegation tokens (KIP-48)."""

from dataclasses import dataclass

from kalda.common.public import public
from kalda.security.principal import KafkaPrincipal


@public
@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A delegation token with its secret. Times are milliseconds since 1970.

    A client logs in by SCRAM with `token_id` as its name, the HMAC in base64 as its password, and
    ``tokenauth="true"`` among the options of its ``ScramLoginModule``.
    """

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_at_ms: int
    expires_at_ms: int
    max_at_ms: int
    hmac: bytes

    def __repr__(self) -> str:
        return f"DelegationToken({self.token_id!r}, owner={self.owner}, expires_at_ms={self.expires_at_ms})"

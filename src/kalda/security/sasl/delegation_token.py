"""Defines delegation tokens (KIP-48): secrets by which others log in as an owner, for a limited time.

Only the id and the times of a token are stored. Its secret is the HMAC of the id with a key that all brokers
share, so that each broker can compute it. A client logs in by SCRAM, with the id as its name and the HMAC in
base64 as its password.
"""

import base64
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Self

from kalda.common.received_json import loads_received
from kalda.common.sanitizer import desanitize, sanitize
from kalda.security.principal import KafkaPrincipal

_VERSION: Final = 3


@dataclass(frozen=True, slots=True)
class DelegationToken:
    """A token without its secret. Times are milliseconds since 1970."""

    token_id: str
    owner: KafkaPrincipal
    requester: KafkaPrincipal
    renewers: tuple[KafkaPrincipal, ...]
    issued_at_ms: int
    max_at_ms: int
    """The end that no renewal moves."""
    expires_at_ms: int

    def is_of(self, principal: KafkaPrincipal) -> bool:
        """Whether a principal owns the token, asked for it, or may renew it: these may see it."""
        return principal in (self.owner, self.requester, *self.renewers)

    def may_renew(self, principal: KafkaPrincipal) -> bool:
        """Whether a principal may move the token's end."""
        return principal in (self.owner, *self.renewers)

    def has_ended(self, now_ms: int) -> bool:
        """Whether the token is no longer valid."""
        return min(self.max_at_ms, self.expires_at_ms) < now_ms

    def secret(self, key: bytes) -> bytes:
        """Return the token's HMAC."""
        return hmac.digest(key, self.token_id.encode(), "sha512")

    def to_json(self) -> bytes:
        """Write it as Kafka keeps it in ``/delegation_token/tokens/<id>``."""
        document = {
            "version": _VERSION,
            "owner": _sanitized(self.owner),
            "tokenRequester": _sanitized(self.requester),
            "renewers": [_sanitized(each) for each in self.renewers],
            "issueTimestamp": self.issued_at_ms,
            "maxTimestamp": self.max_at_ms,
            "expiryTimestamp": self.expires_at_ms,
            "tokenId": self.token_id,
        }
        return json.dumps(document, separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, data: bytes) -> Self:
        """Read what `to_json` or Kafka wrote; before version 3 the owner was the requester.

        Raises:
            ValueError: it is malformed.
        """
        try:
            document: dict[str, Any] = loads_received(data)
            owner = _principal(document["owner"])
            return cls(
                str(document["tokenId"]),
                owner,
                _principal(document["tokenRequester"]) if document["version"] >= _VERSION else owner,
                tuple(_principal(each) for each in document["renewers"]),
                int(document["issueTimestamp"]),
                int(document["maxTimestamp"]),
                int(document["expiryTimestamp"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ValueError("the znode of a delegation token is malformed") from None


def password_of(secret: bytes) -> str:
    """Return the password by which SCRAM logs in with a token."""
    return base64.b64encode(secret).decode()


def tokens_of(
    tokens: Iterable[DelegationToken], owners: frozenset[KafkaPrincipal] | None
) -> list[DelegationToken]:
    """Return the tokens of which one of `owners` is owner, requester or renewer; all if it is None."""
    return [token for token in tokens if owners is None or any(token.is_of(owner) for owner in owners)]


def _sanitized(principal: KafkaPrincipal) -> str:
    return sanitize(str(principal))


def _principal(text: str) -> KafkaPrincipal:
    kind, separator, name = desanitize(text).partition(":")
    if not separator or not kind:
        raise ValueError("a principal is written type:name")
    return KafkaPrincipal(kind, name)

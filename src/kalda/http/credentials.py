"""Reads a caller's credentials from the ``Authorization`` header, and makes client settings of them."""

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kalda.http.errors import unauthenticated
from kalda.security.sasl.bearer_token import InvalidTokenError, unverified_claims

SUBPROTOCOL: Final = "kalda"
"""What a WebSocket of a browser asks for beside its token, because it can send no ``Authorization`` header:
``new WebSocket(url, ["kalda", "bearer." + token])``. Only this one is confirmed; the token is not sent back.
"""

_SUBPROTOCOL_OF_TOKEN: Final = "bearer."
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
"""RFC 6750, 2.1."""

AUTHORIZATION_CHARACTERS_MAX: Final = 16 * 1024
"""Longer than any token that a proxy in front lets through."""


SUBJECT_CLAIM: Final = "sasl.oauthbearer.sub.claim.name"
"""The setting of the process's client that names the claim, as the brokers have it."""

_KEPT: Final = frozenset((SUBJECT_CLAIM, "sasl.oauthbearer.scope.claim.name"))
"""Settings of logins that say how the brokers read tokens, and hold for callers, too."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """A user with a password, or a token; `repr` shows neither."""

    user: str
    """The user's name; of a token, its subject, which is true only after a login."""
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)

    @property
    def key(self) -> bytes:
        """A digest that is equal for equal credentials, to look up connections without keeping secrets."""
        kind, secret = ("token", self.token) if self.token is not None else ("password", self.password)
        text = f"{kind}\0{self.user}\0{secret}"
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()

    def client_settings(self, process: Mapping[str, str], mechanism: str) -> dict[str, str]:
        """Return the settings of a client that logs in with these credentials.

        Args:
            process: The settings of the process's own client, whose login is left out.
            mechanism: The SASL mechanism for a password.
        """
        kept = {
            name: text
            for name, text in process.items()
            if name in _KEPT
            or (not name.startswith(("sasl.", "ssl.keystore.")) and name != "ssl.key.password")
        }
        if self.token is not None:
            return {
                **kept,
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.jaas.config": f'OAuthBearerLoginModule required token="{self.token}";',
            }
        return {
            **kept,
            "sasl.mechanism": mechanism,
            "sasl.username": self.user,
            "sasl.password": self.password or "",
        }


def credentials_of(header: str, subject_claim: str = "sub") -> Credentials:
    """Read the value of an ``Authorization`` header.

    Args:
        header: The value.
        subject_claim: The claim of a token that the brokers make the principal of.

    Raises:
        HttpError: it is malformed, or of a scheme that is not served (401).
    """
    if len(header) > AUTHORIZATION_CHARACTERS_MAX:
        raise unauthenticated(f"the Authorization header is longer than {AUTHORIZATION_CHARACTERS_MAX}")
    scheme, _, rest = header.strip().partition(" ")
    rest = rest.strip()
    if scheme.lower() == "basic":
        return _basic(rest)
    if scheme.lower() == "bearer":
        return _bearer(rest, subject_claim)
    raise unauthenticated("the Authorization header has a scheme that is not served: use Basic or Bearer")


def credentials_of_subprotocols(offered: Sequence[str], subject_claim: str = "sub") -> Credentials | None:
    """Return the credentials that a WebSocket has among its subprotocols; None if there are none.

    Raises:
        HttpError: the token is malformed (401).
    """
    for each in offered:
        if each.startswith(_SUBPROTOCOL_OF_TOKEN) and SUBPROTOCOL in offered:
            return _bearer(each.removeprefix(_SUBPROTOCOL_OF_TOKEN), subject_claim)
    return None


def _basic(encoded: str) -> Credentials:
    try:
        text = base64.b64decode(encoded, validate=True).decode("utf-8")
    except (binascii.Error, UnicodeDecodeError):
        raise unauthenticated("the Basic credentials are not base64 of user:password in UTF-8") from None
    user, colon, password = text.partition(":")
    if not colon or not user or not password:
        raise unauthenticated("the Basic credentials have no user or no password")
    return Credentials(user, password=password)


def _bearer(token: str, subject_claim: str) -> Credentials:
    if not _TOKEN.fullmatch(token):
        raise unauthenticated("the Bearer token has characters that no token has")
    try:
        _, claims = unverified_claims(token)
    except InvalidTokenError:
        claims = {}
    # As the brokers read it (`token_of_claims`). Without a subject they refuse the token.
    subject = claims.get(subject_claim)
    return Credentials(subject.strip() if isinstance(subject, str) else "token", token=token)

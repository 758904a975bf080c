"""Says who a connection's client is: by certificate (x509), by SASL DIGEST-MD5, or by an auth packet.

`Authentication` holds what the settings say; one `SaslLogin` belongs to each connection. An identity can be
proved at any time of a connection and is never lost while it lasts.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kalda.runtime.random import Random, random_text
from kalda.security.tls.der import DerError
from kalda.security.tls.distinguished_name import subject_name
from kalda.security.zookeeper.digest_md5 import DigestMd5Error, DigestMd5Server
from kalda.zookeeper.errors import AuthFailedError
from kalda.zookeeper.server.acl import BUILT_IN_SCHEMES, SUPER, Identity, authenticate

_NONCE_BYTES: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Authentication:
    """How clients prove who they are, and which of them are served."""

    super_digest: str = ""
    """``super:HASH`` of a digest identity that may do everything."""
    super_user: str = ""
    """The SASL user who may do everything."""
    super_certificate: str = ""
    """The subject of a certificate whose owner may do everything."""
    sasl_users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Passwords of SASL users by name; empty if SASL is not served."""
    schemes: frozenset[str] = BUILT_IN_SCHEMES
    """The schemes that access lists may name."""
    required_schemes: frozenset[str] = frozenset()
    """Only clients with an identity of one of these are served; all clients are if it is empty."""
    keeps_failed_sasl: bool = False
    """Whether a client whose SASL login failed is served without an identity."""

    def by_auth_packet(self, scheme: str, auth: bytes, peer_host: str) -> tuple[Identity, ...]:
        """Return the identities that an auth packet proves.

        Raises:
            AuthFailedError: the scheme is unknown or not for auth packets, or the text is not UTF-8.
        """
        identity = authenticate(scheme, auth, peer_host)
        is_super = bool(self.super_digest) and scheme == "digest" and identity.id == self.super_digest
        return (identity, SUPER) if is_super else (identity,)

    def by_certificate(self, certificate: bytes) -> tuple[Identity, ...]:
        """Return the identities of the owner of a certificate in DER, which TLS has verified.

        Raises:
            AuthFailedError: its subject cannot be read.
        """
        try:
            subject = subject_name(certificate)
        except DerError as error:
            raise AuthFailedError(f"the certificate has no readable subject: {error}") from None
        identity = Identity("x509", subject)
        return (identity, SUPER) if self.super_certificate == subject else (identity,)

    def by_sasl(self, user: str) -> tuple[Identity, ...]:
        """Return the identities of a user who has logged in by SASL."""
        identity = Identity("sasl", user)
        return (identity, SUPER) if self.super_user == user else (identity,)

    def admits(self, identities: tuple[Identity, ...]) -> bool:
        """Return whether a client with these identities is served."""
        required = self.required_schemes
        return not required or any(identity.scheme in required for identity in identities)


class SaslLogin:
    """The SASL login of one connection."""

    def __init__(self, authentication: Authentication, random: Random) -> None:
        self._authentication: Final = authentication
        self._exchange: Final = DigestMd5Server(
            authentication.sasl_users.get, random_text(random, _NONCE_BYTES)
        )

    def evaluate(self, token: bytes) -> tuple[bytes, tuple[Identity, ...]]:
        """Take a client's token; return the response's token and, at the end, the client's identities.

        Raises:
            AuthFailedError: the login failed.
        """
        try:
            answer = self._exchange.evaluate(token)
        except DigestMd5Error as error:
            raise AuthFailedError(str(error)) from None
        user = self._exchange.user
        return answer, () if user is None else self._authentication.by_sasl(user)

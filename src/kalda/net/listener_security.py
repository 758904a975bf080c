"""Describes how a listener protects its connections: encryption, and what comes before the first request."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from kalda.net.connection import Connection, FrameHandler
from kalda.security.principal import ANONYMOUS, USER, KafkaPrincipal
from kalda.security.tls.distinguished_name import subject_name
from kalda.security.tls.principal_mapping import PrincipalMapping

LoginStart: TypeAlias = Callable[[Connection], FrameHandler]
"""Returns what handles the frames of a connection until its client has logged in."""

LoginObserver: TypeAlias = Callable[[Connection, str | None], None]
"""Called with a connection and why its client could not authenticate; None if it could."""


class TlsContext(Protocol):
    """The TLS of a listener; `context` may be replaced: open connections keep theirs."""

    context: ssl.SSLContext


class TlsListener:
    """The TLS of a listener of Kafka's protocol."""

    __slots__ = ("context", "mapping")

    def __init__(self, context: ssl.SSLContext, mapping: PrincipalMapping) -> None:
        self.context = context
        self.mapping = mapping
        """How the names in clients' certificates become principals."""

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """Return the identity that a certificate in DER gives; ANONYMOUS without one.

        Raises:
            NoMatchingRuleError: no mapping rule applies to the name.
            DerError: it is not a certificate.
        """
        if certificate is None:
            return ANONYMOUS
        return KafkaPrincipal(USER, self.mapping.name_of(subject_name(certificate)))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSecurity:
    """The security of a listener: TLS and login, before the first request of a connection."""

    tls: TlsContext | None = None
    is_tls_optional: bool = False
    """Whether clients may stay with plaintext."""
    start_login: LoginStart | None = None
    """None if clients do not log in by SASL."""
    anonymous: KafkaPrincipal = ANONYMOUS
    """Who a client is that does not authenticate."""


PLAINTEXT: Final = ListenerSecurity()


class HandshakeObserver(Protocol):
    """Observes the TLS handshakes of connections."""

    tls_hint: str
    """How to make a client speak TLS."""

    def handshake_completed(self, connection: Connection, certificate: bytes | None) -> str | None:
        """Note the peer's certificate, in DER; return why it is refused, or None."""

    def authentication_failed(self, connection: Connection, reason: str) -> None:
        """Note that the peer could not authenticate; the connection closes."""

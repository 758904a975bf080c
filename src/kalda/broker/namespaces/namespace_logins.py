"""Logs clients in on the listener of a namespace: they give plain names and become users of the namespace.

A user of the namespace has SCRAM credentials under the stored name. The users of the cluster, those of its
settings and those with SCRAM credentials of their own, can log in as well, with their passwords; they too
become users of the namespace, with other rights than in the cluster.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from kalda.broker.security.delegation_tokens import DelegationTokens
from kalda.broker.security.logins import Logins
from kalda.broker.security.sasl_authenticator import SaslAuthenticator
from kalda.broker.security.scram_credentials import ScramCredentials
from kalda.net.connection import Connection, FrameHandler
from kalda.net.listener_security import TlsListener
from kalda.protocol.namespaces.namespace import Namespace, prefix_of
from kalda.security.principal import KafkaPrincipal
from kalda.security.sasl.mechanism import SaslServer
from kalda.security.sasl.scram import HASHES, ScramCredential, TokenCredential


def stored_principal(space: Namespace, principal: KafkaPrincipal) -> KafkaPrincipal:
    """Return the user of a namespace that a client becomes whose name is known without the prefix."""
    if space.has(principal.name):
        # The owner of a delegation token that was made in the namespace.
        return principal
    return replace(principal, name=space.stored(principal.name))


class NamespaceLogins:
    """The `LoginRules` of the listener of a namespace; all but the names is as on the base listener."""

    def __init__(
        self,
        space: Namespace,
        base: str,
        logins: Logins,
        credentials: ScramCredentials,
        tokens: DelegationTokens,
    ) -> None:
        """`base` is the listener whose mechanisms and settings apply."""
        self._space: Final = space
        self._base: Final = base
        self._logins: Final = logins
        self._credentials: Final = credentials
        self._tokens: Final = tokens

    def start(self, connection: Connection) -> FrameHandler:
        """Return the handler of a connection's frames until its client has logged in."""
        connection.frame_bytes_max = self.login_bytes_max
        return SaslAuthenticator(self).on_frame

    @property
    def failure_delay_ms(self) -> int:
        """The delay of the response to a refused login, in milliseconds."""
        return self._logins.failure_delay_ms

    @property
    def frame_bytes_max(self) -> int:
        """The largest request of clients that have logged in."""
        return self._logins.frame_bytes_max

    @property
    def login_bytes_max(self) -> int:
        """The largest request during a login."""
        return self._logins.login_bytes_max

    def max_reauth_ms(self, listener: str, mechanism: str) -> int:
        """Return the longest time that a session may last, in milliseconds; 0 is without a limit."""
        return self._logins.max_reauth_ms(self._base, mechanism)

    def mechanisms(self, listener: str) -> Sequence[str]:
        """Return the mechanisms that the listener offers."""
        return self._logins.mechanisms(self._base)

    def new_server(self, listener: str, mechanism: str) -> SaslServer:
        """Begin a login."""
        if mechanism not in HASHES:
            return _NamespaceServer(self._space, self._logins.new_server(self._base, mechanism))

        def credential(name: str) -> ScramCredential | None:
            own = self._credentials.find(mechanism, self._space.stored(name))
            return own if own is not None else self._credentials.find(mechanism, name)

        def token(token_id: str) -> TokenCredential | None:
            found = self._tokens.find(mechanism, token_id)
            if found is None or (prefix_of(found.owner.name) or self._space.prefix) != self._space.prefix:
                # A token of another namespace.
                return None
            return found

        return _NamespaceServer(self._space, self._logins.scram_server(mechanism, credential, token))

    def frame_handler(self) -> FrameHandler:
        """Return the handler of the requests of clients that have logged in."""
        return self._logins.frame_handler()

    def time_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self._logins.time_ms()

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back."""
        return self._logins.monotonic()

    def succeeded(self, connection: Connection, mechanism: str) -> None:
        """Count and audit a login."""
        self._logins.succeeded(connection, mechanism)

    def failed(self, connection: Connection, mechanism: str | None, reason: str) -> None:
        """Count and audit a refused login."""
        self._logins.failed(connection, mechanism, reason)


class _NamespaceServer:
    """A `SaslServer` that makes a user of the namespace of who logs in."""

    def __init__(self, space: Namespace, server: SaslServer) -> None:
        self._space: Final = space
        self._server: Final = server

    def respond(self, token: bytes) -> bytes:
        """Answer a message of the client.

        Raises:
            SaslError: the login failed.
        """
        return self._server.respond(token)

    @property
    def principal(self) -> KafkaPrincipal | None:
        """The principal that logged in; None until then."""
        found = self._server.principal
        return None if found is None else stored_principal(self._space, found)

    @property
    def expires_at_ms(self) -> int | None:
        """When the session ends at the latest, in milliseconds since 1970; None without an end."""
        return self._server.expires_at_ms


class NamespaceTls(TlsListener):
    """The TLS of a namespace's listener: its base's, but a certificate gives a user of the namespace."""

    __slots__ = ("_base", "_space")

    def __init__(self, space: Namespace, base: TlsListener) -> None:
        super().__init__(base.context, base.mapping)
        self._base: Final = base
        self._space: Final = space

    def principal_of(self, certificate: bytes | None) -> KafkaPrincipal:
        """Return the identity that a certificate gives; see `TlsListener.principal_of`."""
        return stored_principal(self._space, self._base.principal_of(certificate))

"""Accepts the clients of a broker's NATS listeners, and passes messages between them.

nats-server's rules hold where they have a counterpart: INFO comes first, in plaintext, and TLS after it; a
login has a time limit; a client that leaves too many bytes unread, or all of them for `WRITE_SECONDS_MAX`, is
a slow consumer and is disconnected.
"""

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kalda import __version__
from kalda.broker.nats.ended_removal import EndedRemoval
from kalda.broker.nats.mapped_subjects import MappedSubjects
from kalda.broker.nats.nats_access import NatsAccess
from kalda.broker.nats.nats_client import NatsClient
from kalda.broker.nats.password_check import PasswordCheck
from kalda.common.metrics import Metrics
from kalda.common.overriding import override
from kalda.nats.exchange import Exchange
from kalda.nats.operations import Info
from kalda.nats.session import Login, SessionLimits
from kalda.nats.subject_rules import SubjectRules
from kalda.net.byte_connection import PlainByteConnection, TlsByteConnection
from kalda.net.connection import Connection
from kalda.net.listener_security import ListenerSecurity, LoginObserver, TlsListener
from kalda.net.metrics_http import NO_FRAMES
from kalda.net.socket_server import Listener, ServerConfig, SocketServer
from kalda.runtime.network import Network, Stream
from kalda.security.principal import USER, KafkaPrincipal
from kalda.security.quota.connection_rates import UNLIMITED
from kalda.security.tls.channel import TlsChannel
from kalda.security.tls.der import DerError
from kalda.security.tls.principal_mapping import NoMatchingRuleError

if TYPE_CHECKING:
    from kalda.broker.security.authorizer import Authorizer

logger: Final = logging.getLogger(__name__)

PROTOCOL_RELEASE: Final = "2.9.10"
"""The release of nats-server whose client protocol this is; clients compare it to see what they may use."""

LOGIN_SECONDS_MAX: Final = 10.0
"""nats-server's 2 seconds are short where many clients come back at once: a password takes milliseconds."""

LOGINS_AT_ONCE_MAX: Final = 4
"""Passwords that are checked at a time; they share the threads of the background with the logs."""

WRITE_SECONDS_MAX: Final = 10.0
"""How long a client may take none of the bytes that wait for it, as nats-server's `write_deadline`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsLimits:
    """The limits that the settings ``kalda.nats.…`` give."""

    connections_max: int
    payload_bytes_max: int
    pending_bytes_max: int
    subscriptions_max: int
    ping_seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerIdentity:
    """The identity of the broker in INFO."""

    broker_id: int
    cluster_id: str


class NatsServer(SocketServer):
    """All NATS listeners and clients of one broker."""

    tls_hint = "give the client a URL with tls:// or its TLS options"

    def __init__(
        self,
        limits: NatsLimits,
        identity: ServerIdentity,
        exchange: Exchange,
        passwords: PasswordCheck,
        authorizer: "Authorizer | None",
        network: Network,
        tasks: asyncio.TaskGroup,
        *,
        has_jetstream: bool = False,
    ) -> None:
        super().__init__(
            ServerConfig(socket_request_max_bytes=NO_FRAMES, connections_max_idle_ms=UNLIMITED),
            log=logger,
            network=network,
        )
        self._limits: Final = limits
        self._identity: Final = identity
        self._exchange: Final = exchange
        self._passwords: Final = passwords
        self._authorizer: Final = authorizer
        self._tasks: Final = tasks
        self._has_jetstream: Final = has_jetstream
        self._checks: Final = asyncio.Semaphore(LOGINS_AT_ONCE_MAX)
        self._needs_login: Final[set[str]] = set()
        self._ports: Final[dict[str, tuple[str, int]]] = {}
        self._removal: Final = EndedRemoval(self._exchange.remove_ended)
        self.slow_consumers = 0
        self.mapped: MappedSubjects | None = None
        """Has the messages of subjects that are topics; None without rules."""
        self.rules: SubjectRules | None = None
        self.on_login: LoginObserver | None = None
        """Called after each attempt of a client to authenticate."""

    async def open(
        self, name: str, host: str, port: int, *, security: ListenerSecurity, needs_login: bool
    ) -> int:
        """Open a listener, whose connections wait until `start_accepting`; return its port.

        Raises:
            OSError: the address cannot be bound.
        """
        if needs_login:
            self._needs_login.add(name)
        bound = await self.listen(name, host, port, accept=False, security=security)
        self._ports[name] = host, bound
        return bound

    def begin_to_close(self) -> None:
        """Prepare for the end of all clients."""
        self._exchange.begin_to_close()

    def register_metrics(self, metrics: Metrics) -> None:
        """Register the counts of clients, subscriptions and messages."""
        exchange = self._exchange
        metrics.gauge("kalda_nats_connections", "NATS clients.", lambda: len(self.connections))
        metrics.gauge(
            "kalda_nats_subscriptions",
            "Subscriptions of all NATS clients.",
            lambda: exchange.subscription_count,
        )
        for name, help_text, value in (
            ("in_messages", "Messages that NATS clients published.", lambda: exchange.messages_in),
            ("out_messages", "Messages delivered to NATS clients.", lambda: exchange.messages_out),
            ("in_bytes", "Bytes of messages that NATS clients published.", lambda: exchange.bytes_in),
            ("out_bytes", "Bytes of messages delivered to NATS clients.", lambda: exchange.bytes_out),
            (
                "slow_consumers",
                "NATS clients that were disconnected because they read too slowly.",
                lambda: self.slow_consumers,
            ),
        ):
            metrics.counter_function(f"kalda_nats_{name}", help_text, value)

    # Connections.

    @override
    def _connect(self, stream: Stream, peer: tuple[str, int], listener: Listener) -> Connection:
        loop, tls = asyncio.get_running_loop(), listener.security.tls
        if tls is None:
            return PlainByteConnection(
                self, self._on_frame, self._accepted, listener.name, peer, stream, loop
            )
        channel = TlsChannel(tls.context, is_server=True)
        return TlsByteConnection(
            self, self._on_frame, self._accepted, listener.name, peer, stream, loop, channel, self
        )

    @override
    def begin(self, connection: Connection) -> None:
        security = self._by_name[connection.listener].security
        connection.principal = security.anonymous
        needs_login = connection.listener in self._needs_login
        values = self._limits
        limits = SessionLimits(
            needs_login=needs_login,
            subscriptions_max=values.subscriptions_max,
            ping_seconds=values.ping_seconds,
        )
        client = NatsClient(
            self,
            connection,
            self._exchange,
            self._access(connection),
            limits,
            payload_bytes_max=values.payload_bytes_max,
            pending_bytes_max=values.pending_bytes_max,
            mapped=self.mapped,
        )
        connection.begin(client)
        if needs_login or security.tls is not None:
            connection.due = connection.last_active + LOGIN_SECONDS_MAX
        info = self._info(connection, security, needs_login=needs_login)
        if isinstance(connection, TlsByteConnection):
            connection.greet(info)
        else:
            client.send(info)
        if len(self.connections) > values.connections_max:
            self._note_refused(connection.peer_address, "kalda.nats.max.connections")
            if isinstance(connection, TlsByteConnection):
                connection.close("kalda.nats.max.connections is reached", logging.INFO)
            else:
                client.session.fail("maximum connections exceeded")

    def _access(self, connection: Connection) -> NatsAccess | None:
        if self._authorizer is None:
            return None
        return NatsAccess(self._authorizer, connection, self.rules, has_jetstream=self._has_jetstream)

    def _info(self, connection: Connection, security: ListenerSecurity, *, needs_login: bool) -> bytes:
        host, port = self._ports[connection.listener]
        identity = self._identity
        known: dict[str, object] = {
            "server_id": f"{identity.cluster_id}-{identity.broker_id}",
            "server_name": f"kalda-{identity.broker_id}",
            "version": PROTOCOL_RELEASE,
            "kalda": __version__,
            "proto": 1,
            "go": "",
            "host": host or "0.0.0.0",
            "port": port,
            "headers": True,
            "max_payload": self._limits.payload_bytes_max,
            "client_id": connection.id,
            "client_ip": connection.peer_address,
            "cluster": identity.cluster_id,
        }
        if self._has_jetstream:
            known["jetstream"] = True
        if needs_login:
            known["auth_required"] = True
        if security.tls is not None:
            known["tls_required"] = True
        return Info(json.dumps(known, separators=(",", ":")).encode()).encode()

    @override
    def sweep_seconds(self) -> float:
        return min(2.0, self._limits.ping_seconds / 4)

    @override
    def sweep(self, now: float) -> None:
        super().sweep(now)
        for connection in list(self.connections):
            client = connection.session
            if not isinstance(client, NatsClient):
                continue
            if connection.queued_bytes() and connection.last_active < now - WRITE_SECONDS_MAX:
                self.slow_consumer(client)
            else:
                client.session.tick(now)

    @override
    def end_overdue(self, connection: Connection) -> None:
        client = connection.session
        connection.due = None
        if isinstance(client, NatsClient):
            self.authentication_failed(connection, f"no login within {LOGIN_SECONDS_MAX:g} s")
            client.session.fail("Authentication Timeout")

    # Logins.

    @override
    def handshake_completed(self, connection: Connection, certificate: bytes | None) -> str | None:
        security = self._by_name[connection.listener].security
        assert isinstance(security.tls, TlsListener), f"a handshake on the listener {connection.listener}"
        if connection.listener in self._needs_login:
            return None
        try:
            connection.principal = security.tls.principal_of(certificate)
        except (NoMatchingRuleError, DerError) as error:
            return str(error)
        self._authenticated(connection)
        return None

    def begin_login(self, client: NatsClient, login: Login) -> None:
        """Check a login, and call `NatsClient.login_checked` later."""
        self._tasks.create_task(self._check(client, login), name="NATS login")

    async def _check(self, client: NatsClient, login: Login) -> None:
        async with self._checks:
            is_right = await self._is_right(client.connection, login)
        if client.connection.is_closed:
            return
        if is_right:
            client.connection.principal = KafkaPrincipal(USER, login.user)
            client.connection.decisions = None
            self._authenticated(client.connection)
        else:
            self.authentication_failed(client.connection, "the name or the password is wrong")
        client.login_checked(is_right=is_right)

    async def _is_right(self, connection: Connection, login: Login) -> bool:
        if connection.is_closed:
            return False
        try:
            return await self._passwords.is_password(login.user, login.password)
        except Exception:
            # Not the broker's end: other clients go on.
            logger.exception("the login of %s could not be checked", connection.peer)
            return False

    def _authenticated(self, connection: Connection) -> None:
        connection.due = None
        self._by_name[connection.listener].succeeded += 1
        if self.on_login is not None:
            self.on_login(connection, None)

    @override
    def authentication_failed(self, connection: Connection, reason: str) -> None:
        self._by_name[connection.listener].failed += 1
        self.limiter.log(
            logging.INFO,
            "failed authentication with %s on listener %s: %s",
            connection.peer,
            connection.listener,
            reason,
            source=connection.peer_address,
        )
        if self.on_login is not None:
            self.on_login(connection, reason)

    # Called by clients.

    def client_gone(self, client: NatsClient) -> None:
        """Remove the subscriptions of a client, in turns: it may have had very many."""
        assert client.session.subscription_count == 0
        self._removal.soon()

    def slow_consumer(self, client: NatsClient) -> None:
        """Count a client that reads too slowly, and disconnect it."""
        self.slow_consumers += 1
        client.connection.close("slow consumer: it does not read its messages fast enough", logging.WARNING)

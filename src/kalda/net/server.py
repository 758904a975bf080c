"""Serves Kafka's protocol: opens listeners, authenticates clients by TLS or SASL, and publishes metrics.

`authentication_failed` and `authentication_succeeded` are called once for each attempt; the audit log and the
metrics count them.
"""

import logging
from collections.abc import Sequence
from typing import Final

from kalda.common.metrics import Column, Labels, Metrics, metric_name
from kalda.net.connection import Connection, FrameHandler
from kalda.net.foreign_protocols import ForeignProtocol
from kalda.net.frame_filters import FrameFilter
from kalda.net.listener_security import PLAINTEXT, ListenerSecurity, LoginObserver, TlsListener
from kalda.net.socket_server import ServerConfig, ServerStatistics, SocketServer
from kalda.runtime.network import Network, address_text
from kalda.runtime.system.clock import monotonic
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.security.tls.der import DerError
from kalda.security.tls.principal_mapping import NoMatchingRuleError

__all__ = ["FOREIGN_MESSAGES", "Server", "ServerConfig", "ServerStatistics"]

FOREIGN_MESSAGES: Final = {
    ForeignProtocol.TLS: (
        "the client at %s sent a TLS ClientHello to the listener %s, which has no TLS; "
        "set security.protocol=PLAINTEXT in the client"
    ),
    ForeignProtocol.HTTP: (
        "the client at %s sent an HTTP request to the listener %s, which speaks Kafka's protocol; "
        "metrics are served over HTTP on the port that metrics.port sets"
    ),
}


AUTHENTICATION_MS_MAX: Final = 60_000
"""How long a TLS handshake and a login may take: clients give theirs up after 30 s. A handshake takes 30 KB
while it waits, so that thousands of them must not wait for `connections.max.idle.ms`, ten minutes."""


class Server(SocketServer):
    """All listeners and connections of one broker."""

    def __init__(
        self, config: ServerConfig, on_frame: FrameHandler, network: Network = SYSTEM_NETWORK
    ) -> None:
        super().__init__(config, on_frame, network=network)
        self.on_login: LoginObserver | None = None
        """Called after each attempt of a client to authenticate, by TLS or by SASL."""

    async def listen(
        self,
        name: str,
        host: str,
        port: int,
        *,
        accept: bool = True,
        security: ListenerSecurity = PLAINTEXT,
        filters: Sequence[FrameFilter] = (),
    ) -> int:
        """Open a listener; the message of an `OSError` names it."""
        try:
            return await super().listen(name, host, port, accept=accept, security=security, filters=filters)
        except OSError as error:
            text = f"listener {name} cannot use {address_text(host, port)}: {error.strerror}"
            raise OSError(error.errno, text) from error

    def begin(self, connection: Connection) -> None:
        """Have the client log in, where the listener demands it."""
        security = self._by_name[connection.listener].security
        connection.principal = security.anonymous
        if security.start_login is not None:
            connection.handle_with(security.start_login(connection))
        if security.tls is not None or security.start_login is not None:
            connection.due = connection.last_active + self._authentication_ms_max / 1000

    def end_overdue(self, connection: Connection) -> None:
        """Close a connection whose client has not authenticated in time."""
        reason = f"the client did not authenticate within {self._authentication_ms_max} ms"
        self.authentication_failed(connection, reason)
        connection.close(reason, logging.DEBUG)

    @property
    def _authentication_ms_max(self) -> int:
        return min(AUTHENTICATION_MS_MAX, self._config.connections_max_idle_ms)

    def set_frame_handler(self, on_frame: FrameHandler) -> None:
        """Pass frames to another handler, also those of open connections unless a client is logging in.

        A login ends with the handler of that moment.
        """
        before, self._on_frame = self._on_frame, on_frame
        for connection in self.connections:
            connection.replace_handler(before, on_frame)

    def register_metrics(self, metrics: Metrics) -> None:
        """Register the counts as metrics with the names of Kafka's socket server."""

        def name(attribute: str) -> str:
            return metric_name("kafka.server", "socket-server-metrics", attribute)

        counter = metrics.counter_function
        metrics.table(
            self._connection_rows,
            Column(name("connection-count"), "gauge", "Connections that are open."),
        )
        metrics.table(
            self._authentication_rows,
            Column(name("successful-authentication-total"), "counter", "Clients that authenticated."),
            Column(name("failed-authentication-total"), "counter", "Clients that failed to authenticate."),
        )
        metrics.table(
            self._rate_rows,
            Column(name("connection-accept-rate"), "gauge", "Connections accepted a second."),
        )
        metrics.table(
            self._throttle_rows,
            Column(
                name("connection-accept-throttle-time"),
                "gauge",
                "Milliseconds for which accepting paused because of a rate, the mean of the pauses.",
            ),
            Column(
                name("ip-connection-accept-throttle-time"),
                "gauge",
                "Milliseconds until connections of addresses above their rate were closed, the mean.",
            ),
        )
        metrics.gauge(
            name("broker-connection-accept-rate"),
            "Connections accepted a second on all listeners but a protected one.",
            lambda: self.rates.broker_rate(monotonic()),
        )
        counter(name("connection-creation-total"), "Connections accepted.", lambda: self._accepted)
        counter(name("connection-close-total"), "Connections closed.", lambda: self._closed)
        counter(
            name("expired-connections-killed-count"),
            "Connections closed for idleness.",
            lambda: self._expired,
        )
        counter(name("incoming-byte-total"), "Bytes received from clients.", lambda: self.bytes_in)
        counter(name("outgoing-byte-total"), "Bytes sent to clients.", lambda: self.bytes_out)
        counter(
            "kalda_net_server_connections_rejected",
            "Connections above max.connections.per.ip or the rate of their address.",
            lambda: self._rejected,
        )

    def _connection_rows(self) -> list[tuple[Labels, tuple[int]]]:
        """Count the open connections of each listener."""
        return [((("listener", name),), (listener.connections,)) for name, listener in self._by_name.items()]

    def _rate_rows(self) -> list[tuple[Labels, tuple[float]]]:
        """Return how fast each listener accepts, and each address that has a limit connects."""
        now = monotonic()
        listeners = [
            ((("listener", name),), (each.rate.per_second(now),)) for name, each in self.rates.listeners()
        ]
        return [*listeners, *(((("ip", ip),), (rate,)) for ip, rate in self.rates.ips(now))]

    def _throttle_rows(self) -> list[tuple[Labels, tuple[float, float]]]:
        """Return the mean waits of each listener in milliseconds."""
        now = monotonic()
        return [
            ((("listener", name),), (each.throttled.mean(now) * 1000, each.ip_throttled.mean(now) * 1000))
            for name, each in self.rates.listeners()
        ]

    def _authentication_rows(self) -> list[tuple[Labels, tuple[int, int]]]:
        """Return how many clients of each listener authenticated and how many failed to."""
        return [
            ((("listener", name),), (listener.succeeded, listener.failed))
            for name, listener in self._by_name.items()
        ]

    def peer_speaks(self, connection: Connection, protocol: ForeignProtocol) -> None:
        """Log that a peer sent another protocol than Kafka's; called by the connection."""
        message = FOREIGN_MESSAGES[protocol]
        self.report_foreign(connection, message, connection.peer, connection.listener)

    def handshake_completed(self, connection: Connection, certificate: bytes | None) -> str | None:
        """Take the identity of a peer from its certificate, where clients do not log in by SASL.

        Return why the certificate is refused, or None; called by the connection.
        """
        security = self._by_name[connection.listener].security
        assert isinstance(security.tls, TlsListener), f"a handshake on the listener {connection.listener}"
        if security.start_login is not None:
            return None
        try:
            connection.principal = security.tls.principal_of(certificate)
        except (NoMatchingRuleError, DerError) as error:
            return str(error)
        self.authentication_succeeded(connection)
        return None

    def authentication_succeeded(self, connection: Connection) -> None:
        """Count a client that authenticated; its connection has its principal."""
        connection.due = None
        self._by_name[connection.listener].succeeded += 1
        if self.on_login is not None:
            self.on_login(connection, None)

    def authentication_failed(self, connection: Connection, reason: str) -> None:
        """Count and log a client that could not authenticate."""
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

    @property
    def frame_handler(self) -> FrameHandler:
        """The handler of requests from clients that need no login or have logged in."""
        return self._on_frame

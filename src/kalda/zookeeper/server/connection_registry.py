"""Every client connection of one ZooKeeper server: its limits, its sessions and its traffic counters.

Connections register here when they are accepted and when their session opens; the four-letter commands read
the counters. The registry opens no socket (`listener` does) and parses no request (`server_connection` does).
Invariant: a session has at most one connection, the newest one that resumed it.
"""

import logging
import math
from enum import Enum
from typing import Final

from kalda.common import invariants
from kalda.common.log_limiter import LogLimiter
from kalda.net.connection import Connection
from kalda.net.socket_server import ServerConfig
from kalda.runtime.clock import Clock
from kalda.security.quota.connection_rates import UNLIMITED
from kalda.zookeeper.server.config import ZooKeeperConfig
from kalda.zookeeper.server.traffic import Traffic
from kalda.zookeeper.server.zookeeper_server import ZooKeeperServer

NEW_CONNECTION_SECONDS_MAX: Final = 10.0
"""How long a connection may take to send a complete connect request, as in ZooKeeper. A client that sends
nothing, or half a request, must not hold a connection slot."""

OUTSTANDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of outstanding requests above which a connection that has outstanding requests is not read from."""

_CHECKED_PER_CLOSE: Final = 16
"""Connections whose check one closed connection may cost on average."""

logger: Final = logging.getLogger(__name__)


class ConnectionState(Enum):
    """The stage of a connection's life."""

    NEW = "new"
    OPENING = "opening"
    """Its session is being created or looked up; further requests of the client wait unparsed."""
    OPEN = "open"
    ENDING = "ending"
    """The client has closed its session; further requests are ignored."""
    CLOSED = "closed"


class RegisteredConnection:
    """A connection as the registry and the four-letter commands see it."""

    def __init__(self, link: Connection) -> None:
        self.link: Final = link
        self.state = ConnectionState.NEW
        self.session_id = 0
        """The session, or 0 while there is none."""
        self.established_ms = 0
        """When its session was opened or resumed, in wall-clock milliseconds."""
        self.timeout_ms = 0
        self.outstanding = 0
        """Requests of this connection in the processor chain."""
        self.traffic: Final = Traffic()

    def close(self, reason: str, level: int = logging.DEBUG) -> None:
        """Send what is queued and close the connection; the session lives on."""
        raise NotImplementedError

    def check_invariants(self) -> None:
        """Assert that the connection keeps its bounds and its own counters."""
        raise NotImplementedError


class ConnectionRegistry:
    """The connections of one server, over all of its listening sockets."""

    def __init__(self, server: ZooKeeperServer, config: ZooKeeperConfig, clock: Clock) -> None:
        self.server: Final = server
        self.config: Final = config
        self.clock: Final = clock
        self.started_ms: Final = clock.time_ms()
        self.port = 0
        """The client port as four-letter commands report it: the one that was bound last, 0 before."""
        self.secure_port = 0
        """The port for clients over TLS, 0 if there is none."""
        self.traffic: Final = Traffic()
        """The sum over all connections since the start, closed ones included."""
        self.connections: Final[set[RegisteredConnection]] = set()
        self.rejected = 0
        """Connections refused because of `maxClientCnxns` or `maxCnxns`."""
        self.outstanding = 0
        """Requests of all connections in the processor chain."""
        self._outstanding_bytes = 0
        self._unchecked_closes = 0
        self._ticked_at = math.inf
        self.limiter: Final = LogLimiter(logger)
        """Logs the lines that a client can cause, at most so many per address."""
        self._by_session: dict[int, RegisteredConnection] = {}
        """The connection of each session that has one."""

    @property
    def is_full(self) -> bool:
        """Whether the outstanding requests reach a limit of the server."""
        return (
            self.outstanding >= self.config.outstanding_max
            or self._outstanding_bytes >= OUTSTANDING_BYTES_MAX
        )

    def listening_on(self, port: int, *, is_secure: bool = False) -> None:
        """Record the port of a listening socket."""
        if is_secure:
            self.secure_port = port
        else:
            self.port = port

    def limits(self) -> ServerConfig:
        """Return the limits of connections."""
        config = self.config
        return ServerConfig(
            socket_request_max_bytes=config.frame_bytes_max,
            connections_max_idle_ms=UNLIMITED,
            max_connections_per_ip=config.connections_per_host_max or UNLIMITED,
            socket_listen_backlog_size=config.listen_backlog,
        )

    def admits(self) -> bool:
        """Return whether one more connection may be served; a refusal is logged."""
        limit = self.config.connections_max
        is_full = bool(limit) and len(self.connections) >= limit
        if is_full:
            self.limiter.log(logging.WARNING, "a connection is refused: maxCnxns=%d is reached", limit)
        return not is_full

    def add(self, connection: RegisteredConnection) -> None:
        """Register a new connection."""
        self.connections.add(connection)

    def session_opened(self, connection: RegisteredConnection) -> None:
        """Record a connection as its session's; the session's earlier connection is closed."""
        before = self._by_session.get(connection.session_id)
        self._by_session[connection.session_id] = connection
        if before is not None:
            before.close(f"session {connection.session_id:#x} is resumed by another connection", logging.INFO)

    def closed_while_opening(self, connection: RegisteredConnection) -> None:
        """Detach a session that was opened for a connection which has closed meanwhile."""
        if connection.session_id not in self._by_session:
            self.server.detach_session(connection.session_id)

    def session_ended(self, session_id: int) -> None:
        """Close the connection of an ended session, unless the client closed it and awaits the response."""
        connection = self._by_session.get(session_id)
        if connection is not None and connection.state is not ConnectionState.ENDING:
            connection.close("its session has expired", logging.INFO)

    def forget(self, connection: RegisteredConnection) -> None:
        """Remove a closed connection; its session is detached and expires unless it is resumed."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        if self._by_session.get(connection.session_id) is connection:
            del self._by_session[connection.session_id]
            self.server.detach_session(connection.session_id)
        if invariants.enabled:
            self._unchecked_closes += 1
            if self._unchecked_closes * _CHECKED_PER_CLOSE >= len(self.connections):
                self.check_invariants()

    def request_began(self, request_bytes: int) -> None:
        """Count a request that enters the processor chain."""
        self.outstanding += 1
        self._outstanding_bytes += request_bytes

    def request_done(self, request_bytes: int) -> None:
        """Count a request that has left the processor chain."""
        self.outstanding -= 1
        self._outstanding_bytes -= request_bytes
        assert self.outstanding >= 0, f"{self.outstanding} requests are outstanding"
        assert self._outstanding_bytes >= 0, f"{self._outstanding_bytes} bytes are outstanding"

    def on_tick(self, now: float) -> None:
        """Keep the sessions of clients who are sending a large request or are not read from.

        `now` is in monotonic seconds.
        """
        if invariants.enabled:
            self.check_invariants()
        self.limiter.report_suppressed()
        for connection in self.connections:
            link = connection.link
            if connection.state is ConnectionState.OPEN and (
                link.is_held_back or link.received_at > self._ticked_at
            ):
                self.server.sessions.touch(connection.session_id)
        self._ticked_at = now

    def check_invariants(self) -> None:
        """Assert that the counters and indexes agree with the connections."""
        self._unchecked_closes = 0
        for session_id, connection in self._by_session.items():
            assert connection.session_id == session_id, f"{connection.session_id:#x} is {session_id:#x}"
            assert connection in self.connections, f"session {session_id:#x} has a closed connection"
        # Requests of closed connections are outstanding too.
        outstanding = sum(connection.outstanding for connection in self.connections)
        assert outstanding <= self.outstanding, f"{outstanding} are outstanding, counted {self.outstanding}"
        for connection in self.connections:
            connection.check_invariants()

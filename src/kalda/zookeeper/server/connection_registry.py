"""Every client connection of one ZooKeeper server: its limits, its sessions and its traffic counters.

Connections register here when they are accepted and when their session opens; the four-letter commands read
the counters. The registry opens no socket (`listener` does) and parses no request (`server_connection` does).
Invariant: a session has at most one connection, the newest one that resumed it.
"""

import logging
from collections import Counter
from enum import Enum
from typing import Final, Protocol

from kalda.common import invariants
from kalda.common.log_limiter import LogLimiter
from kalda.net.foreign_protocols import ForeignProtocol, report_limiter
from kalda.runtime.clock import Clock
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

FOREIGN_MESSAGES: Final = {
    ForeignProtocol.TLS: (
        "the client at %s:%d sent a TLS ClientHello to the ZooKeeper port without TLS; use the port of "
        "secureClientPort, or set "
        "zookeeper.ssl.client.enable=false in a broker, zookeeper.client.secure=false in a ZooKeeper client"
    ),
    ForeignProtocol.HTTP: (
        "the client at %s:%d sent an HTTP request to the ZooKeeper port, which speaks ZooKeeper's protocol; "
        "brokers serve metrics over HTTP on the port that metrics.port sets"
    ),
}

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


class RegisteredConnection(Protocol):
    """What the registry, the listener and the four-letter commands use of a connection."""

    state: ConnectionState
    session_id: int
    """The session, or 0 while there is none."""
    peer: tuple[str, int]
    opened_at: float
    """When the connection was accepted, in monotonic seconds."""
    established_ms: int
    """When its session was opened or resumed, in wall-clock milliseconds."""
    timeout_ms: int
    outstanding: int
    """Requests of this connection in the processor chain."""

    @property
    def traffic(self) -> Traffic:
        """The counters of this connection."""
        ...

    @property
    def held_bytes(self) -> int:
        """Memory of responses and events that the client has not read yet."""
        ...

    @property
    def is_held_back(self) -> bool:
        """Whether the server has stopped reading although the client reads its responses."""
        ...

    def check_invariants(self) -> None:
        """Assert that the connection keeps its bounds and its own counters."""
        ...

    def close(self, reason: str, level: int = logging.DEBUG) -> None:
        """Send what is queued and close the connection; the session lives on."""
        ...

    def abort(self, reason: str, level: int = logging.INFO) -> None:
        """Close the connection at once; the session lives on."""
        ...

    def stop(self) -> None:
        """Read no more requests; outstanding ones are still answered."""
        ...


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
        self.limiter: Final = LogLimiter(logger)
        """Logs the lines that a client can cause, at most so many per address."""
        self._foreign: Final = report_limiter(logger)
        self._per_host: Counter[str] = Counter()
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

    def admit(self, connection: RegisteredConnection) -> bool:
        """Register a new connection, or return False if it is above a limit."""
        host, config = connection.peer[0], self.config
        if config.connections_max and len(self.connections) >= config.connections_max:
            self._reject(host, f"maxCnxns={config.connections_max}")
            return False
        if config.connections_per_host_max and self._per_host[host] >= config.connections_per_host_max:
            self._reject(host, f"maxClientCnxns={config.connections_per_host_max}")
            return False
        self.connections.add(connection)
        self._per_host[host] += 1
        return True

    def report_foreign(self, connection: RegisteredConnection, protocol: ForeignProtocol) -> None:
        """Log that a client sent another protocol to the ZooKeeper port."""
        host, port = connection.peer
        self._foreign.log(logging.WARNING, FOREIGN_MESSAGES[protocol], host, port, source=host)

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
        host = connection.peer[0]
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
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
        """Close connections that asked for no session in time; `now` is the loop's time in seconds."""
        if invariants.enabled:
            self.check_invariants()
        self.limiter.report_suppressed()
        self._foreign.report_suppressed()
        for connection in list(self.connections):
            if connection.state is ConnectionState.OPEN:
                if connection.is_held_back:
                    # Heartbeats of the client may wait in the socket that the server does not read.
                    self.server.sessions.touch(connection.session_id)
            elif (
                connection.state is ConnectionState.NEW
                and now - connection.opened_at > NEW_CONNECTION_SECONDS_MAX
            ):
                connection.abort("it asked for no session in time")

    def check_invariants(self) -> None:
        """Assert that the counters and indexes agree with the connections."""
        self._unchecked_closes = 0
        hosts = Counter(connection.peer[0] for connection in self.connections)
        assert hosts == self._per_host, f"connections by host are {hosts}, counted {self._per_host}"
        for session_id, connection in self._by_session.items():
            assert connection.session_id == session_id, f"{connection.session_id:#x} is {session_id:#x}"
            assert connection in self.connections, f"session {session_id:#x} has a closed connection"
        # Requests of closed connections are outstanding too.
        outstanding = sum(connection.outstanding for connection in self.connections)
        assert outstanding <= self.outstanding, f"{outstanding} are outstanding, counted {self.outstanding}"
        for connection in self.connections:
            connection.check_invariants()

    def _reject(self, host: str, limit: str) -> None:
        self.rejected += 1
        self.limiter.log(
            logging.WARNING, "a connection from %s is refused: %s is reached", host or "?", limit, source=host
        )

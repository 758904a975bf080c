"""Accepts ZooKeeper's clients, holds their connections within the limits, and drives the server's time.

Several addresses may be listened on. The server may have sessions inside this process as well; they and the
wire's share one tree and one order.
"""

import asyncio
import logging
from collections import Counter
from typing import Final

from kalda.common.clock import Clock
from kalda.common.log_limiter import LogLimiter
from kalda.net.foreign_protocols import ForeignProtocol, report_limiter
from kalda.zk.server.config import ZooKeeperConfig
from kalda.zk.server.connection import ConnectionState, ZooKeeperConnection
from kalda.zk.server.heartbeat import Heartbeat
from kalda.zk.server.server import ZooKeeperServer
from kalda.zk.server.traffic import Traffic

NEW_CONNECTION_SECONDS_MAX: Final = 10.0
"""How long a connection may take to ask for its session, as in ZooKeeper: one that asks for nothing, or half
of something, must not hold its place."""

OUTSTANDING_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bytes of requests under way above which a connection that has some is not read from."""

DRAIN_SECONDS_MAX: Final = 5.0
"""How long closing waits for requests under way to be answered."""

FOREIGN_MESSAGES: Final = {
    ForeignProtocol.TLS: (
        "the client at %s:%d sent a TLS ClientHello to the ZooKeeper port, which has no TLS; set "
        "zookeeper.ssl.client.enable=false in a broker, zookeeper.client.secure=false in a ZooKeeper client"
    ),
    ForeignProtocol.HTTP: (
        "the client at %s:%d sent an HTTP request to the ZooKeeper port, which speaks ZooKeeper's protocol; "
        "brokers serve metrics over HTTP on the port that metrics.port sets"
    ),
}

logger: Final = logging.getLogger(__name__)


class ZooKeeperListener:
    """All listening sockets and connections of one server.

    >>> listener = ZooKeeperListener(embedded.server, ZooKeeperConfig(), SystemClock())
    >>> port = await listener.listen("127.0.0.1", 0)
    >>> await listener.close()
    """

    def __init__(self, server: ZooKeeperServer, config: ZooKeeperConfig, clock: Clock) -> None:
        self.server: Final = server
        self.config: Final = config
        self.clock: Final = clock
        self.started_ms: Final = clock.time_ms()
        self.traffic: Final = Traffic()
        """That of all connections that there were."""
        self.connections: Final[set[ZooKeeperConnection]] = set()
        self.rejected = 0
        """Connections above `maxClientCnxns` or `maxCnxns`."""
        self.outstanding = 0
        self.port = 0
        self._outstanding_bytes = 0
        self.limiter: Final = LogLimiter(logger)
        """Logs the lines that a client can cause."""
        self._foreign: Final = report_limiter(logger)
        self._per_host: Counter[str] = Counter()
        self._sessions: dict[int, ZooKeeperConnection] = {}
        """The connection of each session that has one."""
        self._listeners: list[asyncio.Server] = []
        self._heartbeat: Final = Heartbeat(server, self._on_beat)

    @property
    def is_full(self) -> bool:
        """Whether as many requests are under way as may be."""
        return (
            self.outstanding >= self.config.outstanding_max
            or self._outstanding_bytes >= OUTSTANDING_BYTES_MAX
        )

    async def listen(self, host: str, port: int) -> int:
        """Accept connections on an address; return the port, which is the system's choice if `port` is 0.

        An empty host means every interface; with a port of the system's choice, every IPv4 interface, since
        each family would get a port of its own.

        Raises:
            OSError: the address cannot be resolved or bound.
        """
        loop = asyncio.get_running_loop()
        if not host and not port:
            host = "0.0.0.0"
        listener = await loop.create_server(
            lambda: ZooKeeperConnection(self),
            host or None,
            port,
            backlog=self.config.listen_backlog,
            reuse_address=True,
        )
        self._listeners.append(listener)
        self._heartbeat.start(loop)
        self.port = int(listener.sockets[0].getsockname()[1])
        return self.port

    async def close(self) -> None:
        """Accept and read no more, answer what is under way, close every connection. Sessions live on."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        for connection in self.connections:
            connection.stop()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS_MAX
        # Polled, so that the path of every answer need not look whether somebody waits for the last one.
        while self.outstanding and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        self._heartbeat.stop()
        for connection in list(self.connections):
            connection.close("the server is shutting down")
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Close everything at once, as the end of the process would; nothing under way is answered."""
        for listener in self._listeners:
            listener.close()
        self._listeners.clear()
        self._heartbeat.stop()
        for connection in list(self.connections):
            connection.abort("the server was killed")

    # What connections call.

    def admit(self, connection: ZooKeeperConnection) -> bool:
        """Take a new connection in, or return False if it is above a limit."""
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

    def peer_speaks(self, connection: ZooKeeperConnection, protocol: ForeignProtocol) -> None:
        """Log that a client took the port for one of another protocol."""
        host, port = connection.peer
        self._foreign.log(logging.WARNING, FOREIGN_MESSAGES[protocol], host, port, source=host)

    def opened(self, connection: ZooKeeperConnection) -> None:
        """Note a connection's session; a connection that had it before is closed."""
        before = self._sessions.get(connection.session_id)
        self._sessions[connection.session_id] = connection
        if before is not None:
            before.close(f"session {connection.session_id:#x} is taken up elsewhere", logging.INFO)

    def left(self, connection: ZooKeeperConnection) -> None:
        """Note that a connection was closed before its session was opened."""
        if connection.session_id not in self._sessions:
            self.server.detach_session(connection.session_id)

    def session_over(self, session_id: int) -> None:
        """End the connection of a session that is over, unless its client closed it and awaits the answer."""
        connection = self._sessions.get(session_id)
        if connection is not None and connection.state is not ConnectionState.ENDING:
            connection.close("its session has expired", logging.INFO)

    def forget(self, connection: ZooKeeperConnection) -> None:
        """Drop a connection that is closed."""
        if connection not in self.connections:
            return
        self.connections.discard(connection)
        host = connection.peer[0]
        self._per_host[host] -= 1
        if not self._per_host[host]:
            del self._per_host[host]
        if self._sessions.get(connection.session_id) is connection:
            del self._sessions[connection.session_id]
            self.server.detach_session(connection.session_id)

    def began(self, request_bytes: int) -> None:
        """Count a request that goes on its way."""
        self.outstanding += 1
        self._outstanding_bytes += request_bytes

    def done(self, request_bytes: int) -> None:
        """Count a request that has its answer."""
        self.outstanding -= 1
        self._outstanding_bytes -= request_bytes

    def _reject(self, host: str, limit: str) -> None:
        self.rejected += 1
        self.limiter.log(
            logging.WARNING, "a connection from %s is refused: %s is reached", host or "?", limit, source=host
        )

    def _on_beat(self, now: float) -> None:
        self.limiter.report_suppressed()
        self._foreign.report_suppressed()
        for connection in list(self.connections):
            if connection.state is ConnectionState.OPEN:
                if connection.is_held_back:
                    # It may have sent heartbeats that we did not read.
                    self.server.sessions.touch(connection.session_id)
            elif (
                connection.state is ConnectionState.NEW
                and now - connection.opened_at > NEW_CONNECTION_SECONDS_MAX
            ):
                connection.abort("it asked for no session in time")

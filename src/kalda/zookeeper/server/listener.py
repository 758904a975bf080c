"""Listens for clients of a ZooKeeper server, and runs the sweeps by which the server sees time pass.

Several addresses may be listened on. Sessions of this process (`embedded`) share the data tree and the order
of changes with the sessions that connect here. A connection is admitted when it is accepted, before its TLS
handshake: half-open handshakes count against ``maxClientCnxns`` and have the same time limit as connections
that send no connect request.
"""

import logging
from typing import Final

from kalda.net.connection import Connection
from kalda.net.foreign_protocols import ForeignProtocol
from kalda.net.listener_security import PLAINTEXT, ListenerSecurity
from kalda.net.socket_server import SocketServer
from kalda.runtime.clock import Clock
from kalda.runtime.network import Network
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.zookeeper.server import connection_registry
from kalda.zookeeper.server.config import ZooKeeperConfig
from kalda.zookeeper.server.connection_registry import ConnectionRegistry
from kalda.zookeeper.server.server_connection import ServerConnection
from kalda.zookeeper.server.server_tls import ServerTls
from kalda.zookeeper.server.zookeeper_server import ZooKeeperServer

DRAIN_SECONDS_MAX: Final = 5.0
"""How long `close` waits for the responses of outstanding requests."""

FOREIGN_MESSAGES: Final = {
    ForeignProtocol.TLS: (
        "the client at %s sent a TLS ClientHello to the ZooKeeper port without TLS; use the port of "
        "secureClientPort, or set "
        "zookeeper.ssl.client.enable=false in a broker, zookeeper.client.secure=false in a ZooKeeper client"
    ),
    ForeignProtocol.HTTP: (
        "the client at %s sent an HTTP request to the ZooKeeper port, which speaks ZooKeeper's protocol; "
        "brokers serve metrics over HTTP on the port that metrics.port sets"
    ),
}

logger: Final = logging.getLogger(__name__)


class ZooKeeperListener:
    """Accepts the clients of one server.

    >>> listener = ZooKeeperListener(embedded.server, ZooKeeperConfig(), SystemClock())
    >>> port = await listener.listen("127.0.0.1", 0)
    >>> await listener.close()
    """

    def __init__(
        self,
        server: ZooKeeperServer,
        config: ZooKeeperConfig,
        clock: Clock,
        network: Network = SYSTEM_NETWORK,
    ) -> None:
        self.registry: Final = ConnectionRegistry(server, config, clock)
        self._tls: Final = None if config.tls is None else ServerTls(config.tls)
        self.sockets: Final = _Sockets(self.registry, self._tls, network)
        self._count = 0

    async def listen(self, host: str, port: int, *, is_secure: bool = False) -> int:
        """Accept connections on an address and return the port; the system chooses one if `port` is 0.

        Clients of a secure port speak TLS, which the server's settings must define. Those of the other port
        may do so with ``client.portUnification``.

        Raises:
            OSError: the address cannot be resolved or bound.
        """
        security = PLAINTEXT
        if is_secure or self.registry.config.port_unification:
            assert self._tls is not None, "a port that speaks TLS has settings of TLS"
            security = ListenerSecurity(tls=self._tls, is_tls_optional=not is_secure)
        name = f"zookeeper {self._count}"
        self._count += 1
        bound = await self.sockets.listen(name, host, port, security=security)
        self.registry.listening_on(bound, is_secure=is_secure)
        self.registry.server.pass_time()
        return bound

    async def close(self) -> None:
        """Stop accepting and reading, answer outstanding requests, close every connection.

        Sessions live on until they expire.
        """
        await self.sockets.close(DRAIN_SECONDS_MAX)

    def abort(self) -> None:
        """Close everything at once, as the death of the process would; outstanding requests are dropped."""
        self.sockets.abort()


class _Sockets(SocketServer):
    """The sockets; each connection gets a `ServerConnection`."""

    connections_per_ip_setting = "maxClientCnxns"
    tls_hint = (
        "set zookeeper.ssl.client.enable=true in a broker, zookeeper.client.secure=true in a ZooKeeper client"
    )

    def __init__(self, registry: ConnectionRegistry, tls: ServerTls | None, network: Network) -> None:
        super().__init__(registry.limits(), log=logger, network=network)
        self._registry: Final = registry
        self._tls: Final = tls

    def begin(self, connection: Connection) -> None:
        connection.begin(ServerConnection(self._registry, connection))
        connection.due = connection.last_active + connection_registry.NEW_CONNECTION_SECONDS_MAX

    def admits(self, address: str) -> bool:
        is_admitted = self._registry.admits() and super().admits(address)
        self._registry.rejected += not is_admitted
        return is_admitted

    def is_quiet(self) -> bool:
        return not self._registry.outstanding and super().is_quiet()

    def end_overdue(self, connection: Connection) -> None:
        connection.close("it asked for no session in time")

    def peer_speaks(self, connection: Connection, protocol: ForeignProtocol) -> None:
        self.report_foreign(connection, FOREIGN_MESSAGES[protocol], connection.peer)

    def handshake_completed(self, connection: Connection, certificate: bytes | None) -> str | None:
        session = connection.session
        assert isinstance(session, ServerConnection), f"{connection.peer} has the session {session}"
        return session.certificate_verified(certificate)

    def authentication_failed(self, connection: Connection, reason: str) -> None:
        message = "the client at %s failed to authenticate: %s"
        self.limiter.log(logging.WARNING, message, connection.peer, reason, source=connection.peer_address)

    def sweep_seconds(self) -> float:
        return self._registry.server.tick_seconds

    def sweep(self, now: float) -> None:
        super().sweep(now)
        if self._tls is not None:
            self._tls.on_tick(now)
        self._registry.on_tick(now)
        self._registry.server.pass_time()

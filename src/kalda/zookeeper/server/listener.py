"""The listening sockets of a ZooKeeper server, and the timer that lets the server see time pass.

Several addresses may be listened on. Sessions of this process (`embedded`) share the data tree and the order
of changes with the sessions that connect here.
"""

import asyncio
from functools import partial
from typing import Final

from kalda.runtime.clock import Clock
from kalda.runtime.system.bound_socket import bound_socket
from kalda.zookeeper.server.config import ZooKeeperConfig
from kalda.zookeeper.server.connection_registry import ConnectionRegistry
from kalda.zookeeper.server.server_connection import ServerConnection
from kalda.zookeeper.server.server_timer import ServerTimer
from kalda.zookeeper.server.server_tls import ServerTls
from kalda.zookeeper.server.tls_transport import TlsTransport
from kalda.zookeeper.server.zookeeper_server import ZooKeeperServer

DRAIN_SECONDS_MAX: Final = 5.0
"""How long `close` waits for the responses of outstanding requests."""


class ZooKeeperListener:
    """Accepts the clients of one server.

    >>> listener = ZooKeeperListener(embedded.server, ZooKeeperConfig(), SystemClock())
    >>> port = await listener.listen("127.0.0.1", 0)
    >>> await listener.close()
    """

    def __init__(self, server: ZooKeeperServer, config: ZooKeeperConfig, clock: Clock) -> None:
        self.registry: Final = ConnectionRegistry(server, config, clock)
        self._tls: Final = None if config.tls is None else ServerTls(config.tls)
        self._sockets: list[asyncio.Server] = []
        self._timer: Final = ServerTimer(server, self._on_tick)

    async def listen(self, host: str, port: int, *, is_secure: bool = False) -> int:
        """Accept connections on an address and return the port; the system chooses one if `port` is 0.

        Clients of a secure port speak TLS, which the server's settings must define. Those of the other port
        may do so with ``client.portUnification``.

        Raises:
            OSError: the address cannot be resolved or bound.
        """
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            partial(self._accept, is_secure=is_secure),
            sock=bound_socket(host, port),
            backlog=self.registry.config.listen_backlog,
        )
        self._sockets.append(server)
        self._timer.start(loop)
        bound = int(server.sockets[0].getsockname()[1])
        self.registry.listening_on(bound, is_secure=is_secure)
        return bound

    async def close(self) -> None:
        """Stop accepting and reading, answer outstanding requests, close every connection.

        Sessions live on until they expire.
        """
        self._stop_accepting()
        for connection in self.registry.connections:
            connection.stop()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + DRAIN_SECONDS_MAX
        # Polled, so that the hot path of responses need not check whether anything waits for the last one.
        while self.registry.outstanding and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        self._timer.stop()
        for connection in list(self.registry.connections):
            connection.close("the server is shutting down")
        await asyncio.sleep(0)

    def abort(self) -> None:
        """Close everything at once, as the death of the process would; outstanding requests are dropped."""
        self._stop_accepting()
        self._timer.stop()
        for connection in list(self.registry.connections):
            connection.abort("the server was killed")

    def _accept(self, *, is_secure: bool) -> asyncio.Protocol:
        connection = ServerConnection(self.registry)
        if not is_secure and not self.registry.config.port_unification:
            return connection
        assert self._tls is not None, "a port that speaks TLS has settings of TLS"
        return TlsTransport(connection, self._tls.context, is_optional=not is_secure)

    def _on_tick(self, now: float) -> None:
        if self._tls is not None:
            self._tls.on_tick(now)
        self.registry.on_tick(now)

    def _stop_accepting(self) -> None:
        for server in self._sockets:
            server.close()
        self._sockets.clear()

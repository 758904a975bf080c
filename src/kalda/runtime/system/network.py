"""The network of the operating system: the port of `kalda.runtime.network`."""

import socket
from typing import Final

from kalda.runtime.network import Address, Stream, StreamListener
from kalda.runtime.system.bound_socket import bound_socket, probe
from kalda.runtime.system.connect import canonical_addresses, connect_socket, on_daemon_thread
from kalda.runtime.system.stream import SocketStream


class SocketListener:
    """A listening TCP socket as a `StreamListener`; its connections have TCP_NODELAY and keep-alive."""

    __slots__ = ("_send_buffer_bytes", "_socket", "port")

    def __init__(self, sock: socket.socket, send_buffer_bytes: int) -> None:
        self._socket: Final = sock
        self._send_buffer_bytes: Final = send_buffer_bytes
        self.port: Final = int(sock.getsockname()[1])

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._socket.fileno()

    def accept_stream(self) -> tuple[Stream, Address]:
        """Accept a connection; see `StreamListener`."""
        accepted, address = self._socket.accept()
        stream = SocketStream(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        try:
            stream.setblocking(False)
            stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_bytes >= 0:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
        except OSError as error:
            stream.close()
            raise ConnectionAbortedError(*error.args) from None
        return stream, (str(address[0]), int(address[1]))

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class SystemNetwork:
    """TCP over the sockets of this machine. Names are resolved on threads of their own."""

    async def listen(
        self,
        host: str,
        port: int,
        *,
        backlog: int = 128,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> StreamListener:
        """Bind and listen; see `Network`."""
        sock = await on_daemon_thread(
            lambda: bound_socket(host, port, receive_buffer_bytes=receive_buffer_bytes), f"bind {host}:{port}"
        )
        try:
            sock.listen(backlog)
            return SocketListener(sock, send_buffer_bytes)
        except BaseException:
            sock.close()
            raise

    def probe(self, host: str, port: int) -> None:
        """Bind and close; see `Network`."""
        probe(host, port)

    async def connect(
        self,
        host: str,
        port: int,
        *,
        timeout_seconds: float,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> Stream:
        """Connect; see `Network`."""
        return await connect_socket(
            host,
            port,
            timeout_seconds=timeout_seconds,
            send_buffer_bytes=send_buffer_bytes,
            receive_buffer_bytes=receive_buffer_bytes,
        )

    async def canonical_addresses(self, host: str, port: int) -> list[Address]:
        """Ask the resolver for addresses and their names; see `Network`."""
        return await canonical_addresses(host, port)

    async def address_of(self, host: str) -> str | None:
        """Ask the resolver; see `Network`."""
        try:
            found = await on_daemon_thread(
                lambda: socket.getaddrinfo(host, None, type=socket.SOCK_STREAM), f"resolve {host}"
            )
        except OSError:
            return None
        found.sort(key=lambda info: info[0] != socket.AF_INET)
        return str(found[0][4][0]) if found else None

    def host_name(self) -> str:
        """Return the name that the system has for itself."""
        return socket.gethostname()


SYSTEM_NETWORK: Final = SystemNetwork()
"""Has no state."""

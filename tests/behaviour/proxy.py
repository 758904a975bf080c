"""A TCP proxy in front of one broker, which can be cut like a cable."""

import selectors
import socket
import threading
from typing import Final

from tests.leftovers import SHARED_SOCKETS

_CHUNK_BYTES: Final = 256 * 1024
_BUFFERED_BYTES_MAX: Final = 4 * 1024 * 1024
"""Per direction; a peer that does not read holds its sender back."""


class CuttableProxy:
    """Forwards 127.0.0.1:`port` to 127.0.0.1:`upstream` on a thread of its own.

    Args:
        port: Where clients connect; kept until `close`.
        upstream: The broker's real port. A connection while nothing listens there is closed at once.
    """

    def __init__(self, port: int, upstream: int) -> None:
        self.port: Final = port
        self._upstream: Final = upstream
        self._selector: Final = selectors.DefaultSelector()
        self._is_cut = threading.Event()
        self._is_closed = threading.Event()
        self._waker, self._woken = socket.socketpair()
        self._listener: Final = socket.create_server(("127.0.0.1", port), backlog=128)
        self._pairs: Final[dict[socket.socket, socket.socket]] = {}
        self._pending: Final[dict[socket.socket, bytearray]] = {}
        self._ended: Final[set[socket.socket]] = set()
        """Those that send no more; what they sent before is still forwarded."""
        self._thread: Final = threading.Thread(target=self._run, name=f"proxy {port}", daemon=True)
        self._thread.start()
        SHARED_SOCKETS.append(self._descriptors)

    def cut(self) -> None:
        """Let no byte pass; connections stay open, and new ones are accepted but lead nowhere."""
        self._is_cut.set()
        self._wake()

    def heal(self) -> None:
        """Let bytes pass again, those that waited first."""
        self._is_cut.clear()
        self._wake()

    def close(self) -> None:
        """Close all connections and end the thread."""
        self._is_closed.set()
        self._wake()
        self._thread.join(5)
        SHARED_SOCKETS.remove(self._descriptors)

    def _descriptors(self) -> list[int]:
        # Brokers reach each other by way of the proxy, too.
        return [sock.fileno() for sock in list(self._pairs)]

    def _wake(self) -> None:
        self._waker.send(b"x")

    def _run(self) -> None:
        selector = self._selector
        selector.register(self._woken, selectors.EVENT_READ)
        selector.register(self._listener, selectors.EVENT_READ)
        while not self._is_closed.is_set():
            for key, events in selector.select(1.0):
                sock = key.fileobj
                assert isinstance(sock, socket.socket)
                if sock is self._woken:
                    sock.recv(64)
                    self._watch_all()
                elif sock is self._listener:
                    self._accept()
                else:
                    self._serve(sock, events)
        for sock in [*self._pairs, self._listener, self._waker, self._woken]:
            sock.close()
        selector.close()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._upstream), timeout=1.0)
        except OSError:
            client.close()
            return
        self._pairs.update({client: server, server: client})
        for sock in (client, server):
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pending[sock] = bytearray()
        self._watch(client)
        self._watch(server)

    def _serve(self, sock: socket.socket, events: int) -> None:
        if sock not in self._pairs:
            return
        try:
            if events & selectors.EVENT_WRITE:
                sent = sock.send(self._pending[sock])
                del self._pending[sock][:sent]
            if events & selectors.EVENT_READ:
                data = sock.recv(_CHUNK_BYTES)
                self._pending[self._pairs[sock]] += data
                if not data:
                    self._ended.add(sock)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(sock)
            return
        for each, other in ((sock, self._pairs[sock]), (self._pairs[sock], sock)):
            if each in self._ended and not self._pending[other]:
                self._drop(sock)
                return
        self._watch(sock)
        self._watch(self._pairs[sock])

    def _watch_all(self) -> None:
        for sock in list(self._pairs):
            self._watch(sock)

    def _watch(self, sock: socket.socket) -> None:
        events = 0
        if not self._is_cut.is_set():
            if sock not in self._ended and len(self._pending[self._pairs[sock]]) < _BUFFERED_BYTES_MAX:
                events |= selectors.EVENT_READ
            if self._pending[sock]:
                events |= selectors.EVENT_WRITE
        registered = sock in self._selector.get_map()
        if events and registered:
            self._selector.modify(sock, events)
        elif events:
            self._selector.register(sock, events)
        elif registered:
            self._selector.unregister(sock)

    def _drop(self, sock: socket.socket) -> None:
        for each in (sock, self._pairs[sock]):
            if each in self._selector.get_map():
                self._selector.unregister(each)
            self._pairs.pop(each, None)
            self._pending.pop(each, None)
            self._ended.discard(each)
            each.close()

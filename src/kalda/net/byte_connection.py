"""Connections of a protocol without frames: a session gets the bytes as they arrive.

Plaintext and TLS, the end of a connection, and the rule that nothing is read from a peer that does not take
what was sent to it, are those of `Connection`.
"""

from kalda.common.overriding import override
from kalda.net.connection import Connection
from kalda.net.socket_connection import SocketConnection
from kalda.net.tls_connection import TlsConnection


class ByteSession:
    """Handles the bytes of a connection: a `Session`."""

    def on_bytes(self, data: memoryview) -> None:
        """Handle received bytes, which are valid during the call only."""
        raise NotImplementedError

    def on_closed(self) -> None:
        """Note that the connection has closed; nothing is called afterwards."""
        raise NotImplementedError

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Refuse a frame: bytes are not split into any."""
        raise AssertionError(f"{connection.peer} got a frame of {len(frame)} bytes")

    def on_unsized(self, size: int, start: memoryview) -> bool:
        """Refuse a frame: bytes are not split into any."""
        raise AssertionError(f"a frame of {size} bytes where there is none")


class _ByteConnection(Connection):
    __slots__ = ()

    @override
    def _received(self, data: memoryview, end: int) -> None:
        session = self.session
        assert isinstance(session, ByteSession), f"{self.peer} has no session for bytes"
        self._corked = True
        session.on_bytes(data[:end])
        self._corked = False
        if not self._closed:
            self._flush()


class PlainByteConnection(_ByteConnection, SocketConnection):
    """A connection without encryption."""

    __slots__ = ()


class TlsByteConnection(_ByteConnection, TlsConnection):
    """A connection with TLS, before which the server may greet in plaintext."""

    __slots__ = ()

    def greet(self, data: bytes) -> None:
        """Send plaintext before the handshake; only once and before anything else."""
        assert not self._has_begun, f"{self.peer} was greeted too late"
        self._sealed = data
        self._transmit()

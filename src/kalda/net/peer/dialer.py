"""Defines `Dialer`, the port through which a broker connects to other brokers.

Production uses `TcpDialer`. Tests and `kalda.testing` pass dialers that cut, refuse or delay connections.
"""

from typing import Protocol

from kalda.net.peer.peer_connection import DialOptions, PeerConnection


class Dialer(Protocol):
    """Opens connections to brokers."""

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        """Open a connection and agree on versions.

        Raises:
            ConnectionError: it could not be opened; the message names the peer.
        """


class TcpDialer:
    """Dials over TCP."""

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        """Open a connection; see `PeerConnection.open`."""
        return await PeerConnection.open(host, port, options)

"""Defines `Dialer`, the port through which a broker connects to other brokers.

Production uses `TcpDialer`. Tests and `kalda.testing` pass dialers that cut, refuse or delay connections.
"""

from dataclasses import replace
from typing import Final, Protocol

from kalda.net.client.client_errors import ClientError
from kalda.net.client.sasl_login import NewLogin
from kalda.net.peer.peer_connection import DialOptions, PeerConnection
from kalda.runtime.network import Network
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.security.tls.client import TlsClient


class Dialer(Protocol):
    """Opens connections to brokers."""

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        """Open a connection and agree on versions.

        Raises:
            ConnectionError: it could not be opened; the message names the peer.
        """


class TcpDialer:
    """Dials over a network."""

    def __init__(
        self, network: Network = SYSTEM_NETWORK, connection_class: type[PeerConnection] = PeerConnection
    ) -> None:
        self._network: Final = network
        self._connection_class: Final = connection_class

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        """Open a connection, over TLS and with a login if the options say so, and agree on versions.

        Raises:
            ConnectionError: the name is not known, the broker refuses, TLS fails, or the time is up.
        """
        try:
            return await self._connection_class.open(
                host,
                port,
                client_id=options.client_id,
                timeout_seconds=options.timeout_seconds,
                receive_buffer_bytes=options.receive_buffer_bytes,
                tls=options.tls,
                login=options.login,
                network=self._network,
            )
        except ClientError as error:
            raise ConnectionError(str(error)) from error


class SecureDialer:
    """Dials through another dialer, as the inter-broker listener demands."""

    def __init__(self, dialer: Dialer, tls: TlsClient | None, login: NewLogin | None) -> None:
        self._dialer: Final = dialer
        self._tls: Final = tls
        self._login: Final = login

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        """Open a connection with the options and the security of the inter-broker listener."""
        return await self._dialer.dial(host, port, replace(options, tls=self._tls, login=self._login))

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

_DOUBLINGS_MAX: Final = 32
_ADDRESSES_MAX: Final = 1_000


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


class ImpatientDialer:
    """Dials through another dialer, and gives each attempt less time than requests have.

    A machine that is gone without a word must not hold up its peers as long as a slow response may
    (KIP-601): the first attempt to reach an address has `first_ms`, and each failure doubles that up to
    `max_ms`. TLS and login are part of an attempt.
    """

    def __init__(self, dialer: Dialer, first_ms: int, max_ms: int) -> None:
        self._dialer: Final = dialer
        self._first_ms: Final = first_ms
        self._max_ms: Final = max(first_ms, max_ms)
        self._failures: Final[dict[tuple[str, int], int]] = {}
        """Failures in a row, by address. Brokers that move leave addresses behind that nobody dials again,
        so the oldest ones are forgotten."""

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        """Open a connection in the time that the address has by now.

        Raises:
            ConnectionError: it could not be opened.
        """
        address = (host, port)
        failures = self._failures.pop(address, 0)
        limit_ms = min(self._first_ms << min(failures, _DOUBLINGS_MAX), self._max_ms)
        options = replace(options, timeout_seconds=min(options.timeout_seconds, limit_ms / 1000))
        try:
            return await self._dialer.dial(host, port, options)
        except ConnectionError:
            while len(self._failures) >= _ADDRESSES_MAX:
                del self._failures[next(iter(self._failures))]
            self._failures[address] = failures + 1
            raise


class SecureDialer:
    """Dials through another dialer, as the inter-broker listener demands."""

    def __init__(self, dialer: Dialer, tls: TlsClient | None, login: NewLogin | None) -> None:
        self._dialer: Final = dialer
        self._tls: Final = tls
        self._login: Final = login

    async def dial(self, host: str, port: int, options: DialOptions) -> PeerConnection:
        """Open a connection with the options and the security of the inter-broker listener."""
        return await self._dialer.dial(host, port, replace(options, tls=self._tls, login=self._login))

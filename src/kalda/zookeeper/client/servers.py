"""Holds the addresses of ZooKeeper servers, and connects to them."""

import re
from collections.abc import Awaitable
from typing import Final, Protocol

from kalda.net.client.stream import StreamSocket, connect_stream
from kalda.runtime.random import Random, random_text
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.security.tls.client import TlsClient
from kalda.security.tls.contexts import client_context
from kalda.security.zookeeper.client_security import PLAINTEXT, ClientSecurity
from kalda.security.zookeeper.digest_md5 import DigestMd5Client
from kalda.zookeeper.errors import BadArgumentsError

_DEFAULT_PORT: Final = 2181
_PORT_MAX: Final = 65_535
_CNONCE_BYTES: Final = 24
_ADDRESS: Final = re.compile(
    r"(?:\[(?P<ipv6>[^\[\]/\s]+)\]|(?P<host>[^:\[\]/\s]+))(?::(?P<port>[0-9]{1,5}))?"
)


class Connect(Protocol):
    """Opens a connection, as `connect_stream` does; a test may have another one, which it cuts."""

    def __call__(
        self, host: str, port: int, tls: TlsClient | None, *, timeout_seconds: float
    ) -> Awaitable[StreamSocket]:
        """Connect; raises `OSError` or `TlsError`."""
        ...


class Servers:
    """The servers of one `zookeeper.connect`.

    Raises:
        BadArgumentsError: `text` is no list of addresses.
        TlsSettingsError: a store cannot be read.
    """

    def __init__(
        self,
        text: str,
        session_timeout_ms: int,
        connect: Connect = connect_stream,
        security: ClientSecurity = PLAINTEXT,
        random: Random = SYSTEM_RANDOM,
    ) -> None:
        self._addresses: Final = [_address(entry.strip(), text) for entry in text.split(",")]
        self.random: Final = random
        self.session_timeout_ms: Final = session_timeout_ms
        self.timeout_seconds: Final = session_timeout_ms / 1000 / len(self._addresses)
        """How long a server may take to open a session: the others need their turn within the time-out."""
        self._connect: Final = connect
        self._tls: Final = None if security.tls is None else TlsClient(client_context(security.tls))
        self._login: Final = security.login

    @property
    def user(self) -> str:
        """The user of the login, if there is one."""
        return "" if self._login is None else self._login.user

    def in_any_order(self) -> list[tuple[str, int]]:
        """Return the addresses in another order each time, so that clients spread over the servers."""
        return self.random.sample(self._addresses, len(self._addresses))

    def new_login(self) -> DigestMd5Client | None:
        """Return the login of a new connection, or None."""
        if self._login is None:
            return None
        nonce = random_text(self.random, _CNONCE_BYTES)
        return DigestMd5Client(self._login.user, self._login.password, nonce)

    async def connect(self, host: str, port: int) -> StreamSocket:
        """Open a connection, with TLS if it is set; the server's certificate must be for `host`.

        Raises:
            OSError, TlsError: it could not be opened.
        """
        return await self._connect(host, port, self._tls, timeout_seconds=self.timeout_seconds)


def _address(entry: str, text: str) -> tuple[str, int]:
    found = _ADDRESS.fullmatch(entry)
    port = _DEFAULT_PORT if found is None or found["port"] is None else int(found["port"])
    if found is None or not 0 < port <= _PORT_MAX:
        raise BadArgumentsError(
            f"`zookeeper.connect`={text!r} is not host:port[,host:port…][/chroot]: {entry!r} is no address"
        )
    return found["ipv6"] or found["host"], port

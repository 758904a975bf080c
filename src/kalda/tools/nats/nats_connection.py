"""A connection of a NATS client for commands: it connects, logs in, and reads and writes operations."""

import asyncio
import json
import ssl
from collections import deque
from dataclasses import dataclass
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from kalda.command.errors import ToolError, ToolUsageError
from kalda.nats.operations import Connect, Err, Info, Operation, Ping, Pong
from kalda.nats.parser import OF_SERVERS, NatsProtocolError, Parser
from kalda.runtime.error_text import error_text

PORT_DEFAULT: Final = 4222
_READ_BYTES: Final = 64 * 1024
_PAYLOAD_BYTES_MAX: Final = 64 * 1024 * 1024
"""As much as a broker may be set to take."""


@dataclass(frozen=True, slots=True)
class NatsAddress:
    """Where a server is, and who the client is."""

    host: str
    port: int
    uses_tls: bool = False
    user: str | None = None
    password: str | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``[nats://|tls://][USER:PASSWORD@]HOST[:PORT]``.

        Raises:
            ToolUsageError: it is malformed.
        """
        parts = urlsplit(text if "://" in text else f"nats://{text}")
        try:
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if host is None or parts.scheme not in ("nats", "tls"):
            raise ToolUsageError(f"{text} is no address; write nats://HOST:PORT, or tls://HOST:PORT for TLS")
        user, password = (
            None if each is None else unquote(each) for each in (parts.username, parts.password)
        )
        return cls(host, PORT_DEFAULT if port is None else port, parts.scheme == "tls", user, password)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class NatsConnection:
    """An open connection; errors of the server and of the network are `ToolError`."""

    def __init__(self, address: NatsAddress) -> None:
        self._address: Final = address
        self._parser: Final = Parser(OF_SERVERS, _PAYLOAD_BYTES_MAX)
        self._early: Final[deque[Operation]] = deque()
        """What came before a confirmation and is not yet received by the caller."""
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    @classmethod
    async def open(cls, address: NatsAddress, tls_ca: str | None, timeout_seconds: float) -> Self:
        """Connect and log in.

        Raises:
            ToolError: the server cannot be reached, does not speak NATS, or refuses the login.
        """
        connection = cls(address)
        try:
            async with asyncio.timeout(timeout_seconds):
                await connection._open(tls_ca)
        except TimeoutError:
            connection.close()
            raise ToolError(f"{address} did not answer within {timeout_seconds:g} s") from None
        except OSError as error:
            connection.close()
            raise ToolError(f"{address} cannot be reached: {error_text(error)}") from None
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the connection; harmless if it is closed or was not opened."""
        writer = getattr(self, "_writer", None)
        if writer is not None:
            writer.close()

    async def send(self, *operations: Operation) -> None:
        """Send operations."""
        self._writer.writelines(each.encode() for each in operations)
        try:
            await self._writer.drain()
        except OSError as error:
            raise ToolError(f"the connection to {self._address} broke: {error_text(error)}") from None

    async def receive(self) -> Operation:
        """Return the next operation of the server; pings are answered.

        Raises:
            ToolError: the server sent an error, or the connection ended.
        """
        while True:
            operation = self._early.popleft() if self._early else await self._next()
            if isinstance(operation, Ping):
                await self.send(Pong())
            elif isinstance(operation, Err):
                raise ToolError(f"{self._address} refuses: {operation.text.decode(errors='replace')}")
            elif not isinstance(operation, Info):
                return operation

    async def confirm(self) -> None:
        """Return when the server has handled all that was sent.

        Raises:
            ToolError: it has refused something.
        """
        await self.send(Ping())
        early = []
        while not isinstance(operation := await self.receive(), Pong):
            early.append(operation)
        self._early.extend(early)

    async def _open(self, tls_ca: str | None) -> None:
        address = self._address
        self._reader, self._writer = await asyncio.open_connection(address.host, address.port)
        info = await self._next()
        if not isinstance(info, Info):
            raise ToolError(f"{address} does not speak NATS's protocol: it did not begin with INFO")
        if address.uses_tls or self._has(info, "tls_required"):
            context = ssl.create_default_context(cafile=tls_ca)
            await self._writer.start_tls(context, server_hostname=address.host)
        options: dict[str, object] = {
            "verbose": False,
            "pedantic": False,
            "headers": True,
            "no_responders": True,
            "protocol": 1,
            "lang": "kalda",
        }
        if address.user is not None:
            options |= {"user": address.user, "pass": address.password or ""}
        await self.send(Connect(json.dumps(options).encode()))
        await self.confirm()

    def _has(self, info: Info, name: str) -> bool:
        try:
            known = json.loads(info.text)
        except (ValueError, RecursionError):
            known = None
        if not isinstance(known, dict):
            raise ToolError(f"{self._address} does not speak NATS's protocol: its INFO is malformed")
        return bool(known.get(name))

    async def _next(self) -> Operation:
        try:
            while (operation := self._parser.next()) is None:
                data = await self._reader.read(_READ_BYTES)
                if not data:
                    raise ToolError(f"{self._address} closed the connection")
                self._parser.receive(data)
        except NatsProtocolError:
            raise ToolError(f"{self._address} does not speak NATS's protocol") from None
        except OSError as error:
            raise ToolError(f"the connection to {self._address} broke: {error_text(error)}") from None
        return operation

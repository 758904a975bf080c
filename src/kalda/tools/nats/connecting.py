"""The options of a connection to a listener of NATS, and the connection of one command."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import click

from kalda.command.command import Tool
from kalda.command.errors import ToolError
from kalda.command.option_types import Integer
from kalda.nats.headers import HeadersError, decode_headers
from kalda.nats.operations import Message
from kalda.tools.nats.nats_connection import NatsAddress, NatsConnection

T = TypeVar("T")
Decorated = TypeVar("Decorated", bound=Callable[..., object])

_TIMEOUT_MS: Final = 5000
NO_RESPONDERS: Final = b"NATS/1.0 503"


def server_options(function: Decorated) -> Decorated:
    """Add the options of a connection."""
    function = click.option(
        "--timeout-ms",
        type=Integer(1),
        default=_TIMEOUT_MS,
        show_default=True,
        metavar="MS",
        help="How long to wait for the server, and for the answer of a request.",
    )(function)
    function = click.option(
        "--tls-ca", metavar="FILE", help="The authority of the server's certificate, in PEM; with TLS."
    )(function)
    return click.option(
        "--server",
        metavar="[nats://|tls://][USER:PASSWORD@]HOST[:PORT]",
        default="127.0.0.1:4222",
        show_default=True,
        help="The listener of NATS.",
    )(function)


@contextlib.asynccontextmanager
async def connected(server: str, tls_ca: str | None, timeout_ms: int) -> AsyncIterator[NatsConnection]:
    """Connect to a server for a block.

    Raises:
        ToolError: it cannot be reached, or refuses.
    """
    address = NatsAddress.parse(server)
    connection = await NatsConnection.open(address, tls_ca, timeout_ms / 1000)
    try:
        yield connection
    finally:
        connection.close()


async def next_message(connection: NatsConnection) -> Message:
    """Return the next message of the server."""
    while True:
        operation = await connection.receive()
        if isinstance(operation, Message):
            return operation


async def within(timeout_ms: int, work: Awaitable[T], failure: str) -> T:
    """Return the result of work that has a time limit.

    Raises:
        ToolError: the time was up; it begins with `failure`.
    """
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            return await work
    except TimeoutError:
        raise ToolError(f"{failure} within {timeout_ms} ms") from None


def show(tool: Tool, message: Message) -> None:
    """Write a message as one item."""
    payload = message.payload.decode(errors="replace")
    document = {
        "subject": message.subject.decode(errors="replace"),
        "reply": message.reply.decode(errors="replace") or None,
        "headers": shown_headers(message.headers),
        "payload": payload,
    }
    tool.output.item(document, f"{document['subject']}\t{payload}")


def shown_headers(headers: bytes) -> list[list[str]]:
    """Return the headers of a message as names and values; none if they are malformed."""
    try:
        return [list(each) for each in decode_headers(headers)] if headers else []
    except HeadersError:
        return []

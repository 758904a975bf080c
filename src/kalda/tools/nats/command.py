"""The commands `kalda nats`: `pub|sub|req`, and those for streams and consumers."""

import secrets
import sys
from typing import Final

import click

from kalda.command.command import Tool, command, noun
from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.option_types import Integer
from kalda.nats.headers import HeadersError, encode_headers
from kalda.nats.operations import Publish, Subscribe, Unsubscribe
from kalda.nats.subjects import is_valid_literal, is_valid_subject
from kalda.tools.nats.connecting import NO_RESPONDERS, connected, next_message, server_options, show, within
from kalda.tools.nats.consumer import consumer
from kalda.tools.nats.stream import stream

nats = noun(
    "Publish, subscribe and ask over a listener of NATS.\n\nIts streams and consumers may be managed too."
)

nats.add_command(stream, "stream")
nats.add_command(consumer, "consumer")

_SUBSCRIPTION: Final = b"1"


_subject = click.argument("subject")
_payload = click.argument("payload", required=False)
_header = click.option(
    "--header", "-H", "headers", multiple=True, metavar="NAME:VALUE", help="A header; repeatable."
)


@command("pub", nats, connects=False)
@_subject
@_payload
@_header
@server_options
async def pub(
    tool: Tool,
    subject: str,
    payload: str | None,
    headers: tuple[str, ...],
    server: str,
    tls_ca: str | None,
    timeout_ms: int,
) -> None:
    """Publish a message: PAYLOAD, or without it what stdin has."""
    message = _message(subject, b"", headers, payload)
    async with connected(server, tls_ca, timeout_ms) as connection:
        await connection.send(message)
        await within(timeout_ms, connection.confirm(), "the server did not confirm the message")


@command("req", nats, connects=False)
@_subject
@_payload
@_header
@server_options
async def req(
    tool: Tool,
    subject: str,
    payload: str | None,
    headers: tuple[str, ...],
    server: str,
    tls_ca: str | None,
    timeout_ms: int,
) -> None:
    """Publish a request and print its first answer."""
    inbox = f"_INBOX.{secrets.token_hex(11)}".encode()
    message = _message(subject, inbox, headers, payload)
    async with connected(server, tls_ca, timeout_ms) as connection:
        await connection.send(Subscribe(inbox, b"", _SUBSCRIPTION), Unsubscribe(_SUBSCRIPTION, 1), message)
        answer = await within(timeout_ms, next_message(connection), f"nobody answered on {subject}")
    if answer.headers.startswith(NO_RESPONDERS):
        raise ToolError(f"nobody subscribes to {subject}")
    show(tool, answer)


@command("sub", nats, connects=False)
@_subject
@click.option("--queue", metavar="GROUP", help="The queue group, of which one member gets each message.")
@click.option("--count", "-n", type=Integer(1), metavar="N", help="End after so many messages.")
@server_options
async def sub(
    tool: Tool,
    subject: str,
    queue: str | None,
    count: int | None,
    server: str,
    tls_ca: str | None,
    timeout_ms: int,
) -> None:
    """Print the messages of a subject, which may have the wildcards * and >, until Ctrl-C."""
    if not _is_word(subject) or not is_valid_subject(subject.encode()):
        raise ToolUsageError(f"{subject!r} is no subject: tokens between dots, * for one, > for all the rest")
    if queue is not None and not _is_word(queue):
        raise ToolUsageError(f"{queue!r} is no queue group: it has no spaces")
    async with connected(server, tls_ca, timeout_ms) as connection:
        await connection.send(Subscribe(subject.encode(), (queue or "").encode(), _SUBSCRIPTION))
        await within(timeout_ms, connection.confirm(), "the server did not confirm the subscription")
        tool.output.note(f"subscribed to {subject}")
        received = 0
        while count is None or received < count:
            show(tool, await next_message(connection))
            tool.output.flush()
            received += 1


def _is_word(text: str) -> bool:
    return bool(text) and text.isprintable() and " " not in text


def _message(subject: str, reply: bytes, headers: tuple[str, ...], payload: str | None) -> Publish:
    if not _is_word(subject) or not is_valid_literal(subject.encode()):
        raise ToolUsageError(f"{subject!r} is no subject of a message: tokens between dots, no wildcards")
    pairs = []
    for header in headers:
        name, _, value = header.partition(":")
        pairs.append((name.strip(), value.strip()))
    try:
        encoded = encode_headers(pairs) if pairs else b""
    except HeadersError as error:
        raise ToolUsageError(str(error)) from None
    data = sys.stdin.buffer.read() if payload is None else payload.encode(errors="surrogateescape")
    return Publish(subject.encode(), reply, encoded, data)

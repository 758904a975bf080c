"""A client of JetStream's API for commands: requests with JSON, pages of lists, errors of the server."""

import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Mapping
from typing import Final

from kalda.command.errors import ToolError
from kalda.command.output import Json
from kalda.nats.operations import Message, Publish, Subscribe
from kalda.tools.nats.connecting import NO_RESPONDERS, connected, next_message, within
from kalda.tools.nats.nats_connection import NatsConnection

Document = dict[str, Json]

_SUBSCRIPTION: Final = b"1"
_PAGES_MAX: Final = 1_000


class JetStreamApi:
    """JetStream over one connection."""

    def __init__(self, connection: NatsConnection, timeout_ms: int) -> None:
        self._connection: Final = connection
        self.timeout_ms: Final = timeout_ms
        self._inbox: Final = f"_INBOX.{secrets.token_hex(11)}"
        self._requests = 0

    async def open(self) -> None:
        """Subscribe to the answers."""
        await self._connection.send(Subscribe(f"{self._inbox}.*".encode(), b"", _SUBSCRIPTION))

    async def request(self, kind: str, body: Mapping[str, Json] | None = None) -> Document:
        """Return the answer to a request, such as `STREAM.INFO.orders`.

        Raises:
            ToolError: the server answers with an error, or not in time.
        """
        payload = b"" if body is None else json.dumps(body).encode()
        reply = await self.send(f"$JS.API.{kind}", payload)
        answer = await within(self.timeout_ms, self.next(reply), f"JetStream did not answer {kind}")
        if answer.headers.startswith(NO_RESPONDERS):
            raise ToolError(
                "the server does not serve JetStream: set kalda.nats.jetstream.enable=true, or start "
                "nats-server with -js"
            )
        try:
            found = json.loads(answer.payload)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ToolError(f"the answer to {kind} is malformed")
        error = found.get("error")
        if isinstance(error, dict):
            raise ToolError(f"{error.get('description')} ({error.get('err_code')})")
        found.pop("type", None)
        return found

    async def send(self, subject: str, payload: bytes) -> bytes:
        """Send a request; return its reply subject."""
        self._requests += 1
        reply = f"{self._inbox}.{self._requests}".encode()
        await self._connection.send(Publish(subject.encode(), reply, b"", payload))
        return reply

    async def publish(self, subject: bytes, payload: bytes) -> None:
        """Send a message that has no answer."""
        await self._connection.send(Publish(subject, b"", b"", payload))

    async def confirm(self) -> None:
        """Return when the server has taken all that was sent."""
        await within(self.timeout_ms, self._connection.confirm(), "the server did not confirm")

    async def next(self, reply: bytes) -> Message:
        """Return the next message that came for a request."""
        while True:
            message = await next_message(self._connection)
            # Messages of consumers have the subject under which they were published.
            if message.subject == reply or not message.subject.startswith(self._inbox.encode()):
                return message

    async def pages(self, kind: str, field: str, body: Mapping[str, Json] | None = None) -> list[Json]:
        """Return the elements of a list that comes in pages.

        Raises:
            ToolError: the server answers with an error, or not in time.
        """
        found: list[Json] = []
        for _ in range(_PAGES_MAX):
            page = await self.request(kind, {**(body or {}), "offset": len(found)})
            elements, total = page.get(field) or [], page.get("total")
            if not isinstance(elements, list) or not isinstance(total, int):
                raise ToolError(f"the answer to {kind} is malformed")
            found += elements
            missing = page.get("missing")
            if missing:
                raise ToolError(f"the server could not find out about {', '.join(map(str, _list(missing)))}")
            if not elements or len(found) >= total:
                break
        return found


@contextlib.asynccontextmanager
async def jetstream(server: str, tls_ca: str | None, timeout_ms: int) -> AsyncIterator[JetStreamApi]:
    """Connect to JetStream for a block."""
    async with connected(server, tls_ca, timeout_ms) as connection:
        api = JetStreamApi(connection, timeout_ms)
        await api.open()
        yield api


def part(document: Json, name: str) -> Mapping[str, Json]:
    """Return an object within an answer; empty if there is none."""
    found = document.get(name) if isinstance(document, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _list(value: Json) -> list[Json]:
    return list(value) if isinstance(value, list) else [value]

"""Serves ``/v1/topics/{topic}/stream``: a topic's records as server-sent events or over a WebSocket."""

import asyncio
import logging
import time
from collections.abc import Coroutine
from typing import Any, Final

from starlette.requests import HTTPConnection, Request
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket

from kalda.clients.errors import ClientError
from kalda.http.callers import Caller, Callers
from kalda.http.credentials import SUBPROTOCOL
from kalda.http.decoding import SchemaDecoders
from kalda.http.errors import HttpError
from kalda.http.gateway.access import TopicAccess
from kalda.http.gateway.parameters import InvalidParameterError
from kalda.http.gateway.streams.event_form import EventForm, MessageForm
from kalda.http.gateway.streams.feeds import Feeds
from kalda.http.gateway.streams.reader import StalledError, StreamReader, start_position
from kalda.http.gateway.streams.rendering import Format, RecordRenderer
from kalda.http.gateway.streams.stream_request import StreamRequest, parse_stream_request
from kalda.security.acl.model import AclOperation

logger: Final = logging.getLogger(__name__)

_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    # nginx collects a response before it passes it on, unless it is asked not to.
    (b"x-accel-buffering", b"no"),
]


class StreamEndpoints:
    """The endpoints of ``/v1/topics/{topic}/stream``."""

    def __init__(
        self, callers: Callers, access: TopicAccess, feeds: Feeds, schemas: SchemaDecoders | None
    ) -> None:
        """`schemas` decodes for ``value_format=schema``; None where no registry is served."""
        self._schemas: Final = schemas
        self._callers: Final = callers
        self._access: Final = access
        self._feeds: Final = feeds

    async def events(self, request: Request) -> "EventStream":
        """Answer a GET with server-sent events."""
        opened = await self._open(request)
        return EventStream(self._feeds, *opened, self._form(opened[1], EventForm))

    async def socket(self, websocket: WebSocket) -> "MessageStream":
        """Answer a WebSocket."""
        opened = await self._open(websocket)
        return MessageStream(self._feeds, *opened, self._form(opened[1], MessageForm))

    def _form(self, wanted: StreamRequest, kind: type[EventForm]) -> EventForm:
        if Format.SCHEMA not in (wanted.key_format, wanted.value_format):
            return kind(wanted.conditions, RecordRenderer(wanted.key_format, wanted.value_format))
        schemas = self._schemas
        if schemas is None:
            raise HttpError(400, "value_format=schema needs the schema registry (`http.parts`)")
        render = RecordRenderer(wanted.key_format, wanted.value_format, schemas.decode)
        return kind(wanted.conditions, render, schemas)

    async def _open(self, connection: HTTPConnection) -> tuple[Caller, StreamRequest, dict[int, int] | None]:
        """Check everything that can be refused with a status before the stream begins."""
        topic = connection.path_params["topic"]
        self._feeds.check_room()
        try:
            wanted = parse_stream_request(
                topic,
                connection.query_params.multi_items(),
                connection.headers.get("last-event-id"),
                int(time.time() * 1000),
            )
        except InvalidParameterError as error:
            raise HttpError(400, str(error)) from None
        caller = self._callers.of(connection)
        description = await self._access.check(caller, topic, AclOperation.READ)
        existing = [each.partition for each in description.partitions]
        if not set(wanted.start.offsets or ()) <= set(existing):
            # A partition that was just added may be in the id that another instance gave.
            description = await self._access.check(caller, topic, AclOperation.READ, is_fresh=True)
            existing = [each.partition for each in description.partitions]
        _check_partitions(wanted, existing)
        read = [each for each in existing if wanted.partitions is None or each in wanted.partitions]
        return caller, wanted, await start_position(caller, wanted, read)


class EventStream:
    """The response that is a stream of server-sent events."""

    def __init__(
        self,
        feeds: Feeds,
        caller: Caller,
        wanted: StreamRequest,
        start: dict[int, int] | None,
        form: EventForm,
    ) -> None:
        self._feeds: Final = feeds
        self._caller: Final = caller
        self._wanted: Final = wanted
        self._start: Final = start
        self._form: Final = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the stream until it ends or the reader is gone."""
        wanted = self._wanted

        async def send_body(chunk: bytes) -> None:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})

        form = self._form
        reader = StreamReader(self._feeds, self._caller, wanted, form, send_body, is_bytes=True)
        await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
        if scope["method"] != "HEAD":
            try:
                if not await run_until_gone(reader.run(self._start), receive):
                    return
            except StalledError:
                logger.info("a reader of %s took nothing and was cut off", wanted.topic)
                abort = scope.get("extensions", {}).get("kalda.abort")
                if abort is not None:
                    abort()
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class MessageStream:
    """The messages of a WebSocket that is a stream."""

    def __init__(
        self,
        feeds: Feeds,
        caller: Caller,
        wanted: StreamRequest,
        start: dict[int, int] | None,
        form: EventForm,
    ) -> None:
        self._feeds: Final = feeds
        self._caller: Final = caller
        self._wanted: Final = wanted
        self._start: Final = start
        self._form: Final = form

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Accept the WebSocket, and send the stream until it ends or the reader is gone."""
        websocket = WebSocket(scope, receive, send)
        offered = websocket.scope.get("subprotocols", ())
        await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)

        async def send_text(chunk: bytes) -> None:
            await websocket.send({"type": "websocket.send", "text": chunk.decode()})

        reader = StreamReader(self._feeds, self._caller, self._wanted, self._form, send_text, is_bytes=False)
        code, reason = 1000, ""
        try:
            if not await run_until_gone(reader.run(self._start), websocket.receive):
                return
            if self._feeds.is_closing:
                code, reason = 1012, "the server is shutting down; connect again with the last id"
        except StalledError:
            code, reason = 1008, "the messages were not taken in time"
        except ClientError as error:
            code, reason = 1011, str(error)[:120]
        await websocket.send({"type": "websocket.close", "code": code, "reason": reason})


async def run_until_gone(work: Coroutine[Any, Any, None], receive: Receive) -> bool:
    """Run `work` until it ends or the peer disconnects; return whether it came to its end."""
    task = asyncio.current_task()
    assert task is not None, "an application runs in a task"
    is_gone = False

    async def listen() -> None:
        nonlocal is_gone
        while (await receive())["type"] not in ("http.disconnect", "websocket.disconnect"):
            pass
        is_gone = True
        task.cancel()

    listener = asyncio.create_task(listen(), name="disconnect of a reader")
    try:
        await work
    except asyncio.CancelledError:
        if not is_gone:
            raise
        task.uncancel()
        return False
    finally:
        listener.cancel()
    return True


def _check_partitions(wanted: StreamRequest, existing: list[int]) -> None:
    named = {*(wanted.partitions or ()), *(wanted.start.offsets or ())}
    absent = sorted(named - set(existing))
    if absent:
        raise HttpError(
            400, f"topic {wanted.topic} has no partition {absent[0]}; it has {len(existing)}, from 0 on"
        )

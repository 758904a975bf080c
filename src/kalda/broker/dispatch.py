"""From a frame to its handler and back: header, version check, errors, metrics.

The path of Produce and Fetch is `Dispatcher.on_frame` and the raw handler, nothing else: one small context
object per request, no task, no future. Everything else decodes a message, calls the handler and encodes.

What is refused, and how, is Kafka's: an unknown API, a version outside the advertised range, a malformed
header or body end the connection (the peer cannot be told in a format that it is known to read); ApiVersions
of an unknown version is answered in version 0 with UNSUPPORTED_VERSION and the list of APIs (KIP-511).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Iterable
from struct import Struct
from struct import error as StructError  # noqa: N812
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, cast

from kalda.broker.api import ApiHandler, Pending, RawReply, RequestContext, error_codes
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.log_limiter import LogLimiter
from kalda.common.metrics import Metrics, RequestMetrics
from kalda.net.connection import NO_REPLY, Chunk, Connection, Ticket
from kalda.protocol import codec, registry
from kalda.protocol.errors import ProtocolError
from kalda.protocol.framing import SIZE
from kalda.protocol.headers import response_header
from kalda.protocol.wire_format import skip_tagged_fields
from kalda.zk.client.errors import ZooKeeperError

if TYPE_CHECKING:
    from kalda.broker.services import BrokerServices

logger: Final = logging.getLogger(__name__)

TASKS_MAX: Final = 256
"""Handlers that wait on coordination at the same time. More wait their turn; their number is bounded by the
outstanding requests of all connections."""

_NEVER_WAITING: Final = frozenset(
    (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN)
)
"""Requests of brokers, one at a time from each. Clients may be waiting for what they bring about: the
deletion of a topic ends when the controller's StopReplica is done."""

_HEADER: Final = Struct(">hhih")
_HEADER_BYTES: Final = _HEADER.size
_BARE_HEADER_BYTES: Final = 8
"""A header without a client id, which ControlledShutdown v0 alone has."""


class _Api:
    """A registered handler with what dispatch derives from it once."""

    __slots__ = ("flexible_from", "handle_raw", "handler", "high", "low", "metrics", "title")

    def __init__(self, handler: ApiHandler, metrics: Metrics) -> None:
        self.handler: Final = handler
        self.title: Final = handler.key.title
        self.low, self.high = handler.versions
        self.handle_raw: Final = handler.handle_raw
        # Known once the message's module is imported, which the first request does.
        self.flexible_from: int | None = None
        self.metrics: Final = RequestMetrics(metrics, self.title)


class Dispatcher:
    """Routes the frames of all connections of one broker."""

    def __init__(
        self,
        services: "BrokerServices",
        handlers: Iterable[ApiHandler],
        metrics: Metrics,
        tasks: asyncio.TaskGroup | None = None,
    ) -> None:
        """`tasks` runs the handlers that are coroutines; without it there can be none."""
        self._services: Final = services
        self._apis: Final[dict[int, _Api]] = {}
        for handler in handlers:
            assert handler.key not in self._apis, f"two handlers for {handler.key.title}"
            self._apis[int(handler.key)] = _Api(handler, metrics)
        self._tasks: Final = tasks
        self._task_count = 0
        self._tasks_waiting: deque[tuple[Coroutine[Any, Any, None], str]] = deque()
        self._limiter: Final = LogLimiter(logger)
        metrics.gauge(
            "kalda_broker_requesthandler_tasks",
            "Requests whose handlers are running as tasks or wait to.",
            lambda: self._task_count + len(self._tasks_waiting),
        )

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request; the frame handler of `kalda.net.server.Server`."""
        try:
            api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame)
            api = self._apis.get(api_key)
            if api is None:
                self._refuse(connection, frame, f"this broker has no API {api_key}")
                return
            position = _HEADER_BYTES
            client_id: str | None = None
            if api_version == 0 and api_key == ApiKey.CONTROLLED_SHUTDOWN:
                position = _BARE_HEADER_BYTES
            elif length >= 0:
                position += length
                client_id_bytes = bytes(frame[_HEADER_BYTES:position])
                if client_id_bytes != connection.client_id_bytes:
                    self._note_client_id(connection, client_id_bytes, length)
                client_id = connection.client_id
            flexible_from = api.flexible_from
            if flexible_from is None:
                flexible_from = api.flexible_from = registry.flexible_from(api_key)
            if api_version >= flexible_from:
                if frame[position]:
                    position = skip_tagged_fields(frame, position, len(frame))
                else:
                    position += 1
        except (StructError, IndexError):
            self._refuse(connection, frame, "it ends within its header")
            return
        except (ProtocolError, UnicodeDecodeError) as error:
            self._refuse(connection, frame, f"its header is malformed: {error}")
            return
        metrics = api.metrics
        received_at = connection.received_at
        context = RequestContext(
            connection, api_key, api_version, correlation_id, client_id, received_at, metrics
        )
        handle_raw = api.handle_raw
        if api_version < api.low or api_version > api.high:
            self._on_unserved_version(api, context, frame, position)
            return
        if handle_raw is None:
            self._handle_message(api, context, frame, position)
            return
        try:
            reply = handle_raw(self._services, context, frame, position)
        except ProtocolError as error:
            self._refuse(connection, frame, f"it is malformed: {error}")
            return
        except Exception as error:
            self._answer_error(api, context, self._decode_quietly(api, context, frame, position), error)
            return
        if isinstance(reply, Pending):
            self._await_raw(api, context, reply)
            return
        metrics.at_once_ms.observe((monotonic() - received_at) * 1000)
        if reply is not None:
            connection.send(reply)

    def close(self) -> None:
        """Drop the handlers that have not begun; those that run are their task group's business."""
        while self._tasks_waiting:
            coroutine, _ = self._tasks_waiting.popleft()
            coroutine.close()

    # Refusing.

    def _refuse(self, connection: Connection, frame: memoryview, reason: str) -> None:
        start = bytes(frame[:_HEADER_BYTES])
        begins = f" that begins with {start.hex()}" if start else ""
        connection.close(f"request of {len(frame)} bytes{begins}: {reason}", logging.WARNING)

    def _note_client_id(self, connection: Connection, client_id_bytes: bytes, length: int) -> None:
        if len(client_id_bytes) != length:
            raise ProtocolError(f"a client id of {length} bytes does not fit")
        connection.client_id = str(client_id_bytes, "utf-8")
        connection.client_id_bytes = client_id_bytes

    def _on_unserved_version(
        self, api: _Api, context: RequestContext, frame: memoryview, position: int
    ) -> None:
        key = api.handler.key
        version = context.api_version
        answer_version = registry.UNKNOWN_VERSION_ANSWERS.get(key)
        if answer_version is not None:
            context.api_version = answer_version
            request = registry.spec(key).request_class()
            response = self._call(api, context, request)
            self._respond(api, context, request, response, ErrorCode.UNSUPPORTED_VERSION)
            return
        low, high = api.handler.versions_advertised
        if not low <= version <= high:
            self._refuse(context.connection, frame, f"{api.title} has no version {version} here")
            return
        try:
            decoded = codec.decode(
                registry.spec(key).request_class, version, frame, position, allow_excess=True
            )
        except ProtocolError as error:
            self._refuse(context.connection, frame, f"it is malformed: {error}")
            return
        self._answer_error(api, context, decoded, ApiError(ErrorCode.UNSUPPORTED_VERSION))

    # Messages.

    def _handle_message(self, api: _Api, context: RequestContext, frame: memoryview, position: int) -> None:
        spec = registry.spec(api.handler.key)
        try:
            request = codec.decode(
                spec.request_class, context.api_version, frame, position, allow_excess=True
            )
        except ProtocolError as error:
            self._refuse(context.connection, frame, f"it is malformed: {error}")
            return
        self._respond(api, context, request, self._call(api, context, request))

    def _call(self, api: _Api, context: RequestContext, request: object) -> object:
        handle = api.handler.handle
        assert handle is not None, f"{api.title} has a raw handler only"
        try:
            return handle(self._services, request, context)
        except Exception as error:
            return self._error_response(api, context, request, error)

    def _respond(
        self,
        api: _Api,
        context: RequestContext,
        request: object,
        result: object,
        error_code: ErrorCode = ErrorCode.NONE,
    ) -> None:
        """Answer with what a handler returned, now or when it is there."""
        connection = context.connection
        if isinstance(result, Pending):
            context.parked_at = monotonic()
            ticket = connection.open_reply()
            ticket.on_abandoned = result.abandon
            result.add_done(lambda done: self._finish(api, context, request, ticket, done))
        elif asyncio.iscoroutine(result):
            context.parked_at = monotonic()
            ticket = connection.open_reply()
            coroutine = self._run(api, context, request, ticket, result)
            self._spawn(coroutine, f"{api.title} {connection.peer}", api.handler.key in _NEVER_WAITING)
        else:
            if error_code:
                cast(Any, result).error_code = error_code
            reply = self._encode(api, context, request, result)
            if reply is None:
                connection.close(f"{api.title} cannot be answered", logging.WARNING)
            else:
                connection.send(reply)

    def _finish(
        self, api: _Api, context: RequestContext, request: object, ticket: Ticket, done: Pending[Any]
    ) -> None:
        response = done.value if done.error is None else None
        self._reply(api, context, request, ticket, response, done.error)

    async def _run(
        self,
        api: _Api,
        context: RequestContext,
        request: object,
        ticket: Ticket,
        coroutine: Coroutine[Any, Any, object],
    ) -> None:
        try:
            response = await coroutine
        except Exception as error:
            self._reply(api, context, request, ticket, None, error)
            return
        if isinstance(response, Pending):
            response.add_done(lambda done: self._finish(api, context, request, ticket, done))
        else:
            self._reply(api, context, request, ticket, response, None)

    def _reply(
        self,
        api: _Api,
        context: RequestContext,
        request: object,
        ticket: Ticket,
        response: object,
        error: Exception | None,
    ) -> None:
        """Answer a ticket. Whatever fails here is this connection's affair: the caller serves others too."""
        try:
            if error is not None:
                response = self._error_response(api, context, request, error)
            reply = self._encode(api, context, request, response)
        except Exception as failure:
            self._log_failure(f"the answer to {api.title} cannot be written: %s", context, failure)
            reply = None
        if reply is None:
            context.connection.close(f"{api.title} cannot be answered", logging.WARNING)
        else:
            context.connection.reply(ticket, reply)

    def _encode(
        self, api: _Api, context: RequestContext, request: object, response: object
    ) -> RawReply | None:
        """Write a reply frame; None if there is nothing that could be said."""
        if response is None:
            return None
        try:
            reply = encode_reply(context, response)
        except Exception as error:
            response = self._error_response(api, context, request, error)
            if response is None:
                return None
            reply = encode_reply(context, response)
        for code in error_codes(response):
            context.metrics.count_error(code)
        now, parked_at = monotonic(), context.parked_at
        if parked_at:
            context.metrics.observe_wait(context.received_at, parked_at, now)
        else:
            context.metrics.at_once_ms.observe((now - context.received_at) * 1000)
        return reply

    # Errors.

    def _error_response(
        self, api: _Api, context: RequestContext, request: object, error: Exception
    ) -> object:
        if isinstance(error, ApiError):
            code = error.code
        elif isinstance(error, ZooKeeperError):
            # What was asked may have been done or not; clients try again after this code.
            code = ErrorCode.REQUEST_TIMED_OUT
            self._limiter.log(
                logging.WARNING,
                f"{api.title} failed because coordination did: %s: %s",
                error,
                context,
                source=context.connection.peer_address,
            )
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            self._log_failure(f"{api.title} failed: %s", context, error)
        return None if request is None else api.handler.error_response(request, code)

    def _log_failure(self, message: str, context: RequestContext, error: Exception) -> None:
        """Log a failure of ours with its traceback. `message` names the API: each has a limit of its own."""
        self._limiter.log(
            logging.ERROR, message, context, source=context.connection.peer_address, exc_info=error
        )

    def _answer_error(self, api: _Api, context: RequestContext, request: object, error: Exception) -> None:
        self._respond(api, context, request, self._error_response(api, context, request, error))

    def _decode_quietly(self, api: _Api, context: RequestContext, frame: memoryview, position: int) -> object:
        """Decode the request of a raw handler that failed, to tell the peer in its own format."""
        try:
            return codec.decode(
                registry.spec(api.handler.key).request_class,
                context.api_version,
                frame,
                position,
                allow_excess=True,
            )
        except ProtocolError:
            return None

    # Raw handlers that wait.

    def _await_raw(self, api: _Api, context: RequestContext, pending: Pending[RawReply | None]) -> None:
        connection = context.connection
        ticket = connection.open_reply()
        ticket.on_abandoned = pending.abandon
        parked_at = monotonic()

        def finish(done: Pending[RawReply | None]) -> None:
            context.metrics.observe_wait(context.received_at, parked_at, monotonic())
            if done.error is not None:
                self._log_failure(f"{api.title} failed: %s", context, done.error)
                connection.close("internal error", logging.DEBUG)
                return
            reply = done.value
            connection.reply(ticket, NO_REPLY if reply is None else reply)

        pending.add_done(finish)

    # Handlers that are coroutines.

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str, never_waits: bool = False) -> None:
        assert self._tasks is not None, f"{name} needs a task group"
        if self._task_count >= TASKS_MAX and not never_waits:
            self._tasks_waiting.append((coroutine, name))
            return
        try:
            task = self._tasks.create_task(coroutine, name=name)
        except RuntimeError:
            # The group is shutting down, and with it every connection.
            coroutine.close()
            return
        self._task_count += 1
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, _: "asyncio.Task[None]") -> None:
        self._task_count -= 1
        if self._tasks_waiting:
            self._spawn(*self._tasks_waiting.popleft())


def encode_reply(context: RequestContext, response: Any) -> RawReply:
    """Write the reply frame of a response message: size, header, body.

    Raises:
        kalda.protocol.errors.MessageError: the version of the request cannot carry what the response says.
    """
    version = context.api_version
    header = response_header(
        context.correlation_id, registry.response_header_version(ApiKey(context.api_key), version)
    )
    chunks: list[Any] = codec.encode_chunks(response, version)
    if len(chunks) == 1 and isinstance(chunks[0], bytes):
        return SIZE.pack(len(header) + len(chunks[0])) + header + chunks[0]
    size = len(header) + sum(chunk.size if hasattr(chunk, "size") else len(chunk) for chunk in chunks)
    reply: list[Chunk] = [SIZE.pack(size) + header]
    reply.extend(chunks)
    return reply

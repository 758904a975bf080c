"""Finds the handler of each request frame, calls it and sends its response: `Dispatcher`.

A Produce or Fetch request goes through `Dispatcher.on_frame` and its raw handler, nothing else: one
`RequestContext` per request, no task, no future. For every other API the dispatcher decodes the message,
calls the handler and encodes the response.

Requests are refused as in Kafka. An unknown API, a version outside the advertised range and a malformed
header or body close the connection, because no response format is known to be readable by the peer.
ApiVersions of an unknown version gets a version 0 response with UNSUPPORTED_VERSION and the list of APIs
(KIP-511).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable
from contextlib import suppress
from functools import partial
from struct import Struct as Format
from struct import error as StructError  # noqa: N812
from types import GeneratorType
from typing import TYPE_CHECKING, Any, Final, cast

from kalda.broker.requests.api import (
    ApiHandler,
    Pending,
    RawReply,
    RequestContext,
    ServedApi,
    dropped_in_steps,
    error_codes,
    error_codes_in_steps,
)
from kalda.broker.requests.large_requests import LARGE_BYTES, LargeRequest, LargeRequests
from kalda.broker.requests.refusals import refused_in_steps
from kalda.broker.requests.reply_encoding import encode_reply, encode_reply_in_steps, is_long
from kalda.broker.requests.throttling import throttle_response, timed, timed_steps
from kalda.cluster.history.author import REQUESTER
from kalda.common import invariants
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.log_limiter import LogLimiter
from kalda.common.metrics import Metrics
from kalda.common.turns import Steps, Turns, first_turn
from kalda.net.connection import Connection
from kalda.net.reply import NO_REPLY, Chunk, Ticket
from kalda.protocol import codec, registry
from kalda.protocol.fast.request_header import read_usual_header
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.wire_format import skip_tagged_fields
from kalda.zookeeper.errors import ZooKeeperError

if TYPE_CHECKING:
    from kalda.broker.requests.checks.request_access import RequestAccess
    from kalda.broker.requests.services import BrokerServices
    from kalda.broker.security.broker_audit import BrokerAudit
    from kalda.broker.security.client_throttle import ClientThrottle

logger: Final = logging.getLogger(__name__)

TASKS_MAX: Final = 256
"""Handlers that run as tasks at the same time. Further ones are queued; the outstanding requests of all
connections bound their number."""

_HEADER: Final = Format(">hhih")
_HEADER_BYTES: Final = _HEADER.size
_BARE_HEADER_BYTES: Final = 8
"""A header without a client id; see `registry.WITHOUT_CLIENT_ID`."""


class Dispatcher:
    """Routes the frames of all connections of one broker."""

    def __init__(
        self,
        services: "BrokerServices",
        handlers: Iterable[ApiHandler],
        metrics: Metrics,
        tasks: asyncio.TaskGroup | None = None,
    ) -> None:
        """`tasks` runs the handlers that are coroutines; None if no handler is one."""
        self._now: Final = services.clock.monotonic
        self._apis: Final[dict[int, ServedApi]] = {}
        self._built_when_used: Final[dict[int, Callable[[], ServedApi]]] = {}
        for handler in handlers:
            self.add_handler(handler, services, metrics)
        self._tasks: Final = tasks
        self._access: RequestAccess | None = None
        self._audit: BrokerAudit | None = None
        self._throttle: ClientThrottle | None = None
        """None while no quota is set."""
        self._timer: ClientThrottle | None = None
        """None while no quota bounds the time that requests take."""
        self._task_count = 0
        self._queued: Final[deque[tuple[Coroutine[Any, Any, None], str]]] = deque()
        self._large: Final = LargeRequests()
        self._large_of_brokers: Final = LargeRequests()
        self._limiter: Final = LogLimiter(logger)
        metrics.gauge(
            "kalda_broker_requesthandler_tasks",
            "Requests whose handlers run as tasks or are queued to.",
            lambda: self._task_count + len(self._queued),
        )

    def add_handler(self, handler: ApiHandler, services: "BrokerServices", metrics: Metrics) -> None:
        """Serve an API that not every broker has."""
        key = int(handler.key)
        assert key not in self._apis, f"two handlers for {handler.key.title}"
        if handler.is_built_when_used:
            self._built_when_used[key] = partial(ServedApi, handler, services, metrics)
        else:
            self._apis[key] = ServedApi(handler, services, metrics)

    def set_access(self, access: "RequestAccess") -> None:
        """Check requests against the ACLs; those of Produce and Fetch check themselves."""
        self._access = access

    def set_audit(self, audit: "BrokerAudit") -> None:
        """Note the requests that change the cluster."""
        self._audit = audit

    def set_throttle(self, throttle: "ClientThrottle") -> None:
        """Make clients wait that use more than their quotas; Produce and Fetch count bytes themselves."""

        def follow() -> None:
            self._throttle = throttle if throttle.is_active else None
            self._timer = throttle if throttle.limits_time else None

        throttle.on_change(follow)
        follow()

    def on_frame(self, connection: Connection, frame: memoryview) -> None:
        """Handle one request; the frame handler of `kalda.net.server.Server`."""
        if self._timer is not None:
            self._timer.begin(connection.last_active)
        head = read_usual_header(frame, connection.client_id_bytes)
        try:
            if head is not None:
                api_key, api_version, correlation_id, position = head
                client_id = connection.client_id
            else:
                api_key, api_version, correlation_id, position, client_id = self._read_header(
                    connection, frame
                )
            api = self._apis.get(api_key)
            if api is None:
                make = self._built_when_used.get(api_key)
                if make is None:
                    self._refuse(connection, frame, f"this broker has no API {api_key}")
                    return
                api = self._apis[api_key] = make()
            if api_version >= api.flexible_from:
                if frame[position]:
                    position, _ = skip_tagged_fields(frame, position, len(frame))
                else:
                    position += 1
        except (StructError, IndexError):
            self._refuse(connection, frame, "it ends within its header")
            return
        except (ProtocolError, UnicodeDecodeError) as error:
            self._refuse(connection, frame, f"its header is malformed: {error}")
            return
        received_at = connection.received_at
        context = RequestContext(connection, api, api_version, correlation_id, client_id, received_at)
        handle_raw = api.handle_raw
        if api_version < api.low or api_version > api.high:
            self._on_unserved_version(context, frame, position)
            return
        if handle_raw is None:
            if len(frame) > LARGE_BYTES:
                self._take_large(context, frame, position)
            elif self._decode(context, frame, position):
                self._respond(context, self._call(context))
            return
        try:
            reply = handle_raw(context, frame, position)
        except ProtocolError as error:
            self._refuse(connection, frame, f"it is malformed: {error}")
            return
        except Exception as error:
            with suppress(ProtocolError):
                _decode_message(context, frame, position)
            self._respond(context, self._error_response(context, error))
            return
        if isinstance(reply, Pending):
            self._await_raw(context, reply)
            return
        api.metrics.at_once_ms.observe((self._now() - received_at) * 1000)
        if reply is not None:
            connection.send(reply)

    def begin_to_close(self) -> None:
        """Drop the large requests that wait; the broker shuts down, and each may take a second."""
        self._large.close()
        self._large_of_brokers.close()

    def close(self) -> None:
        """Drop the queued handlers; the task group ends those that run."""
        while self._queued:
            coroutine, _ = self._queued.popleft()
            coroutine.close()

    def _read_header(
        self, connection: Connection, frame: memoryview
    ) -> tuple[int, int, int, int, str | None]:
        """Return API key, version, correlation id, where tagged fields or the body begin, and the client id.

        Raises:
            struct.error, UnicodeDecodeError, ProtocolError: the header is malformed.
        """
        api_key, api_version, correlation_id, length = _HEADER.unpack_from(frame)
        if (api_key, api_version) in registry.WITHOUT_CLIENT_ID:
            return api_key, api_version, correlation_id, _BARE_HEADER_BYTES, None
        if length < 0:
            return api_key, api_version, correlation_id, _HEADER_BYTES, None
        position = _HEADER_BYTES + length
        client_id_bytes = bytes(frame[_HEADER_BYTES:position])
        if client_id_bytes != connection.client_id_bytes:
            self._note_client_id(connection, client_id_bytes, length)
        return api_key, api_version, correlation_id, position, connection.client_id

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

    def _on_unserved_version(self, context: RequestContext, frame: memoryview, position: int) -> None:
        handler, version = context.api.handler, context.api_version
        answer_version = registry.UNKNOWN_VERSION_ANSWERS.get(handler.key)
        if answer_version is not None:
            context.api_version = answer_version
            context.message = context.api.request_class()
            response = self._call(context)
            if response is not None:
                cast(Any, response).error_code = ErrorCode.UNSUPPORTED_VERSION
            self._respond(context, response)
            return
        low, high = handler.versions_advertised
        if not low <= version <= high:
            self._refuse(context.connection, frame, f"{context.api.title} has no version {version} here")
        elif self._decode(context, frame, position):
            error = ApiError(ErrorCode.UNSUPPORTED_VERSION)
            self._respond(context, self._error_response(context, error))

    # Messages.

    def _decode(self, context: RequestContext, frame: memoryview, position: int) -> bool:
        """Decode the message of a request; close the connection and return False if it is malformed."""
        try:
            _decode_message(context, frame, position)
        except ProtocolError as error:
            self._refuse(context.connection, frame, f"it is malformed: {error}")
            return False
        return True

    def _call(self, context: RequestContext) -> object:
        handle = context.api.handle
        assert handle is not None, f"{context.api.title} has a raw handler only"
        try:
            if self._access is not None:
                refused = self._access.before(context)
                if isinstance(refused, GeneratorType):
                    return self._call_when_checked(context, refused)
                if refused is not None:
                    return refused
            return handle(context.message, context)
        except Exception as error:
            return self._failed(context, error)

    def _call_when_checked(self, context: RequestContext, check: Steps[Any]) -> Steps[object]:
        refused = yield from check
        if refused is not None:
            return refused
        handle = context.api.handle
        assert handle is not None, f"{context.api.title} has a raw handler only"
        return handle(context.message, context)

    def _respond(self, context: RequestContext, result: object) -> None:
        """Send the response that a handler returned, at once or when it is complete."""
        connection = context.connection
        if isinstance(result, GeneratorType):
            # The next request must not overtake this one; Kafka's broker handles them one at a time.
            connection.hold_frames()
            context.takes_turns = True
            self._wait(context, self._run_in_turns(context, result))
        elif isinstance(result, Pending):
            _end_work(context)
            self._wait(context, result)
        elif asyncio.iscoroutine(result):
            _end_work(context)
            self._park(context)
            never_queued = context.api.handler.is_of_brokers
            self._spawn(self._run(context, result), f"{context.api.title} {connection.peer}", never_queued)
        elif context.parked_at:
            self._reply(context, result)
        else:
            reply = self._encode(context, result)
            if reply is None:
                self._close_unanswered(context)
            else:
                connection.send(reply)

    def _run_in_turns(self, context: RequestContext, steps: Steps[Any]) -> Pending[Any]:
        if self._timer is not None:
            steps = timed_steps(steps, context, self._now)
        return _turns_of(context).run(steps)

    def _wait(self, context: RequestContext, result: Pending[Any]) -> None:
        """Send the response when it is complete."""
        ticket = self._park(context)
        large = context.large
        if large is None:
            ticket.on_abandoned = result.abandon
        else:
            ticket.on_abandoned = partial(_abandon, result, large)
        result.add_done(partial(self._finish, context))

    def _park(self, context: RequestContext) -> Ticket:
        """Reserve the place of a response that comes later, unless the request has it."""
        if context.parked_at:
            return context.ticket
        context.parked_at = self._now()
        if self._timer is not None:
            context.busy_seconds = self._timer.elapsed()
        ticket = context.ticket = context.connection.open_reply()
        return ticket

    def _finish(self, context: RequestContext, done: Pending[Any]) -> None:
        if done.error is None:
            # The value may be something else to wait for, where the handler began in turns.
            self._respond(context, done.value)
        else:
            self._reply(context, None, done.error)

    async def _run(self, context: RequestContext, coroutine: Coroutine[Any, Any, object]) -> None:
        if not context.api.handler.is_of_brokers:
            # The task is this request's alone, and so is the variable.
            REQUESTER.set(context)
        try:
            response = await (coroutine if self._timer is None else timed(coroutine, context, self._now))
        except Exception as error:
            self._reply(context, None, error)
            return
        if isinstance(response, Pending):
            response.add_done(partial(self._finish, context))
        else:
            self._reply(context, response)

    def _reply(self, context: RequestContext, response: object, error: Exception | None = None) -> None:
        """Answer a parked request. A failure here closes this connection and nothing else."""
        reply: RawReply | None
        try:
            if error is not None:
                response = self._failed(context, error)
                if isinstance(response, GeneratorType):
                    self._wait(context, self._run_in_turns(context, response))
                    return
            if response is not None and (
                context.takes_turns or context.large is not None or is_long(response)
            ):
                self._encode_in_turns(context, response)
                return
            reply = self._encode(context, response)
        except Exception as failure:
            self._log_unencoded(context, failure)
            reply = None
        self._send_encoded(context, reply)

    def _log_unencoded(self, context: RequestContext, failure: Exception) -> None:
        self._log_failure(f"the response to {context.api.title} cannot be encoded: %s", context, failure)

    def _send_encoded(self, context: RequestContext, reply: RawReply | None) -> None:
        if context.large is not None:
            context.large.end()
        if reply is None:
            self._close_unanswered(context)
        else:
            self._send_later(context, reply)

    def _send_later(self, context: RequestContext, reply: RawReply | tuple[Chunk, ...]) -> None:
        """Send the response of a parked request."""
        connection = context.connection
        if self._timer is None or not context.pays_for_response:
            connection.reply(context.ticket, reply)
            return
        began = self._now()
        connection.reply(context.ticket, reply)
        self._timer.sent(connection, context.client_id, self._now() - began)

    def _close_unanswered(self, context: RequestContext) -> None:
        context.connection.close(f"{context.api.title} cannot be answered", logging.WARNING)

    def _encode(self, context: RequestContext, response: object) -> RawReply | None:
        """Return the reply frame; None if the protocol has no response for what happened."""
        if response is None:
            return None
        response = self._completed(context, response)
        try:
            reply = encode_reply(context, response)
        except Exception as error:
            response = self._error_response(context, error)
            if response is None:
                return None
            reply = encode_reply(context, response)
        codes = error_codes(response)
        for code in codes:
            context.api.metrics.count_error(code)
        self._count(context, codes)
        return reply

    def _encode_in_steps(self, context: RequestContext, response: object) -> Steps[RawReply | None]:
        """Do what `_encode` does in steps."""
        if self._access is not None:
            yield from self._access.after_in_steps(context, response)
        response = self._completed(context, response)
        yield
        try:
            reply = yield from encode_reply_in_steps(context, response)
        except Exception as error:
            response = self._error_response(context, error)
            if response is None:
                return None
            reply = yield from encode_reply_in_steps(context, response)
        codes: set[int] = set()
        for part in error_codes_in_steps(response):
            for code in part:
                context.api.metrics.count_error(code)
            codes.update(part)
            yield
        self._count(context, codes)
        dropped = [response, context.message]
        response = context.message = None
        yield from dropped_in_steps(dropped)
        return reply

    def _completed(self, context: RequestContext, response: object) -> object:
        """Return a handler's response with what ACLs and quotas change in it."""
        if self._access is not None:
            self._access.after(context, response)
        if self._throttle is not None:
            response = throttle_response(self._throttle, context, response)
        if invariants.enabled:
            assert isinstance(response, context.api.response_class), (
                f"{context.api.title} answered {response!r:.200}"
            )
        return response

    def _count(self, context: RequestContext, codes: Collection[int]) -> None:
        metrics = context.api.metrics
        if self._audit is not None:
            handler = context.api.handler
            if handler.audit is not None:
                self._audit.change(context.connection, handler.key, handler.audit(context.message), codes)
        now, parked_at = self._now(), context.parked_at
        if parked_at:
            metrics.observe_wait(context.received_at, parked_at, now)
        else:
            metrics.at_once_ms.observe((now - context.received_at) * 1000)

    # Large requests.

    def _take_large(self, context: RequestContext, frame: memoryview, position: int) -> None:
        """Keep a large request, which is decoded, handled and answered in turns."""
        large = self._large_of_brokers if context.api.handler.is_of_brokers else self._large
        if not large.has_room(len(frame) - position):
            self._refuse(context.connection, frame, "other large requests are to be handled before it")
            return
        connection = context.connection
        connection.hold_frames()
        context.large = large.add(
            bytes(frame[position:]),
            partial(self._begin_large, context),
            partial(connection.close, "the broker shuts down", logging.DEBUG),
        )
        self._park(context).on_abandoned = context.large.end
        large.begin_next()

    def _begin_large(self, context: RequestContext, large: LargeRequest) -> None:
        handler = context.api.handler
        steps = codec.decode_in_steps(
            context.api.request_class, context.api_version, large.body, handler.elements_max
        )
        decoding = self._run_in_turns(context, steps)
        context.ticket.on_abandoned = partial(_abandon, decoding, large)
        decoding.add_done(partial(self._on_decoded, context))

    def _on_decoded(self, context: RequestContext, done: Pending[Any]) -> None:
        large = context.large
        assert large is not None, f"{context.api.title} is not a large request"
        if isinstance(done.error, ProtocolError):
            reason = f"request {context.api.title} of {large.size} bytes is malformed: {done.error}"
            context.connection.close(reason, logging.WARNING)
            return
        context.message = done.value
        large.body = b""
        context.ticket.on_abandoned = large.end
        self._respond(context, self._call(context))

    def _encode_in_turns(self, context: RequestContext, response: object) -> None:
        encoding = _turns_of(context).run(self._encode_in_steps(context, response))
        large = context.large
        context.ticket.on_abandoned = (
            encoding.abandon if large is None else partial(_abandon, encoding, large)
        )
        encoding.add_done(partial(self._on_encoded, context))

    def _on_encoded(self, context: RequestContext, done: "Pending[RawReply | None]") -> None:
        if done.error is not None:
            self._log_unencoded(context, done.error)
        self._send_encoded(context, done.value if done.error is None else None)

    # Errors.

    def _error_response(self, context: RequestContext, error: Exception) -> object:
        code = self._error_code(context, error)
        message = context.message
        if message is None:
            return None
        return context.api.handler.refusal(message, code, context.api_version)

    def _failed(self, context: RequestContext, error: Exception) -> object:
        """Return the response to a request that failed; that to a large one is made in steps."""
        if context.large is None or context.message is None:
            return self._error_response(context, error)
        code = self._error_code(context, error)
        return first_turn(refused_in_steps(context.api.handler, context.message, code, context.api_version))

    def _error_code(self, context: RequestContext, error: Exception) -> ErrorCode:
        title = context.api.title
        if isinstance(error, ApiError):
            return error.code
        if isinstance(error, ZooKeeperError):
            self._limiter.log(
                logging.WARNING,
                f"{title} failed because of the coordination engine: %s: %s",
                error,
                context,
                source=context.connection.peer_address,
            )
            # The change may or may not have been made; clients retry after this code.
            return ErrorCode.REQUEST_TIMED_OUT
        self._log_failure(f"{title} failed: %s", context, error)
        return ErrorCode.UNKNOWN_SERVER_ERROR

    def _log_failure(self, message: str, context: RequestContext, error: Exception) -> None:
        """Log a bug of ours with its traceback. `message` names the API, so each has its own rate limit."""
        self._limiter.log(
            logging.ERROR, message, context, source=context.connection.peer_address, exc_info=error
        )

    # Raw handlers that wait.

    def _await_raw(self, context: RequestContext, pending: Pending[RawReply | None]) -> None:
        self._park(context).on_abandoned = pending.abandon
        pending.add_done(partial(self._finish_raw, context))

    def _finish_raw(self, context: RequestContext, done: Pending[RawReply | None]) -> None:
        context.api.metrics.observe_wait(context.received_at, context.parked_at, self._now())
        if done.error is not None:
            self._log_failure(f"{context.api.title} failed: %s", context, done.error)
            context.connection.close("internal error", logging.DEBUG)
            return
        reply = done.value
        self._send_later(context, NO_REPLY if reply is None else reply)

    # Handlers that are coroutines.

    def _spawn(self, coroutine: Coroutine[Any, Any, None], name: str, never_queued: bool = False) -> None:
        assert self._tasks is not None, f"{name} needs a task group"
        if self._task_count >= TASKS_MAX and not never_queued:
            self._queued.append((coroutine, name))
            return
        try:
            task = self._tasks.create_task(coroutine, name=name)
        except RuntimeError:
            # The task group is shutting down, and so is every connection.
            coroutine.close()
            return
        self._task_count += 1
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, _: "asyncio.Task[None]") -> None:
        assert self._task_count > 0, "more handlers ended than began"
        self._task_count -= 1
        # Requests that are never queued run beyond the bound: the end of one of them frees no place.
        while self._queued and self._task_count < TASKS_MAX:
            self._spawn(*self._queued.popleft())


def _decode_message(context: RequestContext, frame: memoryview, position: int) -> None:
    """Decode the body at `position` into `context.message`.

    Raises:
        ProtocolError: it is malformed.
    """
    context.message = codec.decode(
        context.api.request_class, context.api_version, frame, position, allow_excess=True
    )


def _turns_of(context: RequestContext) -> Turns:
    return Turns.of_brokers() if context.api.handler.is_of_brokers else Turns.of_running_loop()


def _end_work(context: RequestContext) -> None:
    """Let other large requests begin while this one waits, which may take minutes for JoinGroup."""
    if context.large is not None:
        context.large.end()


def _abandon(result: Pending[Any], large: LargeRequest) -> None:
    result.abandon()
    large.end()

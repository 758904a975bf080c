"""Implements a client's connection to one broker, with several requests in flight, on the event loop.

It uses a raw non-blocking socket and the loop's reader and writer callbacks. `ClientConnection` builds
requests and reads responses; a broker answers the requests of one connection in order. The connection does
not reconnect and does not retry; `kalda.clients.network_client` does.

What a maintainer must not break: after any failure or time-out the connection is closed and each request in
flight fails with the cause. A late response must never be taken for the response to a later request.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import Final, Self

from kalda.net.client.api_versions import ApiVersionsNegotiation, NodeApiVersions
from kalda.net.client.client_errors import (
    BrokerConnectionError,
    ClientError,
    RequestTimedOutError,
    TlsError,
)
from kalda.net.client.frame_receiver import FrameReceiver
from kalda.net.client.sasl_login import NewLogin, log_in
from kalda.net.client.stream import PiecewiseStream, TlsBrokenError, connect_stream, has_input
from kalda.net.client.tls_probe import speaks_tls
from kalda.protocol.client_connection import ClientConnection
from kalda.protocol.messages.api_versions import ApiVersionsResponse
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.registry import expects_response
from kalda.protocol.schema import Message
from kalda.protocol.wire_format import Buffer
from kalda.runtime.error_text import error_text
from kalda.runtime.network import address_text, readers_of
from kalda.security.sasl.mechanism import SaslClient
from kalda.security.tls.client import TlsClient

OnResponse = Callable[["asyncio.Future[Message]"], object]
"""Called with the future of a response when it is done."""

READ_BYTES_PER_TURN: Final = 2 * 1024 * 1024
"""Bytes that one connection receives before other callbacks run: about a millisecond of copying."""

JOINED_BYTES_MAX: Final = 64 * 1024
"""Requests up to this size are copied into one piece: that costs less than to pass several to the kernel."""

_TLS_PROBE_SECONDS: Final = 0.5
"""How long a listener may take for the first byte of TLS; it was there a moment ago."""

_PARTS_MAX: Final = 1024
"""Pieces that one system call takes (IOV_MAX of Linux)."""

_SENDS_PARTS: Final = hasattr(socket.socket, "sendmsg")
"""Whether one system call takes several pieces; sockets of Windows send one."""

IN_FLIGHT_MAX: Final = 1000
"""Requests in flight. Producers and consumers stay far below; a caller that gets here lost its back-
pressure."""


class _InFlight:
    __slots__ = ("api_key", "deadline", "future", "on_response")

    def __init__(
        self,
        request: Message,
        deadline: float,
        future: "asyncio.Future[Message]",
        on_response: OnResponse | None,
    ) -> None:
        self.api_key = request.SCHEMA.api_key
        self.deadline = deadline
        self.future = future
        self.on_response = on_response


class PipelinedConnection:
    """An open connection; `send` returns a future of the response at once."""

    def __init__(
        self,
        sock: PiecewiseStream,
        peer: str,
        client_id: str,
        *,
        on_closed: Callable[["PipelinedConnection"], None] | None = None,
        on_read: Callable[[], None] | None = None,
    ) -> None:
        """Wrap a connected, non-blocking socket; most callers want `open`, which also negotiates versions.

        `on_read` is called when the responses that arrived together were delivered, in the same turn.
        """
        self.peer: Final = peer
        self.versions = NodeApiVersions(peer, {}, {})
        self.failure: ClientError | None = None
        """Why the connection was closed; None while it is open."""
        self.bytes_sent = 0
        self.bytes_received = 0
        self._socket: Final = sock
        self._loop: Final = asyncio.get_running_loop()
        self._protocol: Final = ClientConnection(client_id, in_flight_max=IN_FLIGHT_MAX)
        self._receiver: Final = FrameReceiver()
        self._in_flight: Final[deque[_InFlight]] = deque()
        self._unsent: Final[deque[memoryview]] = deque()
        self._held: list[Buffer] | None = None
        """The requests sent since `hold_writes`; None without one."""
        self._on_closed: Final = on_closed
        self._on_read: Final = on_read
        self._timer: asyncio.TimerHandle | None = None
        self._negotiated_id = -1
        """The correlation id of the last request about versions."""
        self._new_login: Callable[[], SaslClient] | None = None
        self.renew_at: float | None = None
        """When to log in again, in the loop's seconds, as the session ends soon; None if never."""
        self.last_used = self._loop.time()
        """When a request was last sent or a response received, in the loop's seconds."""
        readers_of(self._loop).add_reader(sock.fileno(), self._on_readable)

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_seconds: float,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        tls: TlsClient | None = None,
        login: NewLogin | None = None,
        on_closed: Callable[["PipelinedConnection"], None] | None = None,
        on_read: Callable[[], None] | None = None,
        finds_tls: bool = False,
    ) -> Self:
        """Connect, with TLS and a login if they are given, and agree on versions within `timeout_seconds`.

        With `finds_tls`, a listener that ends a plaintext connection before it answers is asked once more
        whether it speaks TLS.

        Raises:
            BrokerConnectionError: the name is not known, or the broker refuses or closes the connection.
            TlsError: the TLS handshake failed, or the listener speaks TLS and `tls` is None.
            SaslAuthenticationError: the login failed.
            RequestTimedOutError: the time is up.
            BrokerResponseError: the broker answers with an error.
        """
        peer = address_text(host, port)
        try:
            async with asyncio.timeout(timeout_seconds):
                sock = await connect_stream(
                    host,
                    port,
                    tls,
                    timeout_seconds=timeout_seconds,
                    send_buffer_bytes=send_buffer_bytes,
                    receive_buffer_bytes=receive_buffer_bytes,
                )
                connection = cls(sock, peer, client_id, on_closed=on_closed, on_read=on_read)
                try:
                    await connection._negotiate(timeout_seconds)
                    connection._negotiated_id = connection._protocol.last_correlation_id
                    if login is not None:
                        connection._new_login = partial(login, host)
                        await connection._log_in(timeout_seconds)
                except BaseException as error:
                    connection.close()
                    if finds_tls and tls is None and not connection.bytes_received:
                        await _check_tls(error, host, port, has_login=login is not None)
                    raise
        except TimeoutError:
            raise RequestTimedOutError(f"no connection to {peer} within {timeout_seconds:g} s") from None
        except OSError as error:
            raise BrokerConnectionError(f"no connection to {peer}: {error_text(error)}") from error
        return connection

    @property
    def is_closed(self) -> bool:
        """Whether the connection can no longer be used."""
        return self.failure is not None

    @property
    def in_flight_count(self) -> int:
        """Requests whose responses have not arrived."""
        return len(self._in_flight)

    def send(
        self,
        request: Message,
        version: int,
        timeout_seconds: float,
        on_response: OnResponse | None = None,
    ) -> "asyncio.Future[Message]":
        """Send a request; return the future of its response.

        `on_response` gets that future in the same turn of the loop in which the response is read, before
        callbacks of the future itself; a failure reaches it in a later turn, and a cancelled future never.
        It is never called inside `send`.

        The future fails with `BrokerConnectionError` or `RequestTimedOutError`; the connection is closed
        then, and the broker may have processed the request. A request without a response (produce with
        acks=0) succeeds with itself as the result as soon as it is handed over.

        Raises:
            BrokerConnectionError: the connection is closed; nothing was sent.
            MessageError: the version cannot carry the request; nothing was sent.
        """
        if self.failure is not None:
            raise BrokerConnectionError(str(self.failure))
        loop = self._loop
        parts = self._protocol.send_parts(request, version)
        future: asyncio.Future[Message] = loop.create_future()
        now = self.last_used = loop.time()
        if expects_response(request):
            deadline = now + timeout_seconds
            self._in_flight.append(_InFlight(request, deadline, future, on_response))
            timer = self._timer
            if timer is None:
                self._timer = loop.call_at(deadline, self._check_deadlines)
            elif deadline < timer.when():
                timer.cancel()
                self._timer = loop.call_at(deadline, self._check_deadlines)
        else:
            future.set_result(request)
            if on_response is not None:
                loop.call_soon(on_response, future)
        self.bytes_sent += sum(map(len, parts))
        if self._held is None:
            self._write(parts)
        else:
            self._held += parts
        return future

    def hold_writes(self) -> None:
        """Keep requests back until `write_held`, which the caller calls in the same turn of the loop.

        One system call for several requests: with the wait for the GIL after it, a call costs more than to
        build a small request.
        """
        if self._held is None:
            self._held = []

    def write_held(self) -> None:
        """Write what was sent since `hold_writes`; harmless without one, and when the connection is lost."""
        held, self._held = self._held, None
        if held and self.failure is None:
            self._write(held)

    def close(self, failure: ClientError | None = None) -> None:
        """Close the socket; requests in flight fail with `failure`. Harmless when it is closed."""
        if self.failure is not None:
            return
        self.failure = (
            BrokerConnectionError(f"connection to {self.peer} closed by this client")
            if failure is None
            else failure
        )
        descriptor = self._socket.fileno()
        readers_of(self._loop).remove_reader(descriptor)
        if self._unsent:
            self._loop.remove_writer(descriptor)
            self._unsent.clear()
        self._socket.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._in_flight:
            request = self._in_flight.popleft()
            future = request.future
            if not future.done():
                if request.on_response is not None:
                    # Later: the owner of the connection is notified first that it is closed.
                    self._loop.call_soon(request.on_response, future)
                future.set_exception(self.failure)
        if self._on_closed is not None:
            self._on_closed(self)

    async def renew_login(self, timeout_seconds: float) -> None:
        """Log in again behind the requests in flight (KIP-368); the caller sends none meanwhile.

        `timeout_seconds` bounds each exchange of the login, not the wait for the requests in flight.

        Raises:
            SaslAuthenticationError: the broker refused the login; the connection cannot be used any more.
            ClientError: the connection was lost.
        """
        while pending := [each.future for each in self._in_flight if not each.future.done()]:
            # Responses come in order, so the last one is the one to wait for.
            await asyncio.wait(pending[-1:])
        await self._log_in(timeout_seconds)

    async def _negotiate(self, timeout_seconds: float) -> None:
        negotiation = ApiVersionsNegotiation(self.peer)
        versions = None
        while versions is None:
            response = await self.send(negotiation.request, negotiation.version, timeout_seconds)
            assert isinstance(response, ApiVersionsResponse), f"a {type(response).__name__}"
            versions = negotiation.received(response)
        self.versions = versions

    async def _log_in(self, timeout_seconds: float) -> None:
        def exchange(request: Message, version: int) -> "asyncio.Future[Message]":
            return self.send(request, version, timeout_seconds)

        assert self._new_login is not None, "a login without a mechanism"
        renew_seconds = await log_in(self.peer, self._new_login(), exchange, self.versions.latest)
        self.renew_at = None if renew_seconds is None else self._loop.time() + renew_seconds

    def _write(self, parts: list[Buffer]) -> None:
        size = sum(map(len, parts))
        unsent = self._unsent
        if size > JOINED_BYTES_MAX:
            was_blocked = bool(unsent)
            unsent.extend(map(memoryview, parts))
            if not was_blocked and not self._send_parts() and self.failure is None:
                self._loop.add_writer(self._socket.fileno(), self._on_writable)
            return
        data = b"".join(parts)
        if unsent:
            unsent.append(memoryview(data))
            return
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lost(error_text(error))
            return
        if sent < size:
            unsent.append(memoryview(data)[sent:])
            self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        if self._send_parts():
            self._loop.remove_writer(self._socket.fileno())

    def _send_parts(self) -> bool:
        """Write what is unsent as far as the kernel takes it; return whether nothing is left.

        Closes the connection, and returns False, where it is lost.
        """
        unsent = self._unsent
        while unsent:
            try:
                if _SENDS_PARTS:
                    sent = self._socket.sendmsg(list(islice(unsent, _PARTS_MAX)))
                else:
                    sent = self._socket.send(unsent[0])
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                self._lost(error_text(error))
                return False
            while unsent and sent >= len(unsent[0]):
                sent -= len(unsent.popleft())
            if sent:
                unsent[0] = unsent[0][sent:]
                return False
        return True

    def _on_readable(self) -> None:
        receiver = self._receiver
        budget = READ_BYTES_PER_TURN
        while budget > 0 and self.failure is None:
            room = receiver.room()
            try:
                count = self._socket.recv_into(room)
            except (BlockingIOError, InterruptedError):
                break
            except TlsBrokenError as error:
                self._tls_broken(error)
                break
            except OSError as error:
                self._lost(error_text(error) + self._remedy())
                break
            if not count:
                self._lost("closed by the broker" + self._remedy())
                break
            self.bytes_received += count
            try:
                for frame in receiver.received(count):
                    self._deliver(frame)
            except ProtocolError as error:
                self._lost(f"the broker sent a bad response: {error}")
                break
            if count < len(room):
                # Nothing more is there; asking again would only cost a system call.
                break
            budget -= count
        if self.failure is None and has_input(self._socket):
            self._loop.call_soon(self._on_readable_later)
        if self._on_read is not None:
            self._on_read()

    def _remedy(self) -> str:
        """A broker closes without a word where the client's `security.protocol` is not the listener's."""
        if not self.bytes_received and isinstance(self._socket, socket.socket):
            return (
                " before it answered; is this a listener of Kafka's protocol, and does the listener use TLS? "
                "(`security.protocol`)"
            )
        answered = self._protocol.last_correlation_id - self._negotiated_id - len(self._in_flight)
        if answered == 0 and self._new_login is None:
            return " at the first request; does the listener require a login? (`security.protocol`)"
        return ""

    def _on_readable_later(self) -> None:
        """Go on reading what a stream has already received, as its descriptor may stay silent."""
        if self.failure is None:
            self._on_readable()

    def _deliver(self, frame: bytes | bytearray) -> None:
        if self.failure is not None:
            return
        _, response = self._protocol.receive_frame(frame)
        self.last_used = self._loop.time()
        request = self._in_flight.popleft()
        future = request.future
        if future.done():  # the caller has cancelled it
            return
        future.set_result(response)
        if request.on_response is None:
            return
        try:
            request.on_response(future)
        except Exception as error:
            # As after a callback of the future: the responses behind this one are delivered.
            self._loop.call_exception_handler(
                {"message": f"a response of {self.peer} was not processed", "exception": error}
            )

    def _check_deadlines(self) -> None:
        self._timer = None
        if not self._in_flight:
            return
        now = self._loop.time()
        earliest = min(self._in_flight, key=_deadline_of)
        if earliest.deadline <= now:
            assert earliest.api_key is not None, "only requests are in flight"
            self.close(RequestTimedOutError(f"{self.peer} did not answer {earliest.api_key.title} in time"))
        else:
            self._timer = self._loop.call_at(earliest.deadline, self._check_deadlines)

    def _tls_broken(self, error: TlsBrokenError) -> None:
        """Close; in TLS 1.3 a broker refuses a certificate after the handshake, before its first response."""
        if self.bytes_received:
            self._lost(str(error))
        else:
            self.close(TlsError(f"{self.peer} ended the connection: {error}"))

    def _lost(self, what: str) -> None:
        self.close(BrokerConnectionError(f"connection to {self.peer} lost: {what}"))


async def _check_tls(failure: BaseException, host: str, port: int, *, has_login: bool) -> None:
    """Raise `TlsError` if the listener that ended a plaintext connection speaks TLS."""
    if not isinstance(failure, BrokerConnectionError):
        return
    if await speaks_tls(host, port, timeout_seconds=_TLS_PROBE_SECONDS):
        found, needed = ("SASL_PLAINTEXT", "SASL_SSL") if has_login else ("PLAINTEXT", "SSL, or SASL_SSL")
        raise TlsError(
            f"{address_text(host, port)} speaks TLS, but this client does not: `security.protocol`={found}; "
            f"set it to {needed}, and `ssl.truststore.location` to the file of the authority's certificate"
        ) from failure


def _deadline_of(request: _InFlight) -> float:
    return request.deadline

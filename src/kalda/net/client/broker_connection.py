"""Implements a connection to one broker, with several requests in flight, on the event loop.

`ClientConnection` builds requests and reads responses; a broker answers the requests of one connection in
order. The connection does not reconnect and does not retry; `kalda.clients.network_client` does, and the
callers of `kalda.net.peer` do.

After any failure or time-out the connection is closed and each request in flight fails with the cause. A late
response must never be taken for the response to a later request.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from operator import itemgetter
from typing import Any, ClassVar, Final, Self, TypeAlias

from kalda.common.api_keys import ApiKey
from kalda.net.client.api_versions import CLIENT_SOFTWARE_NAME, ApiVersionsNegotiation, NodeApiVersions
from kalda.net.client.client_errors import (
    BrokerConnectionError,
    ClientError,
    RequestTimedOutError,
    TlsError,
)
from kalda.net.client.frame_receiver import FRAME_BYTES_MAX, FrameReceiver
from kalda.net.client.sasl_login import NewLogin, log_in
from kalda.net.client.stream import StreamSocket, TlsBrokenError, connect_stream
from kalda.net.client.stream_connection import StreamConnection
from kalda.net.client.tls_probe import speaks_tls
from kalda.protocol.client_connection import IN_FLIGHT_MAX, ClientConnection
from kalda.protocol.messages.api_versions import ApiVersionsResponse
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.registry import expects_response
from kalda.protocol.schema import Message
from kalda.protocol.wire_format import Buffer
from kalda.runtime.error_text import error_text
from kalda.runtime.network import Network, address_text
from kalda.runtime.system.network import SYSTEM_NETWORK
from kalda.security.sasl.mechanism import SaslClient
from kalda.security.tls.client import TlsClient

OnResponse = Callable[["asyncio.Future[Message]"], object]
"""Called with the future of a response when it is done."""

_TLS_PROBE_SECONDS: Final = 0.5
"""How long a listener may take for the first byte of TLS; it was there a moment ago."""


_InFlight: TypeAlias = "tuple[asyncio.Future[Any], OnResponse | None, bool, float, float, ApiKey]"
"""The future of a response, the callback that gets it, whether the caller decodes the response, the deadline
in the loop's seconds, the seconds that the request may take, and its API. A plain tuple: an object with names
costs every request two calls."""

_deadline_of: Final = itemgetter(3)


class BrokerConnection(StreamConnection):
    """An open connection; `send` returns a future of the response at once."""

    IN_FLIGHT_MAX: ClassVar = IN_FLIGHT_MAX
    """Requests in flight."""
    REUSES_MEMORY: ClassVar = False
    """Whether each response is received into the memory of the one before, of which views are no longer
    valid then."""
    SOFTWARE_NAME: ClassVar = CLIENT_SOFTWARE_NAME
    """How this side names itself to the broker."""
    OWN_SIDE: ClassVar = "this client"
    """What this side is, for messages."""

    def __init__(
        self,
        stream: StreamSocket,
        peer: str,
        client_id: str,
        *,
        on_closed: Callable[["BrokerConnection"], None] | None = None,
        on_read: Callable[[], object] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Wrap a connected, non-blocking stream; most callers want `open`, which also negotiates versions.

        `on_read` is called when the responses that arrived together were delivered, in the same turn.
        """
        self.peer: Final = peer
        self.versions = NodeApiVersions(peer, {}, {})
        self.failure: ClientError | None = None
        """Why the connection was closed; None while it is open."""
        self.bytes_sent = 0
        self.bytes_received = 0
        self._protocol: Final = ClientConnection(client_id, in_flight_max=self.IN_FLIGHT_MAX)
        self._receiver: Final = FrameReceiver(frame_bytes_max, reuses_memory=self.REUSES_MEMORY)
        self._in_flight: Final[deque[_InFlight]] = deque()
        self._held: list[Buffer] | None = None
        """The requests sent since `hold_writes`; None without one."""
        self._on_closed: Final = on_closed
        self._timer: asyncio.TimerHandle | None = None
        """Fires at the next deadline or before. A response leaves it to later requests: a timer for each of
        thousands of requests a second would cost more than parsing their responses."""
        self._negotiated_id = -1
        """The correlation id of the last request about versions."""
        self._new_login: Callable[[], SaslClient] | None = None
        self.renew_at: float | None = None
        """When to log in again, in the loop's seconds, as the session ends soon; None if never."""
        super().__init__(
            stream, asyncio.get_running_loop() if loop is None else loop, self._receiver.room, on_read
        )
        self.last_used = self._loop.time()
        """When a request was last sent or a response received, in the loop's seconds."""

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
        on_closed: Callable[["BrokerConnection"], None] | None = None,
        on_read: Callable[[], object] | None = None,
        finds_tls: bool = False,
        network: Network = SYSTEM_NETWORK,
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
                stream = await connect_stream(
                    host,
                    port,
                    tls,
                    timeout_seconds=timeout_seconds,
                    send_buffer_bytes=send_buffer_bytes,
                    receive_buffer_bytes=receive_buffer_bytes,
                    network=network,
                )
                connection = cls(stream, peer, client_id, on_closed=on_closed, on_read=on_read)
                try:
                    await connection._negotiate(timeout_seconds)
                    connection._negotiated_id = connection._protocol.last_correlation_id
                    if login is not None:
                        connection._new_login = partial(login, host)
                        await connection._log_in(timeout_seconds)
                except BaseException as error:
                    connection.close()
                    if finds_tls and tls is None and not connection.bytes_received:
                        await _check_tls(error, host, port, network, has_login=login is not None)
                    raise
        except TimeoutError:
            raise RequestTimedOutError(f"no connection to {peer} within {timeout_seconds:g} s") from None
        except OSError as error:
            raise BrokerConnectionError(f"no connection to {peer}: {error_text(error)}") from error
        return connection

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
        parts = self._protocol.send_parts(request, version)
        if expects_response(request):
            return self._send(parts, request.SCHEMA.api_key, timeout_seconds, on_response)
        future: asyncio.Future[Message] = self._send(parts, None, timeout_seconds)
        future.set_result(request)
        if on_response is not None:
            self._loop.call_soon(on_response, future)
        return future

    def _send(
        self,
        parts: list[Buffer],
        api_key: ApiKey | None,
        timeout_seconds: float,
        on_response: OnResponse | None = None,
        *,
        is_raw: bool = False,
    ) -> "asyncio.Future[Any]":
        """Send a frame; return the future of the response.

        It is never done where `api_key` is None. With `is_raw`, its result is the part of the received frame
        behind the header, for the caller to decode.
        """
        loop = self._loop
        future: asyncio.Future[Any] = loop.create_future()
        now = self.last_used = loop.time()
        if api_key is not None:
            deadline = now + timeout_seconds
            self._in_flight.append((future, on_response, is_raw, deadline, timeout_seconds, api_key))
            timer = self._timer
            if timer is None:
                self._timer = loop.call_at(deadline, self._check_deadlines)
            elif deadline < timer.when():
                timer.cancel()
                self._timer = loop.call_at(deadline, self._check_deadlines)
        size = sum(map(len, parts))
        self.bytes_sent += size
        if self._held is None:
            self._write(parts, size)
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
            self._write(held, sum(map(len, held)))

    def close(self, failure: ClientError | None = None) -> None:
        """Close the socket; requests in flight fail with `failure`. Harmless when it is closed."""
        if self.failure is not None:
            return
        if failure is None:
            failure = BrokerConnectionError(f"connection to {self.peer} closed by {self.OWN_SIDE}")
        self.failure = failure
        self._close_stream()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._in_flight:
            future, on_response, *_ = self._in_flight.popleft()
            if not future.done():
                if on_response is not None:
                    # Later: the owner of the connection is notified first that it is closed.
                    self._loop.call_soon(on_response, future)
                future.set_exception(failure)
        if self._on_closed is not None:
            self._on_closed(self)

    async def renew_login(self, timeout_seconds: float) -> None:
        """Log in again behind the requests in flight (KIP-368); the caller sends none meanwhile.

        `timeout_seconds` bounds each exchange of the login, not the wait for the requests in flight.

        Raises:
            SaslAuthenticationError: the broker refused the login; the connection cannot be used any more.
            ClientError: the connection was lost.
        """
        while pending := [future for future, *_ in self._in_flight if not future.done()]:
            # Responses come in order, so the last one is the one to wait for.
            await asyncio.wait(pending[-1:])
        await self._log_in(timeout_seconds)

    async def _negotiate(self, timeout_seconds: float) -> None:
        negotiation = ApiVersionsNegotiation(self.peer, self.SOFTWARE_NAME)
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

    def _received(self, count: int) -> None:
        self.bytes_received += count
        try:
            for frame in self._receiver.received(count):
                self._deliver(frame)
        except ProtocolError as error:
            self._fail(f"the broker sent a bad response: {error}")

    def _lost(self, error: OSError | None) -> None:
        if not isinstance(error, TlsBrokenError):
            what = "closed by the broker" if error is None else error_text(error)
            self._fail(what + self._remedy())
        elif self.bytes_received:
            self._fail(str(error))
        else:
            # In TLS 1.3 a broker refuses a certificate after the handshake, before its first response.
            self.close(TlsError(f"{self.peer} ended the connection: {error}"))

    def _fail(self, what: str) -> None:
        self.close(BrokerConnectionError(f"connection to {self.peer} lost: {what}"))

    def _remedy(self) -> str:
        """A broker closes without a word where the client's `security.protocol` is not the listener's."""
        if not self.bytes_received and self._tls is None:
            return (
                " before it answered; is this a listener of Kafka's protocol, and does the listener use TLS? "
                "(`security.protocol`)"
            )
        answered = self._protocol.last_correlation_id - self._negotiated_id - len(self._in_flight)
        if answered == 0 and self._new_login is None:
            return " at the first request; does the listener require a login? (`security.protocol`)"
        return ""

    def _deliver(self, frame: Buffer) -> None:
        if self.failure is not None:
            return
        if self._unsent and self.IN_FLIGHT_MAX == 1:
            raise ProtocolError(f"{len(frame)} bytes came before their request was sent")
        in_flight = self._in_flight
        if not in_flight:
            raise ProtocolError(f"a response of {len(frame)} bytes came, but nothing was asked")
        future, on_response, is_raw, _, _, _ = in_flight[0]
        response: Message | Buffer
        if is_raw:
            response = frame[self._protocol.receive_body(frame) :]
        else:
            _, response = self._protocol.receive_frame(frame)
        in_flight.popleft()
        self.last_used = self._loop.time()
        if future.done():  # the caller has cancelled it
            return
        future.set_result(response)
        if on_response is None:
            return
        try:
            on_response(future)
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
        *_, deadline, timeout_seconds, api_key = min(self._in_flight, key=_deadline_of)
        if deadline <= now:
            seconds = f"{round(timeout_seconds, 3):g} s"
            self.close(RequestTimedOutError(f"{self.peer} did not answer {api_key.title} within {seconds}"))
        else:
            self._timer = self._loop.call_at(deadline, self._check_deadlines)

    def check_invariants(self) -> None:
        """Assert that requests in flight, unsent bytes and the awaited responses agree."""
        count = len(self._in_flight)
        assert count <= self.IN_FLIGHT_MAX, f"{self.peer}: {count} requests in flight"
        due = 0 if self.is_closed else self._protocol.in_flight_count
        assert due == count, f"{self.peer}: {due} responses are due, {count} are awaited"


async def _check_tls(
    failure: BaseException, host: str, port: int, network: Network, *, has_login: bool
) -> None:
    """Raise `TlsError` if the listener that ended a plaintext connection speaks TLS."""
    if not isinstance(failure, BrokerConnectionError):
        return
    if await speaks_tls(host, port, timeout_seconds=_TLS_PROBE_SECONDS, network=network):
        found, needed = ("SASL_PLAINTEXT", "SASL_SSL") if has_login else ("PLAINTEXT", "SSL, or SASL_SSL")
        raise TlsError(
            f"{address_text(host, port)} speaks TLS, but this client does not: `security.protocol`={found}; "
            f"set it to {needed}, and `ssl.truststore.location` to the file of the authority's certificate"
        ) from failure

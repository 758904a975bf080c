"""Implements one connection from this broker to another, with one request in flight at a time.

It uses a raw non-blocking socket and the loop's reader and writer callbacks: a response of megabytes is
received into one reused buffer with as few turns of the loop as the kernel allows, and a small request is
one system call. `ClientConnection` builds requests and reads responses. It is not a pool and it does not
retry.

What a maintainer must not break: after any failure, time-out or cancellation the connection is closed. A late
response must never be taken for the response to a later request.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from kalda.common import invariants
from kalda.common.api_keys import ApiKey
from kalda.net.client.api_versions import (
    BROKER_SOFTWARE_NAME,
    ApiVersionsNegotiation,
    highest_shared_version,
)
from kalda.net.client.client_errors import AuthenticationError, BrokerResponseError
from kalda.net.client.sasl_login import NewLogin, log_in
from kalda.net.client.stream import StreamSocket, connect_stream, has_input
from kalda.net.peer.receive_buffer import FRAME_BYTES_MAX, ReceiveBuffer
from kalda.protocol.client_connection import ClientConnection
from kalda.protocol.messages.api_versions import ApiVersionsResponse
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.registry import spec
from kalda.protocol.schema import Message, VersionRange
from kalda.runtime.error_text import error_text
from kalda.runtime.network import address_text, readers_of
from kalda.security.tls.client import TlsClient

READ_BYTES_PER_TURN: Final = 2 * 1024 * 1024
"""Bytes that one connection receives before others get their turn: about a millisecond of copying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DialOptions:
    """How to open a connection to a broker."""

    client_id: str
    timeout_seconds: float
    receive_buffer_bytes: int = -1
    """-1 leaves the socket's receive buffer to the system."""
    tls: TlsClient | None = None
    """None for a plaintext connection."""
    login: NewLogin | None = None
    """None if no login is needed."""


class PeerConnection:
    """A connection to another broker, with one request in flight at most.

    A view in an answer (records, or what `request_raw` returns) is valid until the next request.
    """

    __slots__ = (
        "_answer",
        "_asked",
        "_deadline",
        "_login",
        "_loop",
        "_offered",
        "_protocol",
        "_received",
        "_renew_at",
        "_socket",
        "_timer",
        "_unsent",
        "is_closed",
        "peer",
    )

    def __init__(
        self,
        sock: StreamSocket,
        peer: str,
        client_id: str,
        *,
        loop: asyncio.AbstractEventLoop | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        """Wrap a connected, non-blocking socket; most callers want `open`, which also negotiates versions."""
        self.peer: Final = peer
        self.is_closed = False
        self._socket: Final = sock
        self._loop: Final = asyncio.get_running_loop() if loop is None else loop
        self._protocol: Final = ClientConnection(client_id, in_flight_max=1)
        self._received: Final = ReceiveBuffer(frame_bytes_max)
        self._offered: Mapping[int, VersionRange] = {}
        self._login: NewLogin | None = None
        self._renew_at: float | None = None
        """When to log in again, in the loop's seconds; None if never."""
        self._answer: asyncio.Future[memoryview] | None = None
        """Not None while, and only while, a request is in flight."""
        self._asked: tuple[ApiKey, float] | None = None
        """The last request, and how many seconds it may take."""
        self._deadline = 0.0
        """When the time of the last request is up, in the loop's seconds."""
        self._timer: asyncio.TimerHandle | None = None
        """Fires at the deadline or before. An answered request leaves it to the next one: a timer for each of
        thousands of requests a second would cost more than parsing their answers."""
        self._unsent: memoryview | None = None
        readers_of(self._loop).add_reader(sock.fileno(), self._on_readable)

    @classmethod
    async def open(cls, host: str, port: int, options: DialOptions) -> Self:
        """Connect, over TLS if the options say so, and agree on versions.

        Raises:
            ConnectionError: the name is not known, the broker refuses, TLS fails, or the time is up.
        """
        peer = address_text(host, port)
        timeout_seconds = options.timeout_seconds
        try:
            async with asyncio.timeout(timeout_seconds):
                sock = await connect_stream(
                    host,
                    port,
                    options.tls,
                    timeout_seconds=timeout_seconds,
                    receive_buffer_bytes=options.receive_buffer_bytes,
                )
                connection = cls(sock, peer, options.client_id)
                try:
                    await connection._negotiate(timeout_seconds)
                    if options.login is not None:
                        connection._login = options.login
                        await connection._log_in(timeout_seconds)
                except BaseException:
                    connection.close()
                    raise
        except TimeoutError:
            raise ConnectionError(f"no connection to {peer} within {timeout_seconds:g} s") from None
        except AuthenticationError as error:
            raise ConnectionError(str(error)) from None
        except ConnectionError as error:
            raise _naming(peer, error) from error
        except OSError as error:
            raise ConnectionError(f"no connection to {peer}: {error_text(error)}") from error
        return connection

    def version_of(self, api_key: ApiKey) -> int:
        """The highest version of a request that both sides know.

        Raises:
            ConnectionError: there is none; this peer cannot be asked.
        """
        version = highest_shared_version(spec(api_key).versions, self._offered.get(api_key))
        if version is None:
            raise ConnectionError(f"{self.peer} and this broker share no version of {api_key.title}")
        return version

    async def request(
        self, request: Message, *, timeout_seconds: float, version: int | None = None
    ) -> Message:
        """Send a request and await its response; without `version`, in the highest that both sides have.

        Raises:
            MessageError: the version cannot carry the request; nothing was sent.
            ConnectionError: anything else; the connection is closed.
        """
        api_key = request.SCHEMA.api_key
        assert api_key is not None, f"{request.SCHEMA.name} is not a request"
        if version is None:
            version = self.version_of(api_key)
        await self._renew_login(timeout_seconds)
        self._check_idle(api_key)
        data = self._protocol.send(request, version)
        frame = await self._exchange(data, api_key, timeout_seconds)
        try:
            _, response = self._protocol.receive_frame(frame)
        except ProtocolError as error:
            raise self._close_after(f"sent a bad answer: {error}") from error
        if invariants.enabled:
            self.check_invariants()
        return response

    async def request_raw(
        self, api_key: ApiKey, version: int, body: bytes | list[bytes], *, timeout_seconds: float
    ) -> memoryview:
        """Send the body of a request and await the body of its answer, both in the caller's encoding.

        Raises:
            ConnectionError: it failed; the connection is closed.
        """
        await self._renew_login(timeout_seconds)
        self._check_idle(api_key)
        data = self._protocol.send_body(api_key, version, (body,) if isinstance(body, bytes) else body)
        frame = await self._exchange(data, api_key, timeout_seconds)
        try:
            position = self._protocol.receive_body(frame)
        except ProtocolError as error:
            raise self._close_after(f"sent a bad answer: {error}") from error
        return frame[position:]

    def close(self) -> None:
        """Close the socket; a request in flight fails. Harmless when it is closed."""
        if not self.is_closed:
            self._close_after("was hung up on by this broker")

    async def _negotiate(self, timeout_seconds: float) -> None:
        negotiation = ApiVersionsNegotiation(self.peer, BROKER_SOFTWARE_NAME)
        versions = None
        while versions is None:
            response = await self.request(
                negotiation.request, timeout_seconds=timeout_seconds, version=negotiation.version
            )
            assert isinstance(response, ApiVersionsResponse), f"a {type(response).__name__}"
            try:
                versions = negotiation.received(response)
            except BrokerResponseError as error:
                raise self._close_after(f"refused ApiVersions: {error}") from error
        self._offered = versions.ranges

    async def _log_in(self, timeout_seconds: float) -> None:
        """Log in, and plan when to log in again.

        Raises:
            AuthenticationError: the peer refused the login.
            ConnectionError: the connection broke.
        """
        assert self._login is not None, "a login without a mechanism"

        async def exchange(request: Message, version: int) -> Message:
            return await self.request(request, timeout_seconds=timeout_seconds, version=version)

        self._renew_at = None
        seconds = await log_in(
            self.peer, self._login(self.peer.rpartition(":")[0]), exchange, self.version_of
        )
        if seconds is not None:
            self._renew_at = self._loop.time() + seconds

    async def _renew_login(self, timeout_seconds: float) -> None:
        """Log in again if the session ends soon (KIP-368)."""
        if self._renew_at is None or self._loop.time() < self._renew_at:
            return
        try:
            await self._log_in(timeout_seconds)
        except AuthenticationError as error:
            raise self._close_after(str(error)) from None

    def _check_idle(self, api_key: ApiKey) -> None:
        assert self._answer is None, f"{api_key.title} while a request to {self.peer} is in flight"
        if self.is_closed:
            raise ConnectionError(f"{api_key.title}: the connection to {self.peer} is closed")

    async def _exchange(self, data: bytes, api_key: ApiKey, timeout_seconds: float) -> memoryview:
        """Send a frame, await one."""
        loop = self._loop
        answer: asyncio.Future[memoryview] = loop.create_future()
        self._answer = answer
        self._asked = api_key, timeout_seconds
        deadline = self._deadline = loop.time() + timeout_seconds
        timer = self._timer
        if timer is None or timer.when() > deadline:
            if timer is not None:
                timer.cancel()
            self._timer = loop.call_at(deadline, self._on_timer)
        self._send(data)
        try:
            return await answer
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._answer = None

    def _send(self, data: bytes) -> None:
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._close_after(f"lost: {error_text(error)}")
            return
        if sent < len(data):
            self._unsent = memoryview(data)[sent:]
            self._loop.add_writer(self._socket.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        assert self._unsent is not None, "writable without anything to send"
        try:
            sent = self._socket.send(self._unsent)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._close_after(f"lost: {error_text(error)}")
            return
        if sent < len(self._unsent):
            self._unsent = self._unsent[sent:]
        else:
            self._unsent = None
            self._loop.remove_writer(self._socket.fileno())

    def _on_readable(self) -> None:
        received = self._received
        budget = READ_BYTES_PER_TURN
        while budget > 0:
            room = received.free()
            try:
                count = self._socket.recv_into(room)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._close_after(f"lost: {error_text(error)}")
                return
            if not count:
                self._close_after("closed by the peer")
                return
            try:
                frame = received.received(count)
                if frame is not None:
                    self._deliver(frame)
                    return
            except ProtocolError as error:
                self._close_after(f"sent a bad answer: {error}")
                return
            if count < len(room):
                # Nothing more is there; asking again would only cost a system call.
                return
            budget -= count
        if not self.is_closed and has_input(self._socket):
            self._loop.call_soon(self._on_readable_later)

    def _on_readable_later(self) -> None:
        """Go on reading what a stream has already received, as its descriptor may stay silent."""
        if not self.is_closed:
            self._on_readable()

    def _deliver(self, frame: memoryview) -> None:
        if self._answer is None or self._unsent is not None:
            raise ProtocolError(f"an answer of {len(frame)} bytes came before its request was sent")
        if self._answer.done():
            raise ProtocolError(f"{len(frame)} bytes came behind the answer")
        self._answer.set_result(frame)

    def _on_timer(self) -> None:
        self._timer = None
        if self._asked is None or self._answer is None or self._answer.done():
            return
        if self._loop.time() < self._deadline:
            self._timer = self._loop.call_at(self._deadline, self._on_timer)
            return
        api_key, timeout_seconds = self._asked
        self._close_after(f"did not answer {api_key.title} within {timeout_seconds:g} s")

    def _close_after(self, what: str) -> ConnectionError:
        """Close, fail the request in flight, and return the error that describes the cause."""
        error = ConnectionError(f"connection to {self.peer}: {what}")
        if not self.is_closed:
            self.is_closed = True
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            descriptor = self._socket.fileno()
            readers_of(self._loop).remove_reader(descriptor)
            if self._unsent is not None:
                self._unsent = None
                self._loop.remove_writer(descriptor)
            self._socket.close()
            if self._answer is not None and not self._answer.done():
                self._answer.set_exception(error)
        return error

    def check_invariants(self) -> None:
        """Assert that requests in flight, unsent bytes and the awaited response agree."""
        in_flight = self._protocol.in_flight_count
        assert in_flight <= 1, f"{self.peer}: {in_flight} requests in flight"
        if self._answer is None or self.is_closed:
            assert self._unsent is None, f"{self.peer}: unsent bytes of no request"
        if self._answer is None and not self.is_closed:
            assert not in_flight, f"{self.peer}: nothing awaits the response in flight"
            assert self._received.is_empty, f"{self.peer}: bytes arrived without a request"


def _naming(peer: str, error: ConnectionError) -> ConnectionError:
    """Return the error itself if it names the peer, else one that does."""
    return error if peer in str(error) else ConnectionError(f"no connection to {peer}: {error_text(error)}")

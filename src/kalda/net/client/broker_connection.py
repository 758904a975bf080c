"""Implements one blocking connection to one broker, for drivers and executors that have no event loop.

Requests may be pipelined: call `send` several times, then `receive` as often; a broker answers the requests
of one connection in order. `ClientConnection`, which touches no socket, builds requests and reads responses.

What a maintainer must not break: after any failure the connection is closed. A late response must never be
taken for the response to a later request.
"""

import select
import socket
from collections.abc import Mapping
from typing import Final, Self, TypeVar

from kalda.common.api_keys import ApiKey
from kalda.common.clock import Clock
from kalda.common.error_text import error_text
from kalda.net.client.api_versions import ApiVersionsNegotiation, highest_shared_version
from kalda.net.client.client_errors import (
    BrokerConnectionError,
    RequestTimedOutError,
    UnsupportedApiError,
)
from kalda.protocol.client_connection import ClientConnection
from kalda.protocol.framing import SIZE, SIZE_BYTES
from kalda.protocol.messages.api_versions import ApiVersionsResponse
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.registry import spec
from kalda.protocol.schema import Message, VersionRange

R = TypeVar("R", bound=Message)

IN_FLIGHT_MAX: Final = 8
"""Requests in flight. A caller that sends without receiving would make the broker buffer without bound; no
user of this class needs more than two."""

FRAME_BYTES_MAX: Final = 1 << 30
"""The largest response accepted. A fetch can return one batch above every limit, so this is far above them;
it keeps 4 junk bytes from allocating 2 GiB."""


FIRST_CAPACITY: Final = 1024 * 1024
"""A fetch of one partition (`max.partition.fetch.bytes`) fits; a larger answer doubles it as bytes arrive."""


class BrokerConnection:
    """A blocking connection to one broker, with negotiated versions of requests."""

    def __init__(self, sock: socket.socket, address: tuple[str, int], client_id: str, clock: Clock) -> None:
        """Wrap a connected socket; most callers want `open`, which also negotiates versions."""
        self.address: Final = address
        self.peer: Final = f"{address[0]}:{address[1]}"
        self._socket: Final = sock
        self._clock: Final = clock
        self._protocol: Final = ClientConnection(client_id, in_flight_max=IN_FLIGHT_MAX)
        self._offered: Mapping[int, VersionRange] = {}
        self.is_closed = False

    @classmethod
    def open(
        cls, host: str, port: int, *, client_id: str, receive_buffer_bytes: int, deadline: float, clock: Clock
    ) -> Self:
        """Connect and agree on versions, before `deadline` (the clock's monotonic seconds).

        Raises:
            BrokerConnectionError: the broker refuses or closes the connection, or its name is not known.
            RequestTimedOutError: the time is up.
            BrokerResponseError: the broker answers with an error.
        """
        peer = f"{host}:{port}"
        try:
            sock = socket.create_connection((host, port), timeout=_remaining(deadline, clock, peer))
        except TimeoutError:
            raise RequestTimedOutError(f"no connection to {peer} in time") from None
        except OSError as error:
            raise BrokerConnectionError(f"no connection to {peer}: {error_text(error)}") from error
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if receive_buffer_bytes > 0:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection = cls(sock, (host, port), client_id, clock)
        try:
            connection._negotiate(deadline)
        except BaseException:
            connection.close()
            raise
        return connection

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers."""
        return self._protocol.in_flight_count

    @property
    def is_stale(self) -> bool:
        """Whether an idle connection can no longer be used: closed, or ended by the broker meanwhile."""
        # A broker sends nothing unasked, so anything to read is the end of the stream.
        return self.is_closed or bool(select.select([self._socket], [], [], 0)[0])

    def version(self, api_key: ApiKey) -> int:
        """Return the highest version of a request that both sides know.

        Raises:
            UnsupportedApiError: there is none.
        """
        version = highest_shared_version(spec(api_key).versions, self._offered.get(api_key))
        if version is None:
            raise UnsupportedApiError(f"{self.peer} and this client share no version of {api_key.title}")
        return version

    def send(self, request: Message, deadline: float) -> None:
        """Send a request in the version agreed on; its answer comes from a later `receive`.

        Raises:
            UnsupportedApiError: the broker knows no version of the request that this client knows.
            BrokerConnectionError, RequestTimedOutError: it could not be sent; the connection is closed.
        """
        api_key = request.SCHEMA.api_key
        assert api_key is not None, f"{request.SCHEMA.name} is not a request"
        self._send(request, self.version(api_key), deadline)

    def receive(self, response_class: type[R], deadline: float) -> R:
        """Wait for the answer to the oldest request; its binary fields are views of one private buffer.

        Raises:
            BrokerConnectionError: the broker closed the connection or sent what is not the answer.
            RequestTimedOutError: the time is up.
        """
        assert self.in_flight, "receive without a request under way"
        try:
            _, response = self._protocol.receive_frame(self._receive_frame(deadline))
            assert isinstance(response, response_class), f"a {type(response).__name__} was due"
        except ProtocolError as error:
            self.close()
            raise BrokerConnectionError(f"{self.peer} sent a bad answer: {error}") from error
        except BaseException:
            self.close()
            raise
        return response

    def call(self, request: Message, response_class: type[R], deadline: float) -> R:
        """Send a request and wait for its answer; nothing else may be in flight."""
        assert not self.in_flight, "call while answers are outstanding"
        self.send(request, deadline)
        return self.receive(response_class, deadline)

    def close(self) -> None:
        """Close the socket; harmless when it is closed."""
        self.is_closed = True
        self._socket.close()

    def _negotiate(self, deadline: float) -> None:
        negotiation = ApiVersionsNegotiation(self.peer)
        versions = None
        while versions is None:
            self._send(negotiation.request, negotiation.version, deadline)
            versions = negotiation.received(self.receive(ApiVersionsResponse, deadline))
        self._offered = versions.ranges

    def _send(self, request: Message, version: int, deadline: float) -> None:
        data = self._protocol.send(request, version)
        try:
            self._socket.settimeout(_remaining(deadline, self._clock, self.peer))
            self._socket.sendall(data)
        except TimeoutError:
            self.close()
            raise RequestTimedOutError(f"{self.peer} took no {request.SCHEMA.name} in time") from None
        except RequestTimedOutError:
            self.close()
            raise
        except OSError as error:
            self.close()
            raise BrokerConnectionError(f"connection to {self.peer} lost: {error_text(error)}") from error

    def _receive_frame(self, deadline: float) -> bytearray:
        (size,) = SIZE.unpack(self._receive_exactly(SIZE_BYTES, deadline))
        if not 0 <= size <= FRAME_BYTES_MAX:
            raise ProtocolError(f"a frame of {size} bytes; allowed are 0 to {FRAME_BYTES_MAX}")
        return self._receive_exactly(size, deadline)

    def _receive_exactly(self, size: int, deadline: float) -> bytearray:
        """Receive `size` bytes; the buffer grows with what arrives, whatever size the broker announced."""
        buffer = bytearray(min(size, FIRST_CAPACITY))
        position = 0
        try:
            while position < size:
                if position == len(buffer):
                    buffer.extend(bytes(min(size, 2 * position) - position))
                self._socket.settimeout(_remaining(deadline, self._clock, self.peer))
                with memoryview(buffer) as whole, whole[position:] as room:
                    count = self._socket.recv_into(room)
                if not count:
                    raise BrokerConnectionError(f"{self.peer} closed the connection")
                position += count
        except TimeoutError:
            raise RequestTimedOutError(f"no answer from {self.peer} in time") from None
        except OSError as error:
            raise BrokerConnectionError(f"connection to {self.peer} lost: {error_text(error)}") from error
        return buffer


def _remaining(deadline: float, clock: Clock, peer: str) -> float:
    remaining = deadline - clock.monotonic()
    if remaining <= 0:
        raise RequestTimedOutError(f"the time for {peer} is up")
    return remaining

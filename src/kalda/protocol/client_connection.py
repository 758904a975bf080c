"""Implements the client's side of one connection without the socket: builds requests and reads responses.

A broker answers in the order of the requests, so a queue of the requests in flight is enough to read
responses. The class opens nothing, waits for nothing and retries nothing; `net` does.

A response is matched by its place in the queue *and* by its correlation id, so that a stream that lost its
order raises an error instead of being misread.
"""

from collections import deque
from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol import codec, framing, headers, registry
from kalda.protocol.protocol_errors import MessageError, ProtocolError
from kalda.protocol.registry import ApiSpec
from kalda.protocol.schema import Message
from kalda.protocol.wire_format import Buffer

IN_FLIGHT_MAX: Final = 1000
"""Requests that may wait for their response.

Clients stay far below (5 in a producer); a caller that gets here has lost its back-pressure.
"""

_API_VERSIONS_MAX: Final = 16
_API_VERSIONS_BYTES_MAX: Final = 16 * 1024
"""How many ApiVersions responses of what size are kept decoded; Kafka's and Kalda's take less than 1 KiB."""

_CORRELATION_ID_MAX: Final = 0x7FFFFFFF
_CORRELATION_ID: Final = Struct(">i")
_ERROR_CODE: Final = Struct(">h")


class _Head(NamedTuple):
    """The part that the headers of all requests of one API and version share."""

    start: bytes
    """The bytes before the correlation id."""
    end: bytes
    """The bytes behind it."""
    response_version: int
    """The version of the response's header."""


_InFlight = tuple[int, ApiSpec, int, _Head]
"""The correlation id of a request, its API, its version and what its header consists of."""


class ClientConnection:
    """Bytes in, responses out. Never touches a socket, a clock or a task.

    After a `ProtocolError` the stream cannot be read on: close the connection and drop this object.
    """

    def __init__(
        self,
        client_id: str | None,
        *,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        self._client_id: Final = client_id
        self._in_flight_max: Final = in_flight_max
        self._in_flight: deque[_InFlight] = deque()
        self._heads: Final[dict[tuple[int, int], _Head]] = {}
        """By API key and version."""
        self._last_correlation_id = -1

    @property
    def in_flight_count(self) -> int:
        """Requests whose response has not come yet."""
        return len(self._in_flight)

    @property
    def last_correlation_id(self) -> int:
        """The id that the last request was sent with; -1 before the first."""
        return self._last_correlation_id

    def send_parts(self, request: Message, version: int) -> list[Buffer]:
        """Take a request; return the frame in parts to write one after the other, records uncopied.

        The records must not change before all is written.

        Raises:
            MessageError: it is not a request, the version cannot carry it, or too many are in flight.
        """
        return framing.frame_parts(self._request(request, version))

    def send_body(self, api_key: ApiKey, version: int, chunks: Iterable[bytes]) -> list[Buffer]:
        """Take the encoded body of a request; return its frame in parts. `receive_body` takes its response.

        For requests that are sent thousands of times a second and hardly change, such as a follower's fetch.

        Raises:
            MessageError: too many are in flight.
        """
        return framing.frame_parts(self._send(registry.spec(api_key), version, chunks, True))

    def _request(self, request: Message, version: int) -> list[Buffer]:
        spec = self._spec_of(request)
        expects_response = registry.expects_response(request)
        return self._send(spec, version, codec.encode_parts(request, version), expects_response)

    def _send(
        self, spec: ApiSpec, version: int, chunks: Iterable[Buffer], expects_response: bool
    ) -> list[Buffer]:
        if expects_response and len(self._in_flight) >= self._in_flight_max:
            raise MessageError(f"{len(self._in_flight)} requests are in flight; receive responses first")
        last = self._last_correlation_id
        correlation_id = 0 if last == _CORRELATION_ID_MAX else last + 1
        head = self._heads.get((spec.api_key, version))
        if head is None:
            head = self._heads[spec.api_key, version] = self._head(spec.api_key, version)
        parts = [head.start + _CORRELATION_ID.pack(correlation_id) + head.end, *chunks]
        self._last_correlation_id = correlation_id
        if expects_response:
            self._in_flight.append((correlation_id, spec, version, head))
        return parts

    def _head(self, api_key: ApiKey, version: int) -> _Head:
        header = headers.RequestHeader(api_key, version, 0, self._client_id)
        data = headers.request_header(header, registry.request_header_version(api_key, version))
        return _Head(data[:4], data[8:], registry.response_header_version(api_key, version))

    def receive_frame(self, frame: Buffer) -> tuple[int, Message]:
        """Take one whole frame, without its size; return its correlation id and response.

        The response's binary fields are views of `frame`.

        Raises:
            ProtocolError: the bytes are not the response that is due.
        """
        correlation_id, position = self._read_header(frame)
        _, spec, version, _ = self._in_flight[0]
        version = _answer_version(spec, version, frame, position)
        if spec.api_key is ApiKey.API_VERSIONS and len(frame) <= _API_VERSIONS_BYTES_MAX:
            body = bytes(memoryview(frame)[position:])
            response = _read_api_versions(spec.response_class, version, body)
        else:
            response = codec.decode(spec.response_class, version, frame, position)
        self._in_flight.popleft()
        return correlation_id, response

    def receive_body(self, frame: Buffer) -> int:
        """Take one whole frame, without its size; return where the body begins, which the caller decodes.

        Raises:
            ProtocolError: the bytes do not begin as the response that is due.
        """
        _, position = self._read_header(frame)
        self._in_flight.popleft()
        return position

    def _read_header(self, frame: Buffer) -> tuple[int, int]:
        """Read the header of the response that is due; return its correlation id and the body's position."""
        if not self._in_flight:
            raise ProtocolError(f"a response of {len(frame)} bytes came, but nothing was asked")
        expected, spec, _, head = self._in_flight[0]
        correlation_id, position = headers.read_response_header(frame, head.response_version)
        if correlation_id != expected:
            raise ProtocolError(
                f"response {correlation_id} came where {spec.api_key.title} {expected} was due"
            )
        return correlation_id, position

    def _spec_of(self, request: Message) -> ApiSpec:
        key = request.SCHEMA.api_key
        if key is None or type(request) is not registry.spec(key).request_class:
            raise MessageError(f"{type(request).__name__} is not a request")
        return registry.spec(key)


@lru_cache(maxsize=_API_VERSIONS_MAX)
def _read_api_versions(response_class: type[Message], version: int, body: bytes) -> Message:
    """Decode the first response on every connection; the brokers of a cluster send the same, seldom another.

    The message is shared, so nothing may change it.
    """
    return codec.decode(response_class, version, body)


def _answer_version(spec: ApiSpec, version: int, frame: Buffer, position: int) -> int:
    """The version that the broker answered in, which is not the one asked for where it did not know that."""
    fallback = registry.UNKNOWN_VERSION_ANSWERS.get(spec.api_key)
    if fallback is None or len(frame) < position + _ERROR_CODE.size:
        return version
    (error_code,) = _ERROR_CODE.unpack_from(frame, position)
    return fallback if error_code == ErrorCode.UNSUPPORTED_VERSION else version

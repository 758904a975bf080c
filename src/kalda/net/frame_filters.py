"""Defines filters of a listener, which see each request before its handler and each response before the peer.

A listener has a chain of filters, the outermost first. A request passes the chain from outside to inside, its
response from inside to outside:

    peer -> faults -> namespace -> dispatcher
    peer <- faults <- namespace <-

A filter returns what happens: a `RequestAction` for a request, a `ResponseAction` or None for a response. It
sees the response only of a request for which it left a note. An answer that a filter gives itself passes
the filters outside of it.

Filters see Kafka's requests only. The messages of a SASL mechanism that follow SaslHandshake 0 without a
header pass by them, and so does a frame without a readable header, for which the handler closes the
connection.

`kalda.net.filtered_connection` applies the chain to a connection.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kalda.net.reply import Chunk, FileRegion, PieceSource
from kalda.protocol.headers import RequestHeader
from kalda.runtime.filesystem import File

if TYPE_CHECKING:
    from kalda.net.connection import Connection

Reply: TypeAlias = bytes | Sequence[Chunk]
"""A complete response frame, its size in 4 bytes included."""


@dataclass(frozen=True, slots=True)
class Pass:
    """The request goes on as it is."""

    note: object = None
    """What the filter wants to know when it sees the response; with None it does not see the response."""


@dataclass(frozen=True, slots=True)
class ReplaceRequest:
    """Another request goes on instead, under the same correlation id."""

    frame: bytes | bytearray
    """Header and body, without the size."""
    note: object = None


@dataclass(frozen=True, slots=True)
class Answer:
    """The filter answers the request, which goes no further."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Ignore:
    """The request goes no further and gets no response; later requests of the connection do."""


@dataclass(frozen=True, slots=True)
class Close:
    """The connection closes at once; requests that wait are abandoned."""

    reason: str


@dataclass(frozen=True, slots=True)
class DelayRequest:
    """The request waits; later requests of the connection wait behind it and are not read meanwhile."""

    seconds: float
    then: "RequestAction"


@dataclass(frozen=True, slots=True)
class ReplaceResponse:
    """The peer gets another response."""

    reply: Reply


@dataclass(frozen=True, slots=True)
class Drop:
    """The peer does not get the response; later responses follow."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """The peer gets the beginning of the response, then the connection closes."""

    size: int
    """How many bytes are sent, of which the first 4 are the size of the whole."""


@dataclass(frozen=True, slots=True)
class DelayResponse:
    """The response waits, and responses to later requests of the connection behind it."""

    seconds: float
    then: "ResponseAction | None" = None


RequestAction: TypeAlias = Pass | ReplaceRequest | Answer | Ignore | Close | DelayRequest
ResponseAction: TypeAlias = ReplaceResponse | Drop | Truncate | DelayResponse | Close


class FrameFilter(Protocol):
    """Sees the requests and responses of a listener's connections. Neither method may block or raise."""

    def on_request(
        self, connection: "Connection", header: RequestHeader, body: int, frame: memoryview
    ) -> RequestAction:
        """Return the decision on a request, whose body begins at the position `body` of the frame.

        The frame is valid during the call only.
        """
        ...

    def on_response(
        self, connection: "Connection", header: RequestHeader, reply: Reply, note: object
    ) -> ResponseAction | None:
        """Return the decision on the response to the request with this header; None passes it on."""
        ...


class RegionStart:
    """The beginning of a region of a file."""

    __slots__ = ("file", "position", "size")

    def __init__(self, region: FileRegion, size: int) -> None:
        self.file: File | None = region.file
        self.position = region.position
        self.size = size


def start_of(reply: Reply, size: int) -> list[Chunk]:
    """Return the first `size` bytes of a reply, or fewer if they end in what is made while it is sent."""
    start: list[Chunk] = []
    for chunk in (reply,) if isinstance(reply, bytes) else reply:
        if size <= 0:
            break
        if isinstance(chunk, (bytes, bytearray, memoryview)):
            start.append(chunk[:size])
            size -= len(chunk)
        elif chunk.size <= size:
            start.append(chunk)
            size -= chunk.size
        else:
            if not isinstance(chunk, PieceSource):
                start.append(RegionStart(chunk, size))
            break
    return start


def memory_of(reply: Reply) -> bytes | None:
    """Return a reply in memory, with the regions of files read; None if a piece of it is not made yet."""
    if isinstance(reply, bytes):
        return reply
    parts: list[bytes | bytearray | memoryview] = []
    for chunk in reply:
        if isinstance(chunk, (bytes, bytearray, memoryview)):
            parts.append(chunk)
        elif isinstance(chunk, PieceSource):
            return None
        elif chunk.size:
            assert chunk.file is not None, "a region with bytes and without a file"
            parts.append(chunk.file.read_at(chunk.size, chunk.position))
    return b"".join(parts)

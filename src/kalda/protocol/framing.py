"""Splits a stream into frames. Sans-IO.

A frame is a request or response, preceded by its size in 4 bytes, big-endian.

`FrameReader` is for clients and tests, which receive bytes in pieces. The broker's connections read into
buffers of their own and use only the constants.
"""

from collections.abc import Iterable
from struct import Struct
from typing import Final

from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.wire_format import Buffer

SIZE: Final = Struct(">i")
SIZE_BYTES: Final = SIZE.size

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
"""Kafka's default of `socket.request.max.bytes`; the default limit of a reader."""


def frame(chunks: Iterable[Buffer]) -> bytes:
    """Put the size before the chunks of one message, and join them."""
    return b"".join(frame_parts(chunks))


def frame_parts(chunks: Iterable[Buffer]) -> list[Buffer]:
    """Put the size before the chunks of one message; they are not copied."""
    parts: list[Buffer] = [b"", *chunks]
    parts[0] = SIZE.pack(sum(map(len, parts)))
    return parts


class FrameReader:
    """Collects bytes and gives out whole frames, without their size.

    Its buffer never holds more than one frame of `frame_bytes_max` and what came behind it in one piece.
    """

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max: Final = frame_bytes_max
        self._buffer = bytearray()

    @property
    def buffered_bytes(self) -> int:
        """Bytes that wait for the rest of their frame."""
        return len(self._buffer)

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes]:
        """Take bytes as they come; return the frames that are complete now, oldest first.

        Raises:
            ProtocolError: a size is negative or above the limit. The stream is lost then.
        """
        buffer = self._buffer
        buffer += data
        frames = []
        position = 0
        while len(buffer) - position >= SIZE_BYTES:
            (size,) = SIZE.unpack_from(buffer, position)
            if not 0 <= size <= self._frame_bytes_max:
                raise ProtocolError(f"a frame of {size} bytes; allowed are 0 to {self._frame_bytes_max}")
            end = position + SIZE_BYTES + size
            if end > len(buffer):
                break
            frames.append(bytes(memoryview(buffer)[position + SIZE_BYTES : end]))
            position = end
        if position:
            del buffer[:position]
        return frames

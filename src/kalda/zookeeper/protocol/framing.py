"""Frames of ZooKeeper's client protocol: a length of four bytes, then the payload. Sans-IO."""

from typing import Final

from kalda.zookeeper.protocol.jute import INT, JuteError

LENGTH_BYTES: Final = 4


class FrameError(JuteError):
    """A frame's length is negative or above the limit; the stream cannot be read any further."""


class FrameReader:
    """Splits received bytes into frames. It holds at most one frame and the bytes received with its end."""

    __slots__ = ("_buffer", "_position", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer: bytes | bytearray = b""
        self._position = 0

    def feed(self, data: bytes) -> None:
        """Append received bytes."""
        if self._position == len(self._buffer):
            # The common case: a read of the socket brought whole frames, and none is left.
            self._buffer = data
            self._position = 0
            return
        if not isinstance(self._buffer, bytearray):
            self._buffer = bytearray(self._buffer)
        if self._position:
            del self._buffer[: self._position]
            self._position = 0
        self._buffer += data

    def next_frame(self) -> bytes | None:
        """Consume and return the next frame without its length, or None while it is incomplete.

        Raises:
            FrameError: the length is not allowed.
        """
        buffer, start = self._buffer, self._position + LENGTH_BYTES
        if len(buffer) < start:
            return None
        length = INT.unpack_from(buffer, start - LENGTH_BYTES)[0]
        if not 0 <= length <= self.frame_bytes_max:
            raise FrameError(f"a frame of {length} bytes; `jute.maxbuffer` allows {self.frame_bytes_max}")
        end = start + length
        if len(buffer) < end:
            return None
        self._position = end
        frame = buffer[start:end]
        return frame if isinstance(frame, bytes) else bytes(frame)

"""Frames of the client protocol: four bytes of length, then as many bytes.

The first four bytes of a connection may be a four-letter word instead, whose letters read as a length far
above every limit; so they are handed out before the limit is applied. Sans-IO: bytes go in, frames come out.
"""

from typing import Final

from kalda.zk.proto.jute import INT, JuteError

LENGTH_BYTES: Final = 4


class FrameError(JuteError):
    """A frame's length is negative or above the limit; nothing after it can be read."""


class FrameReader:
    """Cuts what arrives into frames. Holds at most one frame and what came with its end."""

    __slots__ = ("_buffer", "_position", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        self.frame_bytes_max = frame_bytes_max
        self._buffer: bytes | bytearray = b""
        self._position = 0

    @property
    def pending_bytes(self) -> int:
        """How many bytes wait to be taken."""
        return len(self._buffer) - self._position

    def feed(self, data: bytes) -> None:
        """Take bytes in the order in which they arrived."""
        if self._position == len(self._buffer):
            # Nearly always: a read brought whole frames, and none is left.
            self._buffer = data
            self._position = 0
            return
        if not isinstance(self._buffer, bytearray):
            self._buffer = bytearray(self._buffer)
        if self._position:
            del self._buffer[: self._position]
            self._position = 0
        self._buffer += data

    def peek_word(self) -> bytes | None:
        """Return the next four bytes without taking them, or None while there are fewer."""
        word = bytes(self._buffer[self._position : self._position + LENGTH_BYTES])
        return word if len(word) == LENGTH_BYTES else None

    def next_frame(self) -> bytes | None:
        """Take the next whole frame, without its length; None while it is not all there.

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


def frame(payload: bytes) -> bytes:
    """Put the length before a payload."""
    return INT.pack(len(payload)) + payload

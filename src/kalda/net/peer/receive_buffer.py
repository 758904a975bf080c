"""Splits a socket's input into frames, in one buffer that serves every response of a connection. Sans-IO.

What a maintainer must not break: a returned frame is a view of the buffer, valid until bytes of the next
frame are received; and memory is allocated for bytes that arrived, not for bytes that were announced.
"""

from typing import Final

from kalda.protocol.framing import SIZE, SIZE_BYTES
from kalda.protocol.protocol_errors import ProtocolError

FRAME_BYTES_MAX: Final = 1 << 30
"""The largest response accepted. A fetch can return one batch above every limit, so this is far above them;
it keeps 4 junk bytes from making the broker wait for 2 GiB."""

FIRST_CAPACITY: Final = 64 * 1024
"""Holds the answers of an idle follower, and of the controller's requests."""

RETAINED_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger buffer is given back after its frame. `replica.fetch.response.max.bytes` is 10 MiB, so that a
follower at work keeps its buffer and pays for zeroed pages once."""


class ReceiveBuffer:
    """The buffer that a socket receives into: `free` returns its free part, `received` counts new bytes."""

    __slots__ = ("_buffer", "_filled", "_frame_bytes_max", "_frame_end", "_view")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frame_bytes_max: Final = frame_bytes_max
        self._buffer = bytearray(FIRST_CAPACITY)
        self._view = memoryview(self._buffer)
        self._filled = 0
        # Where the frame ends in the buffer, once its size is known; 0 before.
        self._frame_end = 0

    @property
    def capacity(self) -> int:
        """Bytes of memory held."""
        return len(self._buffer)

    @property
    def is_empty(self) -> bool:
        """Whether no byte of a frame has come."""
        return self._filled == 0

    def free(self) -> memoryview:
        """Return the free part of the buffer; it is never empty."""
        return self._view[self._filled :]

    def received(self, count: int) -> memoryview | None:
        """Count bytes that arrived in `free()`; return the frame, without its size, if it is complete.

        Raises:
            ProtocolError: the size is negative or above the limit, or bytes follow the frame: one request is
                in flight, so one response may come.
        """
        filled = self._filled = self._filled + count
        assert filled <= len(self._buffer), f"{filled} bytes in a buffer of {len(self._buffer)}"
        end = self._frame_end
        if not end:
            if filled < SIZE_BYTES:
                return None
            (size,) = SIZE.unpack_from(self._buffer)
            if not 0 <= size <= self._frame_bytes_max:
                raise ProtocolError(f"a frame of {size} bytes; allowed are 0 to {self._frame_bytes_max}")
            end = self._frame_end = SIZE_BYTES + size
        if filled < end:
            if filled == len(self._buffer):
                self._grow(min(end, 2 * filled))
            return None
        if filled > end:
            raise ProtocolError(f"{filled - end} bytes follow an answer of {end - SIZE_BYTES} bytes")
        frame = self._view[SIZE_BYTES:end]
        self._filled = self._frame_end = 0
        if len(self._buffer) > RETAINED_BYTES_MAX:
            # The frame keeps the memory alive for as long as its owner looks at it.
            self._buffer = bytearray(FIRST_CAPACITY)
            self._view = memoryview(self._buffer)
        return frame

    def _grow(self, capacity: int) -> None:
        # A new buffer, since views of the old one may still be out and forbid to resize it.
        grown = bytearray(capacity)
        grown[: self._filled] = self._view[: self._filled]
        self._buffer = grown
        self._view = memoryview(grown)

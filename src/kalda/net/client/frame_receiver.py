"""Splits what a client's socket receives into frames. Sans-IO.

Small frames are received together into one buffer and copied out. A frame that does not fit is received into
a buffer of its own without another copy, so that records of a fetch can stay where they arrived: a returned
frame is never written to again. A receiver that reuses its memory copies nothing, and returns views of a
buffer that the next frame overwrites.

Memory is allocated for bytes that arrived, not for bytes that were announced.
"""

from collections.abc import Sequence
from typing import Final

from kalda.protocol.framing import SIZE, SIZE_BYTES
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.wire_format import Buffer

FRAME_BYTES_MAX: Final = 1 << 30
"""The largest response accepted. A fetch can return one batch above every limit, so this is far above them;
it keeps 4 junk bytes from making a client wait for 2 GiB."""

SHARED_CAPACITY: Final = 64 * 1024
"""Holds the responses to most requests; a fetch of records exceeds it."""

OWN_CAPACITY: Final = 4 * 1024 * 1024
"""The most that a large frame's own buffer has at first. Most fetches fit; each growth costs a copy."""

RETAINED_BYTES_MAX: Final = 16 * 1024 * 1024
"""A larger buffer is not reused. `replica.fetch.response.max.bytes` is 10 MiB, so that a follower at work
keeps its buffer and pays for zeroed pages once."""

_GROWTH: Final = 4
"""How many times larger a buffer gets that is full: the bound on memory for each byte that arrived."""


class FrameReceiver:
    """The buffer that a socket receives into: `room` returns its free part, `received` counts new bytes.

    With `reuses_memory` one frame may arrive at a time, and it is valid until bytes of the next one are
    received.
    """

    __slots__ = (
        "_buffer",
        "_filled",
        "_frame_bytes_max",
        "_own_capacity",
        "_own_size",
        "_reuses_memory",
        "_shared",
        "_view",
    )

    def __init__(
        self,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        own_capacity: int = OWN_CAPACITY,
        *,
        reuses_memory: bool = False,
    ) -> None:
        assert own_capacity >= SHARED_CAPACITY, f"{own_capacity} would not hold what arrived before"
        self._own_capacity: Final = own_capacity
        self._frame_bytes_max: Final = frame_bytes_max
        self._reuses_memory: Final = reuses_memory
        self._shared = bytearray(SHARED_CAPACITY)
        # `_shared`, or the own buffer of the large frame that arrives.
        self._buffer = self._shared
        self._view = memoryview(self._buffer)
        self._filled = 0
        # The size of that large frame; 0 without one.
        self._own_size = 0

    @property
    def capacity(self) -> int:
        """Bytes of the buffer that is received into."""
        return len(self._buffer)

    def room(self) -> memoryview:
        """Return where the next bytes go; it is never empty."""
        return self._view[self._filled :]

    def received(self, count: int) -> Sequence[Buffer]:
        """Count bytes that arrived in `room()`; return the frames that are complete, without their sizes.

        Raises:
            ProtocolError: a size is negative or above the limit, or bytes follow a frame whose memory is
                reused; the stream cannot be read on.
        """
        filled = self._filled = self._filled + count
        if self._own_size:
            return self._own_received(filled)
        view = self._view
        position = 0
        frames: list[Buffer] = []
        while filled - position >= SIZE_BYTES:
            (size,) = SIZE.unpack_from(view, position)
            if not 0 <= size <= self._frame_bytes_max:
                raise ProtocolError(f"a frame of {size} bytes; allowed are 0 to {self._frame_bytes_max}")
            begin = position + SIZE_BYTES
            end = begin + size
            if end > filled:
                if size + SIZE_BYTES > len(view):
                    self._begin_own(size, view[begin:filled])
                    return frames
                break
            if self._reuses_memory:
                if filled > end:
                    raise ProtocolError(f"{filled - end} bytes follow a response of {size} bytes")
                self._filled = 0
                return (view[begin:end],)
            frames.append(bytes(view[begin:end]))
            position = end
        if position:
            rest = filled - position
            self._shared[:rest] = view[position:filled]
            self._filled = rest
        return frames

    def _begin_own(self, size: int, arrived: memoryview) -> None:
        self._own_size, self._filled = size, len(arrived)
        self._receive_into(min(size, max(self._own_capacity, _GROWTH * len(arrived))), arrived)

    def _own_received(self, filled: int) -> Sequence[Buffer]:
        size, own, view = self._own_size, self._buffer, self._view
        if filled < size:
            if filled == len(own):
                # A new buffer: a view of this one may still be alive and forbids to resize it.
                self._receive_into(min(size, _GROWTH * filled), view)
            return ()
        if filled > size:
            raise ProtocolError(f"{filled - size} bytes follow a response of {size} bytes")
        self._own_size = self._filled = 0
        if self._reuses_memory and size <= RETAINED_BYTES_MAX:
            self._shared = own
        else:
            self._buffer = self._shared
            self._view = memoryview(self._shared)
        return (view[:size],) if self._reuses_memory else (own,)

    def _receive_into(self, capacity: int, arrived: memoryview) -> None:
        """Go on with a new buffer that begins with the bytes that arrived."""
        # Memory that is reused has room for the size and for a frame that is a little larger.
        self._buffer = bytearray(capacity + SHARED_CAPACITY if self._reuses_memory else capacity)
        self._buffer[: len(arrived)] = arrived
        self._view = memoryview(self._buffer)

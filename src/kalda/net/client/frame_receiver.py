"""Splits what a client's socket receives into frames, each in a buffer of its own. Sans-IO.

Small frames are received together into one buffer and copied out. A frame that does not fit is received into
a buffer of its own without another copy, so that records of a fetch can stay where they arrived.

What a maintainer must not break: a returned frame is never written to again, since views of it outlive the
connection; and memory is allocated for bytes that arrived, not for bytes that were announced.
"""

from typing import Final

from kalda.protocol.framing import SIZE, SIZE_BYTES
from kalda.protocol.protocol_errors import ProtocolError

FRAME_BYTES_MAX: Final = 1 << 30
"""The largest response accepted. A fetch can return one batch above every limit, so this is far above them;
it keeps 4 junk bytes from making a client wait for 2 GiB."""

SHARED_CAPACITY: Final = 64 * 1024
"""Holds the responses to most requests; a fetch of records exceeds it."""

OWN_CAPACITY: Final = 4 * 1024 * 1024
"""The most that a large frame's own buffer has at first. Most fetches fit; each growth costs a copy."""

_GROWTH: Final = 4
"""How many times larger a buffer gets that is full: the bound on memory for each byte that arrived."""


class FrameReceiver:
    """The buffer that a socket receives into: `room` returns its free part, `received` counts new bytes."""

    __slots__ = (
        "_filled",
        "_frame_bytes_max",
        "_own",
        "_own_capacity",
        "_own_filled",
        "_own_size",
        "_shared",
        "_view",
    )

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX, own_capacity: int = OWN_CAPACITY) -> None:
        assert own_capacity >= SHARED_CAPACITY, f"{own_capacity} would not hold what arrived before"
        self._own_capacity: Final = own_capacity
        self._frame_bytes_max: Final = frame_bytes_max
        self._shared: Final = bytearray(SHARED_CAPACITY)
        self._view: Final = memoryview(self._shared)
        self._filled = 0
        # Of a large frame: its buffer, its size, and how many of its bytes arrived. `_shared` is empty then.
        self._own: bytearray | None = None
        self._own_size = 0
        self._own_filled = 0

    def room(self) -> memoryview:
        """Return where the next bytes go; it is never empty."""
        if self._own is not None:
            return memoryview(self._own)[self._own_filled :]
        return self._view[self._filled :]

    def received(self, count: int) -> list[bytes | bytearray]:
        """Count bytes that arrived in `room()`; return the frames that are complete, without their sizes.

        Raises:
            ProtocolError: a size is negative or above the limit; the stream cannot be read on.
        """
        own = self._own
        if own is None:
            self._filled += count
            return self._split()
        filled = self._own_filled = self._own_filled + count
        if filled == self._own_size:
            self._own = None
            return [own]
        if filled == len(own):
            # A view of the buffer may still be alive and forbids to resize it.
            grown = bytearray(min(self._own_size, _GROWTH * filled))
            grown[:filled] = own
            self._own = grown
        return []

    def _split(self) -> list[bytes | bytearray]:
        view = self._view
        filled = self._filled
        position = 0
        frames: list[bytes | bytearray] = []
        while filled - position >= SIZE_BYTES:
            (size,) = SIZE.unpack_from(view, position)
            if not 0 <= size <= self._frame_bytes_max:
                raise ProtocolError(f"a frame of {size} bytes; allowed are 0 to {self._frame_bytes_max}")
            begin = position + SIZE_BYTES
            end = begin + size
            if end > filled:
                if size + SIZE_BYTES > SHARED_CAPACITY:
                    self._begin_own(view[begin:filled], size)
                    return frames
                break
            frames.append(bytes(view[begin:end]))
            position = end
        if position:
            rest = filled - position
            self._shared[:rest] = view[position:filled]
            self._filled = rest
        return frames

    def _begin_own(self, begun: memoryview, size: int) -> None:
        own = bytearray(min(size, self._own_capacity))
        own[: len(begun)] = begun
        self._own, self._own_size, self._own_filled = own, size, len(begun)
        self._filled = 0

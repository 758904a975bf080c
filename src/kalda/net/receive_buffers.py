"""Holds the memory that connections receive into: one shared buffer, and spare buffers for large frames.

A connection holds memory for bytes that arrived, not for bytes that were announced, and the memory of a frame
goes back to the system with it. Buffers for large frames are therefore mappings of their own: on the heap,
one small object behind them would keep the memory of a thousand closed connections.
"""

import mmap
from bisect import insort
from typing import Final

SHARED_BUFFER_BYTES: Final = 256 * 1024
"""The one buffer that all connections of a loop receive into. Frames up to this size never get a buffer of
their own unless they arrive in pieces."""

LARGE_BUFFER_BYTES_MIN: Final = 8 * 1024
"""The smallest buffer for a frame that arrives in pieces: two pages. Capacity begins with twice what arrived,
and doubles when that is full."""

LARGE_BUFFER_GRAIN: Final = 64 * 1024
"""The last growth is to a multiple of this, so that a buffer serves the next frame of about the same size."""

SPARE_BUFFERS_MAX: Final = 4
SPARE_BUFFER_BYTES_MAX: Final = 2 * 1024 * 1024
"""Spares are kept for producers of 1 MB batches (the default limit of a batch), at most 8 MB in all."""

_PRIVATE: Final = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


class ReceiveBuffers:
    """The memory that the connections of one server receive into.

    `shared` belongs to the code on the stack. A connection whose frame is larger holds a buffer of its own
    until the frame has been handled; a few are kept as spares, because zeroing and faulting in a new megabyte
    per batch costs more than handling it.
    """

    __slots__ = ("_scratch", "_spares", "shared")

    def __init__(self) -> None:
        self.shared: Final = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self._scratch: memoryview | None = None
        # Smallest first, so that `lease` takes the one that fits best.
        self._spares: list[mmap.mmap] = []

    @property
    def scratch(self) -> memoryview:
        """A second shared buffer, for bytes before they are decrypted or encrypted; made when it is needed.

        Its content is gone after the next call of anything that uses it.
        """
        if self._scratch is None:
            self._scratch = memoryview(bytearray(SHARED_BUFFER_BYTES))
        return self._scratch

    def lease(self, size: int, begun: memoryview) -> mmap.mmap:
        """Return a buffer for a frame of `size` bytes that begins with `begun`.

        Its capacity is above ``len(begun)``, but it may be below `size`: see `grow`.
        """
        for index, spare in enumerate(self._spares):
            if len(spare) >= size:
                buffer = self._spares.pop(index)
                break
        else:
            wanted = max(2 * len(begun), LARGE_BUFFER_BYTES_MIN)
            buffer = mmap.mmap(-1, min(_round_up(size), wanted), flags=_PRIVATE)
        assert len(buffer) > len(begun), f"a buffer of {len(buffer)} bytes for {len(begun)} and more"
        buffer[: len(begun)] = begun
        return buffer

    def grow(self, buffer: mmap.mmap, size: int) -> mmap.mmap:
        """Double the capacity of a full buffer, to no more than a frame of `size` bytes needs; return it."""
        capacity = min(_round_up(size), 2 * len(buffer))
        try:
            buffer.resize(capacity)
        except SystemError:
            # No mremap, as on macOS.
            grown = mmap.mmap(-1, capacity, flags=_PRIVATE)
            grown[: len(buffer)] = buffer[:]
            return grown
        return buffer

    def give_back(self, buffer: mmap.mmap) -> None:
        """Keep a leased buffer for the next large frame, if it is worth keeping."""
        if len(buffer) > SPARE_BUFFER_BYTES_MAX:
            return
        insort(self._spares, buffer, key=len)
        if len(self._spares) > SPARE_BUFFERS_MAX:
            # The smallest one is the cheapest to make again.
            del self._spares[0]
        assert len(self._spares) <= SPARE_BUFFERS_MAX, f"{len(self._spares)} spare buffers"


def _round_up(size: int) -> int:
    return -(-size // LARGE_BUFFER_GRAIN) * LARGE_BUFFER_GRAIN

"""The memory that connections receive into: one shared buffer, and spares for large frames."""

from bisect import insort
from typing import Final

SHARED_BUFFER_BYTES: Final = 256 * 1024
"""The one buffer that all connections of a loop receive into. Frames up to this size never get a buffer of
their own unless they arrive in pieces."""

LARGE_BUFFER_BYTES: Final = 128 * 1024
"""First capacity of a buffer for a frame that arrives in pieces. It doubles as bytes arrive, so a peer that
announces 100 MB and stalls holds memory for what it sent, not for what it announced."""

LARGE_BUFFER_GRAIN: Final = 64 * 1024
"""Capacities are multiples of this, so that a buffer serves the next frame of nearly the same size."""

SPARE_BUFFERS_MAX: Final = 4
SPARE_BUFFER_BYTES_MAX: Final = 2 * 1024 * 1024
"""Spares are kept for producers of 1 MB batches (the default limit of a batch), at most 8 MB in all."""


class ReceiveBuffers:
    """The memory that the connections of one server receive into.

    `shared` belongs to whoever is on the stack. A connection whose frame is larger holds a buffer of its own
    until the frame has been handled; a few are kept as spares, because zeroing and faulting in a new megabyte
    per batch costs more than handling it.
    """

    __slots__ = ("_spares", "shared")

    def __init__(self) -> None:
        self.shared: Final = memoryview(bytearray(SHARED_BUFFER_BYTES))
        # Smallest first, so that `lease` takes the one that fits best.
        self._spares: list[bytearray] = []

    def lease(self, size: int) -> bytearray:
        """Return a buffer for a frame of `size` bytes; its capacity may be smaller: see `grow`."""
        for index, spare in enumerate(self._spares):
            if len(spare) >= size:
                return self._spares.pop(index)
        return bytearray(min(_round_up(size), LARGE_BUFFER_BYTES))

    def grow(self, buffer: bytearray, size: int) -> None:
        """Double the capacity of a full buffer, to no more than a frame of `size` bytes needs."""
        capacity = min(_round_up(size), 2 * len(buffer))
        buffer.extend(bytes(capacity - len(buffer)))

    def give_back(self, buffer: bytearray) -> None:
        """Keep a leased buffer for the next large frame, if it is worth keeping."""
        if len(buffer) > SPARE_BUFFER_BYTES_MAX:
            return
        insort(self._spares, buffer, key=len)
        if len(self._spares) > SPARE_BUFFERS_MAX:
            # The smallest one is the cheapest to make again.
            del self._spares[0]


def _round_up(size: int) -> int:
    return -(-size // LARGE_BUFFER_GRAIN) * LARGE_BUFFER_GRAIN

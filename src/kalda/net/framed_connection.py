"""Splits what a connection receives into frames, and passes each to the frame handler.

A frame begins with its size in four bytes, in Kafka's protocol and in ZooKeeper's. What begins with no size
within the limit goes to the connection's `Session`: a four-letter command, or the head of an HTTP request.
Without a session the protocol is Kafka's, and the connection closes.
"""

import asyncio
import logging
from mmap import mmap
from typing import Final

from kalda.common import invariants
from kalda.common.overriding import override
from kalda.net.connection import COALESCE_BYTES_MAX, TURN_S, Connection, ConnectionOwner, FrameHandler
from kalda.net.foreign_protocols import FOREIGN_SIZE_MIN, recognise
from kalda.protocol.framing import SIZE, SIZE_BYTES
from kalda.runtime.network import Stream

FRAMES_PER_TURN_MAX: Final = 64
"""Requests of one connection handled before the others get their turn: some 2 ms of small produce requests,
where the shared buffer could hold 50 ms of them."""

STASH_BYTES_MAX: Final = 32 * 1024
"""An incomplete frame up to this size is set aside and put before the next receive; a larger one gets a
buffer of its own, so that a peer which trickles it does not make us copy it over and over."""

STASH_LARGE_BYTES_MAX: Final = 4 * 1024
"""The part of a larger frame that is set aside before it gets that buffer: a size alone costs nothing."""


class FramedConnection(Connection):
    """Base of plaintext and encrypted connections, without receiving and sending."""

    __slots__ = ("_large", "_large_filled", "_large_size")

    def __init__(
        self,
        owner: ConnectionOwner,
        handle: FrameHandler,
        connection_id: int,
        listener: str,
        peer: tuple[str, int],
        stream: Stream,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        super().__init__(owner, handle, connection_id, listener, peer, stream, loop)
        # A frame larger than the shared buffer: its bytes so far, prefix included. 0 <= filled < size.
        self._large: mmap | None = None
        self._large_filled = 0
        self._large_size = 0

    @override
    def close(self, reason: str, level: int = logging.INFO) -> None:
        self._large = None
        super().close(reason, level)

    @override
    def check_invariants(self) -> None:
        super().check_invariants()
        if self._large is not None:
            assert not self._closed, f"{self.peer}: a closed connection holds a large frame"
            assert self._stash is None, f"{self.peer}: {len(self._stash)} bytes beside a large frame"
            filled, capacity = self._large_filled, len(self._large)
            assert filled < min(capacity, self._large_size), f"{self.peer}: {filled} bytes in {capacity}"

    @override
    def _received(self, data: memoryview, end: int) -> None:
        """Handle the frames in ``data[:end]`` and keep the rest."""
        self._corked = True
        if end > SIZE_BYTES and SIZE.unpack_from(data)[0] == end - SIZE_BYTES <= self.frame_bytes_max:
            # One whole frame, as most clients send them.
            self._handle(self, data[SIZE_BYTES:end])
            if self._closed:
                return
        elif not self._handle_frames(data, end):
            return
        self._corked = False
        if self._out and not self._blocked:
            self._transmit()
        if self._owner.turn_ended is not None:
            self._owner.turn_ended()
        if invariants.enabled:
            self.check_invariants()

    def _handle_frames(self, data: memoryview, end: int) -> bool:
        """Handle as many frames as one turn may, and keep the rest; return False if the connection closed."""
        position = 0
        turn_end = FRAMES_PER_TURN_MAX
        deadline = 0.0
        size_max = self.frame_bytes_max
        while True:
            start = position + SIZE_BYTES
            if start > end:
                break
            (size,) = SIZE.unpack_from(data, position)
            if size < 0 or size > size_max:
                if self._take_unsized(size, data[position:end]):
                    if self._closed:
                        return False
                    position = end
                break
            stop = start + size
            if stop > end:
                if size > STASH_BYTES_MAX:
                    begun = data[position:end]
                    if size >= FOREIGN_SIZE_MIN and recognise(begun) is not None:
                        # Where socket.request.max.bytes allows such sizes.
                        self._take_unsized(size, begun)
                        return False
                    if len(begun) > STASH_LARGE_BYTES_MAX:
                        self._begin_large(begun, size)
                        position = end
                break
            self._handle(self, data[start:stop])
            position = stop
            if self._out_bytes >= COALESCE_BYTES_MAX or self._outstanding:
                self._flush()
                if not self._may_handle():
                    break
            if self._stops_turn:
                if self._closed:
                    return False
                break
            if position == end:
                break
            turn_end -= 1
            # The clock starts behind the first request: most turns have no second one and need not look.
            if turn_end == FRAMES_PER_TURN_MAX - 1:
                deadline = self._now() + TURN_S
            elif not turn_end or self._now() >= deadline:
                self._plan_resume()
                break
        if position < end:
            if self._closed:
                # A flush found that the peer is gone.
                return False
            self._stash = bytes(data[position:end])
        return True

    def _large_received(self, count: int) -> None:
        """Account for `count` more bytes of the large frame, and handle it if it is complete."""
        buffer = self._large
        assert buffer is not None
        self._large_filled += count
        if self._large_filled < self._large_size:
            if self._large_filled == len(buffer):
                self._large = self._owner.buffers.grow(buffer, self._large_size)
            return
        self._large = None
        self._corked = True
        frame = memoryview(buffer)[SIZE_BYTES : self._large_size]
        self._handle(self, frame)
        self._corked = False
        self._owner.buffers.give_back(buffer)
        self._flush()
        if self._owner.turn_ended is not None:
            self._owner.turn_ended()

    def _begin_large(self, begun: memoryview, size: int) -> None:
        self._large_size = size + SIZE_BYTES
        self._large_filled = len(begun)
        self._large = self._owner.buffers.lease(self._large_size, begun)

    def _take_unsized(self, size: int, start: memoryview) -> bool:
        """Handle input that begins with no valid frame size; return whether it is complete."""
        if self.session is not None:
            return self.session.on_unsized(size, start)
        if not self.close_foreign(start):
            self.close(
                f"frame size {size} is outside 0..{self.frame_bytes_max} ({self._size_setting()})",
                logging.WARNING,
            )
        return True

    def _size_setting(self) -> str:
        before_login = self.frame_bytes_max < self._owner.frame_bytes_max
        return (
            "sasl.server.max.receive.size, before the login" if before_login else "socket.request.max.bytes"
        )

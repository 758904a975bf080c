"""Moves bytes between a stream and the event loop: the base of each connection that a client opens.

It uses a non-blocking stream and the loop's reader and writer callbacks: bytes are received where the
subclass wants them, with as few turns of the loop as the kernel allows, and a small request is one system
call. It knows no frames, no deadlines and no protocol.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from kalda.net.client.stream import StreamSocket, TlsStream
from kalda.protocol.wire_format import Buffer
from kalda.runtime.network import readers_of

READ_BYTES_PER_TURN: Final = 2 * 1024 * 1024
"""Bytes that one connection receives before other callbacks run: about a millisecond of copying."""

JOINED_BYTES_MAX: Final = 64 * 1024
"""Requests up to this size are copied into one piece: that costs less than to pass several to the kernel."""

_PARTS_MAX: Final = 1024
"""Pieces that one system call takes (IOV_MAX of Linux)."""


class StreamConnection(ABC):
    """An open stream. A subclass provides memory, takes received bytes, and is notified when it is lost."""

    def __init__(
        self,
        stream: StreamSocket,
        loop: asyncio.AbstractEventLoop,
        room: Callable[[], memoryview],
        on_read: Callable[[], object] | None = None,
    ) -> None:
        """`room` returns where the next bytes go, and is never empty.

        `on_read` is called after the bytes that arrived together were taken, in the same turn of the loop.
        """
        self.is_closed = False
        """Whether the connection can no longer be used."""
        self._stream: Final = stream
        self._loop: Final = loop
        self._tls: Final = stream if isinstance(stream, TlsStream) else None
        self._room: Final = room
        self._on_read: Final = on_read
        self._is_read_due = False
        """Whether the next turn of the loop reads what TLS holds."""
        self._unsent: Final[deque[memoryview]] = deque()
        """What the kernel has not taken. The loop watches for room while, and only while, there is some."""
        readers_of(loop).add_reader(stream.fileno(), self._on_readable)

    @abstractmethod
    def _received(self, count: int) -> None:
        """Take bytes that arrived where `room` said."""

    @abstractmethod
    def _lost(self, error: OSError | None) -> None:
        """Close the connection, which broke; None: the peer closed it."""

    def _close_stream(self) -> None:
        """Close the stream and drop what is unsent; once only."""
        self.is_closed = True
        descriptor = self._stream.fileno()
        readers_of(self._loop).remove_reader(descriptor)
        if self._unsent:
            self._loop.remove_writer(descriptor)
            self._unsent.clear()
        self._stream.close()

    def _write(self, parts: Iterable[Buffer], size: int) -> None:
        """Send parts of `size` bytes together, behind what is unsent. They must not change meanwhile."""
        unsent = self._unsent
        if size > JOINED_BYTES_MAX:
            was_blocked = bool(unsent)
            unsent.extend(map(memoryview, parts))
            if not was_blocked and not self._send_unsent() and not self.is_closed:
                self._loop.add_writer(self._stream.fileno(), self._on_writable)
            return
        data = b"".join(parts)
        if unsent:
            unsent.append(memoryview(data))
            return
        try:
            sent = self._stream.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError as error:
            self._lost(error)
            return
        if sent < size:
            unsent.append(memoryview(data)[sent:])
            self._loop.add_writer(self._stream.fileno(), self._on_writable)

    def _on_writable(self) -> None:
        if self._send_unsent():
            self._loop.remove_writer(self._stream.fileno())

    def _send_unsent(self) -> bool:
        """Write unsent bytes as far as the kernel accepts them; return whether all are written.

        Closes the connection, and returns False, where it is lost.
        """
        unsent = self._unsent
        while unsent:
            try:
                sent = self._stream.sendmsg(list(islice(unsent, _PARTS_MAX)))
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                self._lost(error)
                return False
            while unsent and sent >= len(unsent[0]):
                sent -= len(unsent.popleft())
            if sent:
                unsent[0] = unsent[0][sent:]
                return False
        return True

    def _on_readable(self) -> None:
        budget = READ_BYTES_PER_TURN
        while True:
            room = self._room()
            if len(room) > READ_BYTES_PER_TURN:
                room = room[:READ_BYTES_PER_TURN]
            try:
                count = self._stream.recv_into(room)
            except (BlockingIOError, InterruptedError):
                break
            except OSError as error:
                self._lost(error)
                break
            if not count:
                self._lost(None)
                break
            self._received(count)
            budget -= count
            # Asking again when nothing more is there would only cost a system call.
            if count < len(room) or budget <= 0 or self.is_closed:
                break
        if self._tls is not None and self._tls.has_input and not (self.is_closed or self._is_read_due):
            # TLS holds bytes that the descriptor does not announce; other callbacks come first.
            self._is_read_due = True
            self._loop.call_soon(self._read_on)
        if self._on_read is not None:
            self._on_read()

    def _read_on(self) -> None:
        self._is_read_due = False
        if not self.is_closed:
            self._on_readable()

"""A socket and an event loop that do only what a test tells them to."""

import logging
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

from kalda.common.log_limiter import LogLimiter
from kalda.net.connection import Connection
from kalda.net.foreign_protocols import ForeignProtocol
from kalda.net.receive_buffers import ReceiveBuffers
from kalda.net.socket_connection import SocketConnection


class FakeSocket:
    """Receives what the test queued, piece by piece; accepts what the test allows."""

    def __init__(self) -> None:
        self.incoming: list[bytes | OSError] = []
        self.sent = bytearray()
        self.sends: list[int] = []
        """The size of each successful send."""
        self.room = 1 << 30
        """Bytes that the peer's side still takes."""
        self.is_closed = False
        self.file_sends: list[int] = []
        """The size of each piece of a file."""

    MORE = 0x8000

    def fileno(self) -> int:
        return 99

    def recv_into(self, buffer: memoryview) -> int:
        if not self.incoming:
            raise BlockingIOError
        piece = self.incoming.pop(0)
        if isinstance(piece, OSError):
            raise piece
        count = min(len(piece), len(buffer))
        buffer[:count] = piece[:count]
        if count < len(piece):
            self.incoming.insert(0, piece[count:])
        return count

    def has_ended(self) -> bool:
        return bool(self.incoming) and not self.incoming[0]

    def send(self, data: bytes | memoryview, flags: int = 0) -> int:
        if not self.room:
            raise BlockingIOError
        count = min(len(data), self.room)
        self.room -= count
        self.sent += data[:count]
        self.sends.append(count)
        return count

    def sendmsg(self, buffers: Sequence[bytes | bytearray | memoryview]) -> int:
        return self.send(b"".join(buffers))

    def send_file(self, file: "Region", position: int, size: int) -> int:
        if not self.room:
            raise BlockingIOError
        data = file.read_at(min(size, self.room), position)
        self.room -= len(data)
        self.sent += data
        self.file_sends.append(len(data))
        return len(data)

    def close(self) -> None:
        self.is_closed = True


class FakeTimer:
    """A call that waits for the test to make it."""

    def __init__(self, seconds: float, call: Callable[[], None]) -> None:
        self.seconds = seconds
        self.call = call
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class FakeLoop:
    """Remembers the callbacks that were registered."""

    def __init__(self) -> None:
        self.reader: Callable[[], None] | None = None
        self.writer: Callable[[], None] | None = None
        self.soon: list[Callable[[], None]] = []
        self.later: list[FakeTimer] = []

    def time(self) -> float:
        return time.monotonic()

    def call_later(self, delay: float, callback: Callable[..., None], *args: object) -> Any:
        self.later.append(FakeTimer(delay, callback))
        return self.later[-1]

    def add_reader(self, _: int, callback: Callable[[], None]) -> None:
        self.reader = callback

    def add_writer(self, _: int, callback: Callable[[], None]) -> None:
        self.writer = callback

    def remove_reader(self, _: int) -> None:
        self.reader = None

    def remove_writer(self, _: int) -> None:
        self.writer = None

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.soon.append(callback)

    def run_soon(self) -> None:
        callbacks, self.soon = self.soon, []
        for callback in callbacks:
            callback()


class Owner:
    """What a connection needs of a server."""

    def __init__(self, frame_bytes_max: int = 10_000_000) -> None:
        self.buffers = ReceiveBuffers()
        self.limiter = LogLimiter(logging.getLogger("kalda.test"))
        self.frame_bytes_max = frame_bytes_max
        self.bytes_in = 0
        self.bytes_out = 0
        self.turn_ended: Callable[[], None] | None = None
        self.closed: list[str] = []
        self.foreign: list[ForeignProtocol] = []

    def peer_speaks(self, connection: Connection, protocol: ForeignProtocol) -> None:
        self.foreign.append(protocol)

    def connection_closed(self, connection: Connection, reason: str, level: int) -> None:
        self.closed.append(reason)


class Region:
    """A file region over bytes, and its file."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position
        self.size = len(data)

    @property
    def file(self) -> Any:
        return self

    def read_at(self, size: int, position: int) -> bytes:
        start = position - self.position
        return self.data[start : start + size]


class Harness:
    """A connection on a fake socket, with a frame handler that the test chooses."""

    def __init__(
        self, handle: Callable[[Connection, memoryview], None], frame_bytes_max: int = 10_000_000
    ) -> None:
        self.socket = FakeSocket()
        self.loop = FakeLoop()
        self.owner = Owner(frame_bytes_max)
        fakes: Any = (self.socket, self.loop)
        self.connection = SocketConnection(self.owner, handle, 1, "PLAINTEXT", ("192.0.2.7", 4711), *fakes)

    def receive(self, *pieces: bytes | OSError) -> None:
        """Let the bytes arrive, and the loop call back while it would: until nothing is left or it stops."""
        self.socket.incoming += pieces
        while self.socket.incoming and self.loop.reader is not None:
            self.loop.reader()
            self.loop.run_soon()
        while self.loop.soon:
            self.loop.run_soon()

    def make_room(self, count: int) -> None:
        """Let the peer read `count` bytes; the loop calls back as it would."""
        self.socket.room += count
        while self.socket.room and self.loop.writer is not None:
            self.loop.writer()
        self.loop.run_soon()

    def take_sent(self) -> bytes:
        """Return what was sent since the last call."""
        sent = bytes(self.socket.sent)
        self.socket.sent.clear()
        return sent


def framed(payload: bytes) -> bytes:
    """Put the size before a frame."""
    return struct.pack(">i", len(payload)) + payload

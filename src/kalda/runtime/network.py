"""Defines the port for connections over a network: `Network` listens and connects, and returns streams.

No call of a `Stream` or a `StreamListener` blocks. The event loop watches both by their `fileno`, so a
simulated network brings an event loop that knows its numbers.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from kalda.runtime.filesystem import Buffer, File

Address: TypeAlias = tuple[str, int]
"""Host and port; the host is an address of IPv4 or IPv6, not a name."""


class Stream(Protocol):
    """A connected stream of bytes. Errors are `OSError`; `BlockingIOError` where the call would wait."""

    def fileno(self) -> int:
        """Return the number by which the event loop watches the stream; negative once it is closed."""
        ...

    def recv_into(self, buffer: bytearray | memoryview, /) -> int:
        """Receive what has arrived, as far as the buffer takes it; return its size, 0 at the end."""
        ...

    def recv(self, size: int, /) -> bytes:
        """Receive up to `size` bytes that have arrived; return none at the end."""
        ...

    @property
    def MORE(self) -> int:  # noqa: N802 (a constant of each implementation)
        """A flag of `send`: more follows at once, so a packet that is not full may wait for it."""
        ...

    def send(self, data: Buffer, flags: int = 0, /) -> int:
        """Send as much as there is room for; return how much that was."""
        ...

    def sendmsg(self, buffers: Sequence[Buffer], /) -> int:
        """Send as much of several pieces as there is room for; return how much that was."""
        ...

    def send_file(self, file: File, position: int, size: int, /) -> int:
        """Send up to `size` bytes of a file; return how much was sent, 0 where the file has ended."""
        ...

    def has_ended(self) -> bool:
        """Return whether the peer has closed the stream and sent nothing before; receives nothing."""
        ...

    def close(self) -> None:
        """Close the stream; harmless if it is closed."""
        ...


class StreamListener(Protocol):
    """A bound port. Errors are `OSError`."""

    @property
    def port(self) -> int:
        """The port, also where the system chose it."""
        ...

    def fileno(self) -> int:
        """Return the number by which the event loop watches for connections."""
        ...

    def accept_stream(self) -> tuple[Stream, Address]:
        """Return the next connection and its peer; raises `BlockingIOError` if there is none."""
        ...

    def close(self) -> None:
        """Stop to listen."""
        ...


class Network(Protocol):
    """The network of a machine."""

    async def listen(
        self,
        host: str,
        port: int,
        *,
        backlog: int = 128,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> StreamListener:
        """Bind a port, which the system chooses if `port` is 0, and queue connections.

        An empty host and ``::`` stand for every address of IPv4 and IPv6. -1 leaves the size of a buffer of
        the connections to the system.

        Raises:
            OSError: the name is not known, or the address cannot be bound.
        """
        ...

    def probe(self, host: str, port: int) -> None:
        """Bind a port and release it; resolving a name may block.

        Raises:
            OSError: it cannot be bound.
        """
        ...

    async def connect(
        self,
        host: str,
        port: int,
        *,
        timeout_seconds: float,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
    ) -> Stream:
        """Connect to the first address of `host` that accepts; each address gets its share of the time.

        Raises:
            OSError: the name is not known, or no address accepted.
            TimeoutError: the time is up.
        """
        ...

    async def canonical_addresses(self, host: str, port: int) -> list[Address]:
        """Return (canonical name, port) for each address of `host`; an address without a name is its own.

        Raises:
            OSError: the name is not known.
        """
        ...

    async def address_of(self, host: str) -> str | None:
        """Return an address of a host, one of IPv4 where there is one; None if there is none."""
        ...

    def host_name(self) -> str:
        """Return the name of this machine."""
        ...


class Readers(Protocol):
    """Calls a connection when its stream is readable: an event loop, or its selector."""

    def add_reader(self, fd: int, callback: Callable[[], None], /) -> None:
        """Call the callback whenever the stream is readable."""
        ...

    def remove_reader(self, fd: int, /) -> object:
        """Do not call the callback of the stream any more."""
        ...


def readers_of(loop: Any) -> Readers:
    """Return what calls connections on this event loop: its `readers`, if it has any, else the loop."""
    readers: Readers = getattr(loop, "readers", loop)
    return readers


async def wait_readable(stream: Stream) -> None:
    """Return when a stream has something to receive, for a stream that nothing else watches."""
    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    loop.add_reader(stream.fileno(), _complete, ready)
    try:
        await ready
    finally:
        loop.remove_reader(stream.fileno())


async def send_all(stream: Stream, data: Buffer) -> None:
    """Send all of `data` over a stream that nothing else watches."""
    loop = asyncio.get_running_loop()
    view = memoryview(data)
    while view:
        try:
            view = view[stream.send(view) :]
        except BlockingIOError:
            ready = loop.create_future()
            loop.add_writer(stream.fileno(), _complete, ready)
            try:
                await ready
            finally:
                loop.remove_writer(stream.fileno())


async def receive(stream: Stream, size: int) -> bytes:
    """Return the next bytes, at most `size`, of a stream that nothing else watches; none at its end."""
    while True:
        try:
            return stream.recv(size)
        except BlockingIOError:
            await wait_readable(stream)


def _complete(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


def address_text(host: str, port: int) -> str:
    """Return ``host:port``; an IPv6 address stands in brackets, as in ``[::1]:9092``."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

"""A TCP link between a client and a server that can be cut, refused, or made to say nothing."""

import asyncio
import contextlib
from types import TracebackType


class FaultyLink:
    """Forwards connections to a server; an async context manager."""

    def __init__(self, hosts: str) -> None:
        self._host, _, port = hosts.partition(":")
        self._port = int(port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_refusing = False
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.accepted = 0
        self.hosts = ""

    def cut(self) -> None:
        """Break all connections; new ones are taken."""
        for writer in self._writers:
            writer.transport.abort()

    def refuse(self) -> None:
        """Break all connections and take no new ones."""
        self._is_refusing = True
        self.cut()

    def silence(self) -> None:
        """Keep all connections but forward nothing: the peer looks alive to TCP and says nothing."""
        self._flowing.clear()

    def mend(self) -> None:
        """Work again."""
        self._is_refusing = False
        self._flowing.set()

    def inject(self, data: bytes) -> None:
        """Put something between what the server says."""
        for writer in self._clients:
            writer.write(data)

    async def __aenter__(self) -> "FaultyLink":
        self._server = await asyncio.start_server(self._on_client, "127.0.0.1", 0)
        self.hosts = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        self.refuse()
        await asyncio.gather(*self._tasks)

    async def _on_client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        if not self._is_refusing:
            upstream_reader, upstream = await asyncio.open_connection(self._host, self._port)
            self._writers |= {writer, upstream}
            self._clients.add(writer)
            await asyncio.gather(self._forward(reader, upstream), self._forward(upstream_reader, writer))
            self._writers -= {writer, upstream}
            self._clients.discard(writer)
        await abort(writer)
        self._tasks.discard(task)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
        await abort(writer)


async def abort(writer: asyncio.StreamWriter) -> None:
    """Break a connection and wait until its transport is gone."""
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()

"""A server on the test's event loop with the test's clock, and a client that says just what it is told."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from kalda.runtime.background import BackgroundExecutor
from kalda.runtime.clock import ManualClock
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.zookeeper.protocol import responses
from kalda.zookeeper.protocol.jute import Reader
from kalda.zookeeper.protocol.op_codes import NOTIFICATION_XID, OK, OpCode
from kalda.zookeeper.protocol.requests import (
    WORLD_ALL,
    AclEntry,
    ConnectRequest,
    CreateRequest,
    EmptyRequest,
    PathWatchRequest,
    RequestRecord,
    SetDataRequest,
)
from kalda.zookeeper.server.config import ZooKeeperConfig
from kalda.zookeeper.server.embedded import EmbeddedServer
from kalda.zookeeper.server.listener import ZooKeeperListener
from tests.zookeeper_requests import frame, write_connect_request, write_request

WAIT_SECONDS_MAX = 20.0


class Reply(NamedTuple):
    xid: int
    zxid: int
    error: int
    body: bytes


class Event(NamedTuple):
    kind: int
    path: str
    zxid: int


class Session(NamedTuple):
    timeout_ms: int
    id: int
    password: bytes
    has_read_only: bool


class Client:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.session = Session(0, 0, b"", False)
        self._next_xid = 1

    @classmethod
    async def dial(cls, port: int) -> "Client":
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def open(
        self,
        timeout_ms: int = 4000,
        *,
        session: Session | None = None,
        password: bytes | None = None,
        zxid: int = 0,
        read_only: bool | None = False,
    ) -> Session:
        session_id = session.id if session is not None else 0
        if password is None:
            password = session.password if session is not None else bytes(16)
        request = ConnectRequest(0, zxid, timeout_ms, session_id, password, read_only)
        self.writer.write(frame(write_connect_request(request)))
        reader = Reader(await self.next_frame())
        assert 0 == reader.int32()
        timeout, session_id, granted = reader.int32(), reader.int64(), reader.buffer() or b""
        self.session = Session(timeout, session_id, granted, reader.remaining == 1)
        return self.session

    async def next_frame(self) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return await self.reader.readexactly(size)

    async def next(self) -> Reply | Event:
        raw = await self.next_frame()
        xid, zxid, error = responses.HEADER.unpack_from(raw)
        if xid != NOTIFICATION_XID:
            return Reply(xid, zxid, error, raw[responses.HEADER.size :])
        reader = Reader(raw, responses.HEADER.size)
        kind, state, path = reader.int32(), reader.int32(), reader.text()
        assert responses.SYNC_CONNECTED == state
        return Event(kind, path, zxid)

    async def next_event(self) -> Event:
        found = await self.next()
        assert isinstance(found, Event), f"an event, not {found}"
        return found

    async def next_reply(self) -> Reply:
        found = await self.next()
        assert isinstance(found, Reply), f"a reply, not {found}"
        return found

    def send(self, op_code: OpCode, record: RequestRecord | None = None, xid: int | None = None) -> int:
        if xid is None:
            xid = self._next_xid
            self._next_xid += 1
        self.writer.write(frame(write_request(xid, op_code, record or EmptyRequest())))
        return xid

    async def ask(
        self, op_code: OpCode, record: RequestRecord | None = None, xid: int | None = None
    ) -> Reply:
        sent = self.send(op_code, record, xid)
        reply = await self.next_reply()
        assert sent == reply.xid
        return reply

    async def create(
        self, path: str, data: bytes = b"", flags: int = 0, acl: tuple[AclEntry, ...] = WORLD_ALL
    ) -> str:
        reply = await self.ask(OpCode.CREATE, CreateRequest(path, data, acl, flags))
        assert OK == reply.error, f"{path}: {reply.error}"
        return Reader(reply.body).text()

    async def set(self, path: str, data: bytes = b"") -> None:
        reply = await self.ask(OpCode.SET_DATA, SetDataRequest(path, data, -1))
        assert OK == reply.error, f"{path}: {reply.error}"

    async def get(self, path: str, watch: bool = False) -> bytes:
        reply = await self.ask(OpCode.GET_DATA, PathWatchRequest(path, watch))
        assert OK == reply.error, f"{path}: {reply.error}"
        return Reader(reply.body).buffer() or b""

    async def exists(self, path: str, watch: bool = False) -> bool:
        reply = await self.ask(OpCode.EXISTS, PathWatchRequest(path, watch))
        assert reply.error in (OK, -101), f"{path}: {reply.error}"
        return reply.error == OK

    async def children(self, path: str, watch: bool = False) -> list[str]:
        reply = await self.ask(OpCode.GET_CHILDREN, PathWatchRequest(path, watch))
        assert OK == reply.error, f"{path}: {reply.error}"
        return sorted(read_texts(Reader(reply.body)))

    async def at_end(self) -> bool:
        """Whether the server has closed the connection, and nothing is left to read."""
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            try:
                return not await self.reader.read(1)
            except ConnectionError:
                return True

    def close(self) -> None:
        self.writer.transport.abort()


@dataclass
class Bench:
    port: int
    server: EmbeddedServer
    listener: ZooKeeperListener
    clock: ManualClock
    secure_port: int = 0
    clients: list[Client] = field(default_factory=list)

    async def connect(self, timeout_ms: int = 4000) -> Client:
        client = await self.dial()
        await client.open(timeout_ms)
        return client

    async def dial(self) -> Client:
        client = await Client.dial(self.port)
        self.clients.append(client)
        return client

    def pass_time(self, seconds: float) -> None:
        """Let time pass as the server's heartbeat would see it; nobody is heard of meanwhile."""
        step = 0.1
        for _ in range(round(seconds / step)):
            self.clock.advance(step)
            self.server.server.pass_time()

    async def word(self, word: bytes) -> str:
        client = await self.dial()
        client.writer.write(word)
        async with asyncio.timeout(WAIT_SECONDS_MAX):
            return (await client.reader.read()).decode()


@contextlib.asynccontextmanager
async def running(
    directory: Path | str,
    *,
    filesystem: FileSystem | None = None,
    executor: BackgroundExecutor | None = None,
    words: str = "",
    **settings: str,
) -> AsyncIterator[Bench]:
    """Serve; settings are those of zoo.cfg, with "_" for "." in their names; `words` is the whitelist."""
    properties = {name.replace("_", "."): text for name, text in settings.items()}
    if words:
        properties["4lw.commands.whitelist"] = words
    config = ZooKeeperConfig.from_properties(properties)
    clock = ManualClock()
    pool = EventLoopExecutor(asyncio.get_running_loop())
    embedded = EmbeddedServer(
        str(directory),
        filesystem=filesystem or OsFileSystem(),
        executor=executor or pool,
        clock=clock,
        config=config,
    )
    embedded.start()
    listener = ZooKeeperListener(embedded.server, config, clock)
    port = await listener.listen("127.0.0.1", 0)
    bench = Bench(port, embedded, listener, clock)
    if config.secure_client_port is not None:
        bench.secure_port = await listener.listen("127.0.0.1", 0, is_secure=True)
    try:
        yield bench
    finally:
        await listener.close()
        for client in bench.clients:
            client.close()
        await embedded.close()
        pool.close()


def read_texts(reader: Reader) -> list[str]:
    return [reader.text() for _ in range(reader.int32())]

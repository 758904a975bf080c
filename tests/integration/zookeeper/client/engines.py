"""The engines behind the coordination port, each with what tests do to its sessions."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

from kalda.etcd.client import EtcdClient
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.port import SessionState, ZooKeeperClient
from kalda.zookeeper.server.config import ZooKeeperConfig
from kalda.zookeeper.server.embedded import EmbeddedClient, EmbeddedServer
from kalda.zookeeper.server.listener import ZooKeeperListener
from tests.integration.etcd_servers import EtcdCluster
from tests.integration.real_zookeeper import RealZooKeeper
from tests.integration.zookeeper_client import zookeeper_client

SESSION_TIMEOUT_MS = 4_000

WAIT_SECONDS = 30.0
"""Longer than anything takes on a machine that does other things, too."""


class Engine(Protocol):
    """One way to fill the port."""

    async def connect(self) -> ZooKeeperClient:
        """Open a session; the engine closes it at the end."""
        ...

    async def expire(self, zookeeper: ZooKeeperClient) -> None:
        """End a session as if its time-out had passed, and return when a new one is open."""
        ...


class EmbeddedEngine:
    """The server in this process, without a wire."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server

    async def connect(self) -> ZooKeeperClient:
        return await self._server.connect()

    async def expire(self, zookeeper: ZooKeeperClient) -> None:
        assert isinstance(zookeeper, EmbeddedClient)
        await zookeeper.expire()
        await zookeeper.reconnect()


class EnsembleEngine:
    """A client of some server over the wire; every test has a chroot of its own."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.chroot = f"/test-{uuid.uuid4().hex}/below"
        self._sessions: list[EnsembleClient] = []

    async def connect(self, through: str = "", **options: Any) -> EnsembleClient:
        settings = {"session_timeout_ms": SESSION_TIMEOUT_MS, "connection_timeout_ms": 30_000, **options}
        zookeeper = await EnsembleClient.connect((through or self.hosts) + self.chroot, **settings)
        self._sessions.append(zookeeper)
        return zookeeper

    async def expire(self, zookeeper: ZooKeeperClient) -> None:
        assert isinstance(zookeeper, EnsembleClient)
        opened = asyncio.Event()
        states = states_of(zookeeper)

        def on_state(state: SessionState) -> None:
            if state is SessionState.CONNECTED and SessionState.EXPIRED in states:
                opened.set()

        zookeeper.add_state_listener(on_state)
        await self.kill_session(zookeeper)
        async with asyncio.timeout(WAIT_SECONDS):
            await opened.wait()

    async def kill_session(self, zookeeper: EnsembleClient) -> None:
        """Take the session over with another client and close it: for the server it is gone."""
        session = zookeeper._link.session

        def take_and_close() -> None:
            with zookeeper_client(self.hosts, client_id=(session.session_id, session.password)):
                pass

        await asyncio.to_thread(take_and_close)

    def cut(self, zookeeper: EnsembleClient) -> None:
        """Break the connection; the session goes on."""
        zookeeper._link.drop()

    async def close(self) -> None:
        """Close the sessions."""
        for zookeeper in self._sessions:
            await zookeeper.close()


class EtcdEngine:
    """A client of etcd; every test has a prefix of its own."""

    def __init__(self, hosts: str) -> None:
        self.hosts = hosts
        self.prefix = f"/test-{uuid.uuid4().hex}/below"
        self._sessions: list[EtcdClient] = []

    async def connect(self, **options: Any) -> EtcdClient:
        settings = {"session_timeout_ms": SESSION_TIMEOUT_MS, "connection_timeout_ms": 30_000, **options}
        client = await EtcdClient.connect(self.hosts + self.prefix, **settings)
        self._sessions.append(client)
        return client

    async def expire(self, zookeeper: ZooKeeperClient) -> None:
        assert isinstance(zookeeper, EtcdClient)
        opened = asyncio.Event()
        states = states_of(zookeeper)

        def on_state(state: SessionState) -> None:
            if state is SessionState.CONNECTED and SessionState.EXPIRED in states:
                opened.set()

        zookeeper.add_state_listener(on_state)
        key = zookeeper.session_key
        assert key is not None
        await zookeeper.end_session(key)
        async with asyncio.timeout(WAIT_SECONDS):
            await opened.wait()

    async def close(self) -> None:
        """Close the sessions."""
        for client in self._sessions:
            await client.close()


def states_of(zookeeper: ZooKeeperClient) -> list[SessionState]:
    """Collect the states of a session from now on."""
    states: list[SessionState] = []
    zookeeper.add_state_listener(states.append)
    return states


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something holds, which the engine makes true in the background."""
    async with asyncio.timeout(WAIT_SECONDS):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def embedded_server(directory: Path) -> AsyncIterator[EmbeddedServer]:
    """Run our server in this process."""
    loop = asyncio.get_running_loop()
    executor = EventLoopExecutor(loop)
    server = EmbeddedServer(
        str(directory), filesystem=OsFileSystem(), executor=executor, clock=SystemClock(), sync=False
    )
    server.start()
    try:
        yield server
    finally:
        await server.close()
        await loop.run_in_executor(None, executor.close)


@contextlib.asynccontextmanager
async def listening(server: EmbeddedServer) -> AsyncIterator[str]:
    """Have our server listen; yields its address."""
    listener = ZooKeeperListener(server.server, ZooKeeperConfig.from_properties({}), SystemClock())
    port = await listener.listen("127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{port}"
    finally:
        await listener.close()


@contextlib.asynccontextmanager
async def engine_of(
    kind: str, directory: Path, real: Callable[[], RealZooKeeper], etcd: Callable[[], EtcdCluster]
) -> AsyncIterator[EmbeddedEngine | EnsembleEngine | EtcdEngine]:
    """Make the engine that a test asks for by name."""
    async with contextlib.AsyncExitStack() as stack:
        if kind == "etcd":
            client = EtcdEngine(etcd().hosts)
            stack.push_async_callback(client.close)
            yield client
            return
        if kind == "real":
            hosts = real().hosts
        else:
            server = await stack.enter_async_context(embedded_server(directory))
            if kind == "embedded":
                yield EmbeddedEngine(server)
                return
            hosts = await stack.enter_async_context(listening(server))
        engine = EnsembleEngine(hosts)
        stack.push_async_callback(engine.close)
        yield engine

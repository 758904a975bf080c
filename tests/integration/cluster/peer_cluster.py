"""Brokers of one cluster in one event loop, with the coordination server beside them: nothing but sockets
between the brokers, and no process to start."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

from kalda.broker.process.config import started_properties
from kalda.broker.server import BrokerServer
from kalda.net.peer.dialer import Dialer, TcpDialer
from kalda.net.peer.peer_connection import DialOptions
from kalda.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from kalda.protocol.schema import Message
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.runtime.system.runtime import system_runtime
from kalda.settings import BrokerConfig
from kalda.zookeeper.server.embedded import EmbeddedClient, EmbeddedServer

M = TypeVar("M", bound=Message)
WAIT_SECONDS = 60
"""Far more than anything here takes; only a failure waits for it."""


class PeerCluster:
    """Brokers 0, 1, 2, ..., and what a test does with them."""

    def __init__(self, directory: Path, count: int, settings: Mapping[str, str]) -> None:
        self.directory = directory
        self.count = count
        self.settings = dict(settings)
        self.brokers: dict[int, BrokerServer] = {}
        self.sessions: dict[int, EmbeddedClient] = {}
        self.dialer: Dialer | None = None
        self._executor = EventLoopExecutor(asyncio.get_running_loop())
        self._files = OsFileSystem()
        self._clock = SystemClock()
        self.embedded = EmbeddedServer(
            str(directory / "zookeeper"), filesystem=self._files, executor=self._executor, clock=self._clock
        )
        self._ended: dict[int, tuple[asyncio.Event, asyncio.Task[None]]] = {}

    async def start(self, broker_id: int, **settings: str) -> BrokerServer:
        """Start a broker; keywords are settings with underscores for the dots."""
        own = {name.replace("_", "."): value for name, value in settings.items()}
        written = started_properties(
            self.directory, 0, self.settings, broker_id=broker_id, brokers=self.count
        )
        written.setdefault("kalda.cluster.history.enable", "false")
        written.setdefault("controlled.shutdown.retry.backoff.ms", "50")
        config = BrokerConfig.from_properties({**written, **own})
        started: asyncio.Future[BrokerServer] = asyncio.get_running_loop().create_future()
        ending = asyncio.Event()
        task = asyncio.create_task(self._run(broker_id, config, started, ending), name=f"broker-{broker_id}")
        # Done early means that the start failed; then awaiting the task raises what it failed with.
        task.add_done_callback(lambda _: started.done() or started.cancel())
        await asyncio.wait({started})
        if task.done():
            await task
        self._ended[broker_id] = ending, task
        self.brokers[broker_id] = started.result()
        return started.result()

    async def stop(self, broker_id: int) -> None:
        """Stop a broker in order."""
        ending, task = self._ended.pop(broker_id)
        ending.set()
        await task
        del self.brokers[broker_id]

    async def close(self) -> None:
        """Stop everything."""
        for broker_id in sorted(self.brokers, reverse=True):
            await self.stop(broker_id)
        await self.embedded.close()
        await asyncio.get_running_loop().run_in_executor(None, self._executor.close)

    @property
    def controller(self) -> BrokerServer:
        """The broker in office."""
        return next(each for each in self.brokers.values() if each.services.controller.is_active)

    @property
    def others(self) -> list[BrokerServer]:
        """The brokers that are not in office."""
        return [each for each in self.brokers.values() if not each.services.controller.is_active]

    async def ask(
        self, broker: BrokerServer, request: Message, answer: type[M], version: int | None = None
    ) -> M:
        """Ask a broker over a connection of its own."""
        host, _, port = broker.bootstrap.rpartition(":")
        connection = await TcpDialer().dial(
            host, int(port), DialOptions(client_id="test", timeout_seconds=WAIT_SECONDS)
        )
        try:
            response = await connection.request(request, timeout_seconds=WAIT_SECONDS, version=version)
        finally:
            connection.close()
        assert isinstance(response, answer)
        return response

    async def create_topic(self, name: str, partitions: int, replicas: int, **configs: str) -> None:
        """Create a topic through the controller; return when every broker knows it and has its replicas."""
        settings = [
            CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()
        ]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, configs=settings
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=WAIT_SECONDS * 1000)
        answer = await self.ask(self.controller, request, CreateTopicsResponse)
        assert [0] == [each.error_code for each in answer.topics], answer
        # The controller answers when it knows the leaders itself; the others hear of them meanwhile.
        await self.wait_until(lambda: self._is_everywhere(name, partitions, replicas))

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return when a condition holds."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def _is_everywhere(self, topic: str, partitions: int, replicas: int) -> bool:
        brokers = [broker.services for broker in self.brokers.values()]
        hosted = sum(name.topic == topic for broker in brokers for name in broker.replica_manager.partitions)
        is_known = all(broker.metadata_cache.partition_count(topic) == partitions for broker in brokers)
        return is_known and hosted == partitions * replicas

    async def _run(
        self,
        broker_id: int,
        config: BrokerConfig,
        started: asyncio.Future[BrokerServer],
        ending: asyncio.Event,
    ) -> None:
        session = self.sessions[broker_id] = await self.embedded.connect()
        broker = BrokerServer(
            config,
            session,
            runtime=system_runtime(self._executor, self._files),
            dialer=self.dialer,
        )
        async with asyncio.TaskGroup() as tasks:
            await broker.start(tasks)
            started.set_result(broker)
            await ending.wait()
            await broker.stop()
        await session.close()


@asynccontextmanager
async def peer_cluster(
    directory: Path, count: int = 3, dialer: Dialer | None = None, **settings: str
) -> AsyncIterator[PeerCluster]:
    """Run a cluster."""
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    cluster = PeerCluster(directory, count, properties)
    cluster.dialer = dialer
    cluster.embedded.start()
    try:
        for broker_id in range(count):
            await cluster.start(broker_id)
        yield cluster
    finally:
        await cluster.close()

"""One broker in this process, over real sockets: what it answers, how it stops, what stops a start."""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from kalda.broker.context.start_error import BrokerStartError
from kalda.broker.process.config import started_config
from kalda.broker.server import BrokerServer
from kalda.common.api_keys import ApiKey
from kalda.protocol import codec, registry
from kalda.protocol.headers import RequestHeader, request_header
from kalda.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kalda.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kalda.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kalda.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from kalda.protocol.schema import Message
from kalda.records.record import RecordBatchBuilder, iter_records
from kalda.runtime.system.background import EventLoopExecutor
from kalda.runtime.system.clock import SystemClock
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.runtime.system.runtime import system_runtime
from kalda.storage.log_manager import LogManager
from kalda.zookeeper.server.embedded import EmbeddedServer

M = TypeVar("M", bound=Message)
TOPIC = "events"


@asynccontextmanager
async def broker_at(directory: Path, **settings: str) -> AsyncIterator[BrokerServer]:
    """Run a broker as `kalda start` does, without its signals."""
    loop = asyncio.get_running_loop()
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    config = started_config(directory, 0, properties)
    executor = EventLoopExecutor(loop)
    files, clock = OsFileSystem(), SystemClock()
    embedded = EmbeddedServer(str(directory / "zookeeper"), filesystem=files, executor=executor, clock=clock)
    embedded.start()
    try:
        broker = BrokerServer(config, await embedded.connect(), runtime=system_runtime(executor))
        async with asyncio.TaskGroup() as tasks:
            await broker.start(tasks)
            yield broker
            await broker.stop()
    finally:
        await embedded.close()
        await loop.run_in_executor(None, executor.close)


class Client:
    """One connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    @asynccontextmanager
    async def connect(cls, broker: BrokerServer) -> "AsyncIterator[Client]":
        host, _, port = broker.bootstrap.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        try:
            yield cls(reader, writer)
        finally:
            writer.close()

    def send(self, request: Message, version: int) -> None:
        key = request.SCHEMA.api_key
        assert key is not None
        header = RequestHeader(key, version, 5, "test")
        payload = request_header(header, registry.request_header_version(key, version))
        payload += codec.encode(request, version)
        self._writer.write(len(payload).to_bytes(4, "big") + payload)

    async def receive(self, response_class: type[M], key: ApiKey, version: int) -> M:
        size = int.from_bytes(await self._reader.readexactly(4), "big")
        frame = await self._reader.readexactly(size)
        position = 5 if registry.response_header_version(key, version) else 4
        return codec.decode(response_class, version, frame, position)

    async def ask(self, request: Message, response_class: type[M], key: ApiKey, version: int) -> M:
        self.send(request, version)
        return await self.receive(response_class, key, version)

    async def create_topic(self) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
        response = await self.ask(request, CreateTopicsResponse, ApiKey.CREATE_TOPICS, 5)
        assert 0 == response.topics[0].error_code

    async def produce(self, *values: bytes) -> int:
        """Append and return the base offset."""
        builder = RecordBatchBuilder()
        for value in values:
            builder.append(timestamp=1, key=None, value=value)
        partition = PartitionProduceData(index=0, records=bytes(builder.build()))
        topic = TopicProduceData(name=TOPIC, partition_data=[partition])
        request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])
        response = await self.ask(request, ProduceResponse, ApiKey.PRODUCE, 8)
        answer = response.responses[0].partition_responses[0]
        assert 0 == answer.error_code
        return answer.base_offset

    def send_fetch(self, offset: int, max_wait_ms: int = 0) -> None:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic=TOPIC, partitions=[partition])
        self.send(FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[topic]), 11)

    async def fetched(self) -> list[bytes]:
        response = await self.receive(FetchResponse, ApiKey.FETCH, 11)
        data = response.responses[0].partitions[0]
        assert 0 == data.error_code
        records = data.records
        assert isinstance(records, bytes | memoryview)
        return [bytes(record.value or b"") for record in iter_records(records)] if len(records) else []


async def wait_until_waiting(broker: BrokerServer) -> None:
    """Return when the broker has a fetch that waits."""
    async with asyncio.timeout(60):
        while not len(broker.services.purgatories["fetch"]):  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_records_go_in_and_out_and_survive_a_restart(tmp_path: Path) -> None:
    async with broker_at(tmp_path) as broker, Client.connect(broker) as client:
        await client.create_topic()
        assert 0 == await client.produce(b"a", b"b")
        client.send_fetch(0)
        assert [b"a", b"b"] == await client.fetched()
    async with broker_at(tmp_path) as broker, Client.connect(broker) as client:
        assert 2 == await client.produce(b"c")
        client.send_fetch(2)
        assert [b"c"] == await client.fetched()


async def test_a_waiting_fetch_is_answered_by_another_connections_produce(tmp_path: Path) -> None:
    async with (
        broker_at(tmp_path) as broker,
        Client.connect(broker) as reader,
        Client.connect(broker) as writer,
    ):
        await writer.create_topic()
        reader.send_fetch(0, max_wait_ms=30_000)
        await wait_until_waiting(broker)
        await writer.produce(b"a")
        assert [b"a"] == await asyncio.wait_for(reader.fetched(), 60)


async def test_a_shutdown_answers_the_fetch_that_waits(tmp_path: Path) -> None:
    async with AsyncExitStack() as connections:
        async with broker_at(tmp_path) as broker:
            client = await connections.enter_async_context(Client.connect(broker))
            await client.create_topic()
            client.send_fetch(0, max_wait_ms=60_000)
            await wait_until_waiting(broker)
        assert [] == await asyncio.wait_for(client.fetched(), 60)


async def test_api_versions_lists_what_is_served_and_nothing_else(tmp_path: Path) -> None:
    """Clients switch features on by what is listed: what is not built must not be."""
    async with broker_at(tmp_path) as broker, Client.connect(broker) as client:
        response = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, ApiKey.API_VERSIONS, 0)
    ranges = {each.api_key: (each.min_version, each.max_version) for each in response.api_keys}
    assert (0, 13) == ranges[ApiKey.PRODUCE]
    assert (0, 18) == ranges[ApiKey.FETCH]
    assert (0, 10) == ranges[ApiKey.OFFSET_COMMIT]
    # Without a metrics port, what clients push would be shown nowhere.
    assert ApiKey.PUSH_TELEMETRY not in ranges


async def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        async with broker_at(tmp_path / name):
            pass
    with pytest.raises(ExceptionGroup) as caught:
        async with broker_at(tmp_path / "two", log_dirs=str(tmp_path / "one" / "broker-0")):
            pass
    (error,) = caught.value.exceptions
    assert isinstance(error, BrokerStartError)
    assert "belongs to cluster.id=" in str(error)
    assert "this cluster has cluster.id=" in str(error)


async def test_no_new_cluster_begins_over_the_logs_of_one_whose_coordination_is_lost(tmp_path: Path) -> None:
    """A new cluster would make its topics of the same names strangers to the logs that hold their records."""
    async with broker_at(tmp_path):
        pass
    zookeeper, lost = tmp_path / "zookeeper", tmp_path / "lost"
    zookeeper.rename(lost)
    for _ in range(2):
        with pytest.raises(ExceptionGroup) as caught:
            async with broker_at(tmp_path):
                pass
        (error,) = caught.value.exceptions
        assert isinstance(error, BrokerStartError)
        assert "ZooKeeper has no cluster: its data is missing or damaged" in str(error)
    shutil.rmtree(zookeeper)
    lost.rename(zookeeper)
    async with broker_at(tmp_path):
        pass


async def test_a_service_that_fails_ends_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a broker is worse than none: who watches the process must see that something is wrong."""

    def fail(_: LogManager) -> None:
        raise RuntimeError("on purpose")

    async def run() -> None:
        async with broker_at(tmp_path, log_flush_offset_checkpoint_interval_ms="10") as broker:
            try:
                await asyncio.sleep(30)
            finally:
                await broker.stop()

    monkeypatch.setattr(LogManager, "checkpoint_recovery_points", fail)
    with pytest.raises(ExceptionGroup) as caught:
        await run()
    assert caught.group_contains(RuntimeError, match="on purpose")


async def test_a_start_that_fails_names_the_reason_and_holds_nothing(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(ExceptionGroup) as caught:
            async with broker_at(tmp_path, metrics_port=port):
                pass
    (error,) = caught.value.exceptions
    assert f"`metrics.port`={port}" in str(error)
    async with broker_at(tmp_path):
        pass

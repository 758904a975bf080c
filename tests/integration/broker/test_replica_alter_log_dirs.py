"""Replicas of a broker move between its log directories while clients write and read (KIP-113)."""

import asyncio
from pathlib import Path

import pytest

from kalda.broker.server import BrokerServer
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from kalda.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from tests.integration.broker.test_broker_server import TOPIC, Client, broker_at

PARTITION = TopicPartition(TOPIC, 0)


def two_disks(tmp_path: Path) -> dict[str, str]:
    return {"log_dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"}


async def alter(client: Client, directory: Path | str, topic: str = TOPIC, *, version: int = 2) -> int:
    moved = AlterReplicaLogDirTopic(name=topic, partitions=[0])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(directory), topics=[moved])])
    response = await client.ask(request, AlterReplicaLogDirsResponse, ApiKey.ALTER_REPLICA_LOG_DIRS, version)
    [result] = response.results
    [partition] = result.partitions
    assert (topic, 0) == (result.topic_name, partition.partition_index)
    return partition.error_code


async def described(client: Client) -> list[tuple[str, bool, int]]:
    """Return directory, whether it is a future log, and lag of each log of the partition."""
    request = DescribeLogDirsRequest(topics=None)
    response = await client.ask(request, DescribeLogDirsResponse, ApiKey.DESCRIBE_LOG_DIRS, 4)
    return [
        (Path(directory.log_dir).name, each.is_future_key, each.offset_lag)
        for directory in response.results
        for topic in directory.topics
        if topic.name == TOPIC
        for each in topic.partitions
    ]


async def read(client: Client) -> list[bytes]:
    """Return the values of all records; `fetched` returns those of one batch."""
    values: list[bytes] = []
    while True:
        client.send_fetch(len(values))
        found = await client.fetched()
        if not found:
            return values
        values += found


def directory_of(broker: BrokerServer) -> Path:
    return Path(broker.services.replica_manager.partitions[PARTITION].log.directory).parent


def other(tmp_path: Path, directory: Path) -> Path:
    return tmp_path / ("b" if directory.name == "a" else "a")


async def until_in(broker: BrokerServer, directory: Path) -> None:
    async with asyncio.timeout(60):
        while directory_of(broker) != directory:  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def until_gone(path: Path) -> None:
    async with asyncio.timeout(60):
        while path.exists():  # noqa: ASYNC110, ASYNC240
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_a_partition_moves_to_the_other_log_directory(tmp_path: Path, version: int) -> None:
    async with broker_at(tmp_path, **two_disks(tmp_path)) as broker, Client.connect(broker) as client:
        await client.create_topic()
        for value in (b"a", b"b", b"c"):
            await client.produce(value)
        source = directory_of(broker)
        target = other(tmp_path, source)
        assert ErrorCode.NONE == await alter(client, target, version=version)
        await until_in(broker, target)
        assert [(target.name, False, 0)] == await described(client)
        assert [b"a", b"b", b"c"] == await read(client)
        assert 3 == await client.produce(b"d")
        assert [f"{TOPIC}-0"] == [path.name for path in target.iterdir() if path.name.startswith(TOPIC)]
        # Once the new name is on the device.
        await until_gone(source / f"{TOPIC}-0")
    async with broker_at(tmp_path, **two_disks(tmp_path)) as broker, Client.connect(broker) as client:
        assert [b"a", b"b", b"c", b"d"] == await read(client)

"""A broker on several disks: one goes away while it runs, and one is not there when it starts."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from kalda.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.storage.errors import LogDirectoryError
from tests.integration.broker.test_broker_server import Client, broker_at
from tests.unit.storage.log_fixtures import batch

TOPIC = "two-disks"
QUICK = {"replica_high_watermark_checkpoint_interval_ms": "50"}


def two_disks(tmp_path: Path) -> dict[str, str]:
    return {"log_dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}", **QUICK}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def create(client: Client, name: str = TOPIC) -> None:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic], timeout_ms=10_000)
    response = await client.ask(request, CreateTopicsResponse, ApiKey.CREATE_TOPICS, 5)
    assert 0 == response.topics[0].error_code


async def leaders(client: Client) -> list[int]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)])
    response = await client.ask(request, MetadataResponse, ApiKey.METADATA, 7)
    found = sorted(response.topics[0].partitions, key=lambda each: each.partition_index)
    return [each.leader_id for each in found]


async def until_second_is_offline(client: Client) -> None:
    """Return once clients are told that the second partition has no leader."""
    async with asyncio.timeout(60):
        while await leaders(client) != [0, -1]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_a_disk_that_goes_away_takes_only_its_own_partitions(tmp_path: Path) -> None:
    async with broker_at(tmp_path, **two_disks(tmp_path)) as broker, Client.connect(broker) as client:
        await create(client)
        assert [0, 0] == await leaders(client)
        replicas = broker.services.replica_manager
        lost = Path(replicas.partitions[TopicPartition(TOPIC, 1)].log.directory).parent
        # Renamed, not removed file by file: the checkpoints' thread may be writing into the directory.
        lost.rename(tmp_path / "unplugged")
        # Nobody notices before something has to be written there: here, the high watermark of an append.
        replicas.append(replicas.partitions[TopicPartition(TOPIC, 1)], memoryview(batch(b"a")), 1)
        await until(lambda: bool(replicas.offline_partitions))
        assert {TopicPartition(TOPIC, 1): str(lost)} == dict(replicas.offline_partitions)
        await until_second_is_offline(client)
        response = await client.ask(
            DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse, ApiKey.DESCRIBE_LOG_DIRS, 4
        )
        codes = {Path(each.log_dir): each.error_code for each in response.results}
        assert ErrorCode.KAFKA_STORAGE_ERROR == codes.pop(lost)
        assert [0] == list(codes.values())
        await create(client, "later")


async def test_the_last_disk_ends_the_broker(tmp_path: Path) -> None:
    with pytest.RaisesGroup(pytest.RaisesExc(LogDirectoryError, match="every log directory has failed")):
        async with broker_at(tmp_path, **QUICK) as broker:
            failures = broker.services.log_manager.resources.failures
            failures.give_up(broker.services.log_manager.directories[0], OSError(5, "Input/output error"))
            try:
                await asyncio.sleep(10)
            finally:
                broker.abort()


async def test_a_start_goes_without_a_disk_that_is_not_there(tmp_path: Path) -> None:
    async with broker_at(tmp_path, **two_disks(tmp_path)) as broker, Client.connect(broker) as client:
        await create(client)
        lost = Path(broker.services.replica_manager.partitions[TopicPartition(TOPIC, 1)].log.directory).parent
    shutil.rmtree(lost)
    lost.write_bytes(b"in the way")
    async with broker_at(tmp_path, **two_disks(tmp_path)) as broker, Client.connect(broker) as client:
        await until_second_is_offline(client)
        assert [str(lost)] == list(broker.services.log_manager.offline_directories)

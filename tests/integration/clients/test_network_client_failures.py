"""The network client while brokers, as real processes, are paused, killed and started again."""

import asyncio
from pathlib import Path

import pytest

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import BrokerConnectionError, ClientError
from kalda.clients.metadata import Metadata
from kalda.clients.network_client import NetworkClient
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse
from kalda.testing import ProcessCluster

ALL = MetadataRequest(topics=None)


async def ask(client: NetworkClient, node_id: int, timeout_ms: int = 60_000) -> MetadataResponse:
    return await client.send(node_id, ALL, MetadataResponse, timeout_ms=timeout_ms)


async def seconds_of_any(client: NetworkClient) -> float:
    began = asyncio.get_running_loop().time()
    await client.send_to_any(ALL, MetadataResponse)
    return asyncio.get_running_loop().time() - began


async def test_brokers_that_are_paused_killed_and_started_again(tmp_path: Path) -> None:
    with ProcessCluster(tmp_path, brokers=3) as cluster:
        config = CommonClientConfig.from_options({"bootstrap_servers": cluster.bootstrap})
        client = NetworkClient(config, Metadata())
        try:
            client.start()
            await client.retry("three brokers", lambda: _all_three(client), timeout_ms=60_000)

            cluster.pause(1)
            hanging = asyncio.create_task(ask(client, 1, timeout_ms=60_000))
            # Java waits 30 s for a paused broker that it happens to choose.
            assert max([await seconds_of_any(client) for _ in range(6)]) < 25
            await ask(client, 0)
            await ask(client, 2)
            cluster.resume(1)
            assert (await asyncio.wait_for(hanging, 30)).brokers

            cluster.pause(1)
            in_flight = asyncio.create_task(ask(client, 1, timeout_ms=60_000))
            await asyncio.sleep(0.1)
            assert 1 == client.in_flight_count(1)
            cluster.kill(1)
            with pytest.raises(BrokerConnectionError, match="lost"):
                await in_flight
            assert max([await seconds_of_any(client) for _ in range(3)]) < 25
            with pytest.raises(ClientError):
                await ask(client, 1)

            cluster.start(1)
            await client.retry("broker 1 again", lambda: ask(client, 1), timeout_ms=60_000)
        finally:
            await client.close()


async def _all_three(client: NetworkClient) -> None:
    await client.refresh_metadata(timeout_ms=60_000)
    for node_id in range(3):
        await ask(client, node_id)

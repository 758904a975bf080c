"""How often a log reader and the control of transactions ask a broker that answers with one error for ever.

Their blocking calls run on a thread; here the coroutines behind them run in virtual time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kalda.clients.metadata import Metadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.range_reader.cluster_lookup import ClusterLookup
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.clients.range_reader.partition_fetch import PartitionFetch
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol.messages.list_offsets import LATEST_TIMESTAMP
from tests.unit.clients.erring_broker import TOPIC, USER_PAUSE_S, Broker, Connection, places, turns, virtual
from tests.virtual_time import run_virtual

__all__ = ["virtual"]

pytestmark = pytest.mark.usefixtures("virtual")

Call = Callable[[ClusterLookup, PartitionFetch], Awaitable[Any]]
PARTITION = TopicPartition(TOPIC, 0)


async def fetches(lookup: ClusterLookup, fetch: PartitionFetch) -> None:
    async def attempt() -> None:
        await lookup.require_topics([TOPIC])
        await fetch.next()

    await lookup.retry("fetch", attempt)


CALLS: list[tuple[ApiKey, Call]] = [
    (ApiKey.API_VERSIONS, lambda lookup, _: lookup.describe(None)),
    (ApiKey.METADATA, lambda lookup, _: lookup.topic_partitions([TOPIC])),
    (ApiKey.METADATA, lambda lookup, _: lookup.list_offsets({PARTITION: LATEST_TIMESTAMP})),
    (ApiKey.LIST_OFFSETS, lambda lookup, _: lookup.list_offsets({PARTITION: LATEST_TIMESTAMP})),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda lookup, _: lookup.epoch_ends({PARTITION: 1})),
    (ApiKey.METADATA, fetches),
    (ApiKey.FETCH, fetches),
]


@pytest.mark.parametrize(("api", "call"), CALLS, ids=lambda value: getattr(value, "name", ""))
def test_no_error_makes_a_reader_ask_without_pauses(api: ApiKey, call: Call) -> None:
    """Spark has many readers, which all meet the same problem of a broker."""
    storms = {}

    async def scenario() -> None:
        config = LogReaderConfig.from_options(
            {"bootstrap_servers": "b:9092", "default_api_timeout_ms": 2_000}
        )
        client = NetworkClient(config, Metadata())
        client.start()
        lookup = ClusterLookup(client, config)
        fetch = PartitionFetch(client, config, PARTITION, start=0, end=100)

        async def turn() -> None:
            await call(lookup, fetch)
            await asyncio.sleep(USER_PAUSE_S)

        await turns(turn)
        fetch.close()
        await client.close()

    for code in (*ErrorCode, None):
        for at_top in places(api, code):
            broker = Connection.broker = Broker(api, code, at_top=at_top)
            run_virtual(scenario())
            assert broker.counts[api], f"{code} was not met"
            if most := broker.most():
                storms[code, at_top] = most
    assert {} == storms

"""Which fetcher follows a partition: one for its leader, and no other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Self, cast

import pytest

from kalda.broker.replicas.follower.replica_fetcher_manager import ReplicaFetcherManager
from kalda.common.api_keys import ApiKey
from kalda.common.types import BrokerEndpoint
from kalda.net.peer.peer_connection import DialOptions
from kalda.protocol.fast.fetch import parse_fetch_request
from tests.runtimes import seeded
from tests.unit.broker.replicas.follower_fixtures import EPOCH, FOLLOWER, LEADER, TOPIC_ID, Follower

OTHER_LEADER = 3
CONFIG = SimpleNamespace(
    follower_replication_throttled_rate=2**63 - 1,
    num_replica_fetchers=1,
    replica_fetch_backoff_ms=1000,
    replica_fetch_wait_max_ms=500,
    replica_fetch_min_bytes=1,
    replica_fetch_response_max_bytes=10_000,
    replica_fetch_max_bytes=1_000,
    replica_socket_timeout_ms=1000,
    static={},
)


class OldLeader:
    """A leader that answers no fetch; each dial finds it with the highest version of Fetch that it has."""

    def __init__(self) -> None:
        self.highest = 12
        self.answer: asyncio.Future[memoryview] | None = None
        self.asked: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()

    async def dial(self, _host: str, _port: int, _options: DialOptions) -> Self:
        return self

    def version_of(self, _api_key: ApiKey) -> int:
        return self.highest

    async def request_raw(
        self, _api_key: ApiKey, version: int, body: bytes, *, timeout_seconds: float
    ) -> memoryview:
        assert timeout_seconds > 0
        await self.asked.put((version, body))
        self.answer = asyncio.get_running_loop().create_future()
        return await self.answer

    def close(self) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(ConnectionError("closed"))


@asynccontextmanager
async def managing(leader: OldLeader | None) -> AsyncIterator[ReplicaFetcherManager]:
    follower = Follower()
    endpoint = None if leader is None else BrokerEndpoint(LEADER, "leader", 9092)
    async with asyncio.TaskGroup() as tasks:
        manager = ReplicaFetcherManager(
            FOLLOWER,
            cast("Any", CONFIG),
            dialer=cast("Any", leader),
            find_broker=lambda _: endpoint,
            quota=follower.quota,
            wake=lambda _: None,
            broker_epoch=lambda: 40,
            clock=follower.clock,
            random=seeded(),
            tasks=tasks,
        )
        yield manager
        await manager.close()


@pytest.fixture
async def manager() -> AsyncIterator[ReplicaFetcherManager]:
    """A manager that knows no leader's address, so that its fetchers only wait."""
    async with managing(None) as made:
        yield made


async def test_a_partition_moves_to_the_fetcher_of_its_new_leader(manager: ReplicaFetcherManager) -> None:
    """Two fetchers of one partition would append the same records twice."""
    partition = Follower().replica()
    manager.follow([partition])
    partition.leader_id, partition.leader_epoch = OTHER_LEADER, EPOCH + 1
    manager.follow([partition])
    assert [EPOCH + 1] == [state.leader_epoch for _, state in manager.states()]


async def test_a_partition_without_a_leader_is_not_followed(manager: ReplicaFetcherManager) -> None:
    partition = Follower().replica()
    manager.follow([partition])
    assert [LEADER] == [state.partition.leader_id for _, state in manager.states()]
    partition.leader_id = -1
    manager.follow([partition])
    assert [] == list(manager.states())


async def test_a_leader_without_topic_ids_is_asked_by_name_until_it_knows_them() -> None:
    """Apache Kafka before 3.1, in a cluster whose controller sends ids: it would be followed never."""
    leader = OldLeader()
    async with managing(leader) as manager, asyncio.timeout(30):
        manager.follow([Follower().replica()])
        version, body = await leader.asked.get()
        named = parse_fetch_request(memoryview(body), 0, version).topics[0][0]
        assert (12, b"orders") == (version, bytes(named))
        leader.highest = 17
        leader.close()
        while version < 13:
            version, body = await leader.asked.get()
        assert TOPIC_ID.bytes == bytes(parse_fetch_request(memoryview(body), 0, version).topics[0][0])
        assert [EPOCH] == [state.leader_epoch for _, state in manager.states()]

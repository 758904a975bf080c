"""Which fetcher follows a partition: one for its leader, and no other."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kalda.broker.replicas.follower.replica_fetcher_manager import ReplicaFetcherManager
from tests.unit.broker.replicas.follower_fixtures import EPOCH, FOLLOWER, LEADER, Follower

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


@pytest.fixture
async def manager() -> AsyncIterator[ReplicaFetcherManager]:
    """A manager that knows no leader's address, so that its fetchers only wait."""
    follower = Follower()
    async with asyncio.TaskGroup() as tasks:
        manager = ReplicaFetcherManager(
            FOLLOWER,
            cast("Any", CONFIG),
            dialer=cast("Any", None),
            find_broker=lambda _: None,
            quota=follower.quota,
            wake=lambda _: None,
            broker_epoch=lambda: 40,
            clock=follower.clock,
            tasks=tasks,
        )
        yield manager
        await manager.close()


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

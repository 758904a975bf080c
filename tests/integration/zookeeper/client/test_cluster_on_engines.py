"""What brokers and the controller do with coordination, on every engine."""

import asyncio
import uuid

import pytest

from kalda.broker.metadata.registration import BrokerRegistration
from kalda.cluster import paths
from kalda.cluster.cluster_store import BrokerIdInUseError, ClusterStore, NewTopic
from kalda.cluster.config_changes import ConfigChange
from kalda.cluster.controller_store import ControllerMovedError, elect
from kalda.cluster.schema import (
    BrokerInfo,
    ListenerEndpoint,
    PartitionState,
    ReplicaAssignment,
    TopicAssignment,
)
from kalda.common.types import TopicPartition
from kalda.runtime.system.clock import SystemClock
from kalda.zookeeper.errors import BadVersionError, NodeExistsError
from kalda.zookeeper.port import Create
from tests.integration.zookeeper.client.engines import EmbeddedEngine, EnsembleEngine, EtcdEngine, eventually
from tests.runtimes import seeded

Engine = EmbeddedEngine | EnsembleEngine | EtcdEngine

CLOCK = SystemClock()


async def cluster_of(engine: Engine) -> ClusterStore:
    cluster = ClusterStore(await engine.connect(), CLOCK, seeded())
    await cluster.ensure_layout()
    return cluster


def broker(broker_id: int) -> BrokerInfo:
    return BrokerInfo(broker_id, (ListenerEndpoint("PLAINTEXT", "host", 9092),))


def topic(name: str, partitions: int = 1, config: dict[str, str] | None = None) -> NewTopic:
    assignment = {number: ReplicaAssignment((0,)) for number in range(partitions)}
    return NewTopic(name, assignment, config or {}, uuid.uuid4())


async def test_layout_cluster_id_and_broker_ids(engine: Engine) -> None:
    first, second = await asyncio.gather(cluster_of(engine), cluster_of(engine))
    assert set(paths.CONFIG_ENTITY_TYPES) < set(await first.zookeeper.children("/config"))
    ids = await asyncio.gather(first.cluster_id(), second.cluster_id(), first.cluster_id())
    assert 1 == len(set(ids))
    assert [1001, 1002] == [await first.next_broker_id(1000), await second.next_broker_id(1000)]


async def test_broker_comes_goes_and_comes_again(engine: Engine) -> None:
    first, second = await cluster_of(engine), await cluster_of(engine)
    told: list[object] = []
    await second.brokers(told.append)
    epoch = await first.register_broker(broker(1))
    assert epoch == await first.register_broker(broker(1))
    with pytest.raises(BrokerIdInUseError, match="broker id 1 is in use"):
        await second.register_broker(broker(1))
    await eventually(lambda: bool(told))
    (found,) = (await second.brokers()).values()
    assert (found.id, found.epoch, found.endpoints) == (1, epoch, broker(1).endpoints)
    await first.unregister_broker(1)
    await first.unregister_broker(1)
    assert {} == await second.brokers()
    assert await second.register_broker(broker(1)) > epoch


async def test_registration_survives_expiry(engine: Engine) -> None:
    cluster, other = await cluster_of(engine), await cluster_of(engine)
    registration = BrokerRegistration(cluster, lambda: broker(1), clock=CLOCK, session_timeout_ms=4_000)
    first = await registration.start()
    task = asyncio.create_task(registration.run())
    await engine.expire(cluster.zookeeper)
    await eventually(lambda: registration.is_healthy)
    assert registration.broker_epoch > first
    assert [found.epoch for found in (await other.brokers()).values()] == [registration.broker_epoch]
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_topics_and_producer_ids(engine: Engine) -> None:
    first, second = await cluster_of(engine), await cluster_of(engine)
    told: list[object] = []
    await second.topics(told.append)
    outcomes = await first.create_topics([topic(f"t{n}", 3, {"retention.ms": "1"}) for n in range(50)])
    assert {None} == set(outcomes.values())
    assert isinstance((await second.create_topics([topic("t7")]))["t7"], NodeExistsError)
    await eventually(lambda: bool(told))
    assert 50 == len(await second.topics())
    assignments = await second.topic_assignments(["t1", "none", "t2"])
    assert {"t1", "t2"} == set(assignments)
    assert {"retention.ms": "1"} == (await second.configs("topics"))["t9"]
    grown = TopicAssignment(
        "t1",
        assignments["t1"].topic_id,
        {n: ReplicaAssignment((0,)) for n in range(4)},
        version=assignments["t1"].version,
    )
    assert 1 == (await second.set_assignment(grown)).version
    with pytest.raises(BadVersionError):
        await first.set_assignment(grown)
    assert {"t1": None} == await first.request_topic_deletions(["t1"])
    assert ["t1"] == await second.topics_to_delete()
    blocks = await asyncio.gather(
        *(cluster.allocate_producer_ids(1) for cluster in (first, second) for _ in "ab")
    )
    assert [0, 1000, 2000, 3000] == sorted(block.first for block in blocks)


async def test_config_changes_are_followed_through_expiry(engine: Engine) -> None:
    writer, reader = await cluster_of(engine), await cluster_of(engine)
    seen: list[ConfigChange] = []
    changes = await reader.watch_config_changes(seen.append)
    await writer.set_config("topics", "a", {"x": "1"})
    await eventually(lambda: len(seen) == 1)
    await engine.expire(reader.zookeeper)
    await writer.set_config("topics", "a", {"x": "2"})
    await writer.set_config("brokers", "1", {"y": "1"})
    await eventually(lambda: len(seen) == 3)
    await changes.close()
    assert [
        ConfigChange("topics", "a", {"x": "1"}),
        ConfigChange("topics", "a", {"x": "2"}),
        ConfigChange("brokers", "1", {"y": "1"}),
    ] == seen


async def test_controllers_follow_each_other_and_the_old_one_is_fenced(engine: Engine) -> None:
    first, second = await cluster_of(engine), await cluster_of(engine)
    store = await elect(first.zookeeper, CLOCK, 1)
    assert store is not None
    assert await elect(second.zookeeper, CLOCK, 2) is None
    told: list[object] = []
    assert 1 == await second.controller_id(told.append)
    partitions = [TopicPartition("t", number) for number in range(1200)]
    await second.create_topics([topic("t", 1200)])
    states = {partition: PartitionState(0, 0, (0,), store.epoch) for partition in partitions}
    created = await store.create_partition_states(states)
    assert {0} == {state.version for state in created.values()}
    assert set(await second.partition_states(partitions)) == set(partitions)
    await engine.expire(first.zookeeper)
    await eventually(lambda: bool(told))
    successor = await elect(second.zookeeper, CLOCK, 2)
    assert successor is not None
    assert successor.epoch == store.epoch + 1
    with pytest.raises(ControllerMovedError):
        await store.update_partition_states(created)
    updated = await successor.update_partition_states(created)
    assert 1200 == len(updated.updated)
    assert not updated.conflicts
    conflicting = await successor.update_partition_states({partitions[0]: created[partitions[0]]})
    assert conflicting.conflicts == {partitions[0]: updated.updated[partitions[0]]}
    await second.request_topic_deletions(["t"])
    await successor.delete_topics(["t"])
    assert [] == await second.topics()
    assert [] == await second.topics_to_delete()
    await successor.resign()
    assert await first.controller_id() is None
    assert await elect(first.zookeeper, CLOCK, 1) is not None


async def test_thousands_of_znodes_are_read_and_written_in_one_go(engine: Engine) -> None:
    session = await engine.connect()
    outcomes = await session.multi_many([[Create(f"/n{number}", b"x" * 300)] for number in range(3000)])
    assert all(isinstance(outcome, list) for outcome in outcomes)
    told: list[object] = []
    found = await session.get_many([f"/n{number}" for number in range(3000)], told.append)
    assert all(entry is not None for entry in found)
    await session.multi_many([[Create(f"/n{number}/child")] for number in range(3000)])
    assert [] == told

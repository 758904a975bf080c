"""The producer's copy of what ZooKeeper knows: read when a watch fired, kept while ZooKeeper is away."""

import uuid
from collections.abc import Collection

import pytest

from kalda.clients.errors import BrokerConnectionError
from kalda.clients.legacy.producer.zookeeper_discovery import ZooKeeperDiscovery
from kalda.cluster import paths, schema
from kalda.cluster.cluster_store import ClusterStore, NewTopic
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint, PartitionState, ReplicaAssignment
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.zookeeper.server.embedded import EmbeddedClient
from tests.runtimes import runtime_with
from tests.unit.cluster.in_memory import InMemoryZooKeeper


class World:
    """A cluster of registrations only, and a producer that looks at it."""

    def __init__(self, store: ClusterStore, session: EmbeddedClient) -> None:
        self.store = store
        self.session = session
        self.asked_for: list[tuple[int, set[str]]] = []
        self.discovery = ZooKeeperDiscovery(session, runtime_with(clock=store._clock), self._create)

    @classmethod
    async def of(cls, *broker_ids: int) -> "World":
        zookeeper = InMemoryZooKeeper()
        store = await zookeeper.cluster()
        for broker_id in broker_ids:
            endpoint = ListenerEndpoint("PLAINTEXT", "host", 9000 + broker_id)
            await store.register_broker(BrokerInfo(broker_id, (endpoint,)))
        return cls(store, await zookeeper.connect())

    async def create(self, topic: str, *leaders: int) -> None:
        assignment = {number: ReplicaAssignment((0, 1)) for number in range(len(leaders))}
        await self.store.create_topics([NewTopic(topic, assignment, {}, uuid.UUID(int=5))])
        await self.store.zookeeper.create(paths.topic_partitions(topic))
        for number, leader in enumerate(leaders):
            at = TopicPartition(topic, number)
            await self.store.zookeeper.create(paths.partition(at))
            await self.store.zookeeper.create(paths.partition_state(at), state(leader))

    def stale(self) -> bool:
        return self.discovery.is_stale

    async def elect(self, topic: str, number: int, leader: int, epoch: int) -> None:
        await self.store.zookeeper.set(
            paths.partition_state(TopicPartition(topic, number)), state(leader, epoch)
        )

    def leaders(self, topic: str) -> dict[int, int]:
        partitions = self.discovery.snapshot.topics[topic].partitions
        return {number: each.leader_id for number, each in partitions.items()}

    async def _create(self, broker: BrokerEndpoint, topics: Collection[str]) -> None:
        self.asked_for.append((broker.id, set(topics)))
        if len(self.asked_for) == 1:
            raise BrokerConnectionError("away")
        for topic in topics:
            await self.create(topic, broker.id)


def state(leader: int, epoch: int = 0) -> bytes:
    return schema.encode_partition_state(PartitionState(leader, epoch, (0, 1), 1))


async def test_copy_has_brokers_and_leaders() -> None:
    world = await World.of(0, 1)
    await world.create("t", 1, 0)
    assert world.stale()
    await world.discovery.refresh(["t"])
    assert not world.stale()
    assert {0: 1, 1: 0} == world.leaders("t")
    assert BrokerEndpoint(1, "host", 9001) == world.discovery.snapshot.leader(TopicPartition("t", 0))


async def test_changes_mark_the_copy_as_stale() -> None:
    """A leader, an added partition, a broker that comes or goes: each is read before the next message."""
    world = await World.of(0, 1)
    await world.create("t", 1, 0)
    await world.discovery.refresh(["t"])
    await world.elect("t", 0, 0, epoch=1)
    assert world.stale()
    await world.discovery.refresh([])
    assert {0: 0, 1: 0} == world.leaders("t")
    await world.store.unregister_broker(1)
    assert world.stale()
    await world.discovery.refresh([])
    assert {0} == set(world.discovery.snapshot.brokers)
    assert not world.stale()
    assignment = (await world.store.topic_assignments(["t"]))["t"]
    await world.store.set_assignment(assignment)
    assert world.stale()


async def test_partition_without_a_state_stays_stale() -> None:
    """Nothing can watch its znode."""
    world = await World.of(0)
    await world.store.create_topics([NewTopic("t", {0: ReplicaAssignment((0,))}, {}, uuid.UUID(int=5))])
    await world.discovery.refresh(["t"])
    assert {0: -1} == world.leaders("t")
    assert world.stale()


async def test_new_topic_is_asked_for_at_a_broker_that_answers() -> None:
    world = await World.of(0, 1)
    await world.discovery.refresh(["t"])
    assert [(0, {"t"}), (1, {"t"})] == world.asked_for
    assert world.stale()
    await world.discovery.refresh(["t"])
    assert {0: 1} == world.leaders("t")


async def test_what_can_be_no_topic_does_not_spoil_the_others() -> None:
    """ZooKeeper refuses the path, and a topic that was asked for once is read each time."""
    world = await World.of(0)
    await world.create("t", 0)
    await world.discovery.refresh(["", "..", "a\0b"])
    await world.discovery.refresh(["t"])
    assert {0: 0} == world.leaders("t")
    assert [] == world.asked_for


async def test_expired_session_leaves_the_copy_but_stale() -> None:
    world = await World.of(0)
    await world.create("t", 0)
    await world.discovery.refresh(["t"])
    await world.session.expire()
    assert world.stale()
    with pytest.raises(BrokerConnectionError, match="ZooKeeper cannot be reached now"):
        await world.discovery.refresh(["t"])
    assert {0: 0} == world.leaders("t")
    await world.session.reconnect()
    await world.discovery.refresh([])
    await world.elect("t", 0, 1, epoch=1)
    assert world.stale(), "the new session watches"


async def test_brokers_that_are_all_gone_leave_the_copy() -> None:
    world = await World.of(0)
    await world.create("t", 0)
    await world.discovery.refresh(["t"])
    await world.store.unregister_broker(0)
    await world.discovery.refresh([])
    assert {0: 0} == world.leaders("t")
    await world.discovery.close()

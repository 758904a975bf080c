"""Consumers of one group on a coordination server in memory: who owns what when others come and go."""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

import pytest

from kalda.clients.legacy.consumer.consumer_config import ConsumerConfig
from kalda.clients.legacy.consumer.rebalancer import ConsumerRebalanceFailedError, Rebalancer
from kalda.clients.legacy.consumer.topic_count import ThreadId, TopicCount, Whitelist, by_filter
from kalda.cluster import paths
from kalda.cluster.cluster_store import ClusterStore, NewTopic
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint, ReplicaAssignment
from kalda.common.types import TopicPartition
from kalda.zookeeper.errors import ConnectionLossError
from kalda.zookeeper.server.embedded import EmbeddedClient
from tests.unit.cluster.in_memory import InMemoryZooKeeper

OWNERS = f"{paths.CONSUMERS}/g/owners/t"


class Streams:
    """Stands for the streams: writes down what a rebalance does."""

    def __init__(self) -> None:
        self.is_reading = False
        self.log: list[str] = []
        self.addresses: set[int] = set()
        """The ports of the brokers that the fetcher began with."""

    def knows(self, brokers: Mapping[int, BrokerInfo]) -> bool:
        return not self.addresses or any(
            each.endpoints[0].port in self.addresses for each in brokers.values()
        )

    async def stop(self) -> None:
        self.is_reading = False
        self.log.append("stop")

    def abandon(self) -> None:
        self.is_reading = False
        self.log.append("abandon")

    async def begin(
        self, owned: Mapping[TopicPartition, ThreadId], brokers: Mapping[int, BrokerInfo]
    ) -> None:
        self.is_reading = True
        self.addresses = {each.endpoints[0].port for each in brokers.values()}
        self.log.append(f"begin {sorted(each.partition for each in owned)}")


class Member:
    def __init__(
        self,
        name: str,
        session: EmbeddedClient,
        wanted: TopicCount,
        retries: int = 4,
        strategy: str = "range",
    ) -> None:
        self.session = session
        self.streams = Streams()
        config = ConsumerConfig(
            {
                "group.id": "g",
                "zookeeper.connect": "unused",
                "rebalance.backoff.ms": 0,
                "rebalance.max.retries": retries,
                "partition.assignment.strategy": strategy,
            }
        )
        self.rebalancer = Rebalancer(config, name, wanted, session, self.streams, InMemoryZooKeeper().clock)

    @property
    def owned(self) -> list[int]:
        return sorted(each.partition for each in self.rebalancer.owned)


class Group:
    """A broker, topics, and members that come and go."""

    def __init__(self, zookeeper: InMemoryZooKeeper, store: ClusterStore) -> None:
        self.zookeeper = zookeeper
        self.store = store

    @classmethod
    async def with_topic(cls, partitions: int) -> "Group":
        zookeeper = InMemoryZooKeeper()
        group = cls(zookeeper, await zookeeper.cluster())
        await group.store.register_broker(BrokerInfo(0, (ListenerEndpoint("PLAINTEXT", "h", 1),)))
        if partitions:
            await group.create("t", partitions)
        return group

    async def create(self, topic: str, partitions: int, brokers: int = 1) -> None:
        replicas = {number: ReplicaAssignment((number % brokers,)) for number in range(partitions)}
        await self.store.create_topics([NewTopic(topic, replicas, {}, uuid.uuid4())])

    async def joined(
        self, name: str, wanted: TopicCount | None = None, retries: int = 4, strategy: str = "range"
    ) -> Member:
        wanted = wanted or TopicCount({"t": 1})
        member = Member(name, await self.zookeeper.connect(), wanted, retries, strategy)
        await member.rebalancer.start()
        return member

    async def owners(self) -> dict[str, str]:
        session = self.store.zookeeper
        names = await session.children(OWNERS)
        return {name: (await session.get(f"{OWNERS}/{name}"))[0].decode() for name in names}


async def settled(*members: Member, owned: list[list[int]]) -> None:
    """Let the watches do their work."""
    for _ in range(2_000):
        if [each.owned for each in members] == owned and all(each.streams.is_reading for each in members):
            return
        await asyncio.sleep(0)
    raise AssertionError(f"owned: {[each.owned for each in members]}, expected {owned}")


async def test_first_member_owns_everything_and_its_registration_says_what_it_wants() -> None:
    group = await Group.with_topic(3)

    member = await group.joined("a")

    assert [0, 1, 2] == member.owned
    assert {"0": "a-0", "1": "a-0", "2": "a-0"} == await group.owners()
    data, stat = await group.store.zookeeper.get(f"{paths.CONSUMERS}/g/ids/a")
    assert TopicCount({"t": 1}) == TopicCount.decode(data)
    assert member.session.session_id == stat.ephemeral_owner
    assert ["stop", "begin [0, 1, 2]"] == member.streams.log


async def test_partitions_are_divided_when_a_member_comes_and_goes() -> None:
    group = await Group.with_topic(5)
    first = await group.joined("a")
    second = await group.joined("b", retries=100)
    await settled(first, second, owned=[[0, 1, 2], [3, 4]])
    assert {"0": "a-0", "1": "a-0", "2": "a-0", "3": "b-0", "4": "b-0"} == await group.owners()

    await first.rebalancer.stop()
    await first.rebalancer.leave()

    await settled(second, owned=[[0, 1, 2, 3, 4]])


async def test_a_member_whose_partitions_stay_goes_on_reading() -> None:
    group = await Group.with_topic(1)
    first = await group.joined("a")
    before = list(first.streams.log)

    second = await group.joined("b")
    await settled(first, second, owned=[[0], []])

    assert before == first.streams.log


async def test_nobody_reads_a_partition_before_its_owner_has_released_it() -> None:
    """The claim fails until then, and after all retries the new member says so."""
    group = await Group.with_topic(2)
    other = await group.zookeeper.connect()
    for path in (f"{paths.CONSUMERS}/g", f"{paths.CONSUMERS}/g/owners", OWNERS):
        await other.create(path)
    await other.create(f"{OWNERS}/1", b"stranger-0", ephemeral=True)

    member = Member("a", await group.zookeeper.connect(), TopicCount({"t": 1}), 2)
    with pytest.raises(ConsumerRebalanceFailedError, match=r"after 3 attempts.*have other owners yet.*t-1"):
        await member.rebalancer.start()

    assert {"1": "stranger-0"} == await group.owners()
    assert not member.streams.is_reading


async def test_new_partitions_and_topics_are_shared_too() -> None:
    group = await Group.with_topic(1)
    wanted = by_filter(Whitelist("t.*"), 1)
    member = await group.joined("a", wanted)
    assert {TopicPartition("t", 0)} == member.rebalancer.owned.keys()

    await group.create("t2", 2)
    await settled(member, owned=[[0, 0, 1]])

    assert {("t", 0), ("t2", 0), ("t2", 1)} == {tuple(each) for each in member.rebalancer.owned}


async def test_a_topic_that_is_created_later_is_read() -> None:
    group = await Group.with_topic(0)
    member = await group.joined("a")
    assert [] == member.owned

    await group.create("t", 2)

    await settled(member, owned=[[0, 1]])


async def test_without_brokers_nothing_is_owned_until_one_comes() -> None:
    group = await Group.with_topic(1)
    await group.store.unregister_broker(0)
    member = await group.joined("a")
    assert ([], False) == (member.owned, member.streams.is_reading)

    await group.store.register_broker(BrokerInfo(0, (ListenerEndpoint("PLAINTEXT", "h", 1),)))

    await settled(member, owned=[[0]])


async def test_reading_begins_again_when_all_known_brokers_are_gone() -> None:
    """The fetcher may not have heard of those that are there now."""
    group = await Group.with_topic(1)
    member = await group.joined("a")

    await group.store.register_broker(BrokerInfo(1, (ListenerEndpoint("PLAINTEXT", "h", 2),)))
    await settled(member, owned=[[0]])
    assert {1} == member.streams.addresses
    await group.store.unregister_broker(0)
    for _ in range(100):
        await asyncio.sleep(0)

    assert {2} == member.streams.addresses
    await settled(member, owned=[[0]])


async def test_by_broker_sorts_by_what_all_members_are_notified_of() -> None:
    """Leaders change without a watch: members that read them at different times would part for ever."""
    group = await Group.with_topic(0)
    await group.create("t", 4, brokers=2)
    first = await group.joined("a", strategy="by-broker")
    second = await group.joined("b", retries=100, strategy="by-broker")

    await settled(first, second, owned=[[0, 2], [1, 3]])


async def test_a_lost_registration_is_written_again() -> None:
    group = await Group.with_topic(1)
    member = await group.joined("a")

    await group.store.zookeeper.delete(f"{paths.CONSUMERS}/g/ids/a")
    await settled(member, owned=[[0]])
    for _ in range(100):
        await asyncio.sleep(0)

    assert ["a"] == await group.store.zookeeper.children(f"{paths.CONSUMERS}/g/ids")


async def test_a_consumer_whose_name_is_taken_leaves_the_other_alone() -> None:
    group = await Group.with_topic(1)
    first = await group.joined("a")

    with pytest.raises(
        ConsumerRebalanceFailedError, match=r"another consumer is registered as a\b.*`consumer\.id`"
    ):
        await group.joined("a", retries=1)

    _, stat = await group.store.zookeeper.get(f"{paths.CONSUMERS}/g/ids/a")
    assert first.session.session_id == stat.ephemeral_owner
    assert ["stop", "begin [0]"] == first.streams.log


async def test_a_name_that_a_dead_consumer_leaves_is_waited_for() -> None:
    """A program with a fixed `consumer.id` that starts again finds the session of its last run."""
    group = await Group.with_topic(1)
    dead = await group.joined("a")
    joining = asyncio.create_task(group.joined("a", retries=1_000))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not joining.done()

    await dead.rebalancer.stop()
    await dead.session.expire()

    assert [0] == (await joining).owned


async def test_the_end_of_the_session_ends_reading_without_a_commit_and_the_next_one_joins_again() -> None:
    group = await Group.with_topic(2)
    member = await group.joined("a")
    del member.streams.log[:]

    await member.session.expire()
    assert ["abandon"] == member.streams.log
    assert ([], False) == (member.owned, member.streams.is_reading)
    await member.session.reconnect()

    await settled(member, owned=[[0, 1]])
    _, stat = await group.store.zookeeper.get(f"{paths.CONSUMERS}/g/ids/a")
    assert member.session.session_id == stat.ephemeral_owner


async def test_session_that_ends_while_reading_begins_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The partitions may be another's already, whose offsets a commit would set back."""
    group = await Group.with_topic(1)
    session = await group.zookeeper.connect()
    member = Member("a", session, TopicCount({"t": 1}), retries=0)
    begin = member.streams.begin

    async def expire_and_begin(*arguments: Any) -> None:
        await session.expire()
        await begin(*arguments)

    monkeypatch.setattr(member.streams, "begin", expire_and_begin)
    with pytest.raises(ConsumerRebalanceFailedError, match="the session ended"):
        await member.rebalancer.start()

    assert not member.streams.is_reading
    assert "abandon" == member.streams.log[-1]


async def test_claims_of_an_attempt_that_failed_are_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a partition that the next attempt gives to another would have no reader."""
    group = await Group.with_topic(2)
    session = await group.zookeeper.connect()
    member = Member("b", session, TopicCount({"t": 1}), retries=1)
    create = session.create
    claimed: list[str] = []

    async def fail_once(path: str, *arguments: Any, **named: Any) -> str:
        if path.startswith(OWNERS):
            claimed.append(path)
            if len(claimed) == 2:
                # Meanwhile another member has come, to which the first partition belongs.
                await create(f"{paths.CONSUMERS}/g/ids/a", TopicCount({"t": 1}).encode(1), ephemeral=True)
                raise ConnectionLossError("the answer is lost")
        return await create(path, *arguments, **named)

    monkeypatch.setattr(session, "create", fail_once)
    await member.rebalancer.start()

    assert [1] == member.owned
    assert {"1": "b-0"} == await group.owners()

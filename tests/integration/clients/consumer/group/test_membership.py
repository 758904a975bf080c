"""What a member does in unusual moments: others are slow, listeners fail, subscriptions change."""

import asyncio
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kalda import AsyncConsumer, Consumer, ConsumerRebalanceListener, TopicPartition
from kalda.clients.consumer.assignors.partition_assignor import (
    Assignment,
    GroupTopics,
    PartitionAssignor,
    Subscription,
)
from kalda.clients.consumer.assignors.range_assignor import RangeAssignor
from kalda.clients.consumer.consumer_config import GroupProtocol
from kalda.clients.consumer.group.errors import RebalanceListenerError
from kalda.clients.consumer.subscription_state import SubscriptionPattern
from kalda.clients.errors import ClientError
from kalda.testing import Cluster
from tests.integration.clients.consumer.records import create_topic, produce
from tests.integration.groups.conftest import SETTINGS, fill

MakeTopic = Callable[..., str]
PROTOCOLS = ["classic", "consumer"]
WAIT_SECONDS = 30.0


class Listener(ConsumerRebalanceListener):
    """Notes the callbacks."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        self.events.append(("revoked", sorted(each.partition for each in partitions)))
        return None

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        self.events.append(("assigned", sorted(each.partition for each in partitions)))
        return None

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        self.events.append(("lost", sorted(each.partition for each in partitions)))
        return None


def new_consumer(
    bootstrap: str, group: str, protocol: GroupProtocol = "classic", **options: Any
) -> AsyncConsumer:
    if protocol == "classic":
        options = {"session_timeout_ms": 30_000, "heartbeat_interval_ms": 200, **options}
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
    return AsyncConsumer(bootstrap_servers=bootstrap, group_id=group, group_protocol=protocol, **options)


async def poll_until(consumer: AsyncConsumer, condition: Callable[[], Any], what: str) -> int:
    """Poll until the condition holds; return how many records came."""
    count = 0
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                found = condition()
                if await found if asyncio.iscoroutine(found) else found:
                    return count
                count += len(await consumer.poll(0.05))
    except TimeoutError:
        raise AssertionError(f"{what}: not so after {WAIT_SECONDS} s") from None


def has_partitions(consumer: AsyncConsumer, count: int) -> Callable[[], Any]:
    async def check() -> bool:
        return len(await consumer.assignment()) == count

    return check


@pytest.fixture
def group() -> str:
    return f"group-{uuid.uuid4().hex[:10]}"


async def test_a_cooperative_member_goes_on_while_the_group_waits_for_a_slow_one(
    one_broker: str, make_topic: MakeTopic, group: str
) -> None:
    """The rebalance lasts as long as the slow member does not poll; others keep what they have (KIP-429)."""
    topic = make_topic(one_broker, values=0)
    options: dict[str, Any] = {"partition_assignment_strategy": "cooperative-sticky"}
    async with (
        new_consumer(one_broker, group, **options) as first,
        new_consumer(one_broker, group, **options) as slow,
        new_consumer(one_broker, group, **options) as third,
    ):
        await first.subscribe([topic])
        await poll_until(first, has_partitions(first, 6), "the first member has everything")
        await slow.subscribe([topic])
        both = asyncio.create_task(poll_until(slow, has_partitions(slow, 3), "the slow member has its half"))
        await poll_until(first, both.done, "two members share the topic")
        await third.subscribe([topic])
        joining = asyncio.create_task(poll_until(third, has_partitions(third, 2), "the third has its part"))
        # The slow member does not poll now, so the group waits for it.
        await poll_for(first, 1.0)
        fill(one_broker, topic, range(300))
        kept = {each.partition for each in await first.assignment()}
        assert 3 == len(kept)
        # A member of a cooperative group does not stop while it waits for the others.
        await poll_records(first, 1)
        assert not joining.done()
        done = asyncio.create_task(poll_until(slow, joining.done, "the slow member polls again"))
        await poll_until(first, lambda: joining.done() and done.done(), "three members share the topic")


async def poll_records(consumer: AsyncConsumer, count: int) -> None:
    """Poll until so many records came."""
    found = 0
    async with asyncio.timeout(WAIT_SECONDS):
        while found < count:
            found += len(await consumer.poll(1.0))


async def poll_for(consumer: AsyncConsumer, seconds: float) -> int:
    """Poll for some time; return how many records came."""
    loop = asyncio.get_running_loop()
    end, count = loop.time() + seconds, 0
    while loop.time() < end:
        count += len(await consumer.poll(0.05))
    return count


async def test_a_member_that_waits_to_join_closes_at_once(
    one_broker: str, make_topic: MakeTopic, group: str
) -> None:
    """Its JoinGroup waits for a slow member; the coordinator must not wait for it in turn afterwards."""
    topic = make_topic(one_broker, values=0)
    async with new_consumer(one_broker, group) as slow:
        await slow.subscribe([topic])
        await poll_until(slow, has_partitions(slow, 6), "the slow member has everything")
        joining = new_consumer(one_broker, group)
        await joining.start()
        await joining.subscribe([topic])
        await poll_for(joining, 1.0)
        assert not await joining.assignment()
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await joining.close()
        assert loop.time() - begin < 20
        begin = loop.time()
        await poll_for(slow, 0.5)
        assert 6 == len(await slow.assignment())


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_close_is_bounded_without_a_coordinator(
    make_topic: MakeTopic, group: str, protocol: GroupProtocol
) -> None:
    """The brokers are gone: neither the last commit nor the leave can succeed."""
    with Cluster(brokers=1, settings=SETTINGS) as cluster:
        topic = make_topic(cluster.bootstrap)
        consumer = new_consumer(cluster.bootstrap, group, protocol, enable_auto_commit=True)
        await consumer.start()
        await consumer.subscribe([topic])
        if not await poll_until(consumer, has_partitions(consumer, 6), "everything is assigned"):
            await poll_records(consumer, 1)
        cluster.kill(cluster.running[0])
        loop = asyncio.get_running_loop()
        begin = loop.time()
        await consumer.close(timeout_s=1)
        assert loop.time() - begin < 20


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_what_a_listener_raises_comes_out_of_poll(
    one_broker: str, make_topic: MakeTopic, group: str, protocol: GroupProtocol
) -> None:
    """The rebalance goes on nevertheless: a group must not stand still because of one listener."""
    topic = make_topic(one_broker)

    class Failing(Listener):
        async def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            raise ZeroDivisionError("oops")

    async with new_consumer(one_broker, group, protocol) as consumer:
        await consumer.subscribe([topic], Failing())
        with pytest.raises(RebalanceListenerError, match=r"on_partitions_assigned: ZeroDivisionError: oops"):
            await poll_until(consumer, lambda: False, "the error")
        if not await poll_until(consumer, has_partitions(consumer, 6), "the partitions are assigned"):
            await poll_records(consumer, 1)


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_unsubscribing_leaves_the_group_at_once(
    one_broker: str, make_topic: MakeTopic, group: str, protocol: GroupProtocol
) -> None:
    """Others need not wait for a session to end, and the consumer can subscribe again."""
    topic, second_topic = make_topic(one_broker, values=0), make_topic(one_broker, partitions=2, values=0)
    listener = Listener()
    async with (
        new_consumer(one_broker, group, protocol) as first,
        new_consumer(one_broker, group, protocol) as other,
    ):
        await first.subscribe([topic], listener)
        await poll_until(first, has_partitions(first, 6), "the first member has everything")
        await first.unsubscribe()
        assert ("revoked", list(range(6))) == listener.events[-1]
        await other.subscribe([topic])
        await poll_until(other, has_partitions(other, 6), "the other member has everything")
        await first.subscribe([second_topic], listener)
        both = asyncio.create_task(poll_until(first, has_partitions(first, 2), "another topic is assigned"))
        await poll_until(other, both.done, "the group has two topics")


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_new_partitions_are_assigned(
    one_broker: str, make_topic: MakeTopic, group: str, protocol: GroupProtocol
) -> None:
    """The classic leader sees them in its metadata, the broker of the consumer protocol in its own."""
    topic = make_topic(one_broker, partitions=2, values=0)
    async with new_consumer(one_broker, group, protocol, metadata_max_age_ms=300) as consumer:
        await consumer.subscribe([topic])
        await poll_until(consumer, has_partitions(consumer, 2), "both partitions")
        admin = AdminClient({"bootstrap.servers": one_broker})
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result(WAIT_SECONDS)
        await poll_until(consumer, has_partitions(consumer, 5), "all five partitions")


async def test_the_broker_evaluates_a_pattern(one_broker: str, group: str) -> None:
    """The client does not know the topics' names before they are assigned (RE2)."""
    stem = f"re2-{uuid.uuid4().hex[:8]}"
    for name in ("a", "b"):
        create_topic(one_broker, f"{stem}-{name}", partitions=2)
    create_topic(one_broker, f"other-{stem}")
    async with new_consumer(one_broker, group, "consumer") as consumer:
        await consumer.subscribe(SubscriptionPattern(f"{stem}-.*"))
        await poll_until(consumer, has_partitions(consumer, 4), "two topics match")
        produce(one_broker, f"{stem}-a", [b"1", b"2"], partitions=2)
        await poll_records(consumer, 2)
        await consumer.unsubscribe()
        await consumer.subscribe([f"other-{stem}"])
        await poll_until(consumer, has_partitions(consumer, 1), "a name instead of the pattern")


async def test_a_rebalance_can_be_enforced(one_broker: str, make_topic: MakeTopic, group: str) -> None:
    """An assignor may depend on something outside of Kafka (KIP-568)."""
    topic = make_topic(one_broker, values=0)
    listener = Listener()
    async with new_consumer(one_broker, group) as consumer:
        await consumer.subscribe([topic], listener)
        await poll_until(consumer, has_partitions(consumer, 6), "everything is assigned")
        before = await consumer.group_metadata()
        await consumer.enforce_rebalance("a test asked for it")
        await poll_until(consumer, lambda: len(listener.events) >= 3, "the rebalance is over")
        after = await consumer.group_metadata()
        assert ["assigned", "revoked", "assigned"] == [name for name, _ in listener.events]
        assert before.generation_id < after.generation_id
        assert before.member_id == after.member_id


async def test_an_assignor_of_the_application_assigns(
    one_broker: str, make_topic: MakeTopic, group: str
) -> None:
    """It gets the user data of all members and knows its own assignment."""
    topic = make_topic(one_broker, values=0)
    seen: list[Any] = []

    class Greedy(PartitionAssignor):
        """Gives everything to the member with the highest weight."""

        name = "greedy"

        def __init__(self, weight: int) -> None:
            self.weight = weight

        def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
            return bytes([self.weight])

        def assign(
            self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]
        ) -> dict[str, Assignment]:
            everything = tuple(
                TopicPartition(topic, n) for topic in topics for n in range(len(topics[topic]))
            )
            heaviest = max(subscriptions, key=lambda each: subscriptions[each].user_data or b"")
            return {each: Assignment(everything if each == heaviest else (), b"!") for each in subscriptions}

        def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
            seen.append((self.weight, len(assignment.partitions), assignment.user_data))

    async with (
        new_consumer(one_broker, group, partition_assignment_strategy=Greedy(1)) as light,
        new_consumer(one_broker, group, partition_assignment_strategy=Greedy(2)) as heavy,
    ):
        await light.subscribe([topic])
        await poll_until(light, has_partitions(light, 6), "alone, the light member has everything")
        await heavy.subscribe([topic])
        took = asyncio.create_task(
            poll_until(heavy, has_partitions(heavy, 6), "the heavy one has everything")
        )
        await poll_until(light, took.done, "the heavy member took over")
        assert {(1, 6, b"!"), (1, 0, b"!"), (2, 6, b"!")} == set(seen)


async def test_a_fault_of_an_application_s_assignor_comes_out_of_poll(
    one_broker: str, make_topic: MakeTopic, group: str
) -> None:
    """Else poll would wait for ever for the partitions of a member that seems to be fine."""
    topic = make_topic(one_broker, values=0)
    faults = [KeyError("first"), KeyError("second")]

    class Faulty(RangeAssignor):
        name = "faulty"

        def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
            if faults:
                raise faults.pop(0)

    async with new_consumer(one_broker, group, partition_assignment_strategy=Faulty()) as consumer:
        await consumer.subscribe([topic])
        for name in ("first", "second"):
            with pytest.raises(ClientError, match=name):
                await poll_until(consumer, lambda: False, "poll raises the fault")
        await poll_until(consumer, has_partitions(consumer, 6), "the member has its partitions")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_deleted_topic_does_not_stop_the_others(
    one_broker: str, protocol: GroupProtocol, group: str
) -> None:
    """Auto commit names its offsets, which can never be committed; KAFKA-20959."""
    prefix = f"deleted-{uuid.uuid4().hex[:10]}"
    kept, deleted = f"{prefix}-a", f"{prefix}-b"
    for topic in (kept, deleted):
        create_topic(one_broker, topic)
        produce(one_broker, topic, [b"before"])
    pattern = SubscriptionPattern(f"{prefix}.*") if protocol == "consumer" else re.compile(f"{prefix}.*")
    listener = Committing()
    with Consumer(
        bootstrap_servers=one_broker,
        group_id=group,
        group_protocol=protocol,
        auto_offset_reset="earliest",
        metadata_max_age_ms=200,
        allow_auto_create_topics=False,
        default_api_timeout_ms=3_600_000,
        max_poll_interval_ms=3_600_000,
    ) as consumer:
        listener.consumer = consumer
        consumer.subscribe(pattern, listener)
        seen: list[str] = []
        read_until(consumer, seen, lambda: {kept, deleted} <= set(seen))
        admin = AdminClient({"bootstrap.servers": one_broker})
        admin.delete_topics([deleted])[deleted].result(30)
        gone = TopicPartition(deleted, 0)
        read_until(consumer, seen, lambda: gone not in consumer.assignment())
        seen.clear()
        produce(one_broker, kept, [b"after"])
        read_until(consumer, seen, lambda: kept in seen)
    assert listener.results[-1] is None, "the listener commits while the consumer closes"


class Committing(ConsumerRebalanceListener):
    """Commits when partitions are revoked; notes the errors."""

    consumer: Consumer

    def __init__(self) -> None:
        self.results: list[ClientError | None] = []

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Awaitable[None] | None:
        try:
            self.consumer.commit()
        except ClientError as error:
            self.results.append(error)
        else:
            self.results.append(None)
        return None


def read_until(consumer: Consumer, seen: list[str], condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not so after {WAIT_SECONDS} s; seen: {seen}"
        seen += [record.topic for record in consumer.poll(0.1)]

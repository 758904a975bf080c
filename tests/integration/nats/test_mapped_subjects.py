"""Subjects that are topics: records of Kafka's clients reach NATS's, and back, over three brokers."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from nats.aio.msg import Msg
from nats.js.errors import NotFoundError

from kalda import Admin, NewTopic
from tests.integration.nats.nats_cluster import NatsCluster, subscribed_all

RULES = "orders.*:orders:$1,sensors.*.>:sensors-$1:$2,audit:audit,lost:lost"
TOPICS = ("orders", "sensors-lab", "audit")


@pytest.fixture
def cluster() -> Iterator[NatsCluster]:
    settings = {"kalda.nats.subjects": RULES, "kalda.nats.max.payload": "100000"}
    with NatsCluster(3, settings=settings) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(name, 3, 3) for name in TOPICS])
        cluster.wait_for_topics(*TOPICS)
        yield cluster


def produced(cluster: NatsCluster, *records: dict[str, Any]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
    for each in records:
        producer.produce(**each)
    assert 0 == producer.flush(60)


def consumed(cluster: NatsCluster, topic: str, count: int) -> list[tuple[object, ...]]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[tuple[object, ...]] = []
    try:
        for _ in range(120):
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                found.append((message.key(), message.value(), message.headers()))
            if len(found) == count:
                break
    finally:
        consumer.close()
    return found


async def got(messages: "asyncio.Queue[Msg]", count: int) -> list[Msg]:
    async with asyncio.timeout(60):
        return [await messages.get() for _ in range(count)]


async def test_records_reach_subscribers_of_every_broker(cluster: NatsCluster) -> None:
    """Partitions are led by all brokers, so that most of them lead none for a given subscriber."""
    clients, queues = [], []
    for broker_id in range(3):
        client = await cluster.connect(broker_id)
        messages: asyncio.Queue[Msg] = asyncio.Queue()
        await client.subscribe("orders.>", cb=messages.put)
        await subscribed_all(client)
        clients.append(client)
        queues.append(messages)
    keys = [f"k{number}" for number in range(30)]
    records = [
        {
            "topic": "orders",
            "key": each,
            "value": each.upper(),
            "headers": [("Trace", b"7"), ("raw", b"\xff")],
        }
        for each in keys
    ]
    await asyncio.to_thread(produced, cluster, *records)
    for messages in queues:
        found = await got(messages, 30)
        assert sorted(f"orders.{each}" for each in keys) == sorted(each.subject for each in found)
        first = next(each for each in found if each.subject == "orders.k0")
        assert b"K0" == first.data
        assert first.headers is not None
        assert ("k0", "7") == (first.headers["Kafka-Key"], first.headers["Trace"])
        assert "cmF3:/w==" == first.headers["Kafka-Header-Base64"]
        assert messages.empty()
    for client in clients:
        await client.close()


async def test_messages_become_records(cluster: NatsCluster) -> None:
    client = await cluster.connect(0)
    other = await cluster.connect(1)
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    await other.subscribe("sensors.>", cb=messages.put)
    await subscribed_all(other)
    answer = await client.request("sensors.lab.a.b", b"1.5", timeout=60, headers={"Unit": "mm"})
    stored = json.loads(answer.data)
    assert "sensors-lab" == stored["stream"]
    assert stored["offset"] + 1 == stored["seq"]
    await client.publish("sensors.lab.a.b", b"2.5")
    [first, second] = await got(messages, 2)
    assert ("sensors.lab.a.b", b"1.5") == (first.subject, first.data)
    assert ("sensors.lab.a.b", b"2.5") == (second.subject, second.data)
    assert first.headers is not None
    assert ("a.b", "mm") == (first.headers["Kafka-Key"], first.headers["Unit"])
    assert [(b"a.b", b"1.5", [("Unit", b"mm")]), (b"a.b", b"2.5", None)] == await asyncio.to_thread(
        consumed, cluster, "sensors-lab", 2
    )
    assert messages.empty()
    # JetStream's publish takes the answers.
    found = await client.jetstream().publish("audit", b"x", timeout=60, headers={"Kafka-Key": "who"})
    assert "audit" == found.stream
    assert found.seq >= 1
    with pytest.raises(NotFoundError, match="Topic lost does not exist"):
        await client.jetstream().publish("lost", b"x", timeout=60)
    await client.close()
    await other.close()


async def test_what_fits_into_no_message_is_skipped_and_topics_may_come_later(cluster: NatsCluster) -> None:
    client = await cluster.connect(0)
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    await client.subscribe("orders.*", cb=messages.put)
    await subscribed_all(client)
    await asyncio.to_thread(
        produced,
        cluster,
        {"topic": "orders", "key": "a b", "value": "no subject", "partition": 0},
        {"topic": "orders", "key": None, "value": "no key", "partition": 0},
        {"topic": "orders", "key": "large", "value": "x" * 200_000, "partition": 0},
        {"topic": "orders", "key": "null", "value": None, "partition": 0},
    )
    [message] = await got(messages, 1)
    assert ("orders.null", b"") == (message.subject, message.data)
    assert message.headers is not None
    assert "true" == message.headers["Kafka-Tombstone"]
    # A topic that comes later is read from its beginning.
    await client.subscribe("sensors.yard.>", cb=messages.put)
    await subscribed_all(client)

    def create() -> None:
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic("sensors-yard", 1, 3)])
        produced(cluster, {"topic": "sensors-yard", "key": "a", "value": "1"})

    await asyncio.to_thread(create)
    [message] = await got(messages, 1)
    assert ("sensors.yard.a", b"1") == (message.subject, message.data)
    await client.close()


async def test_reading_goes_on_after_a_leader_was_killed(cluster: NatsCluster) -> None:
    client = await cluster.connect(0)
    messages: asyncio.Queue[Msg] = asyncio.Queue()
    await client.subscribe("audit", cb=messages.put)
    await subscribed_all(client)
    cluster.kill(2, expire_session=True)
    records = [{"topic": "audit", "key": str(each), "value": str(each)} for each in range(30)]
    await asyncio.to_thread(produced, cluster, *records)
    assert sorted(str(each).encode() for each in range(30)) == sorted(
        each.data for each in await got(messages, 30)
    )
    for each in range(10):
        await client.request("audit", b"again", timeout=60, headers={"Kafka-Key": f"k{each}"})
    assert [b"again"] * 10 == [each.data for each in await got(messages, 10)]
    await client.close()

"""Unmodified clients use the same names in two namespaces at the same time and never notice each other."""

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, Literal

import aiokafka
import aiokafka.admin
import confluent_kafka
import kafka
import kafka.admin
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin import NewTopic as ConfluentTopic

from kalda import Admin, Consumer, NewTopic, Producer, TopicPartition
from kalda.testing import Cluster, Namespace

COUNT = 20
"""Records of a topic."""
SECONDS = 60.0


@pytest.fixture(params=[1, 3])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    with Cluster(brokers=request.param) as running:
        yield running


@pytest.fixture
def spaces(cluster: Cluster) -> Iterator[tuple[Namespace, Namespace]]:
    with cluster.namespace() as one, cluster.namespace() as other:
        yield one, other
    cluster.wait_namespaces_removed()


Seen = dict[str, Any]
"""What a client has seen in its namespace: ``values``, and the names that it listed."""


def in_both(spaces: tuple[Namespace, Namespace], story: Callable[[str, bytes], Seen]) -> None:
    """Run a story in two namespaces at once: each sees its own records, and the plain names alone."""
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(story, space.bootstrap, space.name.encode()) for space in spaces]
        found = [future.result(SECONDS) for future in futures]
    for space, seen in zip(spaces, found, strict=True):
        wanted = [b"%s-%d" % (space.name.encode(), number) for number in range(COUNT)]
        assert wanted == sorted(seen["values"], key=lambda value: int(value.partition(b"-")[2]))
        assert ["orders"] == sorted(seen["topics"])
        assert ["readers"] == sorted(seen["groups"])
        assert {"orders"} == {topic for topic, _, _ in seen["committed"]}
        # A client may or may not count the marker that ends the transaction in each partition.
        assert 0 <= sum(offset for _, _, offset in seen["committed"]) - COUNT <= 2


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_kalda(spaces: tuple[Namespace, Namespace], group_protocol: Literal["classic", "consumer"]) -> None:
    """Our own clients, with a transaction and both protocols of groups."""

    def story(bootstrap: str, mark: bytes) -> Seen:
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic("orders", partitions=2)]).raise_for_errors()
            with Producer(bootstrap_servers=bootstrap, transactional_id="writer") as producer:
                producer.init_transactions()
                with producer.transaction():
                    for number in range(COUNT):
                        producer.send("orders", value=b"%s-%d" % (mark, number), partition=number % 2)
                assert ["writer"] == list(admin.describe_transactions(["writer"]))
                assert ["writer"] == [each.transactional_id for each in admin.list_transactions().all()]
            values: list[bytes | None] = []
            with Consumer(
                "orders",
                bootstrap_servers=bootstrap,
                group_id="readers",
                group_protocol=group_protocol,
                auto_offset_reset="earliest",
                isolation_level="read_committed",
            ) as consumer:
                deadline = time.monotonic() + SECONDS
                while len(values) < COUNT and time.monotonic() < deadline:
                    values += [record.value for record in consumer.poll(timeout_s=0.5)]
                consumer.commit()
                group = admin.describe_consumer_groups(["readers"])["readers"]
                assert "readers" == group.group_id
                assigned = {each for member in group.members for each in member.assignment}
                assert {TopicPartition("orders", 0), TopicPartition("orders", 1)} == assigned
            offsets = admin.list_consumer_group_offsets(["readers"])["readers"]
            return {
                "values": values,
                "topics": list(admin.list_topics()),
                "groups": [each.group_id for each in admin.list_groups().all()],
                "committed": [(p.topic, p.partition, each.offset) for p, each in offsets.items() if each],
            }

    in_both(spaces, story)


@pytest.mark.parametrize("group_protocol", ["classic", "consumer"])
def test_confluent_kafka(spaces: tuple[Namespace, Namespace], group_protocol: str) -> None:
    """librdkafka, with a transaction and both protocols of groups."""

    def story(bootstrap: str, mark: bytes) -> Seen:
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([ConfluentTopic("orders", 2, 1)])["orders"].result(SECONDS)
        producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "writer"})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        for number in range(COUNT):
            producer.produce("orders", b"%s-%d" % (mark, number), partition=number % 2)
        producer.commit_transaction(SECONDS)
        config = {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "group.protocol": group_protocol,
        }
        consumer = confluent_kafka.Consumer(config)
        # An expression: the broker resolves it with the consumer protocol, the client with the other one.
        consumer.subscribe(["^ord.*"])
        values: list[bytes] = []
        deadline = time.monotonic() + SECONDS
        while len(values) < COUNT and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None:
                assert message.error() is None, message.error()
                assert "orders" == message.topic()
                values.append(message.value())
        consumer.commit(asynchronous=False)
        committed = consumer.committed(
            [confluent_kafka.TopicPartition("orders", number) for number in (0, 1)], timeout=SECONDS
        )
        groups = admin.list_consumer_groups().result(SECONDS)
        described = admin.describe_consumer_groups(["readers"])["readers"].result(SECONDS)
        assert "readers" == described.group_id
        topics = {each.topic for member in described.members for each in member.assignment.topic_partitions}
        assert {"orders"} == topics
        consumer.close()
        return {
            "values": values,
            "topics": list(admin.list_topics(timeout=SECONDS).topics),
            "groups": [each.group_id for each in groups.valid],
            "committed": [(each.topic, each.partition, each.offset) for each in committed],
        }

    in_both(spaces, story)


def test_kafka_python(spaces: tuple[Namespace, Namespace]) -> None:
    """kafka-python, with a transaction."""

    def story(bootstrap: str, mark: bytes) -> Seen:
        admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
        admin.create_topics([kafka.admin.NewTopic("orders", 2, 1)])
        producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id="writer")
        producer.init_transactions()
        producer.begin_transaction()
        for number in range(COUNT):
            producer.send("orders", b"%s-%d" % (mark, number), partition=number % 2)
        producer.commit_transaction()
        producer.close()
        consumer = kafka.KafkaConsumer(
            "orders",
            bootstrap_servers=bootstrap,
            group_id="readers",
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
            enable_auto_commit=False,
        )
        values: list[bytes] = []
        for record in consumer:
            assert "orders" == record.topic
            values.append(record.value)
            if len(values) == COUNT:
                break
        consumer.commit()
        topics = list(consumer.topics())
        consumer.close()
        offsets = admin.list_group_offsets("readers")["readers"]
        groups = [each["group_id"] for each in admin.list_groups()]
        admin.close()
        return {
            "values": values,
            "topics": topics,
            "groups": groups,
            "committed": [(p.topic, p.partition, each.offset) for p, each in offsets.items()],
        }

    in_both(spaces, story)


def test_aiokafka(spaces: tuple[Namespace, Namespace]) -> None:
    """aiokafka, with a transaction."""

    async def run(bootstrap: str, mark: bytes) -> Seen:
        admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        await admin.create_topics([aiokafka.admin.NewTopic("orders", 2, 1)])
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="writer")
        await producer.start()
        async with producer.transaction():
            for number in range(COUNT):
                await producer.send("orders", b"%s-%d" % (mark, number), partition=number % 2)
        await producer.stop()
        consumer = aiokafka.AIOKafkaConsumer(
            "orders", bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest"
        )
        await consumer.start()
        values: list[bytes] = []
        async with asyncio.timeout(SECONDS):
            async for record in consumer:
                assert "orders" == record.topic
                values.append(record.value)
                if len(values) == COUNT:
                    break
        await consumer.commit()
        await consumer.stop()
        offsets = await admin.list_consumer_group_offsets("readers")
        groups = [each[0] for each in await admin.list_consumer_groups()]
        topics = await admin.list_topics()
        await admin.close()
        return {
            "values": values,
            "topics": topics,
            "groups": groups,
            "committed": [(p.topic, p.partition, each.offset) for p, each in offsets.items()],
        }

    in_both(spaces, lambda bootstrap, mark: asyncio.run(run(bootstrap, mark)))


def test_members_of_both_protocols_share_a_group(cluster: Cluster) -> None:
    """The broker reads the topics of a classic member, assigns them, and writes them into its assignment."""
    with cluster.namespace() as space:
        with Admin(bootstrap_servers=space.bootstrap) as admin:
            admin.create_topics([NewTopic("orders", partitions=4)]).raise_for_errors()
        consumers = []
        for protocol in ("consumer", "classic"):
            config = {
                "bootstrap.servers": space.bootstrap,
                "group.id": "readers",
                "group.protocol": protocol,
                **({"session.timeout.ms": 45000} if protocol == "classic" else {}),
            }
            consumers.append(confluent_kafka.Consumer(config))
            consumers[-1].subscribe(["orders"])
            deadline = time.monotonic() + SECONDS
            while not consumers[-1].assignment() and time.monotonic() < deadline:
                for consumer in consumers:
                    consumer.poll(0.1)
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            for consumer in consumers:
                consumer.poll(0.1)
            assigned = [sorted((p.topic, p.partition) for p in each.assignment()) for each in consumers]
            if [2, 2] == [len(each) for each in assigned]:
                break
        assert [("orders", number) for number in range(4)] == sorted(chain(*assigned))
        for consumer in consumers:
            consumer.close()

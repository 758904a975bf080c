"""Unmodified admin clients create, describe, configure, grow and delete topics."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest

from tests.integration.clients.clients import ConfluentClient, Message

TIMEOUT_SECONDS = 60
TopicName = Callable[[str], str]


@pytest.fixture
def admin(bootstrap: str) -> Iterator[confluent_kafka.admin.AdminClient]:
    with confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap}) as client:
        yield client


def create(
    admin: confluent_kafka.admin.AdminClient,
    name: str,
    partitions: int = 1,
    config: dict[str, str] | None = None,
) -> None:
    new = confluent_kafka.admin.NewTopic(name, partitions, 1, config=config or {})
    admin.create_topics([new], operation_timeout=TIMEOUT_SECONDS)[name].result(TIMEOUT_SECONDS)


def confluent_error(future: Any) -> int:
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        future.result(TIMEOUT_SECONDS)
    return int(caught.value.args[0].code())


def test_confluent_creates_describes_and_deletes(
    admin: confluent_kafka.admin.AdminClient, topic_name: TopicName
) -> None:
    name = topic_name("admin")
    create(admin, name, 3)

    metadata = admin.list_topics(name, timeout=TIMEOUT_SECONDS).topics[name]
    assert metadata.error is None
    assert [0, 1, 2] == sorted(metadata.partitions)
    [broker] = admin.list_topics(timeout=TIMEOUT_SECONDS).brokers
    assert all(p.leader == broker and p.isrs == [broker] for p in metadata.partitions.values())

    admin.delete_topics([name], operation_timeout=TIMEOUT_SECONDS)[name].result(TIMEOUT_SECONDS)
    assert name not in admin.list_topics(timeout=TIMEOUT_SECONDS).topics


def test_confluent_meets_kafkas_errors(
    admin: confluent_kafka.admin.AdminClient, topic_name: TopicName
) -> None:
    """Each mistake has the code that Kafka gives it; client code branches on these."""
    codes = confluent_kafka.KafkaError
    name = topic_name("taken")
    create(admin, name)

    def creation_error(new: confluent_kafka.admin.NewTopic) -> int:
        return confluent_error(admin.create_topics([new])[new.topic])

    new_topic = confluent_kafka.admin.NewTopic
    assert codes.TOPIC_ALREADY_EXISTS == creation_error(new_topic(name, 1, 1))
    assert codes.TOPIC_EXCEPTION == creation_error(new_topic("no spaces allowed", 1, 1))
    assert codes.TOPIC_EXCEPTION == creation_error(new_topic("x" * 250, 1, 1))
    assert codes.INVALID_REPLICATION_FACTOR == creation_error(new_topic(topic_name("many"), 1, 5))
    assert codes.INVALID_CONFIG == creation_error(
        new_topic(topic_name("bad"), 1, 1, config={"segment.bytes": "ten"})
    )
    assert codes.INVALID_CONFIG == creation_error(new_topic(topic_name("bad"), 1, 1, config={"no.such": "1"}))
    missing = topic_name("missing")
    assert codes.UNKNOWN_TOPIC_OR_PART == confluent_error(admin.delete_topics([missing])[missing])


def test_confluent_grows_a_topic(admin: confluent_kafka.admin.AdminClient, topic_name: TopicName) -> None:
    name = topic_name("grow")
    create(admin, name, 2)
    more = confluent_kafka.admin.NewPartitions

    admin.create_partitions([more(name, 5)])[name].result(TIMEOUT_SECONDS)

    assert 5 == len(admin.list_topics(name, timeout=TIMEOUT_SECONDS).topics[name].partitions)
    fewer = admin.create_partitions([more(name, 4)])[name]
    assert confluent_kafka.KafkaError.INVALID_PARTITIONS == confluent_error(fewer)


def test_confluent_reads_and_changes_configs(
    admin: confluent_kafka.admin.AdminClient, topic_name: TopicName
) -> None:
    """A change is seen at once, its source is told, and taking it back brings the default."""
    name = topic_name("configs")
    create(admin, name, config={"retention.ms": "1000000"})
    resource_class, entry_class = confluent_kafka.admin.ConfigResource, confluent_kafka.admin.ConfigEntry
    operation = confluent_kafka.admin.AlterConfigOpType
    topic = confluent_kafka.admin.ResourceType.TOPIC

    def value(setting: str) -> tuple[str, str]:
        [future] = admin.describe_configs([resource_class(topic, name)]).values()
        entry = future.result(TIMEOUT_SECONDS)[setting]
        return entry.value, confluent_kafka.admin.ConfigSource(entry.source).name

    def change(setting: str, new: str | None, kind: Any) -> None:
        entry = entry_class(setting, new, incremental_operation=kind)
        [future] = admin.incremental_alter_configs(
            [resource_class(topic, name, incremental_configs=[entry])]
        ).values()
        future.result(TIMEOUT_SECONDS)

    assert ("1000000", "DYNAMIC_TOPIC_CONFIG") == value("retention.ms")
    assert ("delete", "DEFAULT_CONFIG") == value("cleanup.policy")
    change("retention.ms", "2000000", operation.SET)
    assert ("2000000", "DYNAMIC_TOPIC_CONFIG") == value("retention.ms")
    change("cleanup.policy", "compact", operation.APPEND)
    assert "delete,compact" == value("cleanup.policy")[0]
    change("cleanup.policy", "delete", operation.SUBTRACT)
    assert "compact" == value("cleanup.policy")[0]
    change("retention.ms", None, operation.DELETE)
    assert ("604800000", "DEFAULT_CONFIG") == value("retention.ms")


def test_confluent_deletes_records_and_lists_offsets(
    admin: confluent_kafka.admin.AdminClient, bootstrap: str, topic_name: TopicName
) -> None:
    name = topic_name("delete-records")
    ConfluentClient(bootstrap).produce(name, [Message(b"k", b"v%d" % n) for n in range(10)])
    partition = confluent_kafka.TopicPartition(name, 0, 4)

    [deleted] = admin.delete_records([partition]).values()
    assert 4 == deleted.result(TIMEOUT_SECONDS).low_watermark

    spec = confluent_kafka.admin.OffsetSpec
    for wanted, offset in ((spec.earliest(), 4), (spec.latest(), 10), (spec.max_timestamp(), None)):
        [listed] = admin.list_offsets({partition: wanted}).values()
        found = listed.result(TIMEOUT_SECONDS).offset
        assert 0 <= found < 10 if offset is None else offset == found
    assert 4 == ConfluentClient(bootstrap).consume(name, 1, offset=4)[0].offset


def test_confluent_describes_the_cluster(admin: confluent_kafka.admin.AdminClient) -> None:
    cluster = admin.describe_cluster(request_timeout=TIMEOUT_SECONDS).result(TIMEOUT_SECONDS)

    assert cluster.cluster_id
    assert [cluster.controller.id] == [node.id for node in cluster.nodes]


def test_small_max_message_bytes_refuses_a_large_one(
    admin: confluent_kafka.admin.AdminClient, bootstrap: str, topic_name: TopicName
) -> None:
    name = topic_name("small")
    create(admin, name, config={"max.message.bytes": "1000"})
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    errors: list[Any] = []

    for size in (2000, 100):
        producer.produce(name, b"x" * size, on_delivery=lambda error, message: errors.append(error))
        producer.flush(TIMEOUT_SECONDS)

    assert confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE == errors[0].code()
    assert errors[1] is None


def test_kafka_python_admin(bootstrap: str, topic_name: TopicName) -> None:
    name = topic_name("kp-admin")
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([kafka.admin.NewTopic(name, 2, 1, topic_configs={"segment.bytes": "1048576"})])
        assert name in admin.list_topics()
        [described] = admin.describe_topics([name])
        assert 2 == len(described["partitions"])
        admin.create_partitions({name: kafka.admin.NewPartitions(4)})
        [described] = admin.describe_topics([name])
        assert 4 == len(described["partitions"])
        assert admin.describe_cluster()["cluster_id"]
        admin.delete_topics([name])
        assert name not in admin.list_topics()
    finally:
        admin.close()


async def test_aiokafka_admin(bootstrap: str, topic_name: TopicName) -> None:
    name = topic_name("aio-admin")
    admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([aiokafka.admin.NewTopic(name, 2, 1)])
        [described] = await admin.describe_topics([name])
        assert 2 == len(described["partitions"])
        await admin.create_partitions({name: aiokafka.admin.NewPartitions(3)})
        [described] = await admin.describe_topics([name])
        assert 3 == len(described["partitions"])
        resource = aiokafka.admin.config_resource.ConfigResource(
            aiokafka.admin.config_resource.ConfigResourceType.TOPIC, name
        )
        [answer] = await admin.describe_configs([resource])
        settings = {entry[0]: entry[1] for entry in answer.resources[0][4]}
        assert "604800000" == settings["retention.ms"]
        await admin.delete_topics([name])
        assert name not in await admin.list_topics()
    finally:
        await admin.close()


def test_auto_creation_gives_the_default_partitions(bootstrap: str, topic_name: TopicName) -> None:
    """Producing to an unknown topic creates it, as a broker with default settings does."""
    name = topic_name("auto")
    begin = time.time()

    ConfluentClient(bootstrap).produce(name, [Message(b"k", b"v", (), int(begin * 1000))])

    [read] = ConfluentClient(bootstrap).consume(name, 1)
    assert (b"k", b"v") == (read.key, read.value)

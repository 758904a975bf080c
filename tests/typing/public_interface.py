"""A program as users write it, for type checkers: nothing here runs.

mypy checks it in strict mode with the rest of the repository, and the workflow against the installed wheel,
where it also shows that the package says that it is typed (`py.typed`).
"""

from pathlib import Path
from typing import Any, assert_type
from uuid import UUID

import kalda
from kalda.testing import (
    BrokerProcess,
    Cluster,
    ClusterError,
    KaldaProcess,
    KaldaProcessError,
    ProcessCluster,
    ZooKeeperProcess,
)


def in_process(directory: Path) -> None:
    """Use every call of a cluster in this process."""
    with Cluster(brokers=3, settings={"min.insync.replicas": "2"}, racks=["a", "b", "c"]) as cluster:
        assert_type(cluster, Cluster)
        assert_type(cluster.bootstrap, str)
        assert_type(cluster.zookeeper, str)
        assert_type(cluster.directory, Path)
        assert_type(cluster.log_directories, list[Path])
        assert_type(cluster.running, list[int])
        assert_type(cluster.controller_id(), int)
        cluster.wait_in_sync("topic", timeout_seconds=5.0)
        cluster.kill(0)
        cluster.start(0)
        cluster.partition({0}, {1, 2, "coordinator"})
        cluster.heal()
        cluster.start("0")  # type: ignore[arg-type]  # brokers are numbers: this has to be an error
    with Cluster(directory=directory) as kept:
        assert_type(kept, Cluster)


async def in_a_coroutine() -> None:
    """The same cluster for asynchronous tests."""
    async with Cluster() as cluster:
        assert_type(cluster, Cluster)


def as_processes(directory: Path) -> None:
    """Use clusters of processes."""
    with KaldaProcess(directory / "one", settings={"num.partitions": "4"}) as process:
        assert_type(process, KaldaProcess)
        assert_type(process.bootstrap, str)
        assert_type(process.pid, int)
        assert_type(process.log(), str)
    with ProcessCluster(directory / "three", brokers=3) as cluster:
        assert_type(cluster, ProcessCluster)
        assert_type(cluster.broker(0), BrokerProcess)
        assert_type(cluster.coordinator, ZooKeeperProcess)
        assert_type(cluster.broker_pids, list[int])
        cluster.kill(0)
        cluster.start(0)


def errors() -> tuple[type[Exception], type[Exception]]:
    """Both are exceptions that a test may expect."""
    return ClusterError, KaldaProcessError


def administration() -> None:
    """The synchronous class has the types of the asynchronous one."""
    with kalda.Admin(bootstrap_servers=["a:1", "b:2"], request_timeout_ms=5_000) as admin:
        created = admin.create_topics([kalda.NewTopic("t", partitions=1)], validate_only=True)
        assert_type(created, kalda.Outcomes[str, kalda.TopicMetadataAndConfig])
        assert_type(created["t"].partitions, int | None)
        created.raise_for_errors()
        deleted = admin.delete_topics(["t"], outcomes=True)
        assert_type(deleted.errors, dict[str | UUID, kalda.ClientError])
        admin.delete_topics(["t"], outcomes="yes")  # type: ignore[arg-type]  # it is on or off
        assert_type(admin.list_topics(), dict[str, kalda.TopicListing])
        assert_type(admin.list_groups().all(), list[kalda.GroupListing])
        partition = kalda.TopicPartition("t", 0)
        offsets = admin.list_offsets({partition: kalda.OffsetSpec.latest()}, timeout_ms=1_000)
        assert_type(offsets, kalda.Outcomes[kalda.TopicPartition, kalda.ListOffsetsResultInfo])
        admin.create_topics(["t"])  # type: ignore[list-item]  # names alone are no topics
        admin.list_topics(timeout=1)  # type: ignore[call-arg]  # the argument is `timeout_ms`
    kalda.Admin(bootstrap_server="a:1")  # type: ignore[call-arg]  # a misspelt setting is an error


async def administration_in_a_coroutine() -> None:
    """The methods are coroutines."""
    async with kalda.AsyncAdmin.from_config({"bootstrap.servers": "a:1"}) as admin:
        assert_type(await admin.describe_cluster(), kalda.ClusterDescription)


def version() -> str:
    """The version is a string."""
    return kalda.__version__


def produce() -> None:
    """Send records, wait for them, and use a transaction."""
    with kalda.Producer(bootstrap_servers="localhost:9092", acks="all", linger_ms=5) as producer:
        assert_type(producer, kalda.Producer)
        future = producer.send("t", b"value", key=b"key", headers=[("h", None)], timestamp_ms=1)
        assert_type(future, kalda.RecordFuture)
        metadata = future.result(10)
        assert_type(metadata, kalda.RecordMetadata)
        assert_type(metadata.offset, int)
        producer.flush(timeout_s=30)
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets_to_transaction({kalda.TopicPartition("t", 0): 42}, "group")
    kalda.Producer(bootstrap_server="localhost:9092")  # type: ignore[call-arg]  # the name is misspelt
    kalda.Producer(linger_ms=[])  # type: ignore[arg-type]  # milliseconds are a number


def secured_clients() -> None:
    """Every client takes the settings of TLS and SASL, beside those of a file too."""
    kalda.Producer(
        bootstrap_servers="localhost:9093",
        security_protocol="SASL_SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_location="ca.pem",
        sasl_mechanism="SCRAM-SHA-512",
        sasl_jaas_config="...",
    )
    kalda.Consumer(bootstrap_servers="localhost:9093", security_protocol="SSL", ssl_keystore_location="k.pem")
    kalda.Admin(
        bootstrap_servers="localhost:9093", security_protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN"
    )
    assert_type(kalda.Producer.from_config("client.properties", acks="all"), kalda.Producer[Any, Any])
    assert_type(
        kalda.AsyncProducer.from_config("client.properties", linger_ms=1), kalda.AsyncProducer[Any, Any]
    )
    assert_type(kalda.Consumer.from_config("client.properties", "t", group_id="g"), kalda.Consumer[Any, Any])
    assert_type(kalda.Admin.from_config("client.properties", bootstrap_servers="a:1"), kalda.Admin)
    kalda.Producer(security_protocoll="SSL")  # type: ignore[call-arg]  # the name is misspelt
    kalda.Admin.from_config("client.properties", ssl_keystore=1)  # type: ignore[call-arg]  # no such setting


def consume() -> None:
    """Read records and columns, commit and seek."""
    with kalda.Consumer("t", bootstrap_servers=["localhost:9092"], group_id="g") as consumer:
        for record in consumer:
            assert_type(record.topic, str)
            assert_type(record.offset, int)
            assert_type(record.timestamp_ms, int)
        for polled in consumer.poll(timeout_s=1.0, max_records=500):
            assert_type(polled.partition, int)
        consumer.commit()
        consumer.seek(kalda.TopicPartition("t", 0), 0)
        committed = consumer.committed([kalda.TopicPartition("t", 0)])
        assert_type(committed, dict[kalda.TopicPartition, kalda.OffsetAndMetadata | None])
        consumer.seek("t", 0, 0)  # type: ignore[arg-type, call-arg]  # a partition is one value


async def with_asyncio() -> None:
    """Use the asynchronous clients."""
    async with kalda.AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        future = await producer.send("t", b"value")
        assert_type(await future, kalda.RecordMetadata)
    async with kalda.AsyncConsumer("t", bootstrap_servers="localhost:9092", group_id="g") as consumer:
        async for record in consumer:
            assert_type(record.offset, int)


class Order:
    """A program's own type."""


def order_of(data: bytes) -> Order:
    """A deserializer may be a function."""
    return Order()


def typed_records() -> None:
    """Functions for keys and values give the types of records; without them, they are bytes or None."""
    number = kalda.serializers.integer(bytes=8)
    assert_type(number, kalda.serializers.Serde[int])
    order = kalda.serializers.json(Order)
    Bytes = bytes | None
    with kalda.Consumer("t", bootstrap_servers="a:1") as plain:
        assert_type(plain, kalda.Consumer)
        assert_type(plain.poll(), list[kalda.ConsumerRecord[Bytes, Bytes]])
    with kalda.Consumer("t", value_deserializer=order) as values:
        assert_type(values.poll(), list[kalda.ConsumerRecord[Bytes, Order]])
        assert_type(next(values).value, Order)
    with kalda.Consumer("t", key_deserializer=number, value_deserializer=order_of) as both:
        assert_type(both, kalda.Consumer[int, Order])
    configured = kalda.Consumer.from_config("client.properties", value_deserializer=order)
    assert_type(configured, kalda.Consumer[Any, Order])
    with kalda.Producer(key_serializer=number, value_serializer=order) as producer:
        assert_type(producer, kalda.Producer[int, Order])
        producer.send("t", Order(), key=5)
        producer.send("t", None, key=5)
        producer.send("t", b"x", key=5)  # type: ignore[arg-type]  # values are orders
    with kalda.Producer(value_serializer=str.encode) as texts:
        assert_type(texts, kalda.Producer[bytes | None, str])


def shared_records() -> None:
    """A share consumer's records are typed by its deserializers, too."""
    order = kalda.serializers.json(Order)
    with kalda.ShareConsumer(
        "t",
        bootstrap_servers="a:1",
        group_id="g",
        share_acknowledgement_mode="explicit",
        share_acquire_mode="record_limit",
        value_deserializer=order,
    ) as consumer:
        assert_type(consumer, kalda.ShareConsumer[bytes | None, Order])
        for record in consumer.poll(1.0, max_records=5):
            assert_type(record, kalda.ShareRecord[bytes | None, Order])
            assert_type(record.delivery_count, int)
            consumer.acknowledge(record, kalda.AcknowledgeType.RELEASE)
        consumer.acknowledge(consumer.poll())
        consumer.acknowledge(5)  # type: ignore[arg-type]  # it takes records
        consumer.acknowledge(next(consumer), 1)  # type: ignore[arg-type]  # it takes an AcknowledgeType
        assert_type(consumer.commit(), dict[kalda.TopicPartition, kalda.ClientError | None])
    configured = kalda.ShareConsumer.from_config("client.properties", "t")
    assert_type(configured, kalda.ShareConsumer[Any, Any])


def workers() -> None:
    """A worker has the types of its function."""

    @kalda.worker("t", "g", concurrency=64, reject_on=(KeyError,), value_deserializer=order_of)
    def work(record: kalda.ShareRecord[bytes | None, Order]) -> int:
        return record.offset

    assert_type(work, kalda.Worker[int, Order])
    work.run(bootstrap_servers="a:1")
    work.stop()
    kalda.worker("t", "g", reject_on=5)  # type: ignore[arg-type]  # it takes exceptions

    @kalda.worker("t", "g", value_deserializer=order_of)  # type: ignore[arg-type]  # its records have orders
    def other(record: kalda.ShareRecord[bytes | None, int]) -> None:
        pass


async def shared_records_with_asyncio() -> None:
    """The asynchronous share consumer has the same types."""
    async with kalda.AsyncShareConsumer("t", group_id="g", key_deserializer=str) as consumer:
        async for record in consumer:
            assert_type(record, kalda.ShareRecord[str, bytes | None])
            consumer.acknowledge(record)
        assert_type(await consumer.commit(), dict[kalda.TopicPartition, kalda.ClientError | None])


async def typed_records_with_asyncio() -> None:
    """The asynchronous clients have the same types."""
    text = kalda.serializers.string()
    async with kalda.AsyncConsumer("t", key_deserializer=text) as consumer:
        async for record in consumer:
            assert_type(record, kalda.ConsumerRecord[str, bytes | None])
    async with kalda.AsyncProducer(value_serializer=text) as producer:
        await producer.send("t", "text")
        await producer.send("t", 5)  # type: ignore[arg-type]  # values are texts

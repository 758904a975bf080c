"""The consumer while brokers come and go: leaders that move, logs that were truncated, replicas nearby."""

import threading
import time
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kalda import Cluster, Consumer, LogTruncationError, OffsetAndMetadata, TopicPartition
from tests.integration.clients.consumer.records import TIMEOUT_SECONDS, read

PARTITION = TopicPartition("t", 0)
OPTIONS: Any = {"auto_offset_reset": "earliest", "request_timeout_ms": 1_000, "metadata_max_age_ms": 1_000}


def create(cluster: Cluster, replicas: list[int], **config: str) -> None:
    """Create topic ``t`` with one partition on the given brokers."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    topic = NewTopic("t", 1, replica_assignment=[replicas], config=config)
    admin.create_topics([topic])["t"].result(TIMEOUT_SECONDS)
    cluster.wait_in_sync("t")


def write(cluster: Cluster, values: list[bytes], acks: str = "all", *, brokers: slice = slice(None)) -> None:
    """Write values with another client, which knows these brokers, one batch for each ten."""
    known = ",".join(cluster.bootstrap.split(",")[brokers])
    producer = confluent_kafka.Producer({"bootstrap.servers": known, "acks": acks})
    for number, value in enumerate(values):
        producer.produce("t", value)
        if number % 10 == 9:
            producer.flush(TIMEOUT_SECONDS)
    assert 0 == producer.flush(TIMEOUT_SECONDS)


def leader(cluster: Cluster) -> int:
    """Return the leader of the partition."""
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics("t", TIMEOUT_SECONDS)
    return int(metadata.topics["t"].partitions[0].leader)


OTHERS: Any = {"brokers": slice(1, None)}
"""librdkafka waits 10 seconds for a paused broker that it asks first."""


def pause(cluster: Cluster) -> None:
    cluster.pause(0)
    cluster.expire_session(0)


LEAVE: Any = {
    "kill": lambda cluster: cluster.kill(0, expire_session=True),
    "stop": lambda cluster: cluster.stop(0),
    "pause": pause,
}


@pytest.mark.parametrize("failure", LEAVE)
def test_records_are_read_once_and_in_order_while_the_leader_goes(failure: str) -> None:
    values = [b"%d" % number for number in range(2_000)]
    with Cluster(brokers=3) as cluster:
        create(cluster, [0, 1, 2])
        write(cluster, values[:1_000])
        with Consumer(bootstrap_servers=cluster.bootstrap, max_poll_records=100, **OPTIONS) as consumer:
            consumer.assign([PARTITION])
            records = read(consumer, 500)
            LEAVE[failure](cluster)
            writer = threading.Thread(target=write, args=(cluster, values[1_000:]), kwargs=OTHERS)
            writer.start()
            records += read(consumer, 1_500)
            writer.join()
            assert [] == consumer.poll(0.1)
        if failure == "pause":
            cluster.resume(0)
    assert list(range(2_000)) == [record.offset for record in records]
    assert values == [record.value for record in records]


def test_a_broker_that_comes_back_is_read_on() -> None:
    """Its fetch session is gone."""
    with Cluster(brokers=1) as cluster:
        create(cluster, [0])
        write(cluster, [b"before"])
        with Consumer(bootstrap_servers=cluster.bootstrap, **OPTIONS) as consumer:
            consumer.assign([PARTITION])
            assert b"before" == read(consumer, 1)[0].value
            assert [] == consumer.poll(0.1)
            cluster.kill(0)
            assert [] == consumer.poll(0.3)
            cluster.start(0)
            write(cluster, [b"after"])
            assert b"after" == read(consumer, 1)[0].value


def truncate(cluster: Cluster, consumer: Consumer) -> None:
    """Lose offsets 10 to 19, which the consumer has read, and write others in their place."""
    write(cluster, [b"kept"] * 10)
    cluster.wait_in_sync("t")
    cluster.stop(1)
    write(cluster, [b"lost"] * 10, acks="1")
    assert 20 == len(read(consumer, 20))
    cluster.kill(0, expire_session=True)
    cluster.start(1)
    cluster.wait_until(lambda: leader(cluster) == 1, what="broker 1 to lead")
    write(cluster, [b"new"] * 5, acks="1")


UNCLEAN: Any = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}


def test_a_truncated_log_is_read_from_where_it_differs() -> None:
    """KIP-320. Without the check the consumer would wait for offset 20 and skip the new records."""
    with Cluster(brokers=3) as cluster:
        create(cluster, [0, 1], **UNCLEAN)
        with Consumer(bootstrap_servers=cluster.bootstrap, **OPTIONS) as consumer:
            consumer.assign([PARTITION])
            truncate(cluster, consumer)
            assert [(10 + number, b"new") for number in range(5)] == [
                (record.offset, record.value) for record in read(consumer, 5)
            ]


def test_without_a_reset_policy_a_truncated_log_is_an_error() -> None:
    with Cluster(brokers=3) as cluster:
        create(cluster, [0, 1], **UNCLEAN)
        options = {**OPTIONS, "auto_offset_reset": "none"}
        with Consumer(bootstrap_servers=cluster.bootstrap, **options) as consumer:
            consumer.assign([PARTITION])
            consumer.seek(PARTITION, 0)
            truncate(cluster, consumer)
            with pytest.raises(LogTruncationError) as raised:
                read(consumer, 5)
            divergent = raised.value.divergent_offsets[PARTITION]
            assert 10 == divergent.offset
            assert {PARTITION: 20} == raised.value.positions
            consumer.seek(PARTITION, OffsetAndMetadata(divergent.offset, "", divergent.leader_epoch))
            assert [b"new"] * 5 == [record.value for record in read(consumer, 5)]


def test_the_replica_in_the_rack_is_read() -> None:
    """KIP-392; when it goes, the leader is read."""
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    settings = {"replica.selector.class": selector, "log.message.timestamp.type": "LogAppendTime"}
    with Cluster(brokers=3, racks=["a", "b", "c"], settings=settings) as cluster:
        create(cluster, [0, 1])
        write(cluster, [b"v"] * 100)
        with Consumer(bootstrap_servers=cluster.bootstrap, client_rack="b", **OPTIONS) as consumer:
            consumer.assign([PARTITION])
            assert 100 == len(read(consumer, 100))
            deadline = time.monotonic() + TIMEOUT_SECONDS
            while consumer._inner.core().subscription.fetchable(0.0)[0].preferred_replica != 1:
                assert time.monotonic() < deadline
                consumer.poll(0.1)
            write(cluster, [b"w"] * 100)
            assert 100 == len(read(consumer, 100))
            cluster.stop(1)
            write(cluster, [b"x"] * 100)
            assert [b"x"] * 100 == [record.value for record in read(consumer, 100)]

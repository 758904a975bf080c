"""Segments that a disk has damaged: what another replica has comes back, and no offset is given twice."""

import os
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest

from kalda.broker.replicas.partition import Partition
from kalda.common.types import TopicPartition
from kalda.testing import Cluster
from tests.integration.cluster.helpers import create_topic, wait_until

TOPIC = "orders"
NAME = TopicPartition(TOPIC, 0)
RECORDS = 1_200


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers whose topic has several segments; all records are acknowledged by all."""
    settings = {"log.segment.bytes": "1048576", "offsets.topic.replication.factor": "1"}
    with Cluster(brokers=3, settings=settings, directory=tmp_path) as cluster:
        create_topic(cluster.bootstrap, TOPIC, config={"segment.bytes": "12000", "min.insync.replicas": "2"})
        cluster.wait_in_sync(TOPIC)
        assert list(range(RECORDS)) == produce(cluster, RECORDS)
        yield cluster


def produce(cluster: Cluster, count: int) -> list[int]:
    """Produce with acks=all, some records a batch; return the offsets that were acknowledged."""
    offsets: list[int] = []

    def delivered(error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        assert error is None, error
        offsets.append(message.offset() or 0)

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 10, "linger.ms": 1}
    )
    for number in range(count):
        producer.produce(TOPIC, b"%d" % number * 20, partition=0, on_delivery=delivered)
    assert not producer.flush(30)
    return sorted(offsets)


def consume(cluster: Cluster, end: int) -> list[int]:
    """Read from the beginning to `end`; return the offsets seen."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        seen: list[int] = []
        while not seen or seen[-1] < end - 1:
            for message in consumer.consume(500, 0.2):
                assert message.error() is None, message.error()
                seen.append(message.offset() or 0)
        return seen
    finally:
        consumer.close()


def logs_of(cluster: Cluster, broker_id: int) -> list[Path]:
    return sorted((cluster.log_directories[broker_id] / f"{TOPIC}-0").glob("*.log"))


def bytes_of(cluster: Cluster, broker_id: int) -> bytes:
    return b"".join(path.read_bytes() for path in logs_of(cluster, broker_id))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2 + 7)


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x40
    path.write_bytes(content)
    path.with_suffix(".index").write_bytes(b"\xff" * 64)


def partition(cluster: Cluster, broker_id: int) -> Partition:
    return cluster.server(broker_id).services.replica_manager.partition(NAME)


def restart_all(cluster: Cluster, damage: dict[int, list[int]], order: list[int]) -> None:
    """Stop all, damage some segments of some brokers, start all in this order."""
    for broker_id in reversed(order):
        cluster.stop(broker_id)
    for broker_id, numbers in damage.items():
        for number in numbers:
            (cut if number % 2 else flip)(logs_of(cluster, broker_id)[number])
    for broker_id in order:
        cluster.start(broker_id)


def assert_nothing_is_lost(cluster: Cluster) -> None:
    end = RECORDS
    assert list(range(end)) == consume(cluster, end)
    cluster.wait_in_sync(TOPIC)
    assert list(range(end, end + 10)) == produce(cluster, 10)
    logs = [partition(cluster, broker_id).log for broker_id in range(3)]
    wait_until(lambda: all(log.high_watermark == end + 10 for log in logs))
    assert not any(log.missing.ranges for log in logs)
    assert 1 == len({bytes_of(cluster, broker_id) for broker_id in range(3)})


@pytest.mark.parametrize("damaged", [0, 1, 2])
def test_one_damaged_replica_gets_its_records_back(cluster: Cluster, damaged: int) -> None:
    """Broker 0 was the last to stop, so that it leads first; the others follow it."""
    restart_all(cluster, {damaged: [1, 4]}, [0, 1, 2])
    assert_nothing_is_lost(cluster)


def test_replicas_that_lost_different_records_complete_each_other(cluster: Cluster) -> None:
    restart_all(cluster, {0: [1, 5], 1: [2, 3], 2: [0, 4, 6]}, [0, 1, 2])
    assert_nothing_is_lost(cluster)


def test_a_damaged_broker_that_is_restarted_alone_gets_its_records_back(cluster: Cluster) -> None:
    leader = partition(cluster, 0).leader_id
    cluster.stop(leader)
    for number in (1, 4, len(logs_of(cluster, leader)) - 1):
        cut(logs_of(cluster, leader)[number])
    cluster.start(leader)
    assert_nothing_is_lost(cluster)


def test_what_all_replicas_have_lost_is_skipped_and_its_offsets_stay_used(cluster: Cluster) -> None:
    restart_all(cluster, {0: [1], 1: [1], 2: [1]}, [0, 1, 2])
    seen = consume(cluster, RECORDS)
    lost = sorted(set(range(RECORDS)) - set(seen))
    assert lost
    assert lost == list(range(lost[0], lost[-1] + 1))
    cluster.wait_in_sync(TOPIC)
    assert list(range(RECORDS, RECORDS + 10)) == produce(cluster, 10)

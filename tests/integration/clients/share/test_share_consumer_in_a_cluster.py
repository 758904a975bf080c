"""Share consumers of Kalda and of librdkafka in one group, while leaders move and a broker dies."""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType as TheirType
from confluent_kafka import KafkaException
from confluent_kafka import ShareConsumer as TheirConsumer

from kalda import (
    AcknowledgeType,
    Admin,
    AlterConfigOp,
    ConfigResource,
    ElectionType,
    NewTopic,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from kalda.testing import Cluster

SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "group.share.delivery.count.limit": "10",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}
SECONDS = 120


class Tally:
    """What the workers of a group have processed."""

    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()
        self.by_worker: Counter[str] = Counter()
        self.counts: list[int] = []
        self.is_over = threading.Event()
        self.failures: list[BaseException] = []

    def note(self, worker: str, value: str) -> None:
        self.accepted[value] += 1
        self.by_worker[worker] += 1

    def wait(self, expected: set[str]) -> None:
        deadline = time.monotonic() + SECONDS
        while not expected <= self.accepted.keys():
            missing = len(expected - self.accepted.keys())
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, f"{missing} of {len(expected)} are missing"
            self.is_over.wait(0.05)


def ours(tally: Tally, bootstrap: str, group: str) -> None:
    options = {"bootstrap_servers": bootstrap, "group_id": group, "max_poll_records": 20}
    with ShareConsumer("t", share_acknowledgement_mode="explicit", **options) as consumer:  # type: ignore[arg-type]  # of mixed types
        while not tally.is_over.is_set():
            for record in consumer.poll(0.3):
                assert record.value is not None
                tally.counts.append(record.delivery_count)
                if record.offset % 17 == 0 and record.delivery_count == 1:
                    consumer.acknowledge(record, AcknowledgeType.RELEASE)
                else:
                    consumer.acknowledge(record)
                    tally.note("ours", record.value.decode())


def theirs(tally: Tally, bootstrap: str, group: str) -> None:
    consumer = TheirConsumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 20,
        }
    )
    consumer.subscribe(["t"])
    try:
        while not tally.is_over.is_set():
            try:
                found = [each for each in consumer.poll(0.3) if each.error() is None]
            except KafkaException:
                continue  # a coordinator that has just died
            for each in found:
                consumer.acknowledge(each, TheirType.ACCEPT)
                tally.note("theirs", each.value().decode())
            if found:
                try:
                    consumer.commit_sync(10.0)
                except KafkaException:
                    continue
    finally:
        consumer.close()


@contextmanager
def workers(bootstrap: str, group: str) -> Iterator[Tally]:
    """Run two of ours and one of librdkafka."""
    tally = Tally()

    def run(work: object) -> None:
        try:
            work(tally, bootstrap, group)  # type: ignore[operator]  # one of the two functions above
        except BaseException as error:
            tally.failures.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in (ours, ours, theirs)]
    for thread in threads:
        thread.start()
    try:
        yield tally
    finally:
        tally.is_over.set()
        for thread in threads:
            thread.join(SECONDS)
    assert [] == tally.failures


def fill(bootstrap: str, numbers: range) -> set[str]:
    values = {f"value-{number}" for number in numbers}
    with Producer(bootstrap_servers=bootstrap, acks="all", batch_size=500) as producer:
        for value in sorted(values):
            producer.send("t", value.encode())
    return values


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(brokers=3, directory=tmp_path / "cluster", settings=SETTINGS) as cluster:
        yield cluster


def prepare(cluster: Cluster) -> str:
    group = f"share-{uuid.uuid4().hex[:8]}"
    earliest = AlterConfigOp.set("share.auto.offset.reset", "earliest")
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("t", 4, 3)])
        admin.incremental_alter_configs({ConfigResource.group(group): [earliest]})
    return group


def test_two_clients_share_a_group_and_nothing_is_lost_when_a_broker_dies(cluster: Cluster) -> None:
    group = prepare(cluster)
    with workers(cluster.bootstrap, group) as tally:
        first: set[str] = set()
        # Until each of the clients has had some: one may be slow to join.
        while len(tally.by_worker) < 2 or len(first) < 2000:
            assert len(first) < 200_000
            first |= fill(cluster.bootstrap, range(len(first), len(first) + 1000))
            tally.wait(first)
        for topic in ("t", "__consumer_offsets", "__share_group_state"):
            cluster.wait_in_sync(topic)
        cluster.kill(0)
        second = fill(cluster.bootstrap, range(len(first), len(first) + 2000))
        tally.wait(second)
    assert {"ours", "theirs"} == set(tally.by_worker)
    assert first | second == set(tally.accepted)
    assert 2 in tally.counts, "released records come again with their count"


def test_nothing_is_lost_while_leaders_move(cluster: Cluster) -> None:
    group = prepare(cluster)
    expected: set[str] = set()
    with (
        workers(cluster.bootstrap, group) as tally,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        for turn in range(3):
            partitions = [TopicPartition("t", number) for number in range(4)]
            replicas = [turn % 3, (turn + 1) % 3, (turn + 2) % 3]
            admin.alter_partition_reassignments(dict.fromkeys(partitions, replicas))
            expected |= fill(cluster.bootstrap, range(1000 * turn, 1000 * turn + 1000))
            admin.elect_leaders(ElectionType.PREFERRED, partitions, outcomes=True)
            tally.wait(expected)
    assert expected == set(tally.accepted)

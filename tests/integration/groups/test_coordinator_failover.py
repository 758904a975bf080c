"""The broker that coordinates a group dies: the next leader of the partition knows everything committed."""

import contextlib
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kalda.testing import Cluster
from tests.integration.groups.conftest import SETTINGS, fill
from tests.integration.groups.members import Group, wait_until


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(brokers=3, directory=tmp_path / "cluster", settings=SETTINGS) as cluster:
        yield cluster


def coordinator_of(cluster: Cluster, group: str) -> int:
    """The broker that every running broker names."""
    found: set[int] = set()

    def is_agreed() -> bool:
        found.clear()
        for broker_id in cluster.running:
            coordinators = cluster.server(broker_id).services.internal_topics
            endpoint = coordinators.coordinator("__consumer_offsets", group, "PLAINTEXT")
            found.add(-1 if endpoint is None else endpoint.id)
        return len(found) == 1 and found <= set(cluster.running)

    wait_until(is_agreed, f"a coordinator of {group}")
    (only,) = found
    return only


def make_topic(cluster: Cluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(name, 6, 3)])[name].result(30)


def simple_consumer(cluster: Cluster, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "enable.auto.commit": False})


def test_committed_offsets_survive_each_coordinator(cluster: Cluster) -> None:
    """Three failovers in a row; every commit that was acknowledged is there with its metadata."""
    make_topic(cluster, "t")
    group = f"simple-{uuid.uuid4().hex[:8]}"
    with contextlib.closing(simple_consumer(cluster, group)) as consumer:
        for round_number in range(3):
            offset = 100 * round_number
            wanted = [TopicPartition("t", n, offset + n, metadata=f"round {round_number}") for n in range(6)]
            commit_patiently(consumer, wanted)
            cluster.wait_in_sync("__consumer_offsets")
            leader = coordinator_of(cluster, group)
            cluster.kill(leader)
            found = committed_patiently(consumer)
            assert [(each.offset, each.metadata) for each in wanted] == found
            cluster.start(leader)
            cluster.wait_in_sync("__consumer_offsets")


def commit_patiently(consumer: Consumer, wanted: list[TopicPartition]) -> None:
    def is_committed() -> bool:
        try:
            committed = consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException:
            return False
        return committed is not None and all(each.error is None for each in committed)

    wait_until(is_committed, "a commit succeeds")


def committed_patiently(consumer: Consumer) -> list[tuple[int, str | None]]:
    found: list[tuple[int, str | None]] = []

    def is_found() -> bool:
        try:
            partitions = consumer.committed([TopicPartition("t", n) for n in range(6)], timeout=60)
        except KafkaException:
            return False
        found[:] = [(each.offset, each.metadata) for each in partitions]
        return all(each.error is None for each in partitions)

    wait_until(is_found, "committed offsets are answered")
    return found


@pytest.mark.parametrize(
    ("client", "protocol"),
    [
        ("confluent", "classic"),
        ("confluent", "consumer"),
        ("kafka-python", "classic"),
        ("aiokafka", "classic"),
    ],
)
def test_members_go_on_with_the_next_coordinator(cluster: Cluster, client: str, protocol: str) -> None:
    make_topic(cluster, "t")
    expected = fill(cluster.bootstrap, "t", range(200))
    with Group(cluster.bootstrap, "t", 6, client=client, protocol=protocol, session_ms=10_000) as group:
        group.join(3)
        group.wait_balanced()
        group.wait_values(expected)
        cluster.wait_in_sync("__consumer_offsets")
        cluster.kill(coordinator_of(cluster, group.name))
        begin = time.monotonic()
        expected += fill(cluster.bootstrap, "t", range(200, 400))
        group.wait_values(expected)
        assert time.monotonic() - begin < 30
        group.wait_balanced()
        # The group itself was there: nobody lost partitions for good, and nothing was read from the start.
        assert max(group.values().values()) <= 2

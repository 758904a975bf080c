"""When the records of share groups are delivered, with librdkafka's share consumer."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Message, ShareConsumer

from kalda import Admin, NewTopic, Producer
from kalda.testing import Cluster
from tests.integration.groups.test_share_dead_letters import group_with, produce
from tests.integration.groups.test_share_groups import SETTINGS, consumer, polled


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(brokers=1, directory=tmp_path / "cluster", settings=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("jobs", partitions=1, replication_factor=1)])
        yield admin


def next_one(found: ShareConsumer) -> tuple[Message, float]:
    """Return the next message, and when it came."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for each in polled(found):
            return each, time.monotonic()
    raise AssertionError("no message came")


def test_released_records_come_again_after_their_back_off(cluster: Cluster, admin: Admin) -> None:
    """The consumer waits in one fetch: nothing else would deliver them."""
    group = group_with(
        admin,
        cluster.bootstrap,
        kalda_share_redelivery_backoff_ms="300",
        kalda_share_redelivery_backoff_max_ms="600",
    )
    produce(cluster.bootstrap, "jobs", [b"again"])
    waits = []
    with consumer(cluster.bootstrap, group, "jobs") as found:
        each, _ = next_one(found)
        for _ in range(3):
            found.acknowledge(each, AcknowledgeType.RELEASE)
            released = time.monotonic()
            found.commit_sync(30.0)
            each, came = next_one(found)
            waits.append(came - released)
        found.acknowledge(each, AcknowledgeType.ACCEPT)
        found.commit_sync(30.0)
        assert 4 == each.delivery_count()
    assert [True] * 3 == [wait >= least for wait, least in zip(waits, (0.299, 0.599, 0.599), strict=True)]


def later(milliseconds: int) -> bytes:
    return b"%d" % (time.time_ns() // 1_000_000 + milliseconds)


def accept(found: ShareConsumer, count: int) -> dict[bytes, int]:
    """Accept messages; return the times at which they came, by value."""
    seen: dict[bytes, int] = {}
    deadline = time.monotonic() + 60
    while len(seen) < count:
        assert time.monotonic() < deadline, f"{len(seen)} of {count} messages"
        for each in polled(found):
            seen[each.value()] = time.time_ns() // 1_000_000
            found.acknowledge(each, AcknowledgeType.ACCEPT)
        found.commit_sync(30.0)
    return seen


def test_records_are_delivered_at_the_time_in_their_headers(cluster: Cluster, admin: Admin) -> None:
    """Of a small batch, and of large compressed ones, which are read in the background."""
    group = group_with(
        admin,
        cluster.bootstrap,
        kalda_share_delivery_at_enable="true",
        share_partition_max_record_locks="4000",
    )
    times: dict[bytes, bytes] = {}
    with Producer(bootstrap_servers=cluster.bootstrap, compression_type="gzip") as producer:
        for number in range(3000):
            value, headers = b"%d" % number, []
            if number % 3 == 0:
                times[value] = later(2000)
                headers = [("kalda.delivery.at", times[value])]
            producer.send("jobs", value=value, headers=headers)
    with consumer(cluster.bootstrap, group, "jobs") as found:
        seen = accept(found, 3000)
    assert {b"%d" % number for number in range(3000)} == seen.keys()
    assert [] == [value for value, due in times.items() if seen[value] < int(due)]


def test_the_records_of_a_group_with_a_delay_come_later(cluster: Cluster, admin: Admin) -> None:
    group = group_with(admin, cluster.bootstrap, kalda_share_delivery_delay_ms="1500")
    with consumer(cluster.bootstrap, group, "jobs") as found:
        polled(found)
        produced = int(later(0))
        produce(cluster.bootstrap, "jobs", [b"a", b"b"])
        seen = accept(found, 2)
    assert {b"a", b"b"} == seen.keys()
    assert min(seen.values()) >= produced + 1500


def test_one_record_of_a_key_is_in_flight_and_keys_keep_their_order(cluster: Cluster, admin: Admin) -> None:
    """Two consumers hold records of different keys, and a released record comes before the later ones."""
    group = group_with(admin, cluster.bootstrap, kalda_share_key_order_enable="true")
    with Producer(bootstrap_servers=cluster.bootstrap, compression_type="gzip") as producer:
        for number in range(60):
            producer.send("jobs", key=b"%d" % (number % 6), value=b"%d" % number)
    accepted: dict[bytes | None, list[int]] = {}
    released: set[int] = set()
    deadline = time.monotonic() + 120
    with (
        consumer(cluster.bootstrap, group, "jobs") as first,
        consumer(cluster.bootstrap, group, "jobs") as second,
    ):
        while sum(map(len, accepted.values())) < 60:
            assert time.monotonic() < deadline, f"accepted: {accepted}"
            held = [(found, each) for found in (first, second) for each in polled(found, 0.2)]
            keys = [each.key() for _, each in held]
            assert len(set(keys)) == len(keys), f"records of one key at the same time: {keys}"
            for found, each in held:
                number = int(each.value())
                if number % 10 == 3 and number not in released:
                    released.add(number)
                    found.acknowledge(each, AcknowledgeType.RELEASE)
                else:
                    accepted.setdefault(each.key(), []).append(number)
                    found.acknowledge(each, AcknowledgeType.ACCEPT)
            first.commit_sync(30.0)
            second.commit_sync(30.0)
    assert {b"%d" % key: list(range(key, 60, 6)) for key in range(6)} == accepted

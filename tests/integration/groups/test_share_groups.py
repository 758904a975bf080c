"""Share groups (KIP-932) with librdkafka's share consumer: one broker, a restart, and three brokers of which
one dies."""

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer
from confluent_kafka.admin import AdminClient, NewTopic

from kalda import Admin, AlterConfigOp, ConfigResource
from kalda.testing import Cluster
from tests.integration.groups.conftest import fill

SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.record.lock.duration.ms": "1000",
    "group.share.record.lock.duration.ms": "5000",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}

MakeTopic = Callable[..., str]


@contextmanager
def consumer(bootstrap: str, group: str, topic: str, mode: str = "explicit") -> Iterator[ShareConsumer]:
    found = ShareConsumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "share.acknowledgement.mode": mode}
    )
    found.subscribe([topic])
    try:
        yield found
    finally:
        found.close()


def make_group(bootstrap: str) -> str:
    """Return a group that begins at the start of its topics."""
    group = f"share-{uuid.uuid4().hex[:8]}"
    earliest = AlterConfigOp.set("share.auto.offset.reset", "earliest")
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.incremental_alter_configs({ConfigResource.group(group): [earliest]})
    return group


def polled(found: ShareConsumer, seconds: float = 1.0) -> list[Message]:
    try:
        return [each for each in found.poll(seconds) if each.error() is None]
    except KafkaException:
        # A coordinator that has just died.
        return []


def accept_all(found: ShareConsumer, expected: set[str]) -> Counter[str]:
    """Accept everything until all expected values were seen; return how often each was."""
    seen: Counter[str] = Counter()
    deadline = time.monotonic() + 60
    while not expected <= seen.keys():
        assert time.monotonic() < deadline, f"{len(expected - seen.keys())} of {len(expected)} are missing"
        for each in polled(found):
            seen[each.value().decode()] += 1
            found.acknowledge(each, AcknowledgeType.ACCEPT)
        found.commit_sync(10.0)
    return seen


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(brokers=1, directory=tmp_path / "cluster", settings=SETTINGS) as cluster:
        yield cluster


def test_released_and_rejected_records_and_a_restart(cluster: Cluster) -> None:
    """A released record comes again, a rejected one does not, and a restart forgets neither."""
    bootstrap = cluster.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic("t", 1, 1)])["t"].result(30)
    fill(bootstrap, "t", range(20))
    group = make_group(bootstrap)
    with consumer(bootstrap, group, "t") as found:
        first: list[Message] = []
        deadline = time.monotonic() + 30
        while not first and time.monotonic() < deadline:
            first = polled(found)
        kinds = {0: AcknowledgeType.RELEASE, 1: AcknowledgeType.REJECT}
        for each in first:
            found.acknowledge(each, kinds.get(each.offset(), AcknowledgeType.ACCEPT))
        assert {None} == set(found.commit_sync(10.0).values())
    seen = {each.offset() for each in first}
    assert {0, 1} <= seen
    cluster.stop(0)
    cluster.start(0)
    with consumer(cluster.bootstrap, group, "t") as found:
        expected = {f"value-{number}" for number in range(20) if number not in seen} | {"value-0"}
        assert expected == set(accept_all(found, expected))
    described = cluster.server(0).services.share.coordinator
    (state,) = [
        each
        for number in described.runtime.states()
        for each in described.runtime.shard(number)._stored.values()
    ]
    assert (20, ()) == (state.state.start_offset, state.state.ranges)


def test_nothing_is_lost_when_a_leader_and_coordinators_die(tmp_path: Path) -> None:
    """Records that were accepted do not come again either, but for those in the request that was under
    way."""
    with Cluster(brokers=3, directory=tmp_path / "cluster", settings=SETTINGS) as cluster:
        bootstrap = cluster.bootstrap
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(30)
        first = set(fill(bootstrap, "t", range(300)))
        group = make_group(bootstrap)
        with consumer(bootstrap, group, "t") as found:
            accepted = accept_all(found, first)
            for topic in ("t", "__consumer_offsets", "__share_group_state"):
                cluster.wait_in_sync(topic)
            cluster.kill(0)
            second = set(fill(bootstrap, "t", range(300, 600)))
            accepted += accept_all(found, second)
        assert first | second == set(accepted)
        assert 1 == max(accepted[each] for each in first)

"""Groups with our own consumer: alone and with other clients, that come, go, hang and die."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

from kalda import Admin, AlterConfigOp, ConfigResource, Consumer, Producer
from kalda.testing import Cluster
from tests.integration.groups.conftest import SETTINGS, fill
from tests.integration.groups.members import SESSION_MS, Group, wait_until
from tests.integration.groups.test_coordinator_failover import coordinator_of
from tests.integration.groups.test_coordinator_failover import make_topic as make_topic_in

VALUES = 300
PROTOCOLS = ["classic", "consumer"]
ASSIGNMENTS = {"range": [[0, 1, 2], [3, 4, 5]], "roundrobin": [[0, 2, 4], [1, 3, 5]]}
"""What two members get of six partitions, whichever client leads; sticky ones depend on the history."""

MakeTopic = Callable[..., str]


def values(count: int = VALUES) -> list[str]:
    return [f"value-{number}" for number in range(count)]


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "sticky", "cooperative-sticky"])
def test_members_of_a_classic_group_come_and_go(
    three_brokers: str, make_topic: MakeTopic, assignor: str
) -> None:
    """One member, then three, then two; every record is processed once although partitions move."""
    topic = make_topic(three_brokers)
    with Group(three_brokers, topic, 6, client="kalda", assignor=assignor) as group:
        come_and_go(three_brokers, topic, group)


@pytest.mark.parametrize("assignor", ["uniform", "range"])
def test_members_of_a_consumer_protocol_group_come_and_go(
    three_brokers: str, make_topic: MakeTopic, assignor: str
) -> None:
    """The broker assigns; members give partitions back before others get them (KIP-848)."""
    topic = make_topic(three_brokers)
    options = {"client": "kalda", "protocol": "consumer", "assignor": assignor}
    with Group(three_brokers, topic, 6, **options) as group:
        come_and_go(three_brokers, topic, group)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_auto_commit_commits_before_partitions_move(
    three_brokers: str, make_topic: MakeTopic, protocol: str
) -> None:
    """Without a commit before the revocation, the next owner would read everything since the last one."""
    topic = make_topic(three_brokers)
    options = {"client": "kalda", "protocol": protocol, "auto_commit": True}
    with Group(three_brokers, topic, 6, **options) as group:
        come_and_go(three_brokers, topic, group)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_created_again_is_read_from_its_beginning(
    one_broker: str, make_topic: MakeTopic, protocol: Literal["classic", "consumer"]
) -> None:
    """The group had read up to offset 50 of the deleted topic; the new one must not be read from there."""
    topic, other = make_topic(one_broker), make_topic(one_broker)
    with (
        Admin(bootstrap_servers=one_broker) as admin,
        Producer(bootstrap_servers=one_broker) as producer,
        Consumer(
            bootstrap_servers=one_broker,
            group_id=f"{topic}-{protocol}",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=100,
        ) as consumer,
    ):
        consumer.subscribe([topic, other])

        def round_of(prefix: str, count: int) -> None:
            for number in range(count):
                producer.send(topic, f"{prefix}{number}".encode(), partition=0)
            producer.flush()
            found: list[bytes] = []

            def read() -> bool:
                polled = [record.value or b"" for record in consumer.poll(0.2)]
                found.extend(value for value in polled if value.startswith(prefix.encode()))
                return len(found) >= count

            wait_until(read, f"{count} records are read")
            assert [f"{prefix}{number}".encode() for number in range(count)] == found

        round_of("old", 50)
        consumer.commit()
        deleted_id = admin.describe_topics([topic])[topic].topic_id
        admin.delete_topics([topic])

        def is_created() -> bool:
            # The brokers create it as soon as the consumer asks for it.
            consumer.poll(0.1)
            found = admin.describe_topics([topic], outcomes=True).results
            return topic in found and found[topic].topic_id != deleted_id

        wait_until(is_created, "the topic is created again")
        round_of("new", 60)


def come_and_go(bootstrap: str, topic: str, group: Group) -> None:
    group.join()
    group.wait_balanced()
    group.wait_values(values())
    group.join(2)
    group.wait_balanced()
    leaver = group.members[0]
    group.take_out(leaver)
    leaver.leave()
    group.wait_balanced()
    fill(bootstrap, topic, range(VALUES, VALUES * 2))
    group.wait_values(values(VALUES * 2))
    assert {1} == set(group.values().values())


@pytest.mark.parametrize(
    ("other", "assignor"),
    [
        ("confluent", "range"),
        ("confluent", "roundrobin"),
        ("confluent", "cooperative-sticky"),
        ("kafka-python", "range"),
        ("kafka-python", "roundrobin"),
        ("aiokafka", "range"),
        ("aiokafka", "roundrobin"),
    ],
)
def test_our_members_share_a_classic_group_with_other_clients(
    three_brokers: str, make_topic: MakeTopic, other: str, assignor: str
) -> None:
    """The leader of either client assigns to both; sticky user data differs, the others are the same."""
    topic = make_topic(three_brokers)
    with Group(three_brokers, topic, 6, assignor=assignor) as group:
        mixed(three_brokers, topic, group, other, ASSIGNMENTS.get(assignor))


def test_our_members_share_a_consumer_protocol_group_with_confluent(
    three_brokers: str, make_topic: MakeTopic
) -> None:
    """Both revoke before the broker gives the partition to the other."""
    topic = make_topic(three_brokers)
    with Group(three_brokers, topic, 6, protocol="consumer") as group:
        mixed(three_brokers, topic, group, "confluent", None)


def mixed(bootstrap: str, topic: str, group: Group, other: str, expected: list[list[int]] | None) -> None:
    """Let members of two clients lead in turn; `expected` are the partitions of two members."""

    def assigned() -> list[list[int]]:
        return sorted(member.assigned or [] for member in group.members)

    def wait_assigned() -> None:
        group.wait_balanced()
        if expected is not None:
            wait_until(lambda: expected == assigned(), f"assigned {expected}; it was {assigned()}")

    group.join(client=other)
    group.wait_balanced()
    group.wait_values(values())
    group.join(client="kalda")
    wait_assigned()
    # Now ours leads, too: the coordinator chooses among those that are left.
    first = group.members[0]
    group.take_out(first)
    first.leave()
    group.wait_balanced()
    group.join(client=other)
    wait_assigned()
    fill(bootstrap, topic, range(VALUES, VALUES * 2))
    group.wait_values(values(VALUES * 2))
    assert {1} == set(group.values().values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_killed_member_is_replaced_when_its_session_ends(
    three_brokers: str, make_topic: MakeTopic, protocol: str
) -> None:
    """Records that it had not committed are processed by the others."""
    topic = make_topic(three_brokers, values=0)
    options = {"client": "kalda", "protocol": protocol, "session_ms": SESSION_MS}
    with Group(three_brokers, topic, 6, **options) as group:
        group.join(3)
        group.wait_balanced()
        victim = group.members[1]
        group.take_out(victim)
        began = time.monotonic()
        victim.crash()
        group.wait_balanced()
        seconds = time.monotonic() - began
        assert seconds > SESSION_MS / 1000 / 2, "it was taken out long before its session ended"
        fill(three_brokers, topic, range(VALUES))
        group.wait_values(values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_that_was_stopped_comes_back(
    three_brokers: str, make_topic: MakeTopic, protocol: str
) -> None:
    """It finds itself removed, loses its partitions, joins again, and commits nothing stale (SIGSTOP)."""
    topic = make_topic(three_brokers)
    options = {"client": "kalda", "protocol": protocol, "session_ms": SESSION_MS}
    with Group(three_brokers, topic, 6, **options) as group:
        group.join(2)
        group.wait_balanced()
        group.wait_values(values())
        sleeper = group.members[0]
        group.take_out(sleeper)
        sleeper.pause()
        group.wait_balanced()
        fill(three_brokers, topic, range(VALUES, VALUES * 2))
        group.wait_values(values(VALUES * 2))
        group.members.append(sleeper)
        sleeper.resume()
        group.wait_balanced()
        fill(three_brokers, topic, range(VALUES * 2, VALUES * 3))
        group.wait_values(values(VALUES * 3))
        assert {1} == set(group.values().values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_static_members_come_back_without_a_rebalance(
    three_brokers: str, make_topic: MakeTopic, protocol: str
) -> None:
    """A restart within the session changes nothing for the others (KIP-345)."""
    topic = make_topic(three_brokers, values=0)
    options = {"client": "kalda", "protocol": protocol, "session_ms": 30_000}
    with Group(three_brokers, topic, 6, **options) as group:
        with Admin(bootstrap_servers=three_brokers) as admin:
            # With KIP-848 the group has it, and the brokers' own is short here.
            longer = AlterConfigOp.set("consumer.session.timeout.ms", "30000")
            admin.incremental_alter_configs({ConfigResource.group(group.name): [longer]})
        first = group.join(instance="first")[0]
        second = group.join(instance="second")[0]
        group.wait_balanced()
        had, others = first.assigned, list(second.history)
        group.take_out(first)
        first.leave()
        group.join(instance="first")
        group.wait_balanced()
        assert had == group.members[-1].assigned
        assert others == second.history, "the other member was made to join again"


def test_an_instance_that_joins_twice_fences_the_older(three_brokers: str, make_topic: MakeTopic) -> None:
    """The older one must stop: two consumers with one identity would process records twice."""
    topic = make_topic(three_brokers, values=0)
    with Group(three_brokers, topic, 6, client="kalda", session_ms=30_000) as group:
        older = group.join(instance="same")[0]
        group.wait_balanced()
        group.take_out(older)
        group.join(instance="same")
        wait_until(lambda: not older.is_alive, "the older instance is fenced")
        group.wait_balanced()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_go_on_with_the_next_coordinator(tmp_path: Path, protocol: str) -> None:
    """The group survives its coordinator: nobody starts anew, and commits are found again."""
    with Cluster(brokers=3, directory=tmp_path / "cluster", settings=SETTINGS) as cluster:
        make_topic_in(cluster, "t")
        expected = fill(cluster.bootstrap, "t", range(200))
        options = {"client": "kalda", "protocol": protocol, "session_ms": 10_000}
        with Group(cluster.bootstrap, "t", 6, **options) as group:
            group.join(3)
            group.wait_balanced()
            group.wait_values(expected)
            cluster.wait_in_sync("__consumer_offsets")
            cluster.kill(coordinator_of(cluster, group.name), expire_session=True)
            begin = time.monotonic()
            expected += fill(cluster.bootstrap, "t", range(200, 400))
            group.wait_values(expected)
            assert time.monotonic() - begin < 30
            group.wait_balanced()
            assert max(group.values().values()) <= 2

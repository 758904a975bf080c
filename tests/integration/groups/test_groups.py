"""Groups of every client: members that come, go and die; every assignor; both protocols."""

import shutil
import subprocess
import time
import uuid
from collections.abc import Callable

import pytest
from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from tests.integration.groups.conftest import fill
from tests.integration.groups.members import SESSION_MS, Group, wait_until

VALUES = 300

MakeTopic = Callable[..., str]

CLASSIC = [
    ("confluent", "range"),
    ("confluent", "roundrobin"),
    ("confluent", "cooperative-sticky"),
    ("kafka-python", "range"),
    ("kafka-python", "roundrobin"),
    ("kafka-python", "sticky"),
    ("aiokafka", "range"),
    ("aiokafka", "roundrobin"),
    ("aiokafka", "sticky"),
]
CONSUMER = [("uniform", 4), ("range", 3)]


def values(count: int = VALUES, start: int = 0) -> list[str]:
    return [f"value-{number}" for number in range(start, start + count)]


@pytest.mark.parametrize(("client", "assignor"), CLASSIC)
def test_members_of_a_classic_group_come_and_go(
    three_brokers: str, make_topic: MakeTopic, client: str, assignor: str
) -> None:
    """One member, then three, then two; nothing is left out, and nothing is lost when one leaves."""
    topic = make_topic(three_brokers)
    with Group(three_brokers, topic, 6, client=client, assignor=assignor) as group:
        group.join()
        group.wait_balanced()
        group.wait_values(values())
        group.join(2)
        group.wait_balanced()
        leaver = group.members[0]
        group.take_out(leaver)
        leaver.leave()
        group.wait_balanced()
        fill(three_brokers, topic, range(VALUES, VALUES * 2))
        group.wait_values(values(VALUES * 2))
        # Whoever took a partition over began where the last commit was.
        assert {1} == set(group.values().values())


@pytest.mark.parametrize("client", ["confluent", "kafka-python", "aiokafka"])
def test_a_member_that_dies_is_replaced_when_its_session_ends(
    three_brokers: str, make_topic: MakeTopic, client: str
) -> None:
    topic = make_topic(three_brokers, values=0)
    with Group(three_brokers, topic, 6, client=client, session_ms=SESSION_MS) as group:
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


@pytest.mark.parametrize(
    ("client", "assignor"), [("confluent", "range"), ("kafka-python", "range"), ("aiokafka", "range")]
)
def test_groups_on_one_broker(one_broker: str, make_topic: MakeTopic, client: str, assignor: str) -> None:
    topic = make_topic(one_broker)
    with Group(one_broker, topic, 6, client=client, assignor=assignor) as group:
        group.join(5)
        group.wait_balanced()
        group.wait_values(values())


@pytest.mark.parametrize("client", ["confluent", "kafka-python", "aiokafka"])
def test_static_members_come_back_without_a_rebalance(
    three_brokers: str, make_topic: MakeTopic, client: str
) -> None:
    """A restart within the session changes nothing for the others (KIP-345)."""
    topic = make_topic(three_brokers, values=0)
    with Group(three_brokers, topic, 6, client=client, session_ms=30_000) as group:
        first = group.join(instance="first")[0]
        second = group.join(instance="second")[0]
        group.wait_balanced()
        had, others = first.assigned, list(second.history)
        group.take_out(first)
        first.crash()
        group.join(instance="first")
        group.wait_balanced()
        assert had == group.members[-1].assigned
        assert others == second.history, "the other member was made to join again"


def test_an_instance_that_is_there_twice_fences_the_older(three_brokers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(three_brokers, values=0)
    with Group(three_brokers, topic, 6, client="confluent", session_ms=30_000) as group:
        older = group.join(instance="same")[0]
        group.wait_balanced()
        group.take_out(older)
        group.join(instance="same")
        group.wait_balanced()
        wait_until(lambda: not older.is_alive, "the older instance is fenced")


def test_different_clients_share_a_group(three_brokers: str, make_topic: MakeTopic) -> None:
    """They speak different versions of every request, and agree on the range assignor."""
    topic = make_topic(three_brokers)
    with Group(three_brokers, topic, 6) as group:
        for client in ("confluent", "kafka-python", "aiokafka"):
            group.join(client=client)
        group.wait_balanced()
        group.wait_values(values())


def test_a_group_goes_on_where_it_stopped(three_brokers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(three_brokers)
    with Group(three_brokers, topic, 6, client="aiokafka") as group:
        (only,) = group.join()
        group.wait_values(values())
        group.take_out(only)
        only.leave()
        fill(three_brokers, topic, range(VALUES, VALUES + 50))
        group.join(client="confluent")
        group.wait_values(values(VALUES + 50))
        assert {1} == set(group.values().values())


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed: apt-get install kcat")
def test_kcat_reads_as_a_member_of_a_group(three_brokers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(three_brokers)
    command = ["kcat", "-b", three_brokers, "-X", "auto.offset.reset=earliest", "-q", "-f", "%s\\n"]
    group = f"kcat-{uuid.uuid4().hex[:8]}"
    done = subprocess.run(
        [*command, "-c", str(VALUES), "-G", group, topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert sorted(values()) == sorted(done.stdout.split())


@pytest.mark.parametrize(("assignor", "count"), CONSUMER)
def test_members_of_a_consumer_protocol_group_come_and_go(
    three_brokers: str, make_topic: MakeTopic, assignor: str, count: int
) -> None:
    """KIP-848: the broker assigns; members give partitions back one by one."""
    topic = make_topic(three_brokers)
    options = {"client": "confluent", "protocol": "consumer", "assignor": assignor}
    with Group(three_brokers, topic, 6, **options) as group:
        group.join()
        group.wait_balanced()
        group.wait_values(values())
        group.join(count - 1)
        group.wait_balanced()
        leaver = group.members[0]
        group.take_out(leaver)
        leaver.leave()
        group.wait_balanced()
        victim = group.members[0]
        group.take_out(victim)
        victim.crash()
        group.wait_balanced()
        fill(three_brokers, topic, range(VALUES, VALUES * 2))
        group.wait_values(values(VALUES * 2))
        assert {1} == set(group.values().values())


def test_groups_are_listed_described_reset_and_deleted(three_brokers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(three_brokers)
    admin = AdminClient({"bootstrap.servers": three_brokers})
    with Group(three_brokers, topic, 6, client="confluent") as group:
        (only,) = group.join()
        group.wait_values(values())
        described = admin.describe_consumer_groups([group.name])[group.name].result(30)
        assert ConsumerGroupState.STABLE == described.state
        (member,) = described.members
        assert set(range(6)) == {each.partition for each in member.assignment.topic_partitions}
        listed = {each.group_id: each.state for each in admin.list_consumer_groups().result(30).valid}
        assert ConsumerGroupState.STABLE == listed[group.name]
        group.take_out(only)
        only.leave()
        wait_until(
            lambda: (
                admin.describe_consumer_groups([group.name])[group.name].result(30).state
                == ConsumerGroupState.EMPTY
            ),
            "the group is empty",
        )
        back = ConsumerGroupTopicPartitions(group.name, [TopicPartition(topic, n, 0) for n in range(6)])
        admin.alter_consumer_group_offsets([back])[group.name].result(30)
        group.join()
        wait_until(lambda: set(group.values().values()) == {2}, "everything is read again")
        group.members[0].leave()
        wait_until(
            lambda: (
                admin.describe_consumer_groups([group.name])[group.name].result(30).state
                == ConsumerGroupState.EMPTY
            ),
            "the group is empty again",
        )
        admin.delete_consumer_groups([group.name])[group.name].result(30)
        listed = {each.group_id: each.state for each in admin.list_consumer_groups().result(30).valid}
        assert group.name not in listed

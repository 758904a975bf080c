"""confluent-kafka with ``group.protocol=consumer``: the coordinator assigns the partitions (KIP-848)."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from kalda.coordinator.partitioning import partition_of
from kalda.testing import Cluster
from tests.integration.cluster.helpers import (
    TIMEOUT_SECONDS,
    create_topic,
    leaders,
    shared_cluster,
    wait_until,
)

SETTINGS = {
    "group.consumer.heartbeat.interval.ms": "200",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "20000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
}
PARTITIONS = 6
COUNT = 120


@pytest.fixture(scope="module", params=[1, 3], ids=["one-broker", "three-brokers"])
def brokers(request: pytest.FixtureRequest) -> int:
    """How many brokers there are, and replicas of everything."""
    count: int = request.param
    return count


@pytest.fixture(scope="module")
def bootstrap(brokers: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shared_cluster(tmp_path_factory.mktemp("brokers"), brokers=brokers, settings=SETTINGS) as addresses:
        yield addresses


class Group:
    """Consumers of one group, polled in turn."""

    def __init__(self, bootstrap: str, group_id: str) -> None:
        self._bootstrap = bootstrap
        self.group_id = group_id
        self.consumers: list[confluent_kafka.Consumer] = []
        self.values: list[bytes] = []

    def join(self, topics: list[str], **settings: Any) -> confluent_kafka.Consumer:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": self.group_id,
                "group.protocol": "consumer",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "log_level": 0,
                **settings,
            }
        )
        consumer.subscribe(topics)
        self.consumers.append(consumer)
        return consumer

    def leave(self, consumer: confluent_kafka.Consumer) -> None:
        self.consumers.remove(consumer)
        consumer.close()

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()

    def poll_until(self, condition: Callable[[], bool], seconds: float = TIMEOUT_SECONDS) -> None:
        def is_reached() -> bool:
            for consumer in self.consumers:
                message = consumer.poll(0.02)
                if message is not None and message.error() is None:
                    self.values.append(message.value())
            return condition()

        wait_until(is_reached, seconds)

    def shares(self) -> list[list[int]]:
        return [sorted(each.partition for each in consumer.assignment()) for consumer in self.consumers]

    def is_shared(self, partitions: int) -> bool:
        """Whether everything is assigned, to one each, evenly."""
        shares = self.shares()
        sizes = [len(share) for share in shares]
        return (
            sorted(itertools.chain.from_iterable(shares)) == list(range(partitions))
            and max(sizes) - min(sizes) <= 1
        )


@pytest.fixture
def group(bootstrap: str, topic_name: Callable[[str], str]) -> Iterator[Group]:
    made = Group(bootstrap, topic_name("group"))
    yield made
    made.close()


@pytest.fixture
def topic(bootstrap: str, brokers: int, topic_name: Callable[[str], str]) -> str:
    name = topic_name("shared")
    create_topic(bootstrap, name, partitions=PARTITIONS, replicas=brokers)
    produce(bootstrap, name)
    return name


def produce(bootstrap: str, topic: str) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "acks": "all", "log_level": 0})
    for number in range(COUNT):
        producer.produce(topic, str(number).encode(), partition=number % PARTITIONS)
    assert 0 == producer.flush(TIMEOUT_SECONDS)


def commit_all(topic: str, group: Group) -> None:
    """Every member commits for what it has; the coordinator checks its generation or epoch."""
    for consumer in group.consumers:
        group.poll_until(partial(commits, topic, consumer))


def commits(topic: str, consumer: confluent_kafka.Consumer) -> bool:
    """Commit; false if the member has not heard of its new epoch yet."""
    offsets = [confluent_kafka.TopicPartition(topic, each.partition, 7) for each in consumer.assignment()]
    try:
        committed = consumer.commit(offsets=offsets, asynchronous=False)
    except confluent_kafka.KafkaException as error:
        if error.args[0].code() != confluent_kafka.KafkaError.STALE_MEMBER_EPOCH:
            raise
        return False
    return committed is not None and all(each.error is None for each in committed)


def test_members_share_commit_and_leave(bootstrap: str, topic: str, group: Group) -> None:
    first = group.join([topic])
    group.poll_until(lambda: len(group.values) == COUNT)
    first.commit(asynchronous=False)
    group.join([topic])
    group.join([topic])
    group.poll_until(lambda: group.is_shared(PARTITIONS))

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    described = admin.describe_consumer_groups([group.group_id])[group.group_id].result(TIMEOUT_SECONDS)
    assert "CONSUMER" == described.type.name
    assert 3 == len(described.members)
    listed = admin.list_consumer_groups().result(TIMEOUT_SECONDS).valid
    assert (group.group_id, "CONSUMER") in {(each.group_id, each.type.name) for each in listed}
    for consumer in group.consumers:
        committed = consumer.committed(consumer.assignment(), timeout=TIMEOUT_SECONDS)
        assert [COUNT // PARTITIONS] * 2 == [each.offset for each in committed]

    group.leave(first)
    group.poll_until(lambda: group.is_shared(PARTITIONS))
    for consumer in list(group.consumers):
        group.leave(consumer)
    assert COUNT == len(group.values), "committed, so nobody reads it again"
    admin.delete_consumer_groups([group.group_id])[group.group_id].result(TIMEOUT_SECONDS)


def test_subscribes_by_expression_and_sees_new_partitions(bootstrap: str, topic: str, group: Group) -> None:
    group.join([f"^{topic[:-2]}.*"])
    group.poll_until(lambda: group.is_shared(PARTITIONS))

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_partitions([NewPartitions(topic, PARTITIONS + 2)])[topic].result(TIMEOUT_SECONDS)

    group.poll_until(lambda: group.is_shared(PARTITIONS + 2))


def test_static_member_comes_back_to_its_partitions(topic: str, group: Group) -> None:
    away = group.join([topic], **{"group.instance.id": "one", "client.id": "one"})
    group.join([topic], **{"group.instance.id": "two", "client.id": "two"})
    group.poll_until(lambda: group.is_shared(PARTITIONS))
    before = group.shares()

    group.leave(away)
    group.join([topic], **{"group.instance.id": "one", "client.id": "one"})
    group.poll_until(lambda: group.is_shared(PARTITIONS))

    assert before == [group.shares()[1], group.shares()[0]]


def test_the_range_assignor_on_request(topic: str, group: Group) -> None:
    for number in range(2):
        group.join([topic], **{"group.remote.assignor": "range", "group.instance.id": f"{number}"})

    group.poll_until(lambda: group.shares() == [[0, 1, 2], [3, 4, 5]])


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_live_group_changes_its_protocol_and_back(
    bootstrap: str, topic: str, group: Group, strategy: str
) -> None:
    classic = {
        "group.protocol": "classic",
        "partition.assignment.strategy": strategy,
        "heartbeat.interval.ms": 100,
        "session.timeout.ms": 6000,
    }
    for _ in range(2):
        group.join([topic], **classic)
    group.poll_until(lambda: group.is_shared(PARTITIONS) and len(group.values) >= COUNT)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def kind() -> str:
        listed = admin.list_consumer_groups().result(TIMEOUT_SECONDS).valid
        return next(str(each.type.name) for each in listed if each.group_id == group.group_id)

    assert "CLASSIC" == kind()

    newcomer = group.join([topic])
    group.poll_until(lambda: group.is_shared(PARTITIONS))
    assert "CONSUMER" == kind()
    group.join([topic], **classic)
    group.poll_until(lambda: len(group.consumers) == 4 and group.is_shared(PARTITIONS))

    commit_all(topic, group)
    group.leave(newcomer)
    group.poll_until(lambda: kind() == "CLASSIC" and group.is_shared(PARTITIONS))
    commit_all(topic, group)


def test_a_group_survives_its_coordinator() -> None:
    settings = {**SETTINGS, "zookeeper.session.timeout.ms": "4000"}
    with (
        Cluster(brokers=3, settings=settings) as cluster,
        contextlib.closing(Group(cluster.bootstrap, "survivors")) as group,
    ):
        create_topic(cluster.bootstrap, "t", partitions=PARTITIONS)
        produce(cluster.bootstrap, "t")
        for _ in range(3):
            group.join(["t"])
        group.poll_until(lambda: group.is_shared(PARTITIONS) and len(set(group.values)) == COUNT)
        commit_all("t", group)
        number = partition_of(group.group_id, int(SETTINGS["offsets.topic.num.partitions"]))
        coordinator = leaders(cluster.bootstrap, "__consumer_offsets")[number]
        cluster.wait_in_sync("__consumer_offsets")

        cluster.kill(coordinator, expire_session=True)

        group.poll_until(lambda: leaders(cluster.bootstrap, "__consumer_offsets")[number] != coordinator)
        group.join(["t"])
        group.poll_until(lambda: len(group.shares()) == 4 and group.is_shared(PARTITIONS))
        commit_all("t", group)

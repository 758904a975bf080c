"""Brokers whose disks are full, among others that have room; `tests.chaos.disk_rounds` fills real ones."""

from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest

from kalda.common.types import TopicPartition
from kalda.testing import Cluster
from tests.chaos.ordered_load import Ledger, LibrdkafkaLoad, LibrdkafkaReader
from tests.integration.cluster.helpers import create_topic, leaders, wait_until

TOPIC = "ordered"
PARTITIONS = 6
PROGRESS_SECONDS = 30.0
SETTINGS = {
    "min.insync.replicas": "2",
    # Longer than any wait here: nothing but the full disk takes a replica out of the ISR.
    "replica.lag.time.max.ms": "120000",
}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as running:
        yield running


def isrs(cluster: Cluster) -> list[tuple[int, ...]]:
    """Return the ISR of each partition of the topic, as its leader has it."""
    return [
        partition.isr
        for broker_id in cluster.running
        for name, partition in list(cluster.server(broker_id).services.replica_manager.partitions.items())
        if name.topic == TOPIC and partition.is_leader
    ]


def elect_preferred(bootstrap: str) -> None:
    """Ask for what the balance check would do in its own time."""
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    names = [confluent_kafka.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    admin.elect_leaders(confluent_kafka.ElectionType.PREFERRED, names).result(PROGRESS_SECONDS)


def high_watermarks(cluster: Cluster) -> list[int]:
    """Return the high watermark of partition 0 at each broker."""
    name = TopicPartition(TOPIC, 0)
    managers = [cluster.server(each).services.replica_manager for each in cluster.running]
    return [manager.partitions[name].log.high_watermark for manager in managers]


def test_leaderships_leave_a_full_disk_at_once_and_come_back_with_room(cluster: Cluster) -> None:
    """The full broker is the controller too, which moves its own leaderships."""
    create_topic(cluster.bootstrap, TOPIC, partitions=PARTITIONS)
    ledger = Ledger(PARTITIONS)
    load = LibrdkafkaLoad(cluster.bootstrap, TOPIC, ledger, records_per_second=300)
    reader = LibrdkafkaReader(cluster.bootstrap, TOPIC, ledger)
    try:
        reader.start()
        load.start()
        load.wait_progress(PROGRESS_SECONDS)
        victim = cluster.controller_id()
        assert victim in leaders(cluster.bootstrap, TOPIC).values()
        cluster.fill_disk(victim)
        load.wait_progress(PROGRESS_SECONDS)
        wait_until(lambda: victim not in leaders(cluster.bootstrap, TOPIC).values())
        wait_until(lambda: all(victim not in isr for isr in isrs(cluster)))
        load.wait_progress(PROGRESS_SECONDS)
        cluster.make_room(victim)
        cluster.wait_in_sync(TOPIC)
        elect_preferred(cluster.bootstrap)
        wait_until(lambda: victim in leaders(cluster.bootstrap, TOPIC).values())
        load.wait_progress(PROGRESS_SECONDS)
        load.stop()
        reader.wait_all_read()
    finally:
        load.abandon()
        reader.stop()
    ledger.check_all_read()
    assert [] == [*load.errors, *ledger.violations, *reader.errors]


def test_with_all_disks_full_readers_are_served_and_producers_go_on_with_room(cluster: Cluster) -> None:
    create_topic(cluster.bootstrap, TOPIC)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "linger.ms": 0}
    )
    outcomes: list[object] = []

    def produce(value: bytes) -> None:
        producer.produce(TOPIC, value, partition=0, on_delivery=lambda error, _: outcomes.append(error))

    produce(b"before")
    assert 0 == producer.flush(PROGRESS_SECONDS)
    # Alone in sync, below `min.insync.replicas`, a leader does not advance the high watermark that it has.
    wait_until(lambda: high_watermarks(cluster) == [1, 1, 1])
    for broker_id in cluster.running:
        cluster.fill_disk(broker_id)
    produce(b"while")
    # Each broker that leads finds out and hands over, until the last has nobody left.
    wait_until(lambda: producer.poll(0.02) == 0 and all(len(isr) == 1 for isr in isrs(cluster)))
    assert [b"before"] == read_all(cluster.bootstrap)
    assert [None] == outcomes
    for broker_id in cluster.running:
        cluster.make_room(broker_id)
    assert 0 == producer.flush(PROGRESS_SECONDS)
    assert [None, None] == outcomes
    cluster.wait_in_sync(TOPIC)
    assert [b"before", b"while"] == read_all(cluster.bootstrap)


def test_a_group_commits_although_the_disk_of_its_coordinator_is_full(cluster: Cluster) -> None:
    """The coordinator's partition moves, and the group with it."""
    create_topic(cluster.bootstrap, TOPIC)
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": "readers", "enable.auto.commit": False}
    )
    try:
        committed = [confluent_kafka.TopicPartition(TOPIC, 0, 1)]
        consumer.commit(offsets=committed, asynchronous=False)
        coordinator = leader_of_group(cluster)
        cluster.fill_disk(coordinator)
        committed[0].offset = 2

        def is_committed() -> bool:
            try:
                consumer.commit(offsets=committed, asynchronous=False)
            except confluent_kafka.KafkaException as raised:
                error = raised.args[0]
                if error.retriable() or error.code() in RETRIED:
                    return False
                raise
            return True

        wait_until(is_committed, PROGRESS_SECONDS)
        assert coordinator != leader_of_group(cluster)
        assert [2] == [each.offset for each in consumer.committed(committed, timeout=PROGRESS_SECONDS)]
    finally:
        consumer.close()


RETRIED = (
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    confluent_kafka.KafkaError._WAIT_COORD,
    confluent_kafka.KafkaError._TRANSPORT,
)


def leader_of_group(cluster: Cluster) -> int:
    """Return which broker leads the only partition of `__consumer_offsets` with records."""
    found = [
        broker_id
        for broker_id in cluster.running
        for name, each in list(cluster.server(broker_id).services.replica_manager.partitions.items())
        if name.topic == "__consumer_offsets" and each.is_leader and each.log.log_end_offset
    ]
    assert 1 == len(found), found
    return found[0]


def read_all(bootstrap: str) -> list[bytes | None]:
    """Read partition 0 as a reader that comes now."""
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    values: list[bytes | None] = []
    try:
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        while True:
            message = consumer.poll(PROGRESS_SECONDS)
            assert message is not None, "nothing was answered"
            if message.error() is not None:
                assert confluent_kafka.KafkaError._PARTITION_EOF == message.error().code(), message.error()
                return values
            values.append(message.value())
    finally:
        consumer.close()

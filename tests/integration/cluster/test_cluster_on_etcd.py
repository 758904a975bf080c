"""Three brokers over three etcd servers: what a cluster does, and what it survives.

Everything goes through real processes and real clients, as in `test_cluster_on_real_zookeeper`.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kalda import Admin
from kalda import TopicPartition as Partition
from kalda.testing.process_cluster import ProcessCluster
from tests.integration.etcd_servers import EtcdCluster, missing

WAIT_SECONDS = 60.0
SETTINGS = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdCluster]:
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with EtcdCluster(tmp_path / "etcd", servers=3) as cluster:
        yield cluster


@pytest.fixture
def cluster(etcd: EtcdCluster, tmp_path: Path) -> Iterator[ProcessCluster]:
    address = f"etcd://{etcd.hosts}/test"
    with ProcessCluster(tmp_path, brokers=3, settings=SETTINGS, zookeeper=address) as cluster:
        yield cluster


def create_topic(cluster: ProcessCluster, name: str, partitions: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    future = admin.create_topics([NewTopic(name, partitions, 3)], request_timeout=60)[name]
    future.result(WAIT_SECONDS)


def is_created(cluster: ProcessCluster, name: str) -> bool:
    """Return whether a topic exists; ask for it once more if it does not."""
    try:
        create_topic(cluster, name)
    except KafkaException as error:
        code = error.args[0].code()
        if code in (KafkaError.REQUEST_TIMED_OUT, KafkaError.INVALID_REPLICATION_FACTOR):
            return False
        if code != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    return True


def produce(cluster: ProcessCluster, topic: str, numbers: range) -> None:
    """Write numbers with `acks=all` and idempotence; each must be confirmed."""
    failures: list[object] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True, "message.timeout.ms": 120_000}
    )
    for number in numbers:
        producer.produce(
            topic, str(number), on_delivery=lambda error, _: failures.append(error) if error else None
        )
    assert 0 == producer.flush(120)
    assert [] == failures


def consume(cluster: ProcessCluster, topic: str, count: int, group: str) -> list[int]:
    """Read as a member of a group until there are so many records, and some time more for doubled ones."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    found: list[int] = []
    deadline = time.monotonic() + 120
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            value = message.value()
            assert value is not None
            found.append(int(value))
    while (message := consumer.poll(0.3)) is not None:
        value = message.value()
        if message.error() is None and value is not None:
            found.append(int(value))
    consumer.close()
    return sorted(found)


def eventually(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def controller(cluster: ProcessCluster) -> int:
    metadata = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=WAIT_SECONDS)
    return int(metadata.controller_id)


@pytest.mark.timeout(300)
def test_brokers_die_with_kill_9(cluster: ProcessCluster) -> None:
    create_topic(cluster, "orders")
    produce(cluster, "orders", range(300))
    first = controller(cluster)
    cluster.kill(first)
    produce(cluster, "orders", range(300, 600))
    eventually(lambda: controller(cluster) not in (first, -1), "no other broker became controller")
    create_topic_needs_two = controller(cluster)
    cluster.start(first)
    cluster.kill(create_topic_needs_two)
    produce(cluster, "orders", range(600, 900))
    cluster.start(create_topic_needs_two)
    assert list(range(900)) == consume(cluster, "orders", 900, "readers")


@pytest.mark.timeout(300)
def test_etcd_leader_is_killed_and_comes_back(cluster: ProcessCluster, etcd: EtcdCluster) -> None:
    create_topic(cluster, "before")
    leader = etcd.leader()
    leader.kill()
    create_topic(cluster, "during")
    produce(cluster, "during", range(300))
    etcd.restart(leader)
    create_topic(cluster, "after")
    assert list(range(300)) == consume(cluster, "during", 300, "readers")


@pytest.mark.timeout(300)
def test_etcd_leader_is_paused(cluster: ProcessCluster, etcd: EtcdCluster) -> None:
    create_topic(cluster, "before")
    leader = etcd.leader()
    leader.pause()
    try:
        create_topic(cluster, "during")
        produce(cluster, "during", range(300))
    finally:
        leader.resume()
    # An etcd from before 2024 may end all sessions now (etcd issue 15247): brokers register again.
    eventually(lambda: is_created(cluster, "after"), "no topic could be created")
    assert list(range(300)) == consume(cluster, "during", 300, "readers")


@pytest.mark.timeout(300)
def test_etcd_is_compacted_and_defragmented_under_load(cluster: ProcessCluster, etcd: EtcdCluster) -> None:
    for number in range(4):
        create_topic(cluster, f"t{number}")
        etcd.compact()
        etcd.ctl("defrag", "--command-timeout", "30s")
        produce(cluster, f"t{number}", range(100))
    killed = controller(cluster)
    cluster.kill(killed)
    etcd.compact()
    cluster.start(killed)
    for number in range(4):
        assert list(range(100)) == consume(cluster, f"t{number}", 100, f"readers-{number}")


@pytest.mark.timeout(300)
def test_replicas_are_moved_and_acls_are_kept(cluster: ProcessCluster, etcd: EtcdCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("moved", 2, replica_assignment=[[0, 1], [1, 0]])])["moved"].result(60)
    produce(cluster, "moved", range(200))
    with Admin(bootstrap_servers=cluster.bootstrap) as own:
        own.alter_partition_reassignments({Partition("moved", 0): [2, 1], Partition("moved", 1): [2, 0]})

    def replicas() -> list[list[int]]:
        found = admin.list_topics("moved", timeout=WAIT_SECONDS).topics["moved"].partitions
        return [sorted(found[number].replicas) for number in sorted(found)]

    eventually(lambda: replicas() == [[1, 2], [0, 2]], "the replicas were not moved")
    binding = AclBinding(
        ResourceType.TOPIC,
        "moved",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    admin.create_acls([binding])[binding].result(WAIT_SECONDS)
    etcd.leader().kill()
    killed = controller(cluster)
    cluster.kill(killed)
    # The client asks the controller, and would go on asking the dead one.
    eventually(lambda: controller(cluster) not in (killed, -1), "no other broker became controller")
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    survivors = AdminClient({"bootstrap.servers": cluster.bootstrap})
    assert [binding] == survivors.describe_acls(everything).result(WAIT_SECONDS)
    cluster.start(killed)
    assert list(range(200)) == consume(cluster, "moved", 200, "readers")


@pytest.mark.timeout(300)
def test_transactions_survive_a_killed_broker(cluster: ProcessCluster) -> None:
    create_topic(cluster, "paid")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": "t", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(60)
    killed = controller(cluster)
    for transaction in range(6):
        producer.begin_transaction()
        for number in range(10):
            producer.produce("paid", str(transaction * 10 + number), partition=number % 3)
        if transaction == 2:
            cluster.kill(killed)
        if transaction % 2:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
    # The topic of the groups' offsets is created with three replicas.
    cluster.start(killed)
    committed = [transaction * 10 + number for transaction in range(0, 6, 2) for number in range(10)]
    assert committed == consume(cluster, "paid", 30, "readers")
    offsets = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "readers"})
    found = offsets.committed([TopicPartition("paid", number) for number in range(3)], timeout=60)
    assert all(each.offset > 0 for each in found)
    offsets.close()

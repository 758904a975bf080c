"""`kalda.testing.Cluster` with the clients that users have: what it serves, and what can be done to it."""

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka
import pytest

from kalda.testing import Cluster, ClusterError, KaldaProcess, KaldaProcessError
from tests.integration.clients.kafka_python_sockets import PROXY_URL
from tests.integration.cluster.helpers import create_topic, leaders, wait_until
from tests.integration.zookeeper_client import zookeeper_client

SETTINGS = {
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "3000",
}
COUNT = 300
DELIVERY_SECONDS = 30


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as started:
        yield started


def confluent_produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
    )
    errors = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert 0 == producer.flush(DELIVERY_SECONDS)
    assert [] == errors


def confluent_consume(bootstrap: str, topic: str, partitions: int, count: int) -> list[bytes]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "log_level": 0}
    )
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(partitions)])
        found: list[bytes] = []
        while len(found) < count:
            messages = consumer.consume(count, timeout=DELIVERY_SECONDS)
            assert messages, f"only {len(found)} of {count} arrived"
            for message in messages:
                assert message.error() is None, message.error()
                value = message.value()
                assert value is not None
                found.append(value)
        return found
    finally:
        consumer.close()


def numbered(count: int = COUNT) -> list[bytes]:
    return [b"%05d" % number for number in range(count)]


def test_confluent_kafka_loses_nothing_when_the_leader_is_killed(cluster: Cluster) -> None:
    """acks=all with replication 3: whoever leads next has everything that was acknowledged."""
    create_topic(cluster.bootstrap, "t", partitions=3)
    cluster.wait_in_sync("t")
    values = numbered(2 * COUNT)
    confluent_produce(cluster.bootstrap, "t", values[:COUNT])
    killed = leaders(cluster.bootstrap, "t")[0]
    cluster.kill(killed)
    confluent_produce(cluster.bootstrap, "t", values[COUNT:])
    assert values == sorted(confluent_consume(cluster.bootstrap, "t", 3, len(values)))
    cluster.start(killed)
    cluster.wait_in_sync("t")


def test_kafka_python_goes_on_when_the_leader_is_killed(cluster: Cluster) -> None:
    create_topic(cluster.bootstrap, "t")
    cluster.wait_in_sync("t")
    settings = {"bootstrap_servers": cluster.bootstrap.split(","), "proxy_url": PROXY_URL}
    values = numbered()
    with contextlib.closing(kafka.KafkaProducer(acks="all", retries=50, **settings)) as producer:
        for value in values[: COUNT // 2]:
            producer.send("t", value)
        producer.flush(DELIVERY_SECONDS)
        cluster.kill(leaders(cluster.bootstrap, "t")[0], expire_session=True)
        futures = [producer.send("t", value) for value in values[COUNT // 2 :]]
        for future in futures:
            future.get(DELIVERY_SECONDS)
    found: set[bytes] = set()
    deadline = time.monotonic() + DELIVERY_SECONDS
    with contextlib.closing(kafka.KafkaConsumer(group_id=None, **settings)) as consumer:
        partition = kafka.TopicPartition("t", 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        while len(found) < COUNT and time.monotonic() < deadline:
            for records in consumer.poll(timeout_ms=500).values():
                found.update(record.value for record in records)
    assert set(values) == found


async def test_aiokafka_goes_on_when_the_leader_is_killed() -> None:
    """`async with`: the cluster's own threads leave the test's loop alone."""
    async with Cluster(brokers=3, settings=SETTINGS) as cluster:
        await asyncio.to_thread(create_topic, cluster.bootstrap, "t")
        await asyncio.to_thread(cluster.wait_in_sync, "t")
        values = numbered()
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True
        ) as producer:
            for value in values[: COUNT // 2]:
                await producer.send("t", value, partition=0)
            await producer.flush()
            killed = (await asyncio.to_thread(leaders, cluster.bootstrap, "t"))[0]
            await asyncio.to_thread(cluster.kill, killed)
            for value in values[COUNT // 2 :]:
                await producer.send_and_wait("t", value, partition=0)
        async with aiokafka.AIOKafkaConsumer(
            bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([aiokafka.TopicPartition("t", 0)])
            await consumer.seek_to_beginning()
            found = [await asyncio.wait_for(consumer.getone(), DELIVERY_SECONDS) for _ in values]
        assert [record.value for record in found] == values


def test_a_rolling_restart_under_load_loses_nothing(cluster: Cluster) -> None:
    """Controlled shutdowns, one by one: no record fails and none is missing."""
    create_topic(cluster.bootstrap, "t", partitions=3)
    cluster.wait_in_sync("t")
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True, "log_level": 0}
    )
    errors: list[object] = []
    sent: list[bytes] = []
    is_over = threading.Event()

    def load() -> None:
        while not is_over.wait(0.002):
            value = b"%06d" % len(sent)
            sent.append(value)
            producer.produce("t", value, on_delivery=lambda error, _: errors.append(error) if error else None)
            producer.poll(0)

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for broker_id in range(3):
            cluster.restart(broker_id)
            cluster.wait_in_sync("t")
    finally:
        is_over.set()
        thread.join()
    assert 0 == producer.flush(DELIVERY_SECONDS)
    assert [] == errors
    assert sent == sorted(confluent_consume(cluster.bootstrap, "t", 3, len(sent)))


def test_a_paused_leader_steps_down_when_it_wakes(cluster: Cluster) -> None:
    """The split brain: while it stood still another was elected; what it believes is worth nothing."""
    create_topic(cluster.bootstrap, "t")
    cluster.wait_in_sync("t")
    confluent_produce(cluster.bootstrap, "t", [b"before"])
    old = leaders(cluster.bootstrap, "t")[0]
    cluster.pause(old)
    cluster.expire_session(old)
    others = ",".join(address for number, address in enumerate(cluster.bootstrap.split(",")) if number != old)
    wait_until(lambda: leaders(others, "t")[0] not in (old, -1))
    confluent_produce(others, "t", [b"meanwhile"])
    cluster.resume(old)
    cluster.wait_in_sync("t")
    confluent_produce(cluster.bootstrap, "t", [b"after"])
    assert [b"before", b"meanwhile", b"after"] == confluent_consume(cluster.bootstrap, "t", 1, 3)


def test_a_leader_cut_off_from_its_followers_shrinks_the_isr(cluster: Cluster) -> None:
    """It still reaches coordination, so it leads on alone, as soon as there is something they lack."""
    create_topic(cluster.bootstrap, "t", config={"min.insync.replicas": "1"})
    cluster.wait_in_sync("t")
    leader = leaders(cluster.bootstrap, "t")[0]
    cluster.partition({leader}, {0, 1, 2} - {leader})

    def in_sync() -> set[int]:
        partitions = cluster.server(leader).services.replica_manager.partitions
        return {replica for partition in list(partitions.values()) for replica in partition.isr}

    # A follower that lacks nothing is in sync, however long it was not heard of.
    assert {0, 1, 2} == in_sync()
    confluent_produce(cluster.bootstrap, "t", [b"alone"])
    assert {leader} == in_sync()
    cluster.heal()
    cluster.wait_in_sync("t")


def test_a_broker_cut_off_from_everybody_is_replaced_and_comes_back(cluster: Cluster) -> None:
    """Without coordination its session ends; after the partition it registers again and catches up."""
    create_topic(cluster.bootstrap, "t")
    cluster.wait_in_sync("t")
    old = leaders(cluster.bootstrap, "t")[0]
    rest = {0, 1, 2} - {old}
    cluster.partition({old}, {*rest, "coordinator"})
    others = ",".join(cluster.bootstrap.split(",")[number] for number in rest)
    wait_until(lambda: leaders(others, "t")[0] in rest)
    confluent_produce(others, "t", [b"elsewhere"])
    cluster.heal()
    cluster.wait_in_sync("t")
    assert [b"elsewhere"] == confluent_consume(cluster.bootstrap, "t", 1, 1)
    assert 2 == cluster.server(old).parts.context.registration.statistics().registrations


def test_sessions_that_expire_again_and_again_leave_nothing_behind(cluster: Cluster) -> None:
    """Registered again, watches armed again, nothing doubled: a change of settings reaches everybody once."""
    create_topic(cluster.bootstrap, "t")
    told: list[str] = []
    for broker_id in range(3):
        store = cluster.server(broker_id).services.config_store
        store.on_topic_change(lambda topic, config: told.append(f"{topic} {config.retention_ms}"))

    def all_registered(times: int) -> bool:
        registrations = [cluster.server(each).parts.context.registration for each in range(3)]
        return all(each.statistics().registrations == times for each in registrations)

    with zookeeper_client(cluster.zookeeper) as observer:
        for number in range(2, 4):
            cluster.partition({0, 1, 2}, {"coordinator"})
            wait_until(lambda: observer.get_children("/brokers/ids") == [])
            cluster.heal()
            wait_until(partial(all_registered, number))
    cluster.wait_in_sync("t")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    entry = confluent_kafka.admin.ConfigEntry(
        "retention.ms", "123456", incremental_operation=confluent_kafka.admin.AlterConfigOpType.SET
    )
    resource = confluent_kafka.admin.ConfigResource("topic", "t", incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(DELIVERY_SECONDS)
    wait_until(lambda: len(told) >= 3)
    assert 3 * ["t 123456"] == told


@pytest.mark.parametrize(
    ("go", "come_back"),
    [
        pytest.param(Cluster.kill_coordinator, Cluster.start_coordinator, id="killed"),
        pytest.param(Cluster.stop_coordinator, Cluster.start_coordinator, id="stopped"),
        pytest.param(Cluster.pause_coordinator, Cluster.resume_coordinator, id="paused"),
    ],
)
def test_the_coordinator_may_go_and_come_back(
    cluster: Cluster, go: Callable[[Cluster], None], come_back: Callable[[Cluster], None]
) -> None:
    """Data flows without it; what only it can do waits until it is back, and it has forgotten nothing."""
    create_topic(cluster.bootstrap, "t")
    cluster.wait_in_sync("t")
    producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    go(cluster)
    producer.produce("t", b"meanwhile")
    assert 0 == producer.flush(DELIVERY_SECONDS)
    come_back(cluster)
    create_topic(cluster.bootstrap, "u")
    cluster.wait_in_sync("u")


def test_the_controller_may_be_killed_over_and_over(cluster: Cluster) -> None:
    for number in range(3):
        victim = cluster.controller_id()
        cluster.kill(victim, expire_session=True)
        assert victim != cluster.controller_id()
        create_topic(cluster.bootstrap, f"t{number}", replicas=2)
        cluster.start(victim)


def test_misuse_is_told() -> None:
    with Cluster(brokers=1) as cluster:
        with pytest.raises(ClusterError, match="broker 0 runs already"):
            cluster.start(0)
        with pytest.raises(ClusterError, match="no member 7"):
            cluster.kill(7)
        with pytest.raises(ClusterError, match="two groups"):
            cluster.partition({0}, {0})
        cluster.pause(0)
        with pytest.raises(ClusterError, match="paused"):
            cluster.stop(0)
        cluster.resume(0)
        cluster.stop(0)
        with pytest.raises(ClusterError, match="broker 0 does not run"):
            cluster.resume(0)
    with pytest.raises(ValueError, match="2 racks"):
        Cluster(brokers=3, racks=["a", "b"])


def test_a_start_that_fails_says_why_and_leaves_nothing() -> None:
    with Cluster(brokers=1) as cluster:
        second = Cluster(brokers=2, settings={"listeners": f"PLAINTEXT://{cluster.bootstrap}"})
        with pytest.raises(ClusterError, match="Address already in use"):
            second.__enter__()
        wait_until(lambda: "kalda-broker-1" not in {thread.name for thread in threading.enumerate()})


def test_a_topic_is_created_again_while_a_replicas_broker_is_dead(cluster: Cluster) -> None:
    """Its copy of the old topic is deleted or set aside, and serves nobody."""
    create_topic(cluster.bootstrap, "t", partitions=3)
    cluster.wait_in_sync("t")
    confluent_produce(cluster.bootstrap, "t", [b"old"] * COUNT)
    dead = next(each for each in cluster.running if each != cluster.controller_id())
    cluster.kill(dead, expire_session=True)
    wait_until(lambda: dead not in leaders(cluster.bootstrap, "t").values())

    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.delete_topics(["t"], operation_timeout=1)["t"].result(DELIVERY_SECONDS)
    create_topic(cluster.bootstrap, "t", partitions=1, replicas=2)
    confluent_produce(cluster.bootstrap, "t", numbered())
    cluster.start(dead)

    cluster.wait_in_sync("t")
    assert numbered() == confluent_consume(cluster.bootstrap, "t", 1, COUNT)

    def served() -> list[str]:
        return [path.name for path in cluster.log_directories[dead].glob("t-?")]

    wait_until(lambda: served() == [])


def test_a_violated_invariant_fails_the_block() -> None:
    """A broker logs most errors of a request and goes on; a test must not pass over one of ours."""
    with pytest.raises(ClusterError, match="an invariant was violated: planted"), Cluster(brokers=1):
        logging.getLogger("kalda.storage").error("a request failed", exc_info=AssertionError("planted"))


def test_a_violated_invariant_in_the_log_of_a_process_fails_the_block(tmp_path: Path) -> None:
    with (
        pytest.raises(KaldaProcessError, match="an invariant was violated: AssertionError: planted"),
        KaldaProcess(tmp_path / "data") as process,
        process.log_file.open("ab") as log,
    ):
        log.write(b"AssertionError: planted\n")

"""Leaders among real brokers: the one that slept through an election, and readers near a follower."""

import uuid

import confluent_kafka

from kalda.broker.replicas.partition import Partition
from kalda.common.types import TopicPartition
from kalda.storage.log_types import FetchIsolation
from kalda.testing.cluster import Cluster
from tests.integration.cluster.helpers import create_topic, leaders, wait_until

TOPIC = "orders"
NAME = TopicPartition(TOPIC, 0)


def replica(cluster: Cluster, broker_id: int) -> Partition:
    return cluster.server(broker_id).services.replica_manager.partitions[NAME]


def records(cluster: Cluster, broker_id: int) -> bytes:
    log = replica(cluster, broker_id).log
    return log.read(0, 1 << 30, FetchIsolation.LOG_END).records.read()


def produce(bootstrap: str, count: int, *, acks: str = "all", timeout_ms: int = 20_000) -> list[str]:
    """Produce and return what became of each record: an error's name or nothing."""
    outcomes: list[str] = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "acks": acks, "message.timeout.ms": timeout_ms, "linger.ms": 0}
    )
    for number in range(count):
        producer.produce(
            TOPIC,
            b"%d" % number,
            partition=0,
            on_delivery=lambda error, _: outcomes.append("" if error is None else error.name()),
        )
        producer.flush(timeout_ms / 1000)
    return outcomes


def test_a_leader_that_wakes_after_another_was_elected_steps_down() -> None:
    """The split brain: what the old leader takes is never acknowledged, and what the new one took stays."""
    with Cluster(brokers=3, settings={"min.insync.replicas": "2"}) as cluster:
        create_topic(cluster.bootstrap, TOPIC)
        assert [""] * 5 == produce(cluster.bootstrap, 5)
        old = leaders(cluster.bootstrap, TOPIC)[0]
        cluster.pause(old)
        cluster.expire_session(old)
        others = [broker for broker in range(3) if broker != old]
        alive = ",".join(cluster.server(broker).bootstrap for broker in others)
        wait_until(lambda: leaders(alive, TOPIC)[0] in others)
        assert [""] * 5 == produce(alive, 5)
        new = leaders(alive, TOPIC)[0]
        cluster.resume(old)
        wait_until(lambda: not replica(cluster, old).is_leader)
        cluster.wait_in_sync(TOPIC)
        assert 10 == replica(cluster, new).log.high_watermark
        wait_until(lambda: replica(cluster, old).log.log_end_offset == 10)
        assert records(cluster, new) == records(cluster, old)


def test_the_isr_follows_who_is_there() -> None:
    settings = {"replica.lag.time.max.ms": "1000", "replica.fetch.wait.max.ms": "200"}
    with Cluster(brokers=3, settings=settings) as cluster:
        create_topic(cluster.bootstrap, TOPIC)
        assert [""] == produce(cluster.bootstrap, 1)
        leader = leaders(cluster.bootstrap, TOPIC)[0]
        cut = next(broker for broker in range(3) if broker != leader)
        # Only the brokers lose sight of each other: the session lives, so the controller does nothing.
        cluster.partition({cut}, set(range(3)) - {cut})
        assert [""] == produce(cluster.server(leader).bootstrap, 1)
        assert cut not in replica(cluster, leader).isr
        cluster.heal()
        wait_until(lambda: cut in replica(cluster, leader).isr)
        wait_until(lambda: replica(cluster, cut).log.log_end_offset == 2)


def test_a_consumer_reads_from_the_follower_in_its_rack() -> None:
    settings = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "replica.fetch.wait.max.ms": "100",
    }
    with Cluster(brokers=2, racks=["a", "b"], settings=settings) as cluster:
        create_topic(cluster.bootstrap, TOPIC, replicas=2)
        assert [""] * 20 == produce(cluster.bootstrap, 20)
        leader = leaders(cluster.bootstrap, TOPIC)[0]
        follower = 1 - leader
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": str(uuid.uuid4()),
                "client.rack": "ab"[follower],
                "enable.auto.commit": False,
            }
        )
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 0)])
        values: list[bytes] = []

        def has_read(count: int) -> bool:
            values.extend(
                message.value() or b"" for message in consumer.consume(100, 0.2) if message.error() is None
            )
            return len(values) >= count

        wait_until(lambda: has_read(20))
        assert [""] * 20 == produce(cluster.bootstrap, 20)
        wait_until(lambda: has_read(40))
        consumer.close()
        assert [b"%d" % number for number in range(20)] * 2 == values
        assert cluster.server(follower).services.replica_manager.topic_stats.total().bytes_out > 0
        assert 0 == cluster.server(leader).services.replica_manager.topic_stats.total().bytes_out

"""A Kalda broker beside Apache Kafka 2.7, whose controller sends no topic ids, and its upgrade to 3.9.

The controller moves between both. What was acknowledged stays visible, and the logs take the ids without
becoming strays.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from benchmarks.apache_kafka import NotAvailableError, kafka_jars
from kalda import Admin, Consumer, NewTopic, Producer
from kalda.clients.admin.partitions import ElectionType
from kalda.clients.admin.topics import TopicPartitionInfo
from kalda.common.types import TopicPartition
from kalda.net.peer.dialer import TcpDialer
from kalda.net.peer.peer_connection import DialOptions
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kalda.testing.ports import free_ports
from kalda.testing.process_cluster import BrokerProcess, ZooKeeperProcess
from tests.compat.old_kafka import ApacheBroker
from tests.integration.cluster.helpers import wait_until

OLD, NEW = ("2.7.2", "2.7"), ("3.9.1", "3.9")
"""Release and inter-broker protocol."""
KAFKA_ID, KALDA_ID = 0, 1
WAIT_SECONDS = 60.0
PARTITIONS = [TopicPartition("both", 0), TopicPartition("both", 1), TopicPartition("kalda-only", 0)]
COMMON = {
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "2",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
}


class MixedCluster:
    """One ZooKeeper, broker 0 of Apache Kafka, broker 1 of Kalda, and the acknowledged records."""

    def __init__(self, directory: Path) -> None:
        for release, _ in (OLD, NEW):
            kafka_jars(release)
        self._directory = directory
        (zookeeper_port,) = free_ports(1)
        self.zookeeper = ZooKeeperProcess(directory / "zookeeper", port=zookeeper_port)
        address = f"127.0.0.1:{zookeeper_port}"
        eligible = {"kalda.controller.eligible": "true"}
        self.kalda = BrokerProcess(KALDA_ID, directory / "kalda", address, settings={**COMMON, **eligible})
        # A controller that stops finds no other one to ask, and tries for a quarter of a minute.
        settings = {
            **COMMON,
            "controlled.shutdown.enable": "false",
            "log.dirs": str(directory / "kafka"),
        }
        self._kafka = ApacheBroker(OLD[0], KAFKA_ID, directory / "apache", address, settings=settings)
        self.bootstrap = f"{self._kafka.bootstrap},127.0.0.1:{self.kalda.port}"
        self._acknowledged: dict[TopicPartition, list[bytes]] = {each: [] for each in PARTITIONS}

    def start_kafka(self, release: str, protocol: str) -> None:
        """Start broker 0 over its directory; return when it serves."""
        self._kafka.release = release
        self._kafka.settings["inter.broker.protocol.version"] = protocol
        self._kafka.start()

    def stop_kafka(self) -> None:
        """Stop broker 0; harmless if it is down."""
        self._kafka.stop()

    def kill_kalda(self) -> None:
        """Kill broker 1; harmless if it is down."""
        if self.kalda.is_running:
            self.kalda.kill()

    def create_topics(self) -> None:
        """Create a topic on both brokers, led by each once, and one on Kalda's alone."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            both = {0: [KALDA_ID, KAFKA_ID], 1: [KAFKA_ID, KALDA_ID]}
            admin.create_topics(
                [
                    NewTopic("both", replica_assignments=both),
                    NewTopic("kalda-only", replica_assignments={0: [KALDA_ID]}),
                ]
            )

    def elect_preferred(self) -> None:
        """Let each broker lead one partition of the topic that both have."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            # One of them may be led by its preferred replica already.
            admin.elect_leaders(ElectionType.PREFERRED, PARTITIONS[:2], outcomes=True)
        wait_until(lambda: [KALDA_ID, KAFKA_ID] == [each.leader_id for each in self._partitions()])

    def wait_controller(self, broker_id: int) -> None:
        """Wait until every client is sent to this controller."""

        def is_controller() -> bool:
            with Admin(bootstrap_servers=self.bootstrap) as admin:
                found = admin.describe_cluster().controller
            return found is not None and found.id == broker_id

        wait_until(is_controller, WAIT_SECONDS)

    def wait_in_sync(self) -> None:
        """Wait until both brokers are in sync and the topic has a leader everywhere."""

        def is_in_sync() -> bool:
            found = self._partitions()
            return len(found) == 2 and all(len(each.isr) == 2 and each.leader_id >= 0 for each in found)

        wait_until(is_in_sync, WAIT_SECONDS)

    def produce(self) -> None:
        """Produce to every partition with acks=all; each broker has producer ids."""
        for port in (self._kafka.port, self.kalda.port):
            asyncio.run(_init_producer_id(port))
        with Producer(bootstrap_servers=self.bootstrap, acks="all") as producer:
            futures = []
            for partition in PARTITIONS:
                for _ in range(100):
                    value = b"%d" % len(self._acknowledged[partition])
                    self._acknowledged[partition].append(value)
                    futures.append(producer.send(partition.topic, value=value, partition=partition.partition))
            for future in futures:
                future.result(WAIT_SECONDS)

    def check(self, *, have_ids: bool) -> None:
        """Check that everything acknowledged is visible, and that no log is a stray."""
        for partition, expected in self._acknowledged.items():
            with Consumer(bootstrap_servers=self.bootstrap, auto_offset_reset="earliest") as consumer:
                consumer.assign([partition])
                found: list[bytes | None] = []
                deadline = time.monotonic() + WAIT_SECONDS
                while len(found) < len(expected) and time.monotonic() < deadline:
                    found += [each.value for each in consumer.poll(timeout_s=1)]
            assert expected == found, partition
        names = [each.name for name in ("kafka", "kalda") for each in (self._directory / name).iterdir()]
        assert [] == [name for name in names if "-stray" in name or "-delete" in name]
        logs = [self.kalda.directory / f"{each.topic}-{each.partition}" for each in PARTITIONS]
        assert [have_ids] * 3 == [(log / "partition.metadata").exists() for log in logs]

    def _partitions(self) -> Sequence[TopicPartitionInfo]:
        """Describe the topic of both; nothing if the broker that was asked has no metadata yet."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            found = admin.describe_topics(["both"], outcomes=True).results.get("both")
        return () if found is None else found.partitions


async def _init_producer_id(port: int) -> None:
    """Wait for a producer id of one broker: a client asks any, and waits for it as long as it may."""
    options = DialOptions(client_id="test", timeout_seconds=WAIT_SECONDS)
    connection = await TcpDialer().dial("127.0.0.1", port, options)
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
                answer = await connection.request(request, timeout_seconds=WAIT_SECONDS)
                assert isinstance(answer, InitProducerIdResponse)
                if not answer.error_code:
                    return
                await asyncio.sleep(0.1)
    finally:
        connection.close()


pytestmark = pytest.mark.timeout(600)  # Five starts of a Java virtual machine.


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    """The cluster with its topics and some records, under a controller of Apache Kafka 2.7."""
    with ExitStack() as stack:
        try:
            made = MixedCluster(tmp_path)
        except NotAvailableError as error:
            pytest.skip(str(error))
        made.zookeeper.start()
        stack.callback(made.zookeeper.kill)
        stack.callback(made.stop_kafka)
        made.start_kafka(*OLD)
        made.kalda.start()
        stack.callback(made.kill_kalda)
        made.create_topics()
        made.wait_in_sync()
        made.produce()
        yield made


def test_a_controller_of_kafka_begins_to_send_ids(cluster: MixedCluster) -> None:
    """The logs of Kalda had none, and the restart makes it host them anew: they must not become strays."""
    cluster.kalda.stop()
    cluster.kalda.start()
    cluster.wait_in_sync()
    cluster.produce()
    cluster.check(have_ids=False)
    # Kalda is down, so that Apache Kafka is the controller after its restart.
    cluster.kalda.stop()
    cluster.stop_kafka()
    cluster.start_kafka(*NEW)
    cluster.kalda.start()
    cluster.wait_in_sync()
    cluster.produce()
    cluster.check(have_ids=True)
    cluster.kalda.stop()
    cluster.kalda.start()
    cluster.wait_in_sync()
    cluster.check(have_ids=True)


def test_the_controller_moves_to_kalda_and_back(cluster: MixedCluster) -> None:
    """Kalda's controller sends ids; the old broker takes its requests, leads, and is the controller again."""
    cluster.stop_kafka()
    cluster.wait_controller(KALDA_ID)
    cluster.start_kafka(*OLD)
    cluster.wait_in_sync()
    cluster.elect_preferred()
    cluster.wait_in_sync()
    cluster.produce()
    cluster.check(have_ids=True)
    cluster.kalda.stop()
    cluster.wait_controller(KAFKA_ID)
    cluster.kalda.start()
    cluster.wait_in_sync()
    cluster.produce()
    cluster.check(have_ids=True)
    cluster.stop_kafka()
    cluster.wait_controller(KALDA_ID)
    cluster.start_kafka(*NEW)
    cluster.wait_in_sync()
    cluster.produce()
    # The leader of 3.9 asked Kalda for its in-sync replicas; now it asks itself.
    cluster.elect_preferred()
    cluster.kalda.stop()
    cluster.wait_controller(KAFKA_ID)
    cluster.kalda.start()
    cluster.wait_in_sync()
    cluster.produce()
    cluster.check(have_ids=True)

"""Kalda's brokers join running clusters of Apache Kafka, lead, follow, take replicas and give them back.

Brokers 1 and 2 are Apache Kafka's, 3 and 4 Kalda's, all with two log directories. The test walks through one
cluster of each release and inter-broker protocol; below 2.8 the controller sends no topic ids.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from benchmarks.apache_kafka import NotAvailableError
from kalda import Admin, ClientError, Consumer, NewTopic, Producer
from kalda.cluster import paths
from kalda.common.types import TopicPartition
from kalda.testing.ports import free_ports
from kalda.testing.process import KaldaProcessError
from kalda.testing.process_cluster import BrokerProcess, ZooKeeperProcess
from tests.compat.old_kafka import ApacheBroker
from tests.integration.zookeeper.secured_servers import secured_server

KAFKA_IDS, KALDA_IDS = (1, 2), (3, 4)
WAIT_SECONDS = 90.0
SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "auto.leader.rebalance.enable": "false",
    "zookeeper.session.timeout.ms": "6000",
    "controlled.shutdown.retry.backoff.ms": "500",
}
RELEASES = [("3.9.1", "3.9"), ("3.9.1", "2.7"), ("3.6.2", "3.6"), ("2.8.2", "2.8"), ("2.8.2", "2.7")]
WITHOUT_IDS = ("2.7",)
"""Protocols whose controllers send no topic ids."""
MOVED = [TopicPartition("moved", number) for number in range(4)]
MIXED = [TopicPartition("mixed", number) for number in range(4)]

EXPECTED = r"cannot connect|connection|recover|had not been shut down|have no effect in Kalda"
"""What Kalda warns of because brokers stop and die here, and of settings of the JVM."""

pytestmark = pytest.mark.timeout(420)


class Cluster:
    """Brokers of both kinds, and what was acknowledged by them."""

    def __init__(
        self,
        directory: Path,
        zookeeper: str,
        release: str,
        protocol: str,
        *,
        security: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        kalda_settings: Mapping[str, str] | None = None,
        client: Mapping[str, str] | None = None,
        plain_zookeeper: str | None = None,
    ) -> None:
        self.zookeeper = KazooClient(plain_zookeeper or zookeeper)
        self.client_settings = dict(client or {})
        name = (security or {}).get("security.inter.broker.protocol", "PLAINTEXT")
        ports = dict(zip((*KAFKA_IDS, *KALDA_IDS), free_ports(4), strict=True))
        settings = {**SETTINGS, **(security or {})}

        def own(broker_id: int) -> dict[str, str]:
            directories = [str(directory / f"broker-{broker_id}" / each) for each in ("a", "b")]
            listeners = f"{name}://127.0.0.1:{ports[broker_id]}"
            return {**settings, "listeners": listeners, "log.dirs": ",".join(directories)}

        self.kafka = {
            each: ApacheBroker(
                release,
                each,
                directory / f"broker-{each}",
                zookeeper,
                port=ports[each],
                settings={**own(each), "inter.broker.protocol.version": protocol},
                java_options=java_options,
            )
            for each in KAFKA_IDS
        }
        self.kalda = {
            each: BrokerProcess(
                each,
                directory / f"broker-{each}" / "a",
                zookeeper,
                port=ports[each],
                settings={**own(each), **(kalda_settings or {})},
            )
            for each in KALDA_IDS
        }
        self.directories = {
            each: [directory / f"broker-{each}" / name for name in ("a", "b")] for each in ports
        }
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self.acknowledged: dict[TopicPartition, list[bytes]] = {}

    @property
    def client(self) -> dict[str, str]:
        """The settings of a client."""
        return {"bootstrap.servers": self.bootstrap, **self.client_settings}

    def admin(self) -> Admin:
        """Return a client for administration."""
        return Admin.from_config(self.client)

    def kill(self) -> None:
        """End everything that runs."""
        for kafka in self.kafka.values():
            kafka.kill()
        for kalda in self.kalda.values():
            if kalda.is_running:
                kalda.kill()

    def create(self, topic: str, assignments: Mapping[int, Sequence[int]]) -> None:
        """Create a topic with these replicas."""
        with self.admin() as admin:
            admin.create_topics(
                [
                    NewTopic(
                        topic,
                        replica_assignments={number: list(each) for number, each in assignments.items()},
                    )
                ]
            )
        self.acknowledged |= {TopicPartition(topic, number): [] for number in assignments}

    def read(self, path: str) -> Any:
        """Return what a znode holds."""
        return json.loads(self.zookeeper.get(path)[0])

    def replicas(self, topic: str) -> dict[int, tuple[int, ...]]:
        """Return the replicas of each partition."""
        found = self.read(paths.topic(topic))["partitions"]
        return {int(number): tuple(replicas) for number, replicas in found.items()}

    def out_of_sync(self, *topics: str) -> list[str]:
        """Return the partitions whose replicas are not all in sync, or that have no leader."""
        found = []
        for topic in topics:
            for number, replicas in self.replicas(topic).items():
                path = paths.partition_state(TopicPartition(topic, number))
                state: dict[str, Any] = {"isr": [], "leader": -1}
                if self.zookeeper.exists(path):
                    state = self.read(path)
                if set(state["isr"]) != set(replicas) or state["leader"] < 0:
                    found.append(f"{topic}-{number} with replicas {replicas}: {state}")
        return found

    def controller_id(self) -> int:
        """Return the id of the controller."""
        found: int = self.read(paths.CONTROLLER)["brokerid"]
        return found

    def wait(self, condition: Callable[[], object], what: str) -> float:
        """Wait until the condition holds; return how many seconds that took."""
        begin = time.monotonic()
        while not condition():
            assert time.monotonic() < begin + WAIT_SECONDS, what
            time.sleep(0.05)
        return time.monotonic() - begin

    def wait_in_sync(self, *topics: str) -> float:
        """Wait until all replicas of these topics are in sync."""
        return self.wait(lambda: not self.out_of_sync(*topics), f"not in sync: {topics}")

    def move(self, assignments: Mapping[TopicPartition, Sequence[int]]) -> float:
        """Reassign partitions; return how long that took."""
        with self.admin() as admin:
            admin.alter_partition_reassignments({p: list(each) for p, each in assignments.items()})
            return self.wait(
                lambda: not admin.list_partition_reassignments(list(assignments)), "a reassignment"
            )

    def produce(self, count: int = 100) -> None:
        """Produce to every partition; all is acknowledged by all in-sync replicas."""
        with Producer.from_config({**self.client, "acks": "all", "enable.idempotence": "true"}) as producer:
            sent = []
            for partition, values in self.acknowledged.items():
                for number in range(len(values), len(values) + count):
                    values.append(b"%d" % number)
                    sent.append(
                        producer.send(partition.topic, value=values[-1], partition=partition.partition)
                    )
            for future in sent:
                future.result(WAIT_SECONDS)

    def check(self) -> None:
        """Check that what was acknowledged is there once, in order, and equal on all replicas."""
        for partition, expected in self.acknowledged.items():
            settings = {**self.client, "auto.offset.reset": "earliest"}
            with Consumer.from_config(settings) as consumer:
                consumer.assign([partition])
                found: list[bytes | None] = []
                deadline = time.monotonic() + WAIT_SECONDS
                while len(found) < len(expected) and time.monotonic() < deadline:
                    found += [each.value for each in consumer.poll(timeout_s=1)]
            assert expected == found, partition
        for topic in {each.topic for each in self.acknowledged}:
            for number, replicas in self.replicas(topic).items():
                logs = {each: self.log(each, TopicPartition(topic, number)) for each in replicas}
                assert 1 == len(set(logs.values())), (
                    f"{topic}-{number}: {[(k, len(v)) for k, v in logs.items()]}"
                )

    def log(self, broker_id: int, partition: TopicPartition) -> bytes:
        """Return the bytes of a replica's segments."""
        (directory,) = (
            each / str(partition) for each in self.directories[broker_id] if (each / str(partition)).exists()
        )
        return b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))

    def complaints(self) -> list[str]:
        """Return what Kalda's brokers logged as errors, and what they warned of besides lost connections."""
        lines = [
            line
            for broker in self.kalda.values()
            for line in broker.log_file.read_text().splitlines()
            if " ERROR " in line or " WARNING " in line or line.startswith("AssertionError")
        ]
        return [line for line in lines if not re.search(EXPECTED, line)]

    def strays(self) -> list[str]:
        """Return the logs that a broker set aside."""
        return [
            each.name
            for directories in self.directories.values()
            for directory in directories
            if directory.exists()
            for each in directory.iterdir()
            if "-stray" in each.name
        ]


@contextmanager
def opened(made: Cluster) -> Iterator[Cluster]:
    """Start Apache Kafka's brokers; kill everything in the end."""
    made.zookeeper.start(WAIT_SECONDS)
    try:
        for broker in made.kafka.values():
            broker.start()
        yield made
    finally:
        made.kill()
        made.zookeeper.stop()
        made.zookeeper.close()


def walk(cluster: Cluster) -> None:
    """Join, lead, follow, move there and back, restart and die."""
    cluster.create("moved", {0: (1, 2), 1: (2, 1), 2: (1, 2), 3: (2, 1)})
    cluster.produce()
    for broker in cluster.kalda.values():
        broker.start()
    assert cluster.controller_id() in KAFKA_IDS
    cluster.create("mixed", {0: (3, 1), 1: (1, 3), 2: (4, 2), 3: (2, 4)})
    cluster.wait_in_sync("moved", "mixed")
    cluster.produce()
    cluster.check()

    seconds = {
        "there": cluster.move(dict(zip(MOVED, ((3, 4), (4, 3), (3, 4), (4, 3)), strict=True))),
    }
    cluster.produce()
    cluster.check()
    seconds["back"] = cluster.move(dict(zip(MOVED, ((1, 2), (2, 1), (1, 2), (2, 1)), strict=True)))
    cluster.move(dict(zip(MOVED, ((3, 1), (1, 3), (4, 2), (2, 4)), strict=True)))
    cluster.produce()
    cluster.check()

    cluster.kalda[3].stop()
    cluster.produce()
    cluster.kalda[3].start()
    seconds["restarted"] = cluster.wait_in_sync("moved", "mixed")
    cluster.kalda[4].kill()
    cluster.produce()
    cluster.kalda[4].start()
    seconds["killed"] = cluster.wait_in_sync("moved", "mixed")
    cluster.kafka[1].stop()
    cluster.produce()
    cluster.kafka[1].start()
    cluster.wait_in_sync("moved", "mixed")
    cluster.produce()
    cluster.check()
    assert cluster.controller_id() in KAFKA_IDS
    assert {} == cluster.read(paths.FEATURE)["features"]
    assert [] == cluster.strays()
    assert [] == cluster.complaints()
    print(cluster.kafka[1].release, {name: round(each, 2) for name, each in seconds.items()})


def raise_protocol(cluster: Cluster, protocol: str) -> None:
    """Roll Apache Kafka's brokers to a protocol with topic ids: the logs take them, and lose nothing."""
    logs = [each / str(p) for i in KALDA_IDS for each in cluster.directories[i] for p in (*MOVED, *MIXED)]
    hosted = [each for each in logs if each.exists()]
    assert not any((each / "partition.metadata").exists() for each in hosted)
    for broker in cluster.kafka.values():
        broker.stop()
        broker.settings["inter.broker.protocol.version"] = protocol
        broker.start()
        cluster.wait_in_sync("moved", "mixed")
        cluster.produce()
    cluster.wait(
        lambda: all((each / "partition.metadata").exists() for each in hosted), "a log has no topic id"
    )
    cluster.kalda[3].kill()
    cluster.kalda[3].start()
    cluster.wait_in_sync("moved", "mixed")
    cluster.check()
    assert [] == cluster.strays()
    assert [] == cluster.complaints()


@pytest.mark.parametrize(("release", "protocol"), RELEASES)
def test_brokers_join_a_cluster(tmp_path: Path, release: str, protocol: str) -> None:
    (port,) = free_ports(1)
    address = f"127.0.0.1:{port}"
    try:
        cluster = Cluster(tmp_path, address, release, protocol)
    except NotAvailableError as error:
        pytest.skip(str(error))
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper", port=port)
    zookeeper.start()
    try:
        with opened(cluster):
            walk(cluster)
            if protocol in WITHOUT_IDS:
                raise_protocol(cluster, release.rpartition(".")[0])
    finally:
        zookeeper.kill()


@pytest.mark.parametrize("coordination", ["kalda", "zookeeper"])
def test_brokers_join_a_secured_cluster(tmp_path: Path, coordination: str) -> None:
    """TLS and a login between the brokers, to ZooKeeper, and of clients; Kafka's names of all settings."""
    with secured_server(coordination, tmp_path, "want") as server:
        files = server.files
        plain = "org.apache.kafka.common.security.plain.PlainLoginModule required"
        mechanism = "listener.name.sasl_ssl.plain.sasl.jaas.config"
        security = {
            "security.inter.broker.protocol": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN",
            mechanism: f'{plain} username="broker" password="broker-secret" user_broker="broker-secret";',
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": files.key("broker"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": files.trust,
            "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": files.key("broker"),
            "zookeeper.ssl.keystore.type": "PEM",
            "zookeeper.ssl.truststore.location": files.trust,
            "zookeeper.ssl.truststore.type": "PEM",
            "zookeeper.ssl.protocol": "TLSv1.3",
            "zookeeper.ssl.enabled.protocols": "TLSv1.2,TLSv1.3",
        }
        login = files.login_file("bob")
        client = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.jaas.config": f'{plain} username="broker" password="broker-secret";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": files.trust,
        }
        try:
            cluster = Cluster(
                tmp_path,
                server.secure,
                "3.9.1",
                "3.9",
                security=security,
                java_options=[f"-Djava.security.auth.login.config={login}", "-Dzookeeper.fips-mode=false"],
                kalda_settings={"java.security.auth.login.config": login},
                client=client,
                plain_zookeeper=server.plain,
            )
        except NotAvailableError as error:
            pytest.skip(str(error))
        with opened(cluster):
            walk(cluster)


def test_the_way_back_of_a_cluster_that_kalda_created(tmp_path: Path) -> None:
    """Apache Kafka takes over brokers, the controller and groups; a kill -9 gives them back to Kalda."""
    (zookeeper_port,) = free_ports(1)
    address = f"127.0.0.1:{zookeeper_port}"
    settings = {**SETTINGS, "offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}
    try:
        brokers = {
            each: ApacheBroker("3.9.1", each, tmp_path / str(each), address, settings=settings)
            for each in (1, 2, 3)
        }
    except NotAvailableError as error:
        pytest.skip(str(error))
    kalda = {each: broker.kalda() for each, broker in brokers.items()}
    zookeeper = KazooClient(address)
    bootstrap = ",".join(broker.bootstrap for broker in brokers.values())
    with ExitStack() as stack:
        server = ZooKeeperProcess(tmp_path / "zookeeper", port=zookeeper_port)
        server.start()
        stack.callback(server.kill)
        zookeeper.start(WAIT_SECONDS)
        stack.callback(zookeeper.close)
        stack.callback(zookeeper.stop)
        for each in (1, 2, 3):
            stack.callback(brokers[each].kill)
            stack.callback(kill, kalda[each])
            kalda[each].start()

        def controller_id() -> int:
            try:
                found: int = json.loads(zookeeper.get(paths.CONTROLLER)[0])["brokerid"]
            except NoNodeError:
                return -1
            return found

        def features() -> dict[str, dict[str, int]]:
            found: dict[str, dict[str, int]] = json.loads(zookeeper.get(paths.FEATURE)[0])
            return {name: found[name] for name in ("features", "kalda") if name in found}

        def in_sync() -> bool:
            states = [
                json.loads(zookeeper.get(paths.partition_state(TopicPartition("t", p)))[0]) for p in (0, 1)
            ]
            return all({1, 2, 3} == set(each["isr"]) and each["leader"] > 0 for each in states)

        assert {"features": {}, "kalda": {"group.version": 1, "transaction.version": 2}} == features()
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topics([NewTopic("t", replica_assignments={0: [1, 2, 3], 1: [2, 3, 1]})])
        produce(bootstrap, range(100))
        member = Consumer(
            "t",
            bootstrap_servers=bootstrap,
            group_id="g",
            group_protocol="consumer",
            auto_offset_reset="earliest",
        )
        stack.callback(member.close)
        assert set(range(100)) == consume(member, 100)
        member.commit()

        # Neither takes directories that the other one uses.
        with pytest.raises(NotAvailableError, match="Failed to acquire lock"):
            brokers[1].start()
        kalda[1].stop()
        brokers[1].start()
        wait(lambda: 1 == controller_id())
        wait(in_sync)
        wait(lambda: {} == features().get("kalda", {}) == features()["features"])
        second = brokers[1].kalda({"listeners": "PLAINTEXT://127.0.0.1:0"})
        with pytest.raises(KaldaProcessError, match=f"in use by process {brokers[1].pid}"):
            second.start()

        # The group goes over to the classic protocol.
        with pytest.raises(ClientError, match="set it to classic"):
            consume(member, 1)
        produce(bootstrap, range(100, 200))
        with Consumer("t", bootstrap_servers=bootstrap, group_id="g", group_protocol="classic") as classic:
            assert set(range(100, 200)) == consume(classic, 100)
            classic.commit()

        # The only broker of Apache Kafka dies, which is the controller.
        brokers[1].kill()
        begin = time.monotonic()
        wait(lambda: controller_id() in (2, 3))
        produce(bootstrap, range(200, 300))
        kalda[1].start()
        wait(in_sync)
        print("controller and broker are back after", round(time.monotonic() - begin, 1), "s")
        with Consumer("t", bootstrap_servers=bootstrap, group_id="g", group_protocol="classic") as classic:
            assert set(range(200, 300)) == consume(classic, 100)
        for process in kalda.values():
            process.check_log()


def kill(broker: BrokerProcess) -> None:
    """Kill a broker that runs."""
    if broker.is_running:
        broker.kill()


def wait(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def produce(bootstrap: str, numbers: range) -> None:
    """Produce numbers to the topic."""
    with Producer(bootstrap_servers=bootstrap, acks="all") as producer:
        for future in [producer.send("t", value=b"%d" % each) for each in numbers]:
            future.result(WAIT_SECONDS)


def consume(consumer: Consumer, count: int) -> set[int]:
    """Read this many numbers, each once."""
    found: list[int] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(found) < count and time.monotonic() < deadline:
        found += [int(each.value or b"") for each in consumer.poll(timeout_s=1)]
    assert len(found) == len(set(found)), "a record was read twice"
    return set(found)

"""A cluster in ZooKeeper mode whose controller is of one software and whose other brokers are of another.

Brokers 1 and 2 host the partitions that tests look at; broker 3 is started first and is the controller.
"""

import contextlib
import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from kalda import Admin, ElectionType
from kalda.cluster import paths, schema
from kalda.cluster.schema import PartitionState, TopicAssignment
from kalda.common.types import TopicPartition
from kalda.net.client.client_errors import SaslAuthenticationError
from kalda.testing.ports import free_ports
from kalda.testing.process_cluster import BrokerProcess, ZooKeeperProcess
from tests.compat.old_kafka import ApacheBroker

RELEASE: Final = "3.9.1"
KALDA: Final = "kalda"
KAFKA: Final = "kafka"

CONTROLLER_ID: Final = 3
OTHER_IDS: Final = (1, 2)
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"
ADMINISTRATOR: Final = "admin"
PASSWORD: Final = "admin-secret"
WAIT_SECONDS: Final = 60.0

Broker = ApacheBroker | BrokerProcess

SETTINGS: Final = {
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": (f"{SCRAM} required;"),
    "delegation.token.secret.key": "a key that all brokers share",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": f"User:ANONYMOUS;User:{ADMINISTRATOR}",
    "zookeeper.session.timeout.ms": "9000",
    "replica.lag.time.max.ms": "2000",
    "auto.leader.rebalance.enable": "false",
    "log.segment.delete.delay.ms": "1000",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
    "offsets.topic.num.partitions": "2",
    "offsets.topic.replication.factor": "2",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.retry.backoff.ms": "500",
    # Kalda's brokers leave the controller to those of Apache Kafka unless this is set.
    "kalda.controller.eligible": "true",
}


class MixedCluster:
    """One ZooKeeper and three brokers; as a context manager it starts them, and kills them at the end.

    Args:
        directory: Where everything is.
        controller: The software of broker 3: `KALDA` or `KAFKA`.
        others: The software of brokers 1 and 2.
        settings: Settings of all brokers, besides `SETTINGS`.
        release: The release of Apache Kafka's brokers.
    """

    def __init__(
        self,
        directory: Path,
        *,
        controller: str,
        others: str,
        settings: Mapping[str, str] | None = None,
        release: str = RELEASE,
    ) -> None:
        self.directory: Final = directory
        self._release: Final = release
        zookeeper_port, *ports = free_ports(7)
        self.zookeeper_process: Final = ZooKeeperProcess(directory / "zookeeper", port=zookeeper_port)
        self._ports: Final = {
            each: tuple(ports[2 * each - 2 : 2 * each]) for each in (*OTHER_IDS, CONTROLLER_ID)
        }
        self._settings: Final = {**SETTINGS, **(settings or {})}
        self._zookeeper_address: Final = f"127.0.0.1:{zookeeper_port}"
        self.brokers: Final[dict[int, Broker]] = {
            CONTROLLER_ID: self._broker(CONTROLLER_ID, controller),
            **{each: self._broker(each, others) for each in OTHER_IDS},
        }
        self.zookeeper: Final = KazooClient(self._zookeeper_address)

    def __enter__(self) -> Self:
        try:
            self.zookeeper_process.start()
            self.zookeeper.start(WAIT_SECONDS)
            # The cluster is one that Apache Kafka began: its brokers finalize no features.
            self.zookeeper.create(paths.FEATURE, b'{"features":{},"version":2,"status":1}')
            for broker_id in self.brokers:
                self.brokers[broker_id].start()
                self.wait(lambda: self.controller_id() == CONTROLLER_ID)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill everything that runs."""
        for broker in self.brokers.values():
            if broker.is_running:
                broker.kill()
        self.zookeeper.stop()
        self.zookeeper.close()
        if self.zookeeper_process.is_running:
            self.zookeeper_process.kill()

    def _broker(self, broker_id: int, software: str) -> Broker:
        plain, secured = self._ports[broker_id]
        directory = self.directory / f"broker-{broker_id}"
        settings = {
            **self._settings,
            "listeners": f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{secured}",
            "log.dirs": ",".join(str(each) for each in self.log_dirs(broker_id)),
        }
        if software == KAFKA:
            return ApacheBroker(
                self._release, broker_id, directory, self._zookeeper_address, port=plain, settings=settings
            )
        first = self.log_dirs(broker_id)[0]
        return BrokerProcess(broker_id, first, self._zookeeper_address, port=plain, settings=settings)

    def log_dirs(self, broker_id: int) -> list[Path]:
        """Return the two log directories of a broker."""
        return [self.directory / f"broker-{broker_id}" / name for name in ("a", "b")]

    @property
    def bootstrap(self) -> str:
        """The PLAINTEXT addresses of all brokers, whose clients may do everything."""
        return ",".join(f"127.0.0.1:{plain}" for plain, _ in self._ports.values())

    def port(self, broker_id: int) -> int:
        """Return the port of a broker's PLAINTEXT listener."""
        return self._ports[broker_id][0]

    def admin(self) -> Admin:
        """Return a client of an administrator."""
        return Admin(bootstrap_servers=self.bootstrap)

    def login(self, broker_id: int, user: str, password: str, *, is_token: bool = False) -> dict[str, str]:
        """Return the settings of a client that logs in at a broker by SCRAM, or with a delegation token."""
        token = ' tokenauth="true"' if is_token else ""
        return {
            "bootstrap.servers": f"127.0.0.1:{self._ports[broker_id][1]}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": f'{SCRAM} required username="{user}" password="{password}"{token};',
        }

    def is_accepted(self, login: Mapping[str, str]) -> bool:
        """Whether a broker lets a client in."""
        with Admin.from_config(login) as admin:
            try:
                admin.list_topics()
            except SaslAuthenticationError:
                return False
            return True

    # What ZooKeeper holds.

    def read(self, path: str) -> bytes | None:
        """Return a znode's data, or None."""
        try:
            data: bytes = self.zookeeper.get(path)[0]
        except NoNodeError:
            return None
        return data

    def read_json(self, path: str) -> Any:
        """Return a znode's data as JSON, or None."""
        data = self.read(path)
        return json.loads(data) if data else None

    def children(self, path: str) -> list[str]:
        """Return a znode's children, sorted; none if it does not exist."""
        try:
            return sorted(self.zookeeper.get_children(path))
        except NoNodeError:
            return []

    def controller_id(self) -> int | None:
        """Return the id of the controller, or None."""
        data = self.read(paths.CONTROLLER)
        return None if data is None else schema.decode_controller(data)

    def live_brokers(self) -> set[int]:
        """Return the ids of the registered brokers."""
        return set(map(int, self.children(paths.BROKER_IDS)))

    def assignments(self) -> dict[str, TopicAssignment]:
        """Return the assignments of all topics."""
        found = {name: self.read(paths.topic(name)) for name in self.children(paths.TOPICS)}
        return {name: schema.decode_topic(name, data) for name, data in found.items() if data}

    def states(self) -> dict[TopicPartition, PartitionState]:
        """Return the states of all partitions that have one."""
        states = {}
        for name, assignment in self.assignments().items():
            for number in assignment.partitions:
                partition = TopicPartition(name, number)
                try:
                    data, stat = self.zookeeper.get(paths.partition_state(partition))
                except NoNodeError:
                    continue
                states[partition] = schema.decode_partition_state(partition, data, stat.version)
        return states

    def state(self, partition: TopicPartition) -> PartitionState | None:
        """Return the state of a partition, or None."""
        data = self.read(paths.partition_state(partition))
        return None if data is None else schema.decode_partition_state(partition, data, -1)

    def unsettled(self) -> list[str]:
        """Return what is not as it is at rest, in words: nothing when all is well."""
        found = [f"broker {each} is not registered" for each in self.brokers.keys() - self.live_brokers()]
        states = self.states()
        for name, assignment in self.assignments().items():
            for number, replicas in assignment.partitions.items():
                partition = TopicPartition(name, number)
                state = states.get(partition)
                if replicas.is_being_reassigned:
                    found.append(f"{partition} is being reassigned: {replicas}")
                elif state is None or state.leader < 0 or set(state.isr) != set(replicas.replicas):
                    found.append(f"{partition} with replicas {replicas.replicas} has {state}")
        for path in (paths.DELETE_TOPICS, paths.ISR_CHANGES, paths.LOG_DIR_EVENTS):
            found += [f"{path} has {each}" for each in self.children(path)]
        return found

    # What tests do.

    def wait(self, condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> None:
        """Poll until a condition holds; the time only ends a test that fails."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain; {self.unsettled()}"
            time.sleep(0.1)

    def wait_settled(self, seconds: float = WAIT_SECONDS) -> None:
        """Wait until all replicas are in sync and nothing is under way."""
        self.wait(lambda: not self.unsettled(), seconds)

    def kill(self, broker_id: int) -> None:
        """Kill a broker; return when its session has expired, so that it can start again."""
        self.brokers[broker_id].kill()
        self.wait(lambda: broker_id not in self.live_brokers())

    def wait_isr(self, partition: TopicPartition, isr: Collection[int]) -> PartitionState:
        """Wait until a partition has these in-sync replicas; return its state."""
        self.wait(lambda: (state := self.state(partition)) is not None and set(state.isr) == set(isr))
        state = self.state(partition)
        assert state is not None
        return state

    def wait_leader(self, partition: TopicPartition, leader: int) -> None:
        """Wait until a broker leads a partition."""
        self.wait(lambda: (state := self.state(partition)) is not None and state.leader == leader)

    def elect_preferred(self, partitions: Sequence[TopicPartition] | None = None) -> None:
        """Let the first replica of each partition lead it."""
        with self.admin() as admin:
            admin.elect_leaders(ElectionType.PREFERRED, partitions, outcomes=True)

    def move_controller(self, broker_id: int) -> None:
        """Delete `/controller` until this broker wins the election."""
        for _ in range(50):
            if self.controller_id() == broker_id:
                return
            epoch = self.read(paths.CONTROLLER_EPOCH)
            with contextlib.suppress(NoNodeError):
                self.zookeeper.delete(paths.CONTROLLER)
            self.wait(partial(self._is_elected, epoch))
        raise AssertionError(f"broker {broker_id} never became controller")

    def _is_elected(self, former_epoch: bytes | None) -> bool:
        return self.read(paths.CONTROLLER_EPOCH) != former_epoch and self.controller_id() is not None

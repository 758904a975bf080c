"""The clusters that the behaviour suite runs against: Kalda, a namespace of Kalda, and Apache Kafka.

Clients reach each broker through a proxy, which is the broker's advertised listener, so that a test can cut
the network without privileges.
"""

import json
import subprocess
import sys
from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.apache_kafka import ApacheKafka
from kalda.testing.ports import free_ports
from kalda.testing.process_cluster import BrokerProcess, ZooKeeperProcess
from tests.behaviour.proxy import CuttableProxy

KALDA: Final = ("kalda-1", "kalda-3")
"""What the gate runs against."""
APACHE: Final = ("apache-3.9.1", "apache-4.1.0", "apache-4.4.0")
NAMESPACE: Final = ("namespace-1", "namespace-3")
"""A namespace of a cluster with one and with three brokers."""
TARGETS: Final = (*KALDA, *NAMESPACE, *APACHE)

_SETTINGS: Final = {
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "5000",
}
"""What Kalda's brokers have in common."""


class Target(ABC):
    """A running cluster; use it as a context manager. Brokers are numbered from 0."""

    def __init__(self, name: str, brokers: int) -> None:
        self.name: Final = name
        self.brokers: Final = brokers
        self._proxies: list[CuttableProxy] = []
        self._stack: Final = ExitStack()

    @property
    def bootstrap(self) -> str:
        """The addresses of all brokers, by way of the proxies."""
        return ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._proxies)

    @property
    def supports_consumer_protocol(self) -> bool:
        """Whether groups may use the protocol of KIP-848 without further settings."""
        return True

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @abstractmethod
    def _start(self) -> None:
        """Start the brokers; `_stack` ends them."""

    @abstractmethod
    def kill(self, broker: int) -> None:
        """End a broker with SIGKILL."""

    @abstractmethod
    def start_again(self, broker: int) -> None:
        """Start a killed broker with its data; returns when it serves."""

    @abstractmethod
    def pause(self, broker: int) -> None:
        """Stop a broker's process without ending it."""

    @abstractmethod
    def resume(self, broker: int) -> None:
        """Let a paused broker go on."""

    def cut(self, broker: int) -> None:
        """Let no byte reach a broker; connections stay open, as when a cable is pulled."""
        self._proxies[broker].cut()

    def heal(self, broker: int) -> None:
        """Let bytes pass again."""
        self._proxies[broker].heal()

    def _add_proxy(self, port: int, upstream: int) -> None:
        proxy = CuttableProxy(port, upstream)
        self._stack.callback(proxy.close)
        self._proxies.append(proxy)


class KaldaTarget(Target):
    """Kalda's brokers and their coordination server as processes."""

    def __init__(self, brokers: int, directory: Path) -> None:
        super().__init__(f"kalda-{brokers}", brokers)
        self._directory: Final = directory
        self._processes: list[BrokerProcess] = []

    def _start(self) -> None:
        coordinator = ZooKeeperProcess(self._directory / "zookeeper", port=free_ports(1)[0])
        coordinator.start()
        self._stack.callback(coordinator.kill)
        ports = free_ports(2 * self.brokers)
        for broker_id in range(self.brokers):
            port, proxy = ports[2 * broker_id : 2 * broker_id + 2]
            process = BrokerProcess(
                broker_id,
                self._directory / f"broker-{broker_id}",
                f"127.0.0.1:{coordinator.port}",
                port=port,
                settings={
                    "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy}",
                    "offsets.topic.replication.factor": str(self.brokers),
                    "transaction.state.log.replication.factor": str(self.brokers),
                    "transaction.state.log.min.isr": str(min(self.brokers, 2)),
                    **_SETTINGS,
                },
            )
            process.start_nowait()
            self._stack.callback(_kill_running, process)
            self._processes.append(process)
            self._add_proxy(proxy, port)
        for process in self._processes:
            process.wait_ready()

    def kill(self, broker: int) -> None:
        self._processes[broker].kill()

    def start_again(self, broker: int) -> None:
        self._processes[broker].start()

    def pause(self, broker: int) -> None:
        self._processes[broker].pause()

    def resume(self, broker: int) -> None:
        self._processes[broker].resume()


class NamespaceTarget(Target):
    """A namespace of an in-process cluster, which runs in another process than the tests."""

    def __init__(self, brokers: int, directory: Path) -> None:
        super().__init__(f"namespace-{brokers}", brokers)
        self._directory: Final = directory
        self._process: subprocess.Popen[str] | None = None

    def _start(self) -> None:
        proxies = free_ports(self.brokers)
        process = self._process = subprocess.Popen(
            [
                sys.executable,
                str(Path(__file__).with_name("namespace_cluster.py")),
                str(self.brokers),
                str(self._directory / "cluster"),
                ",".join(map(str, proxies)),
                json.dumps(_SETTINGS),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._stack.callback(self._end, process)
        assert process.stdout is not None, "the process was started with a pipe"
        for proxy, address in zip(proxies, process.stdout.readline().split(","), strict=True):
            self._add_proxy(proxy, int(address.rpartition(":")[2]))

    def kill(self, broker: int) -> None:
        self._ask(f"kill {broker}")

    def start_again(self, broker: int) -> None:
        self._ask(f"start {broker}")

    def pause(self, broker: int) -> None:
        self._ask(f"pause {broker}")

    def resume(self, broker: int) -> None:
        self._ask(f"resume {broker}")

    def _ask(self, command: str) -> None:
        process = self._process
        assert process is not None, "the target was not started"
        assert process.stdin is not None, "the process was started with pipes"
        assert process.stdout is not None, "the process was started with pipes"
        process.stdin.write(f"{command}\n")
        process.stdin.flush()
        assert "done\n" == process.stdout.readline(), command

    def _end(self, process: "subprocess.Popen[str]") -> None:
        process.communicate(timeout=60)
        assert 0 == process.returncode, "the cluster found something wrong, which it has logged"


class ApacheTarget(Target):
    """One Apache Kafka broker in KRaft mode."""

    def __init__(self, version: str) -> None:
        super().__init__(f"apache-{version}", 1)
        self._version: Final = version
        self._kafka: ApacheKafka | None = None

    @property
    def supports_consumer_protocol(self) -> bool:
        """4.0 made it the default; 3.9 has it as a preview."""
        return int(self._version.partition(".")[0]) >= 4

    def _start(self) -> None:
        (proxy,) = free_ports(1)
        kafka = ApacheKafka(
            version=self._version,
            settings={
                "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy}",
                "group.min.session.timeout.ms": "1000",
                "offsets.topic.num.partitions": "8",
                "transaction.state.log.num.partitions": "8",
                **(
                    {
                        "group.consumer.min.session.timeout.ms": "1000",
                        "group.consumer.session.timeout.ms": "6000",
                        "group.consumer.min.heartbeat.interval.ms": "200",
                        "group.consumer.heartbeat.interval.ms": "500",
                    }
                    if self.supports_consumer_protocol
                    else {}
                ),
            },
            heap="512m",
        )
        self._stack.enter_context(kafka)
        self._kafka = kafka
        self._add_proxy(proxy, int(kafka.bootstrap.rpartition(":")[2]))

    def kill(self, broker: int) -> None:
        self._running.kill()

    def start_again(self, broker: int) -> None:
        self._running.start_again()

    def pause(self, broker: int) -> None:
        self._running.pause()

    def resume(self, broker: int) -> None:
        self._running.resume()

    @property
    def _running(self) -> ApacheKafka:
        assert self._kafka is not None, "the target was not started"
        return self._kafka


def target_named(name: str, directory: Path) -> Target:
    """Return a target of `TARGETS`, not yet started."""
    kind, _, detail = name.partition("-")
    if kind == "kalda":
        return KaldaTarget(int(detail), directory)
    if kind == "namespace":
        return NamespaceTarget(int(detail), directory)
    if kind == "apache":
        return ApacheTarget(detail)
    raise ValueError(f"{name!r} is not a target; known are {', '.join(TARGETS)}")


def _kill_running(process: BrokerProcess) -> None:
    if process.is_running:
        process.kill()

"""The clusters that the behaviour suite runs against: Kalda with one and three brokers, and Apache Kafka.

Clients reach each broker through a proxy, which is the broker's advertised listener, so that a test can cut
the network without privileges.
"""

from abc import ABC, abstractmethod
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.apache_kafka import ApacheKafka, free_ports
from kalda.testing.process_cluster import BrokerProcess, ZooKeeperProcess
from tests.behaviour.proxy import CuttableProxy

KALDA: Final = ("kalda-1", "kalda-3")
"""What the gate runs against."""
APACHE: Final = ("apache-3.9.1", "apache-4.1.0", "apache-4.4.0")
TARGETS: Final = (*KALDA, *APACHE)


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
                    "offsets.topic.num.partitions": "8",
                    "transaction.state.log.replication.factor": str(self.brokers),
                    "transaction.state.log.min.isr": str(min(self.brokers, 2)),
                    "transaction.state.log.num.partitions": "8",
                    "group.initial.rebalance.delay.ms": "0",
                    "group.min.session.timeout.ms": "1000",
                    "group.consumer.min.session.timeout.ms": "1000",
                    "group.consumer.session.timeout.ms": "6000",
                    "group.consumer.min.heartbeat.interval.ms": "200",
                    "group.consumer.heartbeat.interval.ms": "500",
                    "replica.lag.time.max.ms": "5000",
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
    if kind == "apache":
        return ApacheTarget(detail)
    raise ValueError(f"{name!r} is not a target; known are {', '.join(TARGETS)}")


def _kill_running(process: BrokerProcess) -> None:
    if process.is_running:
        process.kill()

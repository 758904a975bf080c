"""Brokers of old releases of Apache Kafka, which run on Kalda's coordination server."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.apache_kafka import (
    NotAvailableError,
    kafka_jars,
    maven_jars,
    stop_process,
    wait_accepting,
)
from kalda.testing.ports import free_ports
from kalda.testing.process_cluster import BrokerProcess, ZooKeeperProcess

# The ZooKeeper clients of Kafka 0.10 and 2.1 do not work on Java 17, which has no javax.xml.bind either.
ZOOKEEPER = "org.apache.zookeeper:zookeeper:3.5.7"
RELEASES = {
    "0.10.2.2": ("org.apache.kafka:kafka_2.12:0.10.2.2", ZOOKEEPER, "javax.xml.bind:jaxb-api:2.3.1"),
    "2.1.1": ("org.apache.kafka:kafka_2.12:2.1.1", ZOOKEEPER),
    "2.8.2": ("org.apache.kafka:kafka_2.13:2.8.2",),
}
PROPERTIES = """\
broker.id=0
listeners=PLAINTEXT://127.0.0.1:{port}
zookeeper.connect=127.0.0.1:{zookeeper_port}
log.dirs={directory}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=3
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
"""


@dataclass(frozen=True, slots=True)
class OldKafka:
    """The addresses of one broker and of its ZooKeeper."""

    bootstrap: str
    zookeeper: str


@contextmanager
def old_kafka(version: str, directory: Path) -> Iterator[OldKafka]:
    """Run a broker of a release.

    Raises:
        NotAvailableError: there is no Java, or the jars cannot be had.
    """
    java = shutil.which("java")
    if java is None:
        raise NotAvailableError("Apache Kafka needs Java and there is no 'java' on the PATH")
    jars = maven_jars(f"kafka-{version}-zookeeper", RELEASES[version])
    port, zookeeper_port = free_ports(2)
    properties, log_path = directory / "server.properties", directory / "broker.log"
    properties.write_text(PROPERTIES.format(port=port, zookeeper_port=zookeeper_port, directory=directory))
    with ZooKeeperProcess(directory / "zookeeper", port=zookeeper_port), log_path.open("wb") as log:
        command = [java, "-Xmx400m", "-cp", f"{jars}/*", "kafka.Kafka", str(properties)]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_accepting(process, port, time.monotonic() + 60, log_path)
            yield OldKafka(f"127.0.0.1:{port}", f"127.0.0.1:{zookeeper_port}")
        finally:
            stop_process(process)


LOG4J = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.zookeeper=WARN
log4j.logger.org.apache.kafka.clients=WARN
log4j.logger.org.apache.kafka.common.config=WARN
log4j.logger.kafka.server.KafkaConfig=WARN
"""
START_SECONDS = 120.0
STARTED = b"started (kafka.server.KafkaServer)"
"""The end of the line that a broker in ZooKeeper mode logs when it serves; it accepts connections before."""


class ApacheBroker:
    """One broker of Apache Kafka in ZooKeeper mode, over directories that outlive its process.

    `release` and `settings` may be changed between starts: an upgrade, another inter-broker protocol. As a
    context manager it starts the broker, and kills it at the end of the block if it runs.

    Args:
        release: The release to run, from 2.7 to 3.9: ``3.9.1``, ``3.6.2``, ``2.8.2``.
        broker_id: The broker's id.
        directory: Where ``server.properties``, ``broker.log`` and, unless `settings` has ``log.dirs``, the
            logs (``data``) are; made if it does not exist.
        zookeeper: The address of ZooKeeper, as in ``zookeeper.connect``.
        port: The port on 127.0.0.1; 0 picks a free one, which is kept over restarts.
        settings: More lines of ``server.properties``; they win over those that are made here.
        java_options: More options of the JVM, e.g. ``-Djava.security.auth.login.config=...``.
        heap: The largest heap of the JVM.

    Raises:
        NotAvailableError: there is no Java, or the jars cannot be had.
    """

    def __init__(
        self,
        release: str,
        broker_id: int,
        directory: Path,
        zookeeper: str,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        java_options: Sequence[str] = (),
        heap: str = "256m",
    ) -> None:
        java = shutil.which("java")
        if java is None:
            raise NotAvailableError("Apache Kafka needs Java and there is no 'java' on the PATH")
        kafka_jars(release)
        self._java: Final = java
        self._java_options: Final = (f"-Xmx{heap}", "-XX:TieredStopAtLevel=1", *java_options)
        self._process: subprocess.Popen[bytes] | None = None
        self.release = release
        self.broker_id: Final = broker_id
        self.directory: Final = directory
        self.port: Final = port or free_ports(1)[0]
        self.settings: Final = {
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "zookeeper.connect": zookeeper,
            "log.dirs": str(directory / "data"),
            **(settings or {}),
        }
        """What the next start writes to ``server.properties``."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    @property
    def properties_file(self) -> Path:
        """The ``server.properties`` of the last start."""
        return self.directory / "server.properties"

    @property
    def log_file(self) -> Path:
        """What the broker logged, over all its starts."""
        return self.directory / "broker.log"

    @property
    def log_dirs(self) -> list[Path]:
        """The directories of its logs."""
        return [Path(each) for each in self.settings["log.dirs"].split(",")]

    @property
    def bootstrap(self) -> str:
        """The address of its first listener."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_running(self) -> bool:
        """Whether the JVM runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The JVM's process id; the broker must have been started."""
        assert self._process is not None, "the broker was not started"
        return self._process.pid

    def start(self) -> None:
        """Start the broker and return when it serves.

        Raises:
            NotAvailableError: it ended, or did not serve in time; the message has the end of its log.
        """
        self.start_nowait()
        self.wait_started()

    def start_nowait(self) -> None:
        """Start the broker and return at once; `wait_started` must follow."""
        assert not self.is_running, "the broker is running already"
        self.write_properties()
        log4j = self.directory / "log4j.properties"
        log4j.write_text(LOG4J)
        command = [self._java, *self._java_options, f"-Dlog4j.configuration=file:{log4j}"]
        command += ["-cp", f"{kafka_jars(self.release)}/*", "kafka.Kafka", str(self.properties_file)]
        self._log_start = self.log_file.stat().st_size if self.log_file.exists() else 0
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
            )

    def write_properties(self) -> None:
        """Write ``server.properties``, as each start does."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.properties_file.write_text("".join(f"{name}={value}\n" for name, value in self.settings.items()))

    def wait_started(self) -> None:
        """Return when the broker that was started serves.

        Raises:
            NotAvailableError: it ended, or did not serve in time; the message has the end of its log.
        """
        assert self._process is not None, "the broker was not started"
        deadline = time.monotonic() + START_SECONDS
        while STARTED not in (log := self.log_of_start()):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise NotAvailableError(f"Apache Kafka did not start: {log[-4000:].decode(errors='replace')}")
            time.sleep(0.1)

    def log_of_start(self) -> bytes:
        """Return what the broker has logged since its last start."""
        with self.log_file.open("rb") as log:
            log.seek(self._log_start)
            return log.read()

    def stop(self) -> None:
        """Stop the broker in good order (SIGTERM); harmless if it is down."""
        if self._process is not None:
            stop_process(self._process)

    def kill(self) -> None:
        """End the broker at once (SIGKILL); harmless if it is down."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Suspend the JVM (SIGSTOP)."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Resume a paused JVM (SIGCONT)."""
        os.kill(self.pid, signal.SIGCONT)

    def kalda(self, settings: Mapping[str, str] | None = None) -> BrokerProcess:
        """Return a process of Kalda with the same id, port, log directories and ``server.properties``.

        `settings` wins over the properties. It is not started yet.
        """
        self.write_properties()
        return BrokerProcess(
            self.broker_id,
            self.log_dirs[0],
            self.settings["zookeeper.connect"],
            port=self.port,
            settings={"listeners": self.settings["listeners"], **(settings or {})},
            config_file=self.properties_file,
        )

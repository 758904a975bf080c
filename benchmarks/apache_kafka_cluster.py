"""Three Apache Kafka brokers from Maven's jars, as the other side of a comparison of clusters.

Each process is broker and controller in one (KRaft), the least that a replicated JVM cluster takes. It
answers to `bootstrap`, `pids` and `start_seconds`.
"""

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.apache_kafka import (
    JVM_OPTIONS,
    KAFKA_VERSION,
    NotAvailableError,
    kafka_jars,
    last_line,
    stop_process,
    wait_accepting,
)
from kalda.common.types import random_uuid, uuid_to_text
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.testing.ports import free_ports

_BROKERS: Final = 3
_START_TIMEOUT_SECONDS: Final = 90.0
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={directory}/data-{node}
group.initial.rebalance.delay.ms=0
{settings}
"""


class ApacheKafkaCluster:
    """Three brokers; use it as a context manager."""

    def __init__(
        self, *, version: str = KAFKA_VERSION, settings: Mapping[str, str] | None = None, heap: str = "1g"
    ) -> None:
        self._version: Final = version
        self._settings: Final = dict(settings or {})
        self._heap: Final = heap
        self._processes: list[subprocess.Popen[bytes]] = []
        self._directory: Path | None = None
        self.bootstrap = ""
        self.start_seconds = 0.0

    def __enter__(self) -> Self:
        self._directory = Path(tempfile.mkdtemp(prefix="apache-kafka-cluster-"))
        try:
            self._start(self._directory)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @property
    def pids(self) -> list[int]:
        """The JVMs' process ids."""
        return [process.pid for process in self._processes]

    def _start(self, directory: Path) -> None:
        java = shutil.which("java")
        if java is None:
            raise NotAvailableError("Apache Kafka needs Java 17 or newer and there is no 'java' on the PATH")
        jars = kafka_jars(self._version)
        ports = free_ports(2 * _BROKERS)
        voters = ",".join(f"{node}@127.0.0.1:{ports[_BROKERS + node]}" for node in range(_BROKERS))
        cluster_id = uuid_to_text(random_uuid(SYSTEM_RANDOM))
        for node in range(_BROKERS):
            properties = directory / f"server-{node}.properties"
            properties.write_text(
                _PROPERTIES.format(
                    node=node,
                    voters=voters,
                    port=ports[node],
                    controller_port=ports[_BROKERS + node],
                    directory=directory,
                    settings="\n".join(f"{name}={value}" for name, value in self._settings.items()),
                )
            )
            arguments = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(properties)]
            done = subprocess.run(
                [java, "-cp", f"{jars}/*", *arguments], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise NotAvailableError(f"Kafka's directory: {last_line(done.stdout + done.stderr)}")
        begin = time.monotonic()
        for node in range(_BROKERS):
            with (directory / f"broker-{node}.log").open("wb") as log:
                options = [f"-Xms{self._heap}", f"-Xmx{self._heap}", *JVM_OPTIONS, "-cp", f"{jars}/*"]
                self._processes.append(
                    subprocess.Popen(
                        [java, *options, "kafka.Kafka", str(directory / f"server-{node}.properties")],
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                        env=os.environ.copy(),
                    )
                )
        for node, process in enumerate(self._processes):
            log_path = directory / f"broker-{node}.log"
            wait_accepting(process, ports[node], begin + _START_TIMEOUT_SECONDS, log_path)
        self.start_seconds = time.monotonic() - begin
        self.bootstrap = ",".join(f"127.0.0.1:{port}" for port in ports[:_BROKERS])

    def _stop(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            stop_process(process)
        self._processes = []
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

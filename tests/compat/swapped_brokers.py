"""A cluster of Apache Kafka in ZooKeeper mode whose brokers are swapped for Kalda's in place, by scripts.

`kalda migrate` runs commands of an operator. Here they are scripts of a directory, one for each broker and
step, which keep the process ids in files, as a supervisor does.
"""

import asyncio
import os
import shlex
import shutil
import signal
import stat
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from benchmarks.apache_kafka import NotAvailableError, kafka_jars
from kalda import Admin
from kalda.clients.errors import ClientError
from kalda.common.overriding import override
from kalda.testing.ports import free_ports
from kalda.testing.process_cluster import ZooKeeperProcess
from kalda.testing.security import ClientConfigs, SecuredCluster, Security
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from tests.compat.old_kafka import LOG4J

STOP_SECONDS: Final = 60

_STOP: Final = """\
#!/bin/sh
# Ends the process whose id the file has, if it is alive, and returns when it has ended.
[ -s {pid} ] || exit 0
pid=$(cat {pid})
kill -{signal} $pid 2>/dev/null || {{ rm -f {pid}; exit 0; }}
n=0
while kill -0 $pid 2>/dev/null; do
  n=$((n + 1)); [ $n -gt {ticks} ] && exit 1
  sleep 0.1
done
rm -f {pid}
"""
_START: Final = """\
#!/bin/sh
# Starts the program unless it runs; it outlives this shell.
if [ -s {pid} ] && kill -0 $(cat {pid}) 2>/dev/null; then exit 0; fi
nohup {command} >>{log} 2>&1 </dev/null &
echo $! >{pid}
"""


class SwappableCluster(ClientConfigs):
    """ZooKeeper and brokers 1, 2, …, whose softwares scripts start and stop.

    As a context manager it starts ZooKeeper and all brokers as Kafka, and kills everything at the end.

    Args:
        directory: Where everything is.
        release: The release of Kafka.
        brokers: How many brokers.
        settings: More lines of every ``server.properties``.
        directories: How many log directories each broker has.
        security: Logins, encryption and ACLs of the brokers' one listener; without it everything is open.

    Raises:
        NotAvailableError: there is no Java, or the jars cannot be had.
    """

    def __init__(
        self,
        directory: Path,
        *,
        release: str = "3.9.1",
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        directories: int = 1,
        security: Security | None = None,
    ) -> None:
        super().__init__()
        java = shutil.which("java")
        if java is None:
            raise NotAvailableError("Apache Kafka needs Java and there is no 'java' on the PATH")
        self.directory: Final = directory
        self.ids: Final = list(range(1, brokers + 1))
        zookeeper_port, *ports = free_ports(1 + brokers)
        self.ports: Final = dict(zip(self.ids, ports, strict=True))
        self.zookeeper: Final = ZooKeeperProcess(directory / "zookeeper", port=zookeeper_port)
        self.zookeeper_address: Final = f"127.0.0.1:{zookeeper_port}"
        directory.mkdir(parents=True, exist_ok=True)
        self.secured = None if security is None else SecuredCluster(security, directory / "security")
        (directory / "log4j.properties").write_text(LOG4J)
        for broker_id in self.ids:
            self._write_broker(broker_id, directories, java, release, settings or {})

    def __enter__(self) -> Self:
        self.zookeeper.start()
        if self.secured is not None:
            asyncio.run(self._add_users(self.secured))
        for broker_id in self.ids:
            self.run("start_kafka", broker_id)
        self.wait_listed()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for broker_id in self.ids:
            self.kill(broker_id)
        if self.zookeeper.is_running:
            self.zookeeper.kill()

    @property
    @override
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def script(self, step: str, broker_id: int | str = "{id}") -> str:
        """Return the command of a step: ``start_kafka``, ``stop_kafka``, ``start_kalda``, ``stop_kalda``, "
        "and ``kill_…``."""
        return f"{self.directory}/{broker_id}/{step}"

    def run(self, step: str, broker_id: int) -> None:
        """Run the command of a step."""
        code = os.waitstatus_to_exitcode(os.system(f"exec {self.script(step, broker_id)}"))
        assert 0 == code, f"{step} of broker {broker_id} ended with {code}"

    def kill(self, broker_id: int) -> None:
        """Kill what runs as a broker, with SIGKILL; harmless if nothing runs."""
        for software in ("kafka", "kalda"):
            file = self.directory / str(broker_id) / f"{software}.pid"
            try:
                os.kill(int(file.read_text()), signal.SIGKILL)
            except (OSError, ValueError):
                continue
            file.unlink()

    def log_dirs(self, broker_id: int) -> list[Path]:
        """Return the log directories of a broker."""
        return sorted((self.directory / str(broker_id)).glob("data*"))

    def wait_listed(self, seconds: float = 120) -> None:
        """Wait until the cluster lists all brokers.

        Raises:
            NotAvailableError: it does not in time.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                with Admin.from_config(self.client_config()) as admin:
                    if self.ids == sorted(node.id for node in admin.describe_cluster().nodes):
                        return
            except ClientError:
                pass  # none answers yet
            time.sleep(0.2)
        raise NotAvailableError(f"the brokers {self.ids} did not come up; see {self.directory}/*/*.log")

    async def _add_users(self, secured: SecuredCluster) -> None:
        client = await EnsembleClient.connect(
            self.zookeeper_address, session_timeout_ms=10_000, connection_timeout_ms=10_000
        )
        await secured.add_users(client)

    def _write_broker(
        self, broker_id: int, directories: int, java: str, release: str, settings: Mapping[str, str]
    ) -> None:
        home = self.directory / str(broker_id)
        home.mkdir()
        names = ["data" if number == 0 else f"data{number}" for number in range(directories)]
        for name in names:
            (home / name).mkdir()
        protocol = "PLAINTEXT" if self.secured is None else self.secured.protocol
        properties = {
            "broker.id": str(broker_id),
            "listeners": f"{protocol}://127.0.0.1:{self.ports[broker_id]}",
            "zookeeper.connect": self.zookeeper_address,
            "log.dirs": ",".join(str(home / name) for name in names),
            **({} if self.secured is None else self.secured.settings()),
            **settings,
        }
        file = home / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        kafka = [
            *(java, "-Xmx256m", "-XX:TieredStopAtLevel=1"),
            f"-Dlog4j.configuration=file:{self.directory}/log4j.properties",
            *("-cp", f"{kafka_jars(release)}/*", "kafka.Kafka", str(file)),
        ]
        kalda = [sys.executable, "-m", "kalda", "broker", "--config", str(file), "--dir", str(home / "kalda")]
        for software, command in (("kafka", kafka), ("kalda", kalda)):
            pid, log = home / f"{software}.pid", home / f"{software}.log"
            start = _START.format(pid=pid, command=shlex.join(command), log=log)
            _write_script(home / f"start_{software}", start)
            for step, name in (("stop", "TERM"), ("kill", "KILL")):
                text = _STOP.format(pid=pid, signal=name, ticks=STOP_SECONDS * 10)
                _write_script(home / f"{step}_{software}", text)


def _write_script(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)

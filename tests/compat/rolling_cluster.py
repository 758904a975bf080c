"""Three brokers and a coordination server whose processes change their release one by one."""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kalda.testing.ports import free_ports
from kalda.testing.process import CommandProcess
from kalda.testing.process_cluster import BrokerProcess, ZooKeeperProcess

PRESENT: Final = (sys.executable, "-m", "kalda")

SETTINGS: Final = {
    "zookeeper.session.timeout.ms": "4000",
    "log.segment.bytes": "262144",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
    "group.initial.rebalance.delay.ms": "0",
}


class _ZooKeeper(ZooKeeperProcess):
    """The coordination server of one release."""

    def __init__(self, directory: Path, port: int, command: Sequence[str]) -> None:
        super().__init__(directory, port=port)
        self._command = list(command)


class RollingCluster:
    """The processes of a cluster, each of them in two releases over the same directory and port."""

    def __init__(self, directory: Path, commands: Sequence[Sequence[str]]) -> None:
        """`commands` are what runs `kalda` of each release; the first one starts."""
        zookeeper_port, *ports = free_ports(4)
        address = f"127.0.0.1:{zookeeper_port}"
        self._commands: Final = [list(each) for each in commands]
        self._coordinators: Final[list[CommandProcess]] = [
            _ZooKeeper(directory / "zookeeper", zookeeper_port, command) for command in commands
        ]
        self._brokers: Final[list[list[CommandProcess]]] = [
            [
                BrokerProcess(
                    broker_id,
                    directory / f"broker-{broker_id}",
                    address,
                    port=port,
                    settings=SETTINGS,
                    command=command,
                )
                for command in commands
            ]
            for broker_id, port in enumerate(ports)
        ]
        self.bootstrap: Final = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.log_directories: Final = [directory / f"broker-{broker_id}" for broker_id in range(len(ports))]

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run all processes in the first release; at the end they are killed, if they still run."""
        try:
            for release in (self._coordinators, *self._brokers):
                release[0].start()
            yield
        finally:
            for release in (*self._brokers, self._coordinators):
                for process in release:
                    if process.is_running:
                        process.kill()
        for release in (*self._brokers, self._coordinators):
            release[0].check_log()

    def change_broker(self, broker_id: int, release: int) -> None:
        """Shut a broker down, and start it in another release."""
        _change(self._brokers[broker_id], release)

    def change_coordinator(self, release: int) -> None:
        """Shut the coordination server down, and start it in another release."""
        _change(self._coordinators, release)

    def stop(self) -> None:
        """Shut all down at the same moment."""
        running = [
            process for each in (self._coordinators, *self._brokers) for process in each if process.is_running
        ]
        for process in running:
            process.stop_nowait()
        for process in running:
            process.wait_stopped()


def _change(releases: Sequence[CommandProcess], release: int) -> None:
    (running,) = [each for each in releases if each.is_running]
    running.stop()
    releases[release].start()

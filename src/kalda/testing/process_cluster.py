"""Runs a coordination server and brokers as processes, which a test can kill, pause and restart.

It is for tests that need real processes: ``kill -9``, SIGSTOP, memory, and load on several cores. Each
process keeps its port over restarts. `kalda.testing.Cluster` starts faster, inside the test's own process.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kalda.broker.process.config import small_cluster_settings
from kalda.clients.admin.admin import Admin
from kalda.common.overriding import override
from kalda.common.public import public, public_in
from kalda.faults import Fault, FaultPlan
from kalda.testing.kept_directories import keep
from kalda.testing.namespace import Namespace, Namespaces
from kalda.testing.ports import free_ports
from kalda.testing.process import (
    CommandProcess,
    KaldaProcessError,
    setting_arguments,
)
from kalda.testing.process_faults import ProcessFaults
from kalda.testing.process_namespaces import NamespaceAdmin, ProcessBrokers
from kalda.testing.security import ClientConfigs, SecuredCluster, Security
from kalda.zookeeper.client.ensemble_client import EnsembleClient

_SESSION_TIMEOUT_MS: Final = 10_000


@public_in("kalda.testing")
class ZooKeeperProcess(CommandProcess):
    """One `kalda zookeeper` process: the coordination server alone.

    The log goes to ``<directory>.stderr`` beside the directory.

    Args:
        directory: The directory of all data; created if it does not exist.
        port: The port on 127.0.0.1; 0 picks a free one, which is kept over restarts.
        settings: Settings under the names of ZooKeeper's ``zoo.cfg``.
        start_timeout_seconds: How long a start may take.
    """

    def __init__(
        self,
        directory: Path,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        start_timeout_seconds: float = 60.0,
    ) -> None:
        super().__init__(
            directory.parent / f"{directory.name}.stderr", start_timeout_seconds=start_timeout_seconds
        )
        self.directory: Final = directory
        self.settings: Final = dict(settings or {})
        self.port: Final = port or free_ports(1)[0]

    @override
    def arguments(self) -> list[str]:
        return [
            *("zookeeper", "--dir", str(self.directory), "--port", str(self.port)),
            *setting_arguments(self.settings),
        ]


@public_in("kalda.testing")
class BrokerProcess(CommandProcess):
    """One `kalda broker` process, which connects to a coordination server of another process.

    The log goes to ``<directory>.stderr`` beside the directory.

    Args:
        broker_id: The broker's id.
        directory: The log directory; made if it is not there.
        zookeeper: The address of ZooKeeper, as in ``zookeeper.connect``, or of another engine, as in
            ``coordination.connect``.
        port: The port on 127.0.0.1; 0 picks a free one, which is kept over restarts.
        settings: Settings under Kafka's names, with values as in a ``server.properties``.
        config_file: A ``server.properties``; `settings` wins over it.
        start_timeout_seconds: How long a start may take.
        command: What to run instead of ``python -m kalda``, in front of the arguments.
    """

    def __init__(
        self,
        broker_id: int,
        directory: Path,
        zookeeper: str,
        *,
        port: int = 0,
        settings: Mapping[str, str] | None = None,
        config_file: Path | None = None,
        start_timeout_seconds: float = 60.0,
        command: Sequence[str] | None = None,
    ) -> None:
        super().__init__(
            directory.parent / f"{directory.name}.stderr",
            start_timeout_seconds=start_timeout_seconds,
            command=command,
        )
        self.broker_id: Final = broker_id
        self.directory: Final = directory
        self.settings: Final = dict(settings or {})
        self.port: Final = port or free_ports(1)[0]
        self._connect: Final = zookeeper
        self._config_file: Final = config_file

    @override
    def arguments(self) -> list[str]:
        # Listeners that the settings name have ports of their own.
        port = [] if "listeners" in self.settings else ["--port", str(self.port)]
        return [
            *("broker", "--id", str(self.broker_id), "--dir", str(self.directory), *port),
            *("--coordination" if "://" in self._connect else "--zookeeper", self._connect),
            *(() if self._config_file is None else ("--config", str(self._config_file))),
            *setting_arguments(self.settings),
        ]


@public
class ProcessCluster(ClientConfigs):
    """A coordination server and brokers 0, 1, …, each a process over a directory of its own.

    Works with ``with``; at the end of the block all processes are killed and the data stays. Everything
    listens on 127.0.0.1, at free ports that stay the same over restarts. `kill`, `pause` and their siblings
    take the id of a broker and raise `KaldaProcessError` where there is none, or where its process is not in
    the state that they need.

    Example:
        ```python
        with ProcessCluster(tmp_path, brokers=3) as cluster:
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
            cluster.kill(0)
            cluster.start(0)
        ```

    As in `Cluster`, ``group.initial.rebalance.delay.ms`` and ``group.consumer.assignment.interval.ms`` are 0
    and the replication factors of the internal topics fit the number of brokers, unless `settings` says
    otherwise.

    Args:
        directory: Where the processes' directories and logs are: ``broker-<id>``, ``zookeeper``.
        brokers: How many brokers to run.
        settings: Settings of every broker under Kafka's names, with values as in a ``server.properties``.
        security: Encryption, logins and ACLs, of brokers and clients, but not of the coordination server;
            without it the cluster is open. The result of `client_config` is how a user connects.
        racks: The ``broker.rack`` of each broker, as many as there are brokers.
        zookeeper_settings: Settings of the coordination server, under the names of ``zoo.cfg``.
        zookeeper: The address of a ZooKeeper that runs already, as in ``zookeeper.connect``, or of another
            engine, as in ``coordination.connect``; the cluster then starts no coordination server of its own.
        start_timeout_seconds: How long one process may take to start.
        broker_command: What to run instead of ``python -m kalda``, in front of each broker's arguments: a
            program that runs it with a fault built in.

    Raises:
        ValueError: `racks` has another length than there are brokers.
        KaldaProcessError: From entering the block: a process ended or was not ready in time.
    """

    def __init__(
        self,
        directory: Path,
        *,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        security: Security | None = None,
        racks: Sequence[str] | None = None,
        zookeeper_settings: Mapping[str, str] | None = None,
        zookeeper: str | None = None,
        start_timeout_seconds: float = 60.0,
        broker_command: Sequence[str] | None = None,
    ) -> None:
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"{len(racks)} racks were given for {brokers} brokers")
        super().__init__()
        self.directory: Final = directory
        coordinator_port, *ports = free_ports(1 + brokers)
        self._coordinator: Final = (
            ZooKeeperProcess(
                directory / "zookeeper",
                port=coordinator_port,
                settings=zookeeper_settings,
                start_timeout_seconds=start_timeout_seconds,
            )
            if zookeeper is None
            else None
        )
        self.zookeeper: Final = zookeeper or f"127.0.0.1:{coordinator_port}"
        """The address of ZooKeeper, as in ``zookeeper.connect``."""
        if security is not None:
            self.secured = SecuredCluster(security, directory / "security")
        self._brokers: Final = [
            BrokerProcess(
                broker_id,
                directory / f"broker-{broker_id}",
                self.zookeeper,
                port=port,
                settings={
                    "kalda.cluster.history.enable": "false",
                    **small_cluster_settings(brokers),
                    **self._listeners(port),
                    **(settings or {}),
                    **({"broker.rack": racks[broker_id]} if racks is not None else {}),
                },
                config_file=None if self.secured is None else self.secured.settings_file,
                start_timeout_seconds=start_timeout_seconds,
                command=broker_command,
            )
            for broker_id, port in enumerate(ports)
        ]
        self._faults: Final = ProcessFaults(self, list(self._brokers), self._open_admin)
        self._namespace_brokers: Final = ProcessBrokers(self._brokers, self._open_namespace_admin)
        self._namespaces: Final = Namespaces(self._namespace_brokers)
        self.start_seconds = 0.0
        """How long the first start of all took."""

    def __enter__(self) -> Self:
        begin = time.monotonic()
        try:
            if self._coordinator is not None:
                self._coordinator.start()
            if self.secured is not None:
                # The caller's thread may run an event loop of its own.
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(asyncio.run, self._add_users(self.secured)).result()
            for broker in self._brokers:
                broker.start_nowait()
            for broker in self._brokers:
                broker.wait_ready()
        except BaseException:
            self._kill_all()
            raise
        self.start_seconds = time.monotonic() - begin
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The test removes the data with its directory; a controlled shutdown would only take time.
        self._kill_all()
        if error is None:
            for broker in self._brokers:
                broker.check_log()

    @property
    @override
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self._brokers)

    @property
    def broker_pids(self) -> list[int]:
        """The process ids of the brokers that run, paused ones included."""
        return [broker.pid for broker in self._brokers if broker.is_running]

    @property
    def coordinator_pid(self) -> int:
        """The coordination server's process id."""
        return self.coordinator.pid

    @property
    def log_directories(self) -> list[Path]:
        """The log directory of each broker, by id."""
        return [broker.directory for broker in self._brokers]

    @property
    def coordinator(self) -> ZooKeeperProcess:
        """The coordination server's process.

        Raises:
            KaldaProcessError: the cluster uses a ZooKeeper that was given.
        """
        if self._coordinator is None:
            raise KaldaProcessError(f"the ZooKeeper at {self.zookeeper} does not belong to this cluster")
        return self._coordinator

    def broker(self, broker_id: int) -> BrokerProcess:
        """Return the process of a broker.

        Raises:
            KaldaProcessError: there is no such broker.
        """
        if not 0 <= broker_id < len(self._brokers):
            raise KaldaProcessError(f"there is no broker {broker_id}, only 0 to {len(self._brokers) - 1}")
        return self._brokers[broker_id]

    def namespace(
        self,
        name: str | None = None,
        *,
        faults: "str | Fault | FaultPlan | Iterable[str | Fault] | None" = None,
    ) -> Namespace:
        """Open a namespace: names of its own for a test that shares the cluster with others.

        It needs the setting ``kalda.namespaces.api.enable=true``.

        Args:
            name: 1 to 32 letters of ASCII and digits; without it the namespace gets a number.
            faults: Faults of the requests of its clients alone, as `apply_faults` takes them. Each broker
                counts the requests that it gets.

        Raises:
            FaultError: a fault is not valid, or one of brokers or links (a `ValueError`).
            ValueError: a namespace with this name is open.
            ClusterError: no broker runs.
            KaldaProcessError: the brokers do not have the setting.
            ClientError: a broker refused the name, or could not open a port.
        """
        plan = None if faults is None else FaultPlan.parse(faults)
        return self._namespaces.open(name, self.secured, plan)

    def wait_namespaces_removed(self) -> None:
        """Return when everything that closed namespaces had was removed from the cluster."""
        self._namespaces.wait_removed()

    def start(self, broker_id: int) -> None:
        """Start a broker that is down and return when it serves."""
        self.broker(broker_id).start()
        self._namespaces.restore(broker_id)
        self._faults.started(broker_id)

    def stop(self, broker_id: int, timeout_seconds: float = 30.0) -> None:
        """Shut a broker down (SIGTERM) and wait for exit code 0."""
        self.broker(broker_id).stop(timeout_seconds)

    def stop_all(self, timeout_seconds: float = 30.0) -> None:
        """Shut all running processes down at the same moment (SIGTERM), the coordination server included.

        Raises:
            KaldaProcessError: one had not ended with exit code 0 after `timeout_seconds`.
        """
        deadline = time.monotonic() + timeout_seconds
        everything = (self._coordinator, *self._brokers)
        running = [each for each in everything if each is not None and each.is_running]
        for process in running:
            process.stop_nowait()
        for process in running:
            process.wait_stopped(max(0.0, deadline - time.monotonic()))

    def kill(self, broker_id: int) -> None:
        """End a broker at once (SIGKILL)."""
        self.broker(broker_id).kill()

    def pause(self, broker_id: int) -> None:
        """Suspend a broker (SIGSTOP)."""
        self.broker(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker (SIGCONT)."""
        self.broker(broker_id).resume()

    def restart(self, broker_id: int) -> None:
        """Shut a broker down and start it again."""
        self.stop(broker_id)
        self.start(broker_id)

    def apply_faults(self, plan: "str | Fault | FaultPlan | Iterable[str | Fault]") -> None:
        """Put a plan of faults in force, in place of an earlier one.

        Processes are killed, stopped and paused by signals. All other faults are the brokers' own, and need
        the setting ``kalda.faults.api.enable=true``; each broker counts the requests that it gets. A broker
        that `start` starts gets the plan as well.

        Raises:
            FaultError: the plan is not valid, or needs that setting.
            KaldaProcessError: a broker is not in the state that a fault needs.
            ClientError: a broker did not take the plan.
        """
        self._faults.begin(FaultPlan.parse(plan))

    def clear_faults(self) -> None:
        """End the plan: all faults but the deaths of processes, which `start` ends."""
        self._faults.end()

    def faults_applied(self) -> list[int]:
        """Return to how many requests each fault of requests applied, on all brokers together."""
        return self._faults.applied()

    def kill_coordinator(self) -> None:
        """End the coordination server at once (SIGKILL)."""
        self.coordinator.kill()

    def start_coordinator(self) -> None:
        """Start the coordination server again and return when it serves."""
        self.coordinator.start()

    def pause_coordinator(self) -> None:
        """Suspend the coordination server (SIGSTOP)."""
        self.coordinator.pause()

    def resume_coordinator(self) -> None:
        """Resume the coordination server (SIGCONT)."""
        self.coordinator.resume()

    def _listeners(self, port: int) -> dict[str, str]:
        return {} if self.secured is None else {"listeners": f"{self.secured.protocol}://127.0.0.1:{port}"}

    async def _add_users(self, secured: SecuredCluster) -> None:
        session = await EnsembleClient.connect(
            self.zookeeper, session_timeout_ms=_SESSION_TIMEOUT_MS, connection_timeout_ms=_SESSION_TIMEOUT_MS
        )
        await secured.add_users(session)

    def _open_admin(self, broker_id: int | None) -> Admin:
        config = {} if self.secured is None else self.client_config()
        address = self.bootstrap if broker_id is None else f"127.0.0.1:{self._brokers[broker_id].port}"
        return Admin.from_config({**config, "bootstrap.servers": address})

    def _open_namespace_admin(self) -> NamespaceAdmin:
        config = {"bootstrap.servers": self.bootstrap} if self.secured is None else self.client_config()
        return NamespaceAdmin.from_config(config)

    def _kill_all(self) -> None:
        self._faults.close()
        self._namespaces.end()
        self._namespace_brokers.end()
        for process in (*self._brokers, self._coordinator):
            if process is not None and process.is_running:
                process.kill()
        keep(self.directory)

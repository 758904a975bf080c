"""Runs a cluster inside the test's own process: several brokers and a coordination server.

Each member is a real server on a thread of its own, with real sockets and files, so any Kafka client works
with it. A test can stop, kill and pause brokers and partition the network. `ProcessCluster` does the same
with processes: it starts more slowly, uses several cores, and shows what only a process does.
"""

import asyncio
import logging
import tempfile
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.process.config import small_cluster_settings
from kalda.broker.process.faulty_links import COORDINATOR, Member
from kalda.broker.server import BrokerServer
from kalda.common import invariants
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.faults import BrokerEffect, Fault, FaultPlan
from kalda.settings import BrokerConfig
from kalda.testing.cluster_faults import ClusterFaults
from kalda.testing.cluster_namespaces import ThreadBrokers
from kalda.testing.cluster_network import Network
from kalda.testing.cluster_threads import (
    BrokerThread,
    ClusterError,
    CoordinatorThread,
    MemberThread,
    cluster_of_this_thread,
)
from kalda.testing.kept_directories import keep
from kalda.testing.namespace import Namespace, Namespaces
from kalda.testing.ports import free_ports
from kalda.testing.security import ClientConfigs, SecuredCluster, Security
from kalda.zookeeper.server.config import ZooKeeperConfig

_SESSION_TIMEOUT_MS: Final = 3_000
"""With Kafka's 18 seconds, each test that kills a broker would wait that long. The members share one
interpreter, so with much less a session could expire while its thread waits to run."""

_CONNECTION_TIMEOUT_MS: Final = 30_000
"""How long a broker that starts may wait for its first session: its thread hardly runs on a busy machine."""

_POLL_SECONDS: Final = 0.01


class _Violations(logging.Handler):
    """Collects the violated invariants that the brokers of a cluster log."""

    def __init__(self, cluster: "Cluster") -> None:
        super().__init__()
        self._cluster: Final = cluster
        self.found: Final[list[str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message if the record shows an `AssertionError`, unless it is another cluster's."""
        if record.exc_info is not None and isinstance(record.exc_info[1], AssertionError):
            cluster = cluster_of_this_thread()
            if cluster is None or cluster is self._cluster:
                self.found.append(str(record.exc_info[1]))


@public
class Cluster(ClientConfigs):
    """Brokers 0, 1, … and their coordination server, for as long as the ``with`` block lasts.

    Works with ``with`` and with ``async with``. The methods block until what they ask for is done, most of
    them for a few milliseconds; asynchronous tests can hand them to `asyncio.to_thread`. Everything listens
    on 127.0.0.1, at free ports that stay the same over restarts.

    Example:
        ```python
        with Cluster(brokers=3, settings={"min.insync.replicas": "2"}) as cluster:
            producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap})
            cluster.kill(cluster.controller_id())
            cluster.partition({0}, {1, 2})
            cluster.heal()
        ```

    Some settings differ from Kafka's defaults so that tests are quick: ``zookeeper.session.timeout.ms`` is
    3000, ``group.initial.rebalance.delay.ms``, ``group.consumer.assignment.interval.ms`` and
    ``kalda.busy.poll.us`` are 0, ``kalda.cluster.history.enable`` is false, and the replication factors of
    the internal topics fit the number of brokers. `settings` wins over all of them.

    Args:
        brokers: How many brokers to run, at least 1.
        settings: Settings of every broker under Kafka's names, with values as in a ``server.properties``.
        security: Encryption, logins and ACLs, of brokers and clients; without it the cluster is open. The
            result of `client_config` is how a user connects.
        racks: The ``broker.rack`` of each broker, as many as there are brokers.
        directory: Where data is kept, in ``broker-<id>`` and ``zookeeper``; it stays after the block. Without
            one the data is kept in a temporary directory, which is removed.
        log_directories_per_broker: How many log directories each broker has, at least 1; from the second on
            they are ``broker-<id>-2``, ….
        start_timeout_seconds: How long one member may take to start.
        stop_timeout_seconds: How long one member may take to shut down.

    Raises:
        ValueError: `brokers` or `log_directories_per_broker` is below 1, or `racks` has another length.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        settings: Mapping[str, str] | None = None,
        security: Security | None = None,
        racks: Sequence[str] | None = None,
        directory: Path | None = None,
        log_directories_per_broker: int = 1,
        start_timeout_seconds: float = 60.0,
        stop_timeout_seconds: float = 30.0,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster of {brokers} brokers; at least 1 is needed")
        if log_directories_per_broker < 1:
            raise ValueError(
                f"{log_directories_per_broker} log directories for each broker; at least 1 is needed"
            )
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"{len(racks)} racks were given for {brokers} brokers")
        super().__init__()
        invariants.enable_by_default()
        self._security: Final = security
        self._brokers: Final = brokers
        self._violations: Final = _Violations(self)
        self._settings: Final = dict(settings or {})
        self._racks: Final = racks
        self._start_timeout_seconds: Final = start_timeout_seconds
        self._stop_timeout_seconds: Final = stop_timeout_seconds
        self._given_directory: Final = directory
        self._log_directories_per_broker: Final = log_directories_per_broker
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._directory: Path
        self._network: Final = Network()
        self._faults: Final = ClusterFaults(self, self._network, self._brokers_running)
        self._configs: Final[dict[int, BrokerConfig]] = {}
        self._members: Final[dict[Member, MemberThread]] = {}
        self._ports: Final[dict[int, int]] = {}
        self._zookeeper_port = 0
        self._namespaces: Final = Namespaces(ThreadBrokers(self._serving, self.controller_id))

    # Lifecycle.

    def __enter__(self) -> Self:
        """Start everything; the brokers serve on return.

        At the end of the block all members are killed; data that stays is as after a crash.

        Raises:
            ClusterError: a member did not start in time. At the end of a block that raised nothing itself: a
                member failed by itself, or a broker logged a violated invariant.
            ConfigError: a setting is unknown or not allowed (a `ValueError`).
        """
        if self._given_directory is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="kalda-")
        self._directory = self._given_directory or Path(self._temporary_name())
        logging.getLogger("kalda").addHandler(self._violations)
        try:
            if self._security is not None:
                self.secured = SecuredCluster(self._security, self._directory / "security")
            self._zookeeper_port, *ports = free_ports(1 + self._brokers)
            self._network.add(COORDINATOR, self._zookeeper_port)
            for broker_id, port in enumerate(ports):
                self._ports[broker_id] = port
                self._configs[broker_id] = self._config(broker_id, port)
                self._network.add(broker_id, port)
            self.start_coordinator()
            self._start(range(self._brokers))
        except BaseException:
            self._kill_all()
            logging.getLogger("kalda").removeHandler(self._violations)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A controlled shutdown would only take time: the data is removed, or left as after a crash.
        failures = self._failures()
        self._namespaces.end()
        try:
            self._kill_all()
        finally:
            logging.getLogger("kalda").removeHandler(self._violations)
        if error is None:
            self._raise_for(failures)

    async def __aenter__(self) -> Self:
        """Start everything; see `__enter__`."""
        return await asyncio.to_thread(self.__enter__)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    # Inspection.

    @property
    @override
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    @property
    def zookeeper(self) -> str:
        """The address of the coordination server, ``host:port``, for ZooKeeper clients."""
        return f"127.0.0.1:{self._zookeeper_port}"

    @property
    def directory(self) -> Path:
        """Where the data is: ``broker-<id>`` and ``zookeeper``."""
        return self._directory

    @property
    def log_directories(self) -> list[Path]:
        """The log directory of each broker, by id; the first one, if each has several."""
        return [self.log_directories_of(broker_id)[0] for broker_id in self._ports]

    def log_directories_of(self, broker_id: int) -> list[Path]:
        """Return all log directories of one broker."""
        first = self._directory / f"broker-{broker_id}"
        numbers = range(2, self._log_directories_per_broker + 1)
        return [first, *(first.with_name(f"{first.name}-{number}") for number in numbers)]

    @property
    def running(self) -> list[int]:
        """The ids of the brokers that run and are not paused."""
        return [
            member
            for member, thread in self._members.items()
            if isinstance(member, int) and thread.is_running and not thread.is_paused
        ]

    def server(self, broker_id: int) -> BrokerServer:
        """Return the broker object itself, to inspect.

        Its parts belong to the broker's thread and are internal: they change without notice.

        Raises:
            ClusterError: the broker does not run.
        """
        return self._broker(broker_id).server

    def controller_id(self, timeout_seconds: float = 30.0) -> int:
        """Return the id of the broker that is the controller, waiting until there is one.

        Raises:
            ClusterError: there is none in time.
        """
        found: list[int] = []

        def is_found() -> bool:
            found[:] = [each for each in self.running if self.server(each).services.controller.is_active]
            return len(found) == 1

        self.wait_until(is_found, timeout_seconds, "a controller")
        return found[0]

    def wait_in_sync(self, topic: str, timeout_seconds: float = 30.0) -> None:
        """Return when every partition of a topic has a leader, all of its replicas are in sync, and each
        broker with a replica answers clients that ask for the topic.

        Raises:
            ClusterError: not within `timeout_seconds`.
        """

        def is_in_sync() -> bool:
            led = [
                partition
                for broker_id in self.running
                for partition in list(self.server(broker_id).services.replica_manager.partitions.values())
                if partition.topic_partition.topic == topic and partition.is_leader
            ]
            numbers = {partition.topic_partition.partition for partition in led}
            replicas = {broker_id for partition in led for broker_id in partition.replicas}
            known = self._partition_count(topic)
            return (
                known > 0
                and len(numbers) == known
                and all(set(partition.isr) >= set(partition.replicas) for partition in led)
                and all(topic in self._metadata_cache(each) for each in replicas.intersection(self.running))
            )

        self.wait_until(is_in_sync, timeout_seconds, f"all replicas of {topic} in sync")

    def wait_until(
        self, condition: Callable[[], bool], timeout_seconds: float = 30.0, what: str = "the condition"
    ) -> None:
        """Return when `condition` returns true; it is called every 10 milliseconds.

        Raises:
            ClusterError: not within `timeout_seconds`; the message names `what` was waited for.
        """
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            if time.monotonic() > deadline:
                raise ClusterError(f"waited {timeout_seconds:g} s in vain for {what}")
            time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise where the end of the ``with`` block would; the cluster goes on.

        Raises:
            ClusterError: a member failed by itself, or a broker logged a violated invariant.
        """
        self._raise_for(self._failures())

    # Operations.

    def namespace(
        self,
        name: str | None = None,
        *,
        faults: "str | Fault | FaultPlan | Iterable[str | Fault] | None" = None,
    ) -> Namespace:
        """Open a namespace: names of its own for a test that shares the cluster with others.

        Args:
            name: 1 to 32 letters of ASCII and digits; without it the namespace gets a number.
            faults: Faults of the requests of its clients alone, as `apply_faults` takes them; topics and
                groups have their plain names.

        Raises:
            FaultError: a fault is not valid, or one of brokers or links (a `ValueError`).
            ValueError: the name is not allowed, or a namespace with this name is open.
            ClusterError: a broker could not open a port, or no broker runs.
        """
        plan = None if faults is None else FaultPlan.parse(faults)
        return self._namespaces.open(name, self.secured, plan)

    def wait_namespaces_removed(self) -> None:
        """Return when everything that closed namespaces had was removed from the cluster."""
        self._namespaces.wait_removed()

    def start(self, broker_id: int) -> None:
        """Start a broker that is down; it serves on return.

        Raises:
            ClusterError: it runs already, or did not start.
        """
        self._start([broker_id])

    def stop(self, broker_id: int) -> None:
        """Shut a broker down: its leaderships move away first, and its logs are flushed.

        Raises:
            ClusterError: it does not run, is paused, or did not end in time.
        """
        self._running(broker_id).stop(self._stop_timeout_seconds)

    def restart(self, broker_id: int) -> None:
        """Shut a broker down and start it again; it serves on return.

        Raises:
            ClusterError: it does not run, is paused, or did not end or start in time.
        """
        self.stop(broker_id)
        self.start(broker_id)

    def kill(self, broker_id: int, *, expire_session: bool = False) -> None:
        """End a broker at once, as ``kill -9`` would; a paused one too.

        Args:
            expire_session: Whether its session ends with it, so that others take over at once. Otherwise it
                is left to expire, after 3 seconds.

        Raises:
            ClusterError: it does not run.
        """
        member = self._broker(broker_id)
        session_id = member.session_id if expire_session else None
        member.kill()
        if session_id is not None:
            self._end_session(session_id)

    def pause(self, broker_id: int) -> None:
        """Suspend a broker, as SIGSTOP would; its session expires after 3 seconds.

        Raises:
            ClusterError: it does not run.
        """
        self._running(broker_id).pause()

    def resume(self, broker_id: int) -> None:
        """Resume a paused broker, as SIGCONT would.

        Raises:
            ClusterError: it does not run.
        """
        self._running(broker_id).resume()
        self._namespaces.restore(broker_id)

    def fill_disk(self, broker_id: int) -> None:
        """Simulate a full disk: writes fail with ENOSPC until `make_room`; reads and deletions succeed.

        Raises:
            ClusterError: it does not run.
        """
        self._broker(broker_id).set_disk_fault(BrokerEffect.FULL_DISK)

    def make_room(self, broker_id: int) -> None:
        """End the effect of `fill_disk`; the broker notices within a second or two.

        Raises:
            ClusterError: it does not run.
        """
        self._broker(broker_id).set_disk_fault(None)

    def partition(self, *groups: Collection[Member]) -> None:
        """Cut the network between groups of members, until the next partition or `heal`.

        A member is a broker's id or ``"coordinator"``; a member that is in no group reaches all others.
        Clients reach all brokers. ``partition({0}, {1, 2, "coordinator"})`` cuts broker 0 off from all.

        Raises:
            ClusterError: a member does not exist or is in two groups.
        """
        seen: set[Member] = set()
        for group in groups:
            for member in group:
                if member != COORDINATOR and member not in self._ports:
                    raise ClusterError(f"there is no member {member!r}: {self._names()}")
                if member in seen:
                    raise ClusterError(f"{member!r} is in two groups")
                seen.add(member)
        self._network.partition(groups)

    def heal(self) -> None:
        """End the network partition: all members reach each other again."""
        self._network.heal()

    def jump_clock(self, broker_id: int, seconds: float) -> None:
        """Set a broker's wall clock forward, or back with a number below 0; its time-outs go on as before.

        Raises:
            ClusterError: it does not run.
        """
        self._broker(broker_id).jump_clock(round(seconds * 1000))

    def expire_session(self, broker_id: int) -> None:
        """End a broker's session with the coordination server, as if no heartbeat had come in time.

        The broker opens another one and registers again.

        Raises:
            ClusterError: it does not run, or the coordination server does not.
        """
        self._end_session(self._broker(broker_id).session_id)

    def apply_faults(self, plan: "str | Fault | FaultPlan | Iterable[str | Fault]") -> None:
        """Put a plan of faults in force, in place of an earlier one.

        Faults of requests apply when this returns, to all brokers together: ``*2`` means two requests to the
        cluster. Faults of brokers and links without `after` have begun.

        Example:
            ```python
            cluster.apply_faults("produce:NOT_LEADER*2,topic=orders; broker:pause@2,for=3s")
            ```

        Raises:
            FaultError: the plan is not valid.
            ClusterError: a broker that it names does not exist, or is not in the state that a fault needs.
        """
        self._faults.begin(FaultPlan.parse(plan))

    def clear_faults(self) -> None:
        """End the plan: all faults but the deaths of brokers, which `start` ends.

        Does nothing if no plan is in force.
        """
        self._faults.end()

    def faults_applied(self) -> list[int]:
        """Return to how many requests each fault of requests applied, in the order of the plan."""
        return self._faults.applied()

    def start_coordinator(self) -> None:
        """Start the coordination server again; it serves on return.

        Raises:
            ClusterError: it runs already, or did not start.
        """
        self._require_down(COORDINATOR)
        coordinator = CoordinatorThread(
            str(self._directory / "zookeeper"),
            self._zookeeper_port,
            ZooKeeperConfig.from_properties({}),
            # A later start keeps the passwords that a test has changed.
            self.secured if COORDINATOR not in self._members else None,
        )
        self._members[COORDINATOR] = coordinator
        coordinator.cluster = self
        coordinator.begin()
        coordinator.wait_ready(self._start_timeout_seconds)

    def stop_coordinator(self) -> None:
        """Shut the coordination server down.

        Raises:
            ClusterError: it does not run, is paused, or did not end in time.
        """
        self._running(COORDINATOR).stop(self._stop_timeout_seconds)

    def kill_coordinator(self) -> None:
        """End the coordination server at once, as ``kill -9`` would.

        Raises:
            ClusterError: it does not run.
        """
        self._running(COORDINATOR).kill()

    def pause_coordinator(self) -> None:
        """Suspend the coordination server, as SIGSTOP would.

        Raises:
            ClusterError: it does not run.
        """
        self._running(COORDINATOR).pause()

    def resume_coordinator(self) -> None:
        """Resume a paused coordination server.

        Raises:
            ClusterError: it does not run.
        """
        self._running(COORDINATOR).resume()

    # Internals.

    def _failures(self) -> dict[Member, BaseException]:
        return {
            member: thread.failure
            for member, thread in self._members.items()
            if thread.failure is not None and member not in self._faults.excused
        }

    def _raise_for(self, failures: Mapping[Member, BaseException]) -> None:
        if self._violations.found:
            raise ClusterError(f"an invariant was violated: {self._violations.found[0]}")
        if failures:
            names = ", ".join(f"{member}: {failure!r}" for member, failure in failures.items())
            raise ClusterError(f"these members failed by themselves: {names}")

    def _start(self, broker_ids: Collection[int]) -> None:
        for broker_id in broker_ids:
            self._known(broker_id)
            self._require_down(broker_id)
        threads = [
            BrokerThread(self._configs[broker_id], self._network, self.zookeeper, self._faults.requests)
            for broker_id in broker_ids
        ]
        for broker_id, thread in zip(broker_ids, threads, strict=True):
            self._members[broker_id] = thread
            thread.cluster = self
            thread.begin()
        for thread in threads:
            thread.wait_ready(self._start_timeout_seconds)
        for broker_id in broker_ids:
            self._namespaces.restore(broker_id)

    def _config(self, broker_id: int, port: int) -> BrokerConfig:
        secured = self.secured
        settings = {
            "broker.id": str(broker_id),
            "listeners": f"{'PLAINTEXT' if secured is None else secured.protocol}://127.0.0.1:{port}",
            "log.dirs": ",".join(map(str, self.log_directories_of(broker_id))),
            "zookeeper.connect": self.zookeeper,
            "zookeeper.session.timeout.ms": str(_SESSION_TIMEOUT_MS),
            "zookeeper.connection.timeout.ms": str(_CONNECTION_TIMEOUT_MS),
            # A broker that polls would hold the interpreter that the test and the other brokers need.
            "kalda.busy.poll.us": "0",
            "kalda.cluster.history.enable": "false",
            **small_cluster_settings(self._brokers),
            **({} if secured is None else secured.settings()),
            **self._settings,
        }
        if self._racks is not None:
            settings["broker.rack"] = self._racks[broker_id]
        return BrokerConfig.from_properties(settings)

    def _brokers_running(self) -> dict[int, BrokerThread]:
        return {
            member: thread
            for member, thread in self._members.items()
            if isinstance(thread, BrokerThread) and isinstance(member, int) and thread.is_running
        }

    def _partition_count(self, topic: str) -> int:
        caches = [self._metadata_cache(broker_id) for broker_id in self.running]
        return max((cache.partition_count(topic) for cache in caches if topic in cache), default=0)

    def _metadata_cache(self, broker_id: int) -> MetadataCache:
        return self.server(broker_id).services.metadata_cache

    def _known(self, member: Member) -> None:
        if member != COORDINATOR and member not in self._ports:
            raise ClusterError(f"there is no member {member!r}: {self._names()}")

    def _names(self) -> str:
        return f"there are brokers 0 to {self._brokers - 1} and {COORDINATOR!r}"

    def _serving(self) -> Mapping[int, BrokerThread]:
        found = {broker_id: self._broker(broker_id) for broker_id in self.running}
        return {broker_id: thread for broker_id, thread in found.items() if thread.is_serving}

    def _end_session(self, session_id: int) -> None:
        coordinator = self._running(COORDINATOR)
        assert isinstance(coordinator, CoordinatorThread), f"{COORDINATOR} is a {type(coordinator).__name__}"
        coordinator.expire_session(session_id)

    def _broker(self, broker_id: int) -> BrokerThread:
        thread = self._running(broker_id)
        assert isinstance(thread, BrokerThread), f"broker {broker_id} is a {type(thread).__name__}"
        return thread

    def _running(self, member: Member) -> MemberThread:
        self._known(member)
        thread = self._members.get(member)
        if thread is None or not thread.is_running:
            raise ClusterError(f"{_title(member)} does not run")
        return thread

    def _require_down(self, member: Member) -> None:
        thread = self._members.get(member)
        if thread is not None and thread.is_running:
            raise ClusterError(f"{_title(member)} runs already")

    def _kill_all(self) -> None:
        self._faults.close()
        # The coordination server was started first and ends last: brokers without it would reconnect.
        for thread in reversed(self._members.values()):
            if thread.is_running:
                thread.kill()
        keep(self._directory)
        if self._temporary is not None:
            self._temporary.cleanup()

    def _temporary_name(self) -> str:
        assert self._temporary is not None, "no temporary directory was made"
        return self._temporary.name


def _title(member: Member) -> str:
    return f"broker {member}" if isinstance(member, int) else "the coordination server"

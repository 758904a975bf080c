"""Runs real brokers and a real coordination server on simulated machines: `SimulatedCluster`."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from random import Random as SeededRandom
from typing import Any, Final, NamedTuple, Protocol

from kalda.broker.replicas.partition import Partition
from kalda.broker.server import BrokerServer
from kalda.common.types import TopicPartition
from kalda.etcd.client import EtcdClient
from kalda.etcd.keys import Keys
from kalda.faults.state import Faults
from kalda.net.client.stream import connect_stream
from kalda.runtime.runtime import Runtime
from kalda.settings import BrokerConfig
from kalda.simulation.etcd.link import simulated_links
from kalda.simulation.etcd.server import SimulatedEtcd
from kalda.simulation.etcd.store import EtcdStore, StoreRefusedError
from kalda.simulation.foreign import ForeignSession, foreign_broker
from kalda.simulation.machine import Machine, SimulatedProcess
from kalda.simulation.network import SimulatedInternet
from kalda.simulation.releases import knows_topic_ids
from kalda.simulation.scheduler import Scheduler
from kalda.zookeeper.client.ensemble_client import EnsembleClient
from kalda.zookeeper.server.config import ZooKeeperConfig
from kalda.zookeeper.server.embedded import EmbeddedServer
from kalda.zookeeper.server.listener import ZooKeeperListener

logger: Final = logging.getLogger(__name__)

PORT: Final = 9092
ZOOKEEPER_PORT: Final = 2181
ZOOKEEPER_HOST: Final = "10.0.0.100"
CLIENT_HOST: Final = "10.0.1.1"
SESSION_TIMEOUT_MS: Final = 6_000
ETCD_PORTS: Final = (2379, 2380, 2381)
_ETCD_KEYS: Final = Keys("/kalda")

ZOOKEEPER: Final = "zookeeper"
ETCD: Final = "etcd"
ENGINES: Final = (ZOOKEEPER, ETCD)
"""What may keep the cluster's metadata."""


class StoredZnode(Protocol):
    """A znode as it is stored."""

    @property
    def data(self) -> bytes | None:
        """Its data."""

    @property
    def version(self) -> int:
        """The number of its changes."""


class StoredZnodes(Protocol):
    """The znodes of an engine by path."""

    def get(self, path: str, /) -> StoredZnode | None:
        """Return a znode, None if there is none."""

    def __contains__(self, path: object, /) -> bool: ...


class StoredTree(Protocol):
    """What an engine has stored; `DataTree` is one."""

    @property
    def nodes(self) -> StoredZnodes:
        """The znodes."""


def host_of(broker_id: int) -> str:
    """Return the address of a broker's machine."""
    return f"10.0.0.{broker_id}"


class SimulatedCluster:
    """Brokers 0, 1, … and a coordination server, each on a machine of its own, and a machine for clients.

    Args:
        seed: Fixes everything that happens.
        brokers: How many.
        settings: Settings of every broker, under Kafka's names.
        engine: `ZOOKEEPER` for the coordination server, `ETCD` for a model of etcd in its place.
        foreign: The release of Apache Kafka whose model about every second broker is; each start of a broker
            decides again.
    """

    def __init__(
        self,
        seed: str,
        brokers: int = 3,
        settings: Mapping[str, str] | None = None,
        foreign: str | None = None,
        engine: str = ZOOKEEPER,
    ) -> None:
        self.engine: Final = engine
        self.scheduler: Final = Scheduler(SeededRandom(f"{seed}/scheduler"))
        self.internet: Final = SimulatedInternet(self.scheduler, SeededRandom(f"{seed}/network"))
        self.errors: Final[list[str]] = []
        """What event loops reported that nothing handled."""
        self._settings: Final = dict(settings or {})
        self.foreign: Final = foreign
        self.on_foreign_start: Callable[[str], None] = _ignore
        """Called with a sentence about each broker that starts as a model."""
        self._software: Final = SeededRandom(f"{seed}/software")
        self._machines: Final = {
            broker_id: self._machine(host_of(broker_id), seed) for broker_id in range(brokers)
        }
        self._zookeeper_machine: Final = self._machine(ZOOKEEPER_HOST, seed)
        self.client_machine: Final = self._machine(CLIENT_HOST, seed)
        self.brokers: Final[dict[int, SimulatedProcess]] = {}
        self.servers: Final[dict[int, BrokerServer]] = {}
        self.zookeeper: SimulatedProcess | None = None
        self._ended: Final[list[SimulatedProcess]] = []
        """Kept, so that nothing of them is collected, and closed, at a moment that no seed fixes."""
        self._is_serving: Final[set[int]] = set()
        self._sessions: Final[dict[int, EnsembleClient | EtcdClient]] = {}
        self._embedded: EmbeddedServer | None = None
        self._store: Final = EtcdStore()
        self._etcd: SimulatedEtcd | None = None
        self._etcd_random: Final = SeededRandom(f"{seed}/etcd")
        self._has_engine_faults = False
        self._faults: Faults | None = None

    @property
    def knows_topic_ids(self) -> bool:
        """Whether all brokers know topic ids, and what else came later."""
        return self.foreign is None or knows_topic_ids(self.foreign)

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers."""
        return ",".join(f"{host_of(broker_id)}:{PORT}" for broker_id in self._machines)

    @property
    def log_directories(self) -> list[str]:
        """The log directories of every broker, where the settings name them."""
        return self._settings.get("log.dirs", "").split(",")

    def machine(self, broker_id: int) -> Machine:
        """Return the machine of a broker."""
        return self._machines[broker_id]

    @property
    def tree(self) -> StoredTree | None:
        """The coordination server's tree; None while the server is down, or etcd has no leader."""
        if self._etcd is not None:
            is_down = self.zookeeper is None or self.zookeeper.has_ended or not self._etcd.has_leader
            return None if is_down else _EtcdTree(self._store)
        if self._embedded is None or self.zookeeper is None or self.zookeeper.has_ended:
            return None
        return self._embedded.server.tree

    def is_serving(self, broker_id: int) -> bool:
        """Whether a broker has started and has not ended."""
        return broker_id in self._is_serving and not self.brokers[broker_id].has_ended

    def partitions(self) -> dict[int, Mapping[TopicPartition, Partition]]:
        """Return the partitions that each serving broker hosts, by its id."""
        return {
            broker_id: server.services.replica_manager.partitions
            for broker_id, server in self.servers.items()
            if self.is_serving(broker_id)
        }

    def start_zookeeper(self) -> None:
        """Start the coordination server."""
        run = self._run_etcd if self.engine == ETCD else self._run_zookeeper
        self.zookeeper = self._start(self._zookeeper_machine, run)

    def start_broker(self, broker_id: int) -> None:
        """Start a broker."""
        self._is_serving.discard(broker_id)
        self.brokers[broker_id] = self._start(self._machines[broker_id], partial(self._run_broker, broker_id))

    def stop_broker(self, broker_id: int) -> None:
        """Shut a broker down in order; its process ends when that is done."""
        process, server = self.brokers[broker_id], self.servers[broker_id]

        async def stop() -> None:
            await server.stop()
            await self._sessions[broker_id].close()
            process.kill()

        process.spawn(stop())

    def expire_session(self, broker_id: int) -> bool:
        """End a broker's session with the coordination server; return whether both of them serve."""
        if not self.is_serving(broker_id) or self.zookeeper is None or self.zookeeper.has_ended:
            return False
        session_id = self._sessions[broker_id].session_id
        embedded, etcd = self._embedded, self._etcd
        if etcd is not None:
            self.zookeeper.spawn(_end_lease(etcd, session_id))
            return True
        if embedded is None:
            return False

        async def end() -> None:
            embedded.server.close_session(session_id, lambda outcome: None)

        self.zookeeper.spawn(end())
        return True

    async def connect(self, runtime: Runtime, session_timeout_ms: int) -> EnsembleClient | EtcdClient:
        """Open a session with the coordination server, or with etcd, from a process."""
        if self.engine == ETCD:
            return await EtcdClient.connect(
                ",".join(f"{ZOOKEEPER_HOST}:{port}" for port in ETCD_PORTS),
                session_timeout_ms=session_timeout_ms,
                connection_timeout_ms=60_000,
                open_link=simulated_links(runtime.network),
                random=runtime.random,
            )
        return await _connect_zookeeper(EnsembleClient, runtime, session_timeout_ms)

    def set_engine_faults(self, is_on: bool) -> None:
        """Switch the faults of the simulated etcd on or off; the coordination server has none."""
        self._has_engine_faults = is_on
        self._store.free()
        if self._etcd is not None:
            self._etcd.has_faults = is_on

    def set_faults(self, faults: Faults | None) -> None:
        """Apply faults to the requests of all brokers, also of those that start; None ends them."""
        self._faults = faults
        for broker_id, server in self.servers.items():
            if not self.brokers[broker_id].has_ended:
                server.set_faults(faults)

    def start_client(self, main: Callable[[Runtime], Coroutine[Any, Any, None]]) -> SimulatedProcess:
        """Start a process of a client."""
        return self._start(self.client_machine, main)

    def set_client_distance(self, seconds: float) -> None:
        """Add latency between clients and brokers, in both directions."""
        for broker_id in self._machines:
            self.internet.slow_down(CLIENT_HOST, host_of(broker_id), seconds)
            self.internet.slow_down(host_of(broker_id), CLIENT_HOST, seconds)

    def _machine(self, host: str, seed: str) -> Machine:
        return Machine(host, seed, self.scheduler, self.internet)

    def _start(
        self, machine: Machine, main: Callable[[Runtime], Coroutine[Any, Any, None]]
    ) -> SimulatedProcess:
        process = machine.start(main)
        process.loop.on_error = partial(self._on_error, machine.host)
        self._ended.append(process)
        return process

    def _on_error(self, host: str, context: Mapping[str, Any]) -> None:
        self.errors.append(f"{host}: {context.get('message')}: {context.get('exception')!r}")

    async def _run_zookeeper(self, runtime: Runtime) -> None:
        embedded = EmbeddedServer(
            "/zookeeper",
            filesystem=runtime.file_system,
            executor=runtime.background,
            clock=runtime.clock,
            random=runtime.random,
        )
        embedded.start()
        self._embedded = embedded
        config = ZooKeeperConfig.from_properties({})
        listener = ZooKeeperListener(embedded.server, config, runtime.clock, runtime.network)
        await listener.listen(ZOOKEEPER_HOST, ZOOKEEPER_PORT)
        await asyncio.Event().wait()

    async def _run_etcd(self, runtime: Runtime) -> None:
        self._etcd = SimulatedEtcd(self._store, runtime, self._etcd_random)
        self._etcd.has_faults = self._has_engine_faults
        await self._etcd.serve(ZOOKEEPER_HOST, ETCD_PORTS)

    async def _run_broker(self, broker_id: int, runtime: Runtime) -> None:
        is_foreign = self.foreign is not None and self._software.random() < 0.5
        config = self._config(broker_id, is_foreign)
        timeout_ms = config.zookeeper_session_timeout_ms
        session = await (
            _connect_zookeeper(ForeignSession, runtime, timeout_ms)
            if is_foreign
            else self.connect(runtime, timeout_ms)
        )
        self._sessions[broker_id] = session
        if isinstance(session, ForeignSession):
            assert self.foreign is not None, "a foreign broker without a release"
            session.release = self.foreign
            self.on_foreign_start(f"broker-{broker_id} starts as Kafka {self.foreign}")
            server = foreign_broker(config, session, runtime, self._faults)
        else:
            server = BrokerServer(config, session, runtime=runtime, faults=self._faults)
        self.servers[broker_id] = server
        async with asyncio.TaskGroup() as tasks:
            await server.start(tasks)
            self._is_serving.add(broker_id)
            await asyncio.Event().wait()

    def _config(self, broker_id: int, is_foreign: bool) -> BrokerConfig:
        brokers = len(self._machines)
        own = {}
        if self.foreign is not None:
            # No broker of Kafka in ZooKeeper mode has the other protocol.
            own["group.coordinator.rebalance.protocols"] = "classic"
            if is_foreign:
                own["kalda.as.version"] = self.foreign
                own["kalda.controller.eligible"] = "true"
                own["kalda.cluster.history.enable"] = "false"
        return BrokerConfig.from_properties(
            {
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://{host_of(broker_id)}:{PORT}",
                "log.dirs": f"/broker-{broker_id}",
                "zookeeper.connect": f"{ZOOKEEPER_HOST}:{ZOOKEEPER_PORT}",
                "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
                # A topic more would make every schedule longer.
                "kalda.cluster.history.enable": "false",
                "group.consumer.assignment.interval.ms": "0",
                "group.initial.rebalance.delay.ms": "0",
                "group.share.heartbeat.interval.ms": "2000",
                "group.share.min.heartbeat.interval.ms": "1000",
                "group.share.min.record.lock.duration.ms": "1000",
                "group.share.min.session.timeout.ms": "6000",
                "group.share.session.timeout.ms": "6000",
                "offsets.topic.replication.factor": str(min(3, brokers)),
                "offsets.topic.num.partitions": "2",
                "share.coordinator.state.topic.min.isr": str(min(2, brokers)),
                "share.coordinator.state.topic.num.partitions": "2",
                "share.coordinator.state.topic.replication.factor": str(min(3, brokers)),
                "transaction.state.log.replication.factor": str(min(3, brokers)),
                "transaction.state.log.min.isr": str(min(2, brokers)),
                "transaction.state.log.num.partitions": "2",
                **self._settings,
                **own,
            }
        )


async def _connect_zookeeper(
    session: type[EnsembleClient], runtime: Runtime, session_timeout_ms: int
) -> EnsembleClient:
    return await session.connect(
        f"{ZOOKEEPER_HOST}:{ZOOKEEPER_PORT}",
        session_timeout_ms=session_timeout_ms,
        connection_timeout_ms=60_000,
        connect=partial(connect_stream, network=runtime.network),
        random=runtime.random,
    )


async def _end_lease(etcd: SimulatedEtcd, lease: int) -> None:
    try:
        etcd.store.revoke(lease)
    except StoreRefusedError:
        return
    await etcd.notify()


class _EtcdTree:
    """The znodes of a store of etcd."""

    def __init__(self, store: EtcdStore) -> None:
        self._store: Final = store

    @property
    def nodes(self) -> "_EtcdTree":
        """The znodes by path: the tree itself."""
        return self

    def get(self, path: str, /) -> StoredZnode | None:
        """Return a znode."""
        kv = self._store.keys.get(_ETCD_KEYS.znode(path))
        return None if kv is None else _EtcdZnode(kv.value, kv.version - 1)

    def __contains__(self, path: object, /) -> bool:
        return isinstance(path, str) and _ETCD_KEYS.znode(path) in self._store.keys


class _EtcdZnode(NamedTuple):
    data: bytes | None
    version: int


def _ignore(sentence: str) -> None:
    """Ignore the argument."""

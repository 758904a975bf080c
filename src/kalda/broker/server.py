"""One broker: its life from start to shutdown.

It is given a session with coordination and does not know which engine is behind it. The order of a start:
identity, settings, logs, listeners bound (their ports must be known), registration, controller; clients are
answered only when the controller has told this broker what there is, so that none meets a broker that does
not know its topics. What the parts are and how they fit is `kalda.broker.assembly`. A service task that fails
ends the broker: a broker that does half its work is worse than none.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Final

from kalda.broker.assembly import Machinery, assemble
from kalda.broker.config import BrokerConfig, ConfigStore
from kalda.broker.config.listeners import ListenerConfig
from kalda.broker.controller_link.controlled_shutdown import (
    SILENCE_SECONDS_MAX,
    report_leaderships,
    shut_down_gracefully,
    wait_coordination_silent,
)
from kalda.broker.early_requests import EarlyRequests
from kalda.broker.features import SUPPORTED, Features
from kalda.broker.health import BrokerHealth, BrokerState
from kalda.broker.log_cleaning import start_log_cleaner
from kalda.broker.process.errors import ProcessError
from kalda.broker.registration import (
    BrokerIdentityError,
    BrokerRegistration,
    check_cluster_id,
    decide_broker_id,
    read_stored_identities,
)
from kalda.broker.replication.leader.assembly import start_leader_upkeep
from kalda.broker.services import BrokerServices
from kalda.broker.session_memory import SessionMemory
from kalda.broker.upkeep import FAREWELL_SECONDS_MAX, Upkeep, start_log_upkeep
from kalda.common.clock import Clock
from kalda.common.metrics import Metrics
from kalda.common.types import BrokerEndpoint
from kalda.net.peer.dialer import Dialer, TcpDialer
from kalda.storage.background import BackgroundExecutor
from kalda.storage.checkpoints import MetaProperties, write_meta_properties
from kalda.storage.descriptors import open_files_max, raise_descriptor_limit
from kalda.storage.filesystem import FileSystem
from kalda.storage.log_caches import LogCaches
from kalda.storage.log_manager import LogManager
from kalda.zk.client import paths
from kalda.zk.client.cluster_store import ClusterStore
from kalda.zk.client.port import SessionState, ZooKeeperClient
from kalda.zk.client.schema import BrokerInfo, ListenerEndpoint

logger: Final = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 5.0
"""How long a shutdown waits for answers that are owed; delayed operations are completed before."""

_SILENT_DRAIN_SECONDS: Final = 0.25
"""The same while coordination does not answer: what waits for coordination is never answered."""

HAND_OVER_SECONDS_MAX: Final = 30.0
"""How long a shutdown may try to have its leaders moved. Kafka's retries alone come to 15 seconds."""

_TELL_SECONDS: Final = 10.0
"""How long requests of clients wait, while the broker starts, for the controller to send the metadata. Less
than the 30 s after which most clients give a request up."""


class BrokerStartError(ProcessError):
    """The broker cannot start, for a reason that an operator can mend; the message says which."""


class BrokerServer:
    """A broker from start to shutdown: `start`, and `stop` when it is to end."""

    def __init__(
        self,
        config: BrokerConfig,
        zookeeper: ZooKeeperClient,
        *,
        file_system: FileSystem,
        clock: Clock,
        executor: BackgroundExecutor,
        dialer: Dialer | None = None,
    ) -> None:
        """`dialer` opens the connections to other brokers; over TCP if none is given."""
        self._config: Final = config
        self._dialer: Final = dialer if dialer is not None else TcpDialer()
        self._file_system: Final = file_system
        self._clock: Final = clock
        self._executor: Final = executor
        self._cluster: Final = ClusterStore(zookeeper, clock)
        self.metrics: Final = Metrics()
        self.services: Final = BrokerServices()
        self._health: Final = BrokerHealth(self.services)
        self._stored: Mapping[str, MetaProperties] = {}
        """What the log directories said of their owner before this start."""
        self._ports: dict[str, int] = {}
        """By listener name, once bound."""
        self._stop_metrics: Callable[[], object] | None = None
        # What a start has come to, and a failed one has to undo.
        self._is_loaded = False
        self._machinery: Machinery | None = None
        self._upkeep: Upkeep | None = None
        self.is_coordination_silent = False
        """Whether coordination did not answer while the broker stopped; its session is best abandoned."""

    @property
    def bootstrap(self) -> str:
        """The first advertised address, ``host:port``; known after `start`."""
        first = self.services.listeners[0]
        return f"{first.host}:{first.port}"

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Bring the broker up and return when it serves; its service tasks run in `tasks`.

        Raises:
            BrokerStartError: a port is taken, or a log directory belongs to another cluster or broker.
            StorageError: a log directory is in use or cannot be opened.
            ZooKeeperError, BrokerIdInUseError: the cluster does not take the broker.
        """
        services = self.services
        try:
            await self._join()
            await self._open_storage()
            machinery = self._machinery = assemble(services, self._dialer, tasks)
            upkeep = self._upkeep = Upkeep(tasks)
            self._ports = await self._bind(machinery)
            # From now on the controller can reach this broker; clients wait.
            machinery.server.start_accepting()
            services.listeners = self._endpoints()
            await self._serve_metrics()
            await services.registration.start()
            upkeep.run("registration", services.registration.run())
            start_log_upkeep(upkeep, services)
            start_log_cleaner(upkeep, services, self._file_system)
            start_leader_upkeep(services, upkeep)
            services.transactions.start(upkeep)
            upkeep.run("features", services.features.run())
            upkeep.run("controller", services.controller.run())
            upkeep.run("end offsets", services.remote_end_offsets.run())
            await self._wait_told(machinery.early_requests)
        except BaseException:
            await self._abandon_start()
            raise
        machinery.open()
        self._health.state = BrokerState.RUNNING
        logger.info("broker %d serves at %s", services.broker_id, self.bootstrap)

    async def stop(self, hurried: asyncio.Event | None = None) -> None:
        """Shut down in order: hand leaders over, answer what is owed, leave office, flush and close logs.

        Once `hurried` is set, nothing waits for others any more; nor for coordination when that does not
        answer. Every step is bounded in time but the flushing of the logs.
        """
        hurried = asyncio.Event() if hurried is None else hurried
        silent = asyncio.ensure_future(wait_coordination_silent(self._cluster.zookeeper))
        try:
            await self._stop_in_order(hurried, silent)
        finally:
            self.is_coordination_silent = silent.done()
            silent.cancel()
            await asyncio.gather(silent, return_exceptions=True)

    async def _stop_in_order(self, hurried: asyncio.Event, silent: asyncio.Future[None]) -> None:
        services, machinery, upkeep = self.services, self._machinery, self._upkeep
        assert machinery is not None, "only a broker that was started can be stopped"
        assert upkeep is not None, "only a broker that was started can be stopped"
        logger.info("broker %d shuts down", services.broker_id)
        self._health.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
        await self._hand_over(hurried, silent)
        self._health.state = BrokerState.SHUTTING_DOWN
        if self._stop_metrics is not None:
            self._stop_metrics()
        for purgatory in services.purgatories.values():
            purgatory.close()
        services.coordinators.close()
        drain_seconds = _SILENT_DRAIN_SECONDS if silent.done() else DRAIN_SECONDS
        await machinery.server.close(0.0 if hurried.is_set() else drain_seconds)
        machinery.dispatcher.close()
        await services.replica_fetchers.close()
        broker_epoch = services.registration.broker_epoch
        await upkeep.end(silent)
        machinery.controller_channel.close()
        await services.config_store.close()
        if not silent.done():
            await self._withdraw()
        machinery.timer.close()
        services.log_manager.close(broker_epoch)
        logger.info("broker %d is down", services.broker_id)

    def abort(self) -> None:
        """Close every socket at once and leave all else as it is: to others, the process has died.

        For tests that kill a broker whose process must go on; nothing else of it may be used afterwards.
        """
        if self._machinery is not None:
            self._machinery.server.abort()
            self._machinery.controller_channel.close()
            self.services.replica_fetchers.close_nowait()
            self._machinery.timer.close()

    # Starting, in order.

    async def _join(self) -> None:
        """Find out which cluster and which broker this is."""
        services, config = self.services, self._config
        services.config, services.clock, services.metrics = config, self._clock, self.metrics
        services.cluster_store = self._cluster
        try:
            stored = read_stored_identities(self._file_system, config.log_dirs)
            await self._check_coordination(stored)
            await self._cluster.ensure_layout()
            services.features = Features(self._cluster.zookeeper)
            await services.features.start()
            services.cluster_id = await self._cluster.cluster_id()
            check_cluster_id(stored, services.cluster_id)
            services.broker_id = await decide_broker_id(
                self._cluster,
                stored,
                configured=config.broker_id,
                is_generation_enabled=config.broker_id_generation_enable,
                reserved_max=config.reserved_broker_max_id,
            )
        except BrokerIdentityError as error:
            raise BrokerStartError(str(error)) from None
        self._stored = stored

    async def _check_coordination(self, stored: Mapping[str, MetaProperties]) -> None:
        """Refuse to begin a new cluster over the logs of one: lost coordination data must not pass unseen."""
        if await self._cluster.zookeeper.exists(paths.CLUSTER_ID) is not None:
            return
        for directory, properties in stored.items():
            if properties.cluster_id:
                raise BrokerStartError(
                    f"{directory} belongs to cluster.id={properties.cluster_id}, but coordination knows no "
                    "cluster: its data is missing or damaged; restore it from a copy, or give the broker an "
                    "empty log directory"
                )

    async def _open_storage(self) -> None:
        services, config = self.services, self._config
        # Settings first: logs are opened with them.
        services.config_store = ConfigStore(config, self._topics_with_logs)
        await services.config_store.start(self._cluster, services.broker_id)
        services.log_manager = LogManager(
            config.log_dirs,
            services.config_store.log_config,
            self._clock,
            self._file_system,
            self._executor,
            LogCaches(open_files_max(raise_descriptor_limit())),
        )
        services.config_store.on_topic_change(services.log_manager.update_topic_config)
        services.log_manager.load()
        self._is_loaded = True
        # Before the broker registers: an id that was made for it must be the same at the next start.
        identity = MetaProperties(services.cluster_id, services.broker_id)
        for directory in services.log_manager.live_directories:
            if directory not in self._stored:
                write_meta_properties(self._file_system, directory, identity)
        services.registration = BrokerRegistration(
            self._cluster,
            self._registration_info,
            clock=self._clock,
            session_timeout_ms=config.zookeeper_session_timeout_ms,
            memory=SessionMemory(self._file_system, services.log_manager.live_directories),
        )
        logs = services.log_manager.logs()
        logger.info("opened %d logs in %s", len(logs), ", ".join(config.log_dirs))

    def _topics_with_logs(self) -> set[str]:
        return {partition.topic for partition in self.services.log_manager.logs()}

    async def _bind(self, machinery: Machinery) -> dict[str, int]:
        """Bind every listener and return the ports by listener name."""
        ports = {}
        for listener in self._config.listeners:
            try:
                ports[listener.name] = await machinery.server.listen(
                    listener.name, listener.host, listener.port, accept=False
                )
            except OSError as error:
                raise BrokerStartError(error.strerror or str(error)) from None
        return ports

    def _registration_info(self) -> BrokerInfo:
        return BrokerInfo(
            self.services.broker_id,
            tuple(_endpoint(listener, self._ports) for listener in self._config.advertised_listeners),
            self._config.broker_rack,
            timestamp_ms=self._clock.time_ms(),
            features=tuple((name, low, high) for name, (low, high) in SUPPORTED.items()),
        )

    def _endpoints(self) -> tuple[BrokerEndpoint, ...]:
        info = self._registration_info()
        return tuple(BrokerEndpoint(info.id, each.host, each.port, info.rack) for each in info.endpoints)

    async def _wait_told(self, early: EarlyRequests) -> None:
        """Return when the controller has sent this broker its roles and every partition's metadata.

        Clients whose requests wait for it are sent away every `_TELL_SECONDS`.
        """
        services = self.services
        while True:
            try:
                async with asyncio.timeout(_TELL_SECONDS):
                    await services.controller.wait_ready()
                    await services.controller_requests.wait_metadata()
                    return
            except TimeoutError:
                logger.warning(
                    "broker %d waits for the cluster's metadata; controller %s has not sent it yet",
                    services.broker_id,
                    services.controller.controller_id,
                )
                early.give_up()

    async def _serve_metrics(self) -> None:
        if self._config.metrics_port is None:
            return
        # Imported only when asked for: it is no part of a broker that nobody scrapes.
        from kalda.net.metrics_http import MetricsServer

        self._health.register_metrics(self.metrics)
        server = MetricsServer(self.metrics, self._health.unready_reason)
        host = self._config.listeners[0].host
        try:
            port = await server.listen(host, self._config.metrics_port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise BrokerStartError(f"`metrics.port`={self._config.metrics_port}: {reason}") from None
        self._stop_metrics = server.close_nowait
        logger.info("metrics are served at http://%s:%d/metrics", host or "0.0.0.0", port)

    async def _abandon_start(self) -> None:
        """Let go of what a start that failed had taken: ports, files and locks. Nothing was served yet."""
        services, machinery = self.services, self._machinery
        if self._upkeep is not None:
            self._upkeep.cancel()
        if machinery is not None:
            if self._stop_metrics is not None:
                self._stop_metrics()
            machinery.controller_channel.close()
            await services.replica_fetchers.close()
            await machinery.server.close(drain_seconds=0.0)
            machinery.timer.close()
            await self._withdraw()
        if hasattr(services, "config_store"):
            await services.config_store.close()
        if self._is_loaded:
            services.log_manager.close()

    # Stopping.

    async def _hand_over(self, hurried: asyncio.Event, silent: asyncio.Future[None]) -> None:
        """Have the controller move what this broker leads, and log what it does not."""
        moving = asyncio.ensure_future(shut_down_gracefully(self.services, self._dialer))
        hurry = asyncio.ensure_future(hurried.wait())
        try:
            await asyncio.wait(
                (moving, hurry, silent), timeout=HAND_OVER_SECONDS_MAX, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for each in (moving, hurry):
                each.cancel()
            await asyncio.gather(moving, hurry, return_exceptions=True)
        if not moving.cancelled():
            reason = moving.result()
        elif silent.done():
            reason = f"coordination has not answered for {SILENCE_SECONDS_MAX:g} s"
        elif hurried.is_set():
            reason = "a second signal, or the end of its parent process, hurries the shutdown"
        else:
            reason = f"they did not move within {HAND_OVER_SECONDS_MAX:g} s"
        if reason:
            report_leaderships(self.services, reason)

    async def _withdraw(self) -> None:
        """Leave the cluster, unless coordination takes its time: the session's end does the same, later."""
        if self._cluster.zookeeper.state is SessionState.SUSPENDED:
            # Nobody is there to be told, as when the coordinator was ended first.
            return
        try:
            async with asyncio.timeout(FAREWELL_SECONDS_MAX):
                await self.services.registration.withdraw()
        except TimeoutError:
            logger.warning("broker %d is left to its session's end", self.services.broker_id)


def _endpoint(listener: ListenerConfig, ports: dict[str, int]) -> ListenerEndpoint:
    """Fill in what the settings leave open: the port of 0, and this host's name for "every interface"."""
    port = listener.port or ports[listener.name]
    return ListenerEndpoint(
        listener.name, listener.host or socket.gethostname(), port, listener.security_protocol
    )

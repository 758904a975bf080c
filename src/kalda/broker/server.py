"""One broker: the composition root. It builds the parts, starts them in order, and stops them in reverse.

Nothing else wires parts together. It is given a session with coordination and does not know which engine is
behind it. The order of a start: settings, logs, listeners bound (their ports must be known), registration,
controller, and only then connections are accepted, so that no client meets a broker that does not know its
topics. A service task that fails ends the broker: a broker that does half its work is worse than none.
"""

import asyncio
import logging
import random
import socket
from collections.abc import Callable
from functools import partial
from typing import Final

from kalda.broker.config import BrokerConfig, ConfigStore
from kalda.broker.config.listeners import ListenerConfig
from kalda.broker.controller_channel import ControllerChannel
from kalda.broker.controller_requests import ControllerRequests
from kalda.broker.dispatch import Dispatcher
from kalda.broker.fetch_session import FetchSessionCache
from kalda.broker.handlers import HANDLERS
from kalda.broker.leader_assembly import build_replica_manager, start_leader_upkeep
from kalda.broker.metadata_cache import MetadataCache
from kalda.broker.metrics import register_broker_metrics
from kalda.broker.process_errors import ProcessError
from kalda.broker.producer_ids import ProducerIds
from kalda.broker.purgatory import DelayedOperation, DelayedOperationPurgatory, SystemTimer
from kalda.broker.replication.assembly import build_replica_fetchers
from kalda.broker.services import BrokerServices
from kalda.broker.topic_admin import TopicAdmin
from kalda.common.clock import Clock
from kalda.common.metrics import Metrics
from kalda.common.timing_wheel import TimingWheel
from kalda.common.types import BrokerEndpoint
from kalda.controller.driver import ControllerDriver
from kalda.coordination import paths
from kalda.coordination.cluster import Cluster
from kalda.coordination.errors import CoordinationError
from kalda.coordination.port import Coordination
from kalda.coordination.schema import BrokerInfo, ListenerEndpoint
from kalda.net.peer.dialer import Dialer, TcpDialer
from kalda.net.server import Server, ServerConfig
from kalda.storage.background import BackgroundExecutor
from kalda.storage.checkpoints import MetaProperties, read_meta_properties, write_meta_properties
from kalda.storage.descriptors import open_files_max, raise_descriptor_limit
from kalda.storage.filesystem import FileSystem
from kalda.storage.handles import Handles
from kalda.storage.log_manager import LogManager

logger: Final = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 5.0
"""How long a shutdown waits for answers that are owed; delayed operations are completed before."""
FAREWELL_SECONDS_MAX: Final = 2.0
"""How long a shutdown waits for coordination, which does not need to hear of it: sessions end anyway."""
_CANCELS_MAX: Final = 3
PURGATORIES: Final = ("fetch", "produce", "topic")
UPKEEP_SECONDS_MAX: Final = 1.0
"""Deferred deletions and ``flush.ms`` are looked at this often; both look only at what is due."""
_SESSION_ID_MAX: Final = 2**31 - 1


class BrokerStartError(ProcessError):
    """The broker cannot start, for a reason that an operator can mend; the message says which."""


class BrokerServer:
    """A broker from start to shutdown: `start`, then `run` until cancelled, then `stop`."""

    def __init__(
        self,
        config: BrokerConfig,
        coordination: Coordination,
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
        self._cluster: Final = Cluster(coordination, clock)
        self._broker_id: Final = max(config.broker_id, 0)
        self.metrics: Final = Metrics()
        self.services: Final = BrokerServices()
        self._server: Server
        self._controller_channel: ControllerChannel
        self._dispatcher: Dispatcher
        self._timer: SystemTimer
        self._stop_metrics: Callable[[], object] | None = None
        self._is_loaded = False
        self._is_built = False
        self._is_registered = False
        self._broker_epoch = -1
        self._upkeep: list[asyncio.Task[None]] = []

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
            CoordinationError, BrokerIdInUseError: the cluster does not take the broker.
        """
        try:
            await self._open_storage()
            self._build(tasks)
            ports = await self._bind()
            await self._register(ports)
            services = self.services
            self._upkeep.append(tasks.create_task(services.controller.run(), name="controller"))
            await services.controller.wait_ready()
            self._start_upkeep(tasks)
            await self._serve_metrics()
        except BaseException:
            await self._abandon_start()
            raise
        self._server.start_accepting()
        logger.info("broker %d serves at %s", self._broker_id, self.bootstrap)

    async def stop(self, hurried: asyncio.Event | None = None) -> None:
        """Shut down in order: answer what is owed, leave office, flush and close the logs.

        Once `hurried` is set, nothing waits for others any more. Every step is bounded in time but the
        flushing of the logs.
        """
        hurried = asyncio.Event() if hurried is None else hurried
        logger.info("broker %d shuts down", self._broker_id)
        services = self.services
        if self._stop_metrics is not None:
            self._stop_metrics()
        for purgatory in services.purgatories.values():
            purgatory.close()
        await self._server.close(0.0 if hurried.is_set() else DRAIN_SECONDS)
        self._dispatcher.close()
        await services.replica_fetchers.close()
        await self._end_upkeep()
        self._controller_channel.close()
        await services.config_store.close()
        await self._unregister()
        self._timer.close()
        services.log_manager.close()
        logger.info("broker %d is down", self._broker_id)

    async def _end_upkeep(self) -> None:
        """Cancel the service tasks, and once more those that take their time to say good-bye.

        The controller resigns on its way out, which waits for coordination; if that is out of reach, the end
        of the session ends the term.
        """
        remaining = set(self._upkeep)
        for _ in range(_CANCELS_MAX):
            for task in remaining:
                task.cancel()
            if remaining:
                _, remaining = await asyncio.wait(remaining, timeout=FAREWELL_SECONDS_MAX)
        if remaining:
            names = ", ".join(sorted(task.get_name() for task in remaining))
            logger.error("these tasks of broker %d do not end: %s", self._broker_id, names)

    def abort(self) -> None:
        """Close every socket at once and leave all else as it is: to clients, the process has died.

        For tests that kill a broker whose process must go on; nothing else of it may be used afterwards.
        """
        if self._is_built:
            self._server.abort()
            self._controller_channel.close()
            self.services.replica_fetchers.close_nowait()

    async def _abandon_start(self) -> None:
        """Let go of what a start that failed had taken: ports, files and locks. Nothing was served yet."""
        for task in self._upkeep:
            task.cancel()
        if self._is_built:
            self._controller_channel.close()
            await self.services.replica_fetchers.close()
            await self._server.close(drain_seconds=0.0)
            self._timer.close()
        if self._is_loaded:
            self.services.log_manager.close()

    async def _unregister(self) -> None:
        if not self._is_registered:
            return
        try:
            async with asyncio.timeout(FAREWELL_SECONDS_MAX):
                await self._cluster.unregister_broker(self._broker_id)
        except (CoordinationError, TimeoutError) as error:
            # The session's end does the same, only later; the logs must be closed in any case.
            reason = str(error) or "no answer"
            logger.warning("broker %d is not withdrawn from the cluster: %s", self._broker_id, reason)

    # Starting, in order.

    async def _open_storage(self) -> None:
        services, config = self.services, self._config
        services.config, services.clock, services.metrics = config, self._clock, self.metrics
        services.coordination = self._cluster
        await self._check_coordination()
        await self._cluster.ensure_layout()
        services.cluster_id = await self._cluster.cluster_id()
        services.broker_id = self._broker_id
        services.config_store = ConfigStore(config, self._topics_with_logs)
        await services.config_store.start(self._cluster, self._broker_id)
        services.log_manager = LogManager(
            config.log_dirs,
            services.config_store.log_config,
            self._clock,
            self._file_system,
            self._executor,
            Handles(open_files_max(raise_descriptor_limit())),
        )
        services.config_store.on_topic_change(services.log_manager.update_topic_config)
        services.log_manager.load()
        self._is_loaded = True
        for directory in services.log_manager.live_directories:
            self._check_owner(directory)
        logs = services.log_manager.logs()
        logger.info("opened %d logs in %s", len(logs), ", ".join(config.log_dirs))

    def _topics_with_logs(self) -> set[str]:
        return {partition.topic for partition in self.services.log_manager.logs()}

    async def _check_coordination(self) -> None:
        """Refuse to begin a new cluster over the logs of one: lost coordination data must not pass unseen."""
        if await self._cluster.coordination.exists(paths.CLUSTER_ID) is not None:
            return
        for directory in self._config.log_dirs:
            found = read_meta_properties(self._file_system, directory)
            if found is not None and found.cluster_id:
                raise BrokerStartError(
                    f"{directory} belongs to cluster.id={found.cluster_id}, but coordination knows no "
                    "cluster: its data is missing or damaged; restore it from a copy, or give the broker an "
                    "empty log directory"
                )

    def _check_owner(self, directory: str) -> None:
        """Refuse a directory of another cluster or broker; mark a new one as ours."""
        wanted = MetaProperties(self.services.cluster_id, self._broker_id)
        found = read_meta_properties(self._file_system, directory)
        if found is None:
            write_meta_properties(self._file_system, directory, wanted)
            return
        for name, ours, theirs in (
            ("cluster.id", wanted.cluster_id, found.cluster_id),
            ("broker.id", wanted.broker_id, found.broker_id),
        ):
            if ours != theirs:
                raise BrokerStartError(
                    f"{directory} belongs to {name}={theirs}, this broker has {name}={ours}; "
                    "give it a directory of its own"
                )

    def _build(self, tasks: asyncio.TaskGroup) -> None:
        services, config = self.services, self._config
        wheel: TimingWheel[DelayedOperation] = TimingWheel(self._clock)
        self._timer = SystemTimer(wheel, asyncio.get_running_loop())
        services.purgatories = {name: DelayedOperationPurgatory(name, self._timer) for name in PURGATORIES}
        cache = services.metadata_cache = MetadataCache()
        services.replica_fetchers = build_replica_fetchers(services, self._dialer, tasks)
        services.replica_manager = build_replica_manager(services)
        services.topic_admin = TopicAdmin(
            self._broker_id,
            config,
            self._cluster,
            cache,
            services.config_store,
            services.purgatories["topic"],
            self._clock,
        )
        chance = random.SystemRandom()
        services.fetch_sessions = FetchSessionCache(
            config.max_incremental_fetch_session_cache_slots,
            self._clock,
            lambda: chance.randint(1, _SESSION_ID_MAX),
        )
        services.producer_ids = ProducerIds(self._broker_id, self._cluster)
        services.controller_requests = ControllerRequests(
            self._cluster,
            services.config_store,
            services.replica_manager,
            cache,
            has_log=lambda partition: services.log_manager.get(partition) is not None,
            broker_epoch=lambda: self._broker_epoch,
        )
        self._controller_channel = ControllerChannel(
            self._broker_id,
            services.controller_requests,
            self._dialer,
            listener=config.inter_broker_listener_name,
            timeout_ms=config.controller_socket_timeout_ms,
        )
        services.controller = ControllerDriver(
            self._broker_id,
            self._cluster,
            self._controller_channel,
            self._clock,
            is_topic_deletion_enabled=config.delete_topic_enable,
            is_unclean_election_default=lambda: config.unclean_leader_election_enable,
        )
        self._dispatcher = Dispatcher(services, HANDLERS, self.metrics, tasks)
        self._server = Server(_server_config(config), self._dispatcher.on_frame)
        services.config_store.on_broker_change(lambda _: self._server.reconfigure(_server_config(config)))
        self._server.register_metrics(self.metrics)
        for purgatory in services.purgatories.values():
            purgatory.register_metrics(self.metrics)
        register_broker_metrics(self.metrics, services)
        self._is_built = True

    async def _bind(self) -> dict[str, int]:
        """Bind every listener and return the ports by listener name."""
        ports = {}
        for listener in self._config.listeners:
            try:
                ports[listener.name] = await self._server.listen(
                    listener.name, listener.host, listener.port, accept=False
                )
            except OSError as error:
                raise BrokerStartError(error.strerror or str(error)) from None
        return ports

    async def _register(self, ports: dict[str, int]) -> None:
        endpoints = [_endpoint(listener, ports) for listener in self._config.advertised_listeners]
        self.services.listeners = tuple(
            BrokerEndpoint(self._broker_id, each.host, each.port, self._config.broker_rack)
            for each in endpoints
        )
        self._broker_epoch = await self._cluster.register_broker(
            BrokerInfo(
                self._broker_id,
                tuple(endpoints),
                self._config.broker_rack,
                timestamp_ms=self._clock.time_ms(),
            )
        )
        self._is_registered = True

    async def _serve_metrics(self) -> None:
        if self._config.metrics_port is None:
            return
        # Imported only when asked for: it is no part of a broker that nobody scrapes.
        from kalda.net.metrics_http import MetricsServer

        server = MetricsServer(self.metrics)
        host = self._config.listeners[0].host
        try:
            port = await server.listen(host, self._config.metrics_port)
        except OSError as error:
            reason = error.strerror or str(error)
            raise BrokerStartError(f"`metrics.port`={self._config.metrics_port}: {reason}") from None
        self._stop_metrics = server.close_nowait
        logger.info("metrics are served at http://%s:%d/metrics", host or "0.0.0.0", port)

    def _start_upkeep(self, tasks: asyncio.TaskGroup) -> None:
        config, logs = self._config, self.services.log_manager
        self._every(tasks, "log retention", config.log_retention_check_interval_ms, self._apply_retention)
        flush_ms = min(config.log_flush_scheduler_interval_ms, round(UPKEEP_SECONDS_MAX * 1000))
        self._every(tasks, "log flush", flush_ms, logs.flush_step)
        self._every(tasks, "log deletion", round(UPKEEP_SECONDS_MAX * 1000), logs.deletion_step)
        self._every(tasks, "refused replicas", round(UPKEEP_SECONDS_MAX * 1000), self._retry_refused)
        self._upkeep += start_leader_upkeep(self.services, tasks, partial(self._every, tasks))
        for name, interval_ms, step in (
            (
                "recovery points",
                config.log_flush_offset_checkpoint_interval_ms,
                logs.checkpoint_recovery_points,
            ),
            (
                "log start offsets",
                config.log_flush_start_offset_checkpoint_interval_ms,
                logs.checkpoint_log_start_offsets,
            ),
            (
                "high watermarks",
                config.replica_high_watermark_checkpoint_interval_ms,
                logs.checkpoint_high_watermarks,
            ),
        ):
            self._every(tasks, name, interval_ms, step)

    def _every(
        self, tasks: asyncio.TaskGroup, name: str, interval_ms: int, step: Callable[[], object]
    ) -> None:
        async def repeat() -> None:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                result = step()
                if asyncio.iscoroutine(result):
                    await result

        self._upkeep.append(tasks.create_task(repeat(), name=name))

    async def _retry_refused(self) -> None:
        while self.services.replica_manager.retry_refused():  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def _apply_retention(self) -> None:
        while not self.services.log_manager.retention_step():  # noqa: ASYNC110
            # Requests go between two steps of a pass over thousands of logs.
            await asyncio.sleep(0)


def _endpoint(listener: ListenerConfig, ports: dict[str, int]) -> ListenerEndpoint:
    """Fill in what the settings leave open: the port of 0, and this host's name for "every interface"."""
    port = listener.port or ports[listener.name]
    return ListenerEndpoint(
        listener.name, listener.host or socket.gethostname(), port, listener.security_protocol
    )


def _server_config(config: BrokerConfig) -> ServerConfig:
    """Take the limits of connections from the settings.

    Socket buffers have Kafka's size only where it is asked for: left alone, the system grows them as needed.
    """
    written = config.static
    return ServerConfig(
        socket_request_max_bytes=config.socket_request_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_connections=config.max_connections,
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=config.max_connections_per_ip_overrides,
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        socket_send_buffer_bytes=(
            config.socket_send_buffer_bytes if "socket.send.buffer.bytes" in written else -1
        ),
        socket_receive_buffer_bytes=(
            config.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in written else -1
        ),
    )

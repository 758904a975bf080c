"""Starts and stops one broker.

`BrokerServer` gets a session with ZooKeeper and does not depend on the engine behind it. A start determines
the identity, reads the settings, opens the logs, binds the listeners (their ports are registered), registers
the broker and runs the controller. Requests of clients are answered only once the controller has sent the
metadata of the cluster, so that no client gets the answer that its topic does not exist. What the parts of a
broker are and how they depend on each other is in `kalda.broker.assembly`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kalda import __version__
from kalda.broker.assembly import BrokerParts, assemble, build_controlled_shutdown
from kalda.broker.config import ConfigStore
from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.context.health import BrokerState
from kalda.broker.context.service_tasks import RESIGN_SECONDS_MAX
from kalda.broker.context.start_error import BrokerStartError
from kalda.broker.control_plane.controlled_shutdown import (
    SILENCE_SECONDS_MAX,
    report_leaderships,
    wait_zookeeper_silent,
)
from kalda.broker.logs.unknown_logs import warn_of_unknown_logs
from kalda.broker.metadata.features import SUPPORTED, Features
from kalda.broker.metadata.registration import (
    BrokerIdentityError,
    BrokerRegistration,
    check_cluster_id,
    decide_broker_id,
    read_stored_identities,
)
from kalda.broker.metadata.session_file import SessionFile
from kalda.broker.metrics.cluster import register_broker_info
from kalda.broker.requests.services import BrokerServices
from kalda.broker.schemas.schema_validation import SchemaValidation
from kalda.broker.security.broker_access import BrokerAccess
from kalda.cluster import paths
from kalda.cluster.cluster_store import ClusterStore
from kalda.cluster.engine_migration.marker import require_open
from kalda.cluster.history.recording_client import RecordingClient
from kalda.cluster.registered_brokers import RegisteredBrokers
from kalda.cluster.schema import BrokerInfo
from kalda.common.config_def import ConfigError
from kalda.common.metrics import Metrics
from kalda.common.types import TopicPartition
from kalda.events.event import NO_EVENTS, EventKind, Plain
from kalda.events.recorder import EventRecorder
from kalda.net.frame_filters import FrameFilter
from kalda.net.peer.dialer import Dialer, ImpatientDialer, TcpDialer
from kalda.runtime.network import address_text
from kalda.runtime.runtime import Runtime
from kalda.settings import BrokerConfig
from kalda.settings.stored_passwords import is_secret_setting
from kalda.storage.checkpoints import MetaProperties, write_meta_properties
from kalda.storage.conversions import ConversionPool
from kalda.storage.descriptors import open_files_max, raise_descriptor_limit
from kalda.storage.log_caches import LogCaches
from kalda.storage.log_manager import LogManager
from kalda.zookeeper.port import SessionState, ZooKeeperClient

if TYPE_CHECKING:
    from kalda.broker.namespaces.broker_namespaces import BrokerNamespaces
    from kalda.broker.requests.fault_control import Machine
    from kalda.faults import FaultPlan
    from kalda.faults.state import Faults

logger: Final = logging.getLogger(__name__)

DRAIN_SECONDS: Final = 5.0
"""How long a shutdown waits until all requests are answered; delayed operations are completed before."""

_SILENT_DRAIN_SECONDS: Final = 0.25
"""The same while ZooKeeper does not answer: requests that wait for it are never answered."""

HAND_OVER_SECONDS_MAX: Final = 30.0
"""How long a shutdown tries to move its leaderships. Kafka's retries alone take 15 seconds."""

_METADATA_SECONDS: Final = 10.0
"""How long requests of clients wait for the controller's metadata while the broker starts. Most clients give
a request up after 30 s."""


class BrokerServer:
    """A broker from start to shutdown: `start`, and `stop` at its end."""

    def __init__(
        self,
        config: BrokerConfig,
        zookeeper: ZooKeeperClient,
        *,
        runtime: Runtime,
        dialer: Dialer | None = None,
        faults: "Faults | None" = None,
        machine: "Machine | None" = None,
        assemble: Callable[[BrokerContext, asyncio.TaskGroup], BrokerParts] = assemble,
    ) -> None:
        """`dialer` opens the connections to other brokers; over TCP if none is given.

        `faults` are those of `set_faults` from the start on. `machine` is that of a broker which is a process
        of its own, for a plan of faults. `assemble` makes the parts; a model of another broker changes some.
        """
        self._assemble: Final = assemble
        self._machine: Final = machine
        self._faults = faults
        self._config: Final = config
        self._dialer: Final = ImpatientDialer(
            dialer if dialer is not None else TcpDialer(runtime.network),
            config.socket_connection_setup_timeout_ms,
            config.socket_connection_setup_timeout_max_ms,
        )
        self._runtime: Final = runtime
        self._recording: Final = (
            RecordingClient(zookeeper, runtime.clock, runtime.random, is_secret_setting)
            if config.kalda_cluster_history_enable
            else None
        )
        self._cluster_store: Final = ClusterStore(self._recording or zookeeper, runtime.clock, runtime.random)
        self._parts: BrokerParts | None = None
        self._namespaces: BrokerNamespaces | None = None
        self.is_zookeeper_silent = False
        """Whether ZooKeeper did not answer while the broker stopped; its session is best abandoned."""

    @property
    def parts(self) -> BrokerParts:
        """The parts of the broker, from the start on."""
        assert self._parts is not None, "the broker was not started"
        return self._parts

    @property
    def services(self) -> BrokerServices:
        """The parts that request handlers are built with, from the start on."""
        return self.parts.services

    @property
    def namespaces(self) -> "BrokerNamespaces":
        """The namespaces of this broker, to open and to close, from the start on."""
        if self._namespaces is None:
            # Imported here: only brokers of tests have namespaces.
            from kalda.broker.namespaces.broker_namespaces import BrokerNamespaces

            self._namespaces = BrokerNamespaces(self.services, self.parts.server, self._runtime.network)
        return self._namespaces

    @property
    def bootstrap(self) -> str:
        """The first advertised address for clients, ``host:port``; known after `start`."""
        control_plane = self._config.control_plane_listener_name
        endpoints = self._registration_info(self.services.broker_id).endpoints
        first = next(each for each in endpoints if each.listener != control_plane)
        return address_text(first.host, first.port)

    def set_faults(self, faults: "Faults | None") -> None:
        """Apply faults to all requests from now on, in place of earlier ones; None ends them."""
        self._faults = faults
        if self._parts is None:
            return
        filters = [] if faults is None else [self.fault_filter(faults)]
        self.parts.server.set_outer_filters(filters)

    def fault_filter(self, faults: "Faults") -> FrameFilter:
        """Return a filter of listeners that applies faults."""
        # Imported only when needed: few brokers have faults.
        from kalda.broker.requests.fault_filter import FaultFilter
        from kalda.broker.requests.handlers import HANDLERS

        names = self.services.metadata_cache
        return FaultFilter(faults, HANDLERS, broker_id=self.services.broker_id, names=names)

    def leads(self, topic: str, partition: int) -> bool:
        """Return whether this broker leads a partition."""
        hosted = self.services.replica_manager.partitions.get(TopicPartition(topic, partition))
        return hosted is not None and hosted.is_leader

    def is_controller(self) -> bool:
        """Return whether this broker is the controller."""
        return self.services.controller.is_active

    def find(self, host: str, port: int) -> int | None:
        """Return which broker has an address; None if it is none that is known."""
        for broker_id, info in self.services.metadata_cache.brokers.items():
            if any((each.host, each.port) == (host, port) for each in info.endpoints):
                return broker_id
        return None

    def _begin_planned_faults(self, parts: BrokerParts, tasks: asyncio.TaskGroup) -> None:
        """Apply the plan of the settings, and allow requests to replace it if the settings permit.

        Raises:
            BrokerStartError: the plan cannot be read or is not valid.
        """
        config, runtime = self._config, self._runtime
        file = config.kalda_faults_file
        if file is None and not config.kalda_faults_api_enable:
            return
        # Imported only when needed: few brokers have faults.
        from kalda.broker.requests.fault_control import FaultControl, fault_handler
        from kalda.faults import FaultPlan

        services = parts.services
        control = FaultControl(self, services.broker_id, runtime.random, self._machine, tasks)
        if config.kalda_faults_api_enable:
            parts.dispatcher.add_handler(fault_handler(control), services, parts.context.metrics)
        if file is not None:
            try:
                control.begin(FaultPlan.from_yaml(runtime.file_system.read(file).decode()))
            except (OSError, ValueError) as error:
                raise BrokerStartError(f"kalda.faults.file={file}: {error}") from None
            logger.warning("the broker has faults on purpose: %s", control.plan)

    def _serve_namespace_requests(self, parts: BrokerParts) -> None:
        if not self._config.kalda_namespaces_api_enable:
            return
        # Imported only when needed: few brokers have namespaces.
        from kalda.broker.namespaces.namespace_control import namespace_handler
        from kalda.faults.state import FaultState

        def new_filter(plan: "FaultPlan") -> FrameFilter:
            return self.fault_filter(FaultState(plan, self._runtime.random))

        services = parts.services
        handler = namespace_handler(self.namespaces, new_filter, services.broker_id)
        parts.dispatcher.add_handler(handler, services, parts.context.metrics)

    def _serve_route_requests(self, parts: BrokerParts) -> None:
        if parts.nats is None:
            return
        # Imported only when needed: few brokers have clients of NATS.
        from kalda.broker.requests.route_nats import route_handler

        handler = route_handler(parts.nats.routes, self._config.inter_broker_listener_name)
        parts.dispatcher.add_handler(handler, parts.services, parts.context.metrics)

    async def start(self, tasks: asyncio.TaskGroup) -> None:
        """Bring the broker up and return when it serves; its service tasks run in `tasks`.

        Raises:
            BrokerStartError: a port is taken, or a log directory belongs to another cluster or broker.
            StorageError: a log directory is in use or cannot be opened.
            ZooKeeperError, BrokerIdInUseError: the broker cannot register.
        """
        async with contextlib.AsyncExitStack() as undo:
            parts = await self._start(tasks, undo)
            undo.pop_all()
        parts.open()
        logger.info("broker %d serves at %s", self.services.broker_id, self.bootstrap)

    async def _start(self, tasks: asyncio.TaskGroup, undo: contextlib.AsyncExitStack) -> BrokerParts:
        """Start everything; `undo` releases what a failed start has taken: ports, files and locks."""
        context = await self._open_logs_and_settings(undo)
        parts = self._parts = self._assemble(context, tasks)
        if self._faults is not None:
            self.set_faults(self._faults)
        self._begin_planned_faults(parts, tasks)
        self._serve_namespace_requests(parts)
        self._serve_route_requests(parts)
        undo.push_async_callback(self._undo_assembly, parts)
        try:
            await parts.listeners.bind()
        except OSError as error:
            raise BrokerStartError(error.strerror or str(error)) from None
        # From now on the controller can reach this broker; requests of clients wait.
        parts.server.start_accepting()
        await self._serve_metrics(parts)
        await self._serve_nats(parts)
        await context.registration.start()
        parts.run()
        await wait_metadata(parts)
        if parts.nats is not None:
            parts.nats.cluster_known()
            await parts.nats.accept()
        return parts

    async def stop(self, hurried: asyncio.Event | None = None) -> None:
        """Shut down in order: move leaderships, answer requests, resign, flush and close the logs.

        Once `hurried` is set the broker no longer waits for other brokers, and it does not wait for a silent
        ZooKeeper either. Every step but the flush of the logs is bounded in time.
        """
        hurried = asyncio.Event() if hurried is None else hurried
        silent = asyncio.ensure_future(wait_zookeeper_silent(self._cluster_store.zookeeper))
        try:
            await self._stop_in_order(hurried, silent)
        finally:
            self.is_zookeeper_silent = silent.done()
            silent.cancel()
            await asyncio.gather(silent, return_exceptions=True)

    async def _stop_in_order(self, hurried: asyncio.Event, silent: asyncio.Future[None]) -> None:
        parts = self.parts
        context, services = parts.context, parts.services
        logger.info("broker %d shuts down", services.broker_id)
        context.events.emit(
            EventKind.BROKER_STOPPED,
            {"broker": services.broker_id},
            {"broker_epoch": context.registration.broker_epoch, "is_zookeeper_silent": silent.done()},
        )
        parts.health.enter(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
        await self._hand_over(hurried, silent)
        parts.health.enter(BrokerState.SHUTTING_DOWN)
        parts.close_metrics()
        for purgatory in services.purgatories.values():
            purgatory.close()
        services.internal_topics.close()
        conversions = services.log_manager.resources.conversions
        conversions.close()
        parts.dispatcher.begin_to_close()
        if parts.nats is not None:
            await parts.nats.close()
        drain_seconds = _SILENT_DRAIN_SECONDS if silent.done() else DRAIN_SECONDS
        await parts.server.close(0.0 if hurried.is_set() else drain_seconds)
        parts.dispatcher.close()
        await parts.replication.fetchers.close()
        broker_epoch = context.registration.broker_epoch
        await parts.service_tasks.end(silent)
        parts.controller_channel.close()
        await services.config_store.close()
        await services.access.close()
        if not silent.done():
            await self._withdraw(context.registration)
        parts.timer.close()
        # It reads files of the logs.
        await self._runtime.background.call(conversions.join)
        if context.recorder is not None:
            await context.recorder.close()
        services.log_manager.close(broker_epoch)
        logger.info("broker %d is down", services.broker_id)

    def abort(self) -> None:
        """Close every socket at once, end its threads and change nothing else, as a broker that died.

        Tests use it to kill a broker within a process that goes on. The broker cannot be used afterwards.
        """
        if self._parts is not None:
            self._parts.server.abort()
            if self._parts.nats is not None:
                self._parts.nats.abort()
            self._parts.close_metrics()
            # Its threads would keep the program from ending.
            self._parts.services.log_manager.resources.conversions.close()
            self._parts.controller_channel.close()
            self._parts.replication.fetchers.close_nowait()
            self._parts.timer.close()

    # Starting, in order.

    async def _open_logs_and_settings(self, undo: contextlib.AsyncExitStack) -> BrokerContext:
        """Determine the identity of this broker, read the settings and open the logs."""
        config, cluster_store = self._config, self._cluster_store
        try:
            stored = read_stored_identities(self._runtime.file_system, config.log_dirs)
            await require_open(cluster_store.zookeeper)
            await self._check_cluster_exists(stored)
            await cluster_store.ensure_layout()
            brokers = RegisteredBrokers(cluster_store)
            await brokers.start()
            features = Features(cluster_store.zookeeper, self._runtime.random, brokers)
            await features.start()
            await cluster_store.check_registrations()
            cluster_id = await cluster_store.cluster_id()
            check_cluster_id(stored, cluster_id)
            broker_id = await decide_broker_id(
                cluster_store,
                stored,
                configured=config.broker_id,
                is_generation_enabled=config.broker_id_generation_enable,
                reserved_max=config.reserved_broker_max_id,
            )
        except BrokerIdentityError as error:
            raise BrokerStartError(str(error)) from None
        if self._recording is not None:
            await self._recording.begin_notes(broker_id)
        # The settings come first: the logs are opened with them.
        config_store = ConfigStore(config, lambda: {partition.topic for partition in log_manager.logs()})
        log_manager = LogManager(
            config.log_dirs,
            config_store.log_config,
            self._runtime.clock,
            self._runtime.file_system,
            self._runtime.background,
            LogCaches(open_files_max(raise_descriptor_limit())),
            ConversionPool() if self._runtime.background.has_processes else None,
            cordoned=lambda: config.cordoned_log_dirs,
            random=self._runtime.random,
        )
        undo.push_async_callback(config_store.close)
        try:
            validation = SchemaValidation.build(config, self._runtime)
        except ConfigError as error:
            raise BrokerStartError(str(error)) from None
        log_manager.resources.inspection = validation.inspection
        await config_store.start(cluster_store, broker_id)
        try:
            access = BrokerAccess.build(config, config_store, cluster_store, self._runtime, cluster_id)
        except ConfigError as error:
            raise BrokerStartError(str(error)) from None
        undo.push_async_callback(access.close)
        await access.start()
        config_store.on_topic_change(log_manager.update_topic_config)
        log_manager.load()
        undo.callback(log_manager.close)
        # Before the broker registers: a generated id must be the same at the next start.
        for directory in log_manager.live_directories:
            if directory not in stored:
                write_meta_properties(
                    self._runtime.file_system, directory, MetaProperties(cluster_id, broker_id)
                )
        recorder = self._open_events(broker_id, log_manager, is_first=not stored)
        logger.info("opened %d logs in %s", len(log_manager.logs()), ", ".join(config.log_dirs))
        await warn_of_unknown_logs(cluster_store, log_manager.logs().keys(), config.log_dirs)
        return BrokerContext(
            broker_id=broker_id,
            cluster_id=cluster_id,
            config=config,
            config_store=config_store,
            runtime=self._runtime,
            metrics=Metrics(),
            cluster_store=cluster_store,
            brokers=brokers,
            recording=self._recording,
            features=features,
            log_manager=log_manager,
            schema_validation=validation,
            registration=self._registration(broker_id, log_manager, recorder),
            access=access,
            recorder=recorder,
            dialer=access.dialer(self._dialer, config.inter_broker_listener_name),
            control_plane_dialer=(
                None
                if config.control_plane_listener_name is None
                else access.dialer(self._dialer, config.control_plane_listener_name)
            ),
        )

    def _open_events(
        self, broker_id: int, log_manager: LogManager, *, is_first: bool
    ) -> EventRecorder | None:
        """Open the ring of events, and record this start and how the broker ended before it."""
        if self._config.kalda_events_bytes == 0:
            return None
        recorder = EventRecorder(
            broker_id,
            self._runtime.clock,
            self._runtime.file_system,
            self._runtime.background,
            lambda: log_manager.live_directories,
            self._config.kalda_events_bytes,
        )
        last = recorder.open()
        details: dict[str, Plain] = {
            "version": __version__,
            "is_first": is_first,
            "is_clean": not log_manager.unclean_directories,
            "last_event_ms": -1 if last is None else last.time_ms,
            "offline": dict(log_manager.offline_directories),
        }
        log_manager.resources.events = recorder
        recorder.emit(EventKind.BROKER_STARTED, {"broker": broker_id}, details)
        return recorder

    def _registration(
        self, broker_id: int, log_manager: LogManager, recorder: EventRecorder | None
    ) -> BrokerRegistration:
        return BrokerRegistration(
            self._cluster_store,
            lambda: self._registration_info(broker_id),
            clock=self._runtime.clock,
            session_timeout_ms=self._config.zookeeper_session_timeout_ms,
            session_file=SessionFile(self._runtime.file_system, log_manager.live_directories),
            events=NO_EVENTS if recorder is None else recorder,
        )

    async def _check_cluster_exists(self, stored: Mapping[str, MetaProperties]) -> None:
        """Refuse to create a cluster over the logs of another: the engine may have lost its data."""
        if await self._cluster_store.zookeeper.exists(paths.CLUSTER_ID) is not None:
            return
        for directory, properties in stored.items():
            if properties.cluster_id:
                raise BrokerStartError(
                    f"{directory} belongs to cluster.id={properties.cluster_id}, but "
                    f"{self._cluster_store.zookeeper.engine_name} has no cluster: its data is missing or "
                    "damaged; restore it from a copy, or give the broker an empty log directory"
                )

    def _registration_info(self, broker_id: int) -> BrokerInfo:
        return BrokerInfo(
            broker_id,
            self.parts.listeners.advertised(),
            self._config.broker_rack,
            timestamp_ms=self._runtime.clock.time_ms(),
            features=tuple((name, low, high) for name, (low, high) in SUPPORTED.items()),
            is_cordoned=len(self._config.cordoned_log_dirs) == len(self._config.log_dirs),
            kalda=__version__,
            controller_eligible=self._config.controller_eligible,
        )

    async def _serve_metrics(self, parts: BrokerParts) -> None:
        register_broker_info(parts.context.metrics, self.services.broker_id, self.bootstrap)
        if parts.metrics_server is None:
            return
        host, port = self._config.metrics_address, self._config.metrics_port
        assert port is not None, "a metrics server without `metrics.port`"
        try:
            port = await parts.metrics_server.listen(host, port)
        except OSError as error:
            raise BrokerStartError(f"`metrics.port`={port}: {error.strerror or error}") from None
        logger.info(
            "metrics are served at http://%s/metrics %s",
            address_text(host or "0.0.0.0", port),
            "without a login" if self._config.metrics_login is None else "to the login of `metrics.login`",
        )

    async def _serve_nats(self, parts: BrokerParts) -> None:
        if parts.nats is None:
            return
        try:
            await parts.nats.open()
        except OSError as error:
            raise BrokerStartError(error.strerror or str(error)) from None

    async def _undo_assembly(self, parts: BrokerParts) -> None:
        """Release the ports and connections of a start that failed. No client was served yet."""
        parts.service_tasks.cancel()
        parts.close_metrics()
        parts.controller_channel.close()
        await parts.replication.fetchers.close()
        await parts.server.close(drain_seconds=0.0)
        if parts.nats is not None:
            parts.nats.abort()
        parts.timer.close()
        await self._withdraw(parts.context.registration)

    # Stopping.

    async def _hand_over(self, hurried: asyncio.Event, silent: asyncio.Future[None]) -> None:
        """Have the controller move the leaderships of this broker; log those that it still has."""
        moving = asyncio.ensure_future(build_controlled_shutdown(self.parts).run())
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
            engine = self._cluster_store.zookeeper.engine_name
            reason = f"{engine} has not answered for {SILENCE_SECONDS_MAX:g} s"
        elif hurried.is_set():
            reason = "a second signal, or the end of its parent process, hurries the shutdown"
        else:
            reason = f"they did not move within {HAND_OVER_SECONDS_MAX:g} s"
        if reason:
            report_leaderships(self.services.broker_id, self.services.replica_manager, reason)

    async def _withdraw(self, registration: BrokerRegistration) -> None:
        """Unregister the broker. The end of its session does the same later if ZooKeeper does not answer."""
        if self._cluster_store.zookeeper.state is SessionState.SUSPENDED:
            # ZooKeeper cannot be reached, as when the coordination server was stopped first.
            return
        try:
            async with asyncio.timeout(RESIGN_SECONDS_MAX):
                await registration.withdraw()
        except TimeoutError:
            logger.warning(
                "broker %d is not unregistered; its %s session will expire",
                self.services.broker_id,
                self._cluster_store.zookeeper.engine_name,
            )


async def wait_metadata(parts: BrokerParts) -> None:
    """Return when the controller has sent this broker its roles and the metadata of every partition.

    Every `_METADATA_SECONDS` the connections of clients whose requests wait for the metadata are closed.
    """
    services = parts.services
    while True:
        try:
            async with asyncio.timeout(_METADATA_SECONDS):
                await services.controller.wait_ready()
                await services.controller_requests.wait_metadata()
                return
        except TimeoutError:
            logger.warning(
                "broker %d waits for the cluster's metadata; controller %s has not sent it yet",
                services.broker_id,
                services.controller.controller_id,
            )
            parts.early_requests.give_up()

"""Builds the parts of one broker in the order in which they depend on each other.

Nothing here starts, listens or waits: `kalda.broker.server` does that with the parts. The larger parts have
builders of their own in their packages; each builder returns what it makes.
"""

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.context.health import BrokerHealth, BrokerState
from kalda.broker.context.service_tasks import ServiceTasks
from kalda.broker.control_plane.channel import ControllerChannel, ControllerRoute
from kalda.broker.control_plane.controlled_shutdown import ControlledShutdown
from kalda.broker.control_plane.requests import ControllerRequests
from kalda.broker.fetching.fetch_session import FetchSessionCache
from kalda.broker.groups.assembly import (
    build_consumer_group_coordinator,
    build_group_coordinator,
    check_groups,
)
from kalda.broker.history.assembly import build_history
from kalda.broker.history.history_recorder import CHECK_INTERVAL_MS, HistoryRecorder
from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.leases.lease_grants import LeaseGrants
from kalda.broker.leases.read_leases import LeaseLimits
from kalda.broker.logs.log_cleaning import run_log_cleaner
from kalda.broker.logs.log_maintenance import run_log_maintenance
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.metrics.alter_log_dirs import register_alter_log_dirs_metrics
from kalda.broker.metrics.broker import (
    register_controller_metrics,
    register_fetch_session_metrics,
    register_log_metrics,
    register_replica_metrics,
    register_session_metrics,
)
from kalda.broker.metrics.cluster import register_cluster_metrics
from kalda.broker.metrics.consumer_groups import register_consumer_group_metrics
from kalda.broker.metrics.partitions import register_directory_metrics, register_partition_metrics
from kalda.broker.metrics.process import register_loop_metrics, register_process_metrics
from kalda.broker.metrics.remote_end_offsets import RemoteEndOffsets
from kalda.broker.replicas.assembly import Replication, build_replication
from kalda.broker.replicas.follower.fetcher_metrics import register_fetcher_metrics
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.requests.dispatch import Dispatcher
from kalda.broker.requests.early_requests import EarlyRequests
from kalda.broker.requests.handlers import HANDLERS, advertised_versions
from kalda.broker.requests.listener_releases import ListenerReleases
from kalda.broker.requests.refused_batches import RefusedBatches
from kalda.broker.requests.services import BrokerServices
from kalda.broker.requests.topic_responses import TopicResponses
from kalda.broker.security.broker_audit import AUDIT_INTERVAL_MS
from kalda.broker.security.broker_listeners import BrokerListeners
from kalda.broker.security.host_addresses import HostAddresses
from kalda.broker.share.lazy_share import LazyShare, build_share_runtime
from kalda.broker.share.share_metrics import register_share_metrics
from kalda.broker.share.stored_share_settings import StoredShareSettings
from kalda.broker.telemetry.assembly import EXPIRY_CHECK_INTERVAL_MS, build_client_metrics
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.broker.transactions.assembly import Transactions, build_transactions
from kalda.broker.transactions.producer_ids import ProducerIds
from kalda.common.api_keys import ApiKey
from kalda.common.loop_timer import LoopTimer
from kalda.common.purgatory import DelayedOperation, DelayedOperationPurgatory
from kalda.common.timing_wheel import TimingWheel
from kalda.controller.driver import ControllerDriver
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.coordinator.share.share_config import ShareCoordinatorConfig
from kalda.events.event import EventKind, EventSink, Subject
from kalda.net.server import Server, ServerConfig
from kalda.runtime.clock import Clock
from kalda.security.quota.rate import Window
from kalda.settings import BrokerConfig

if TYPE_CHECKING:
    from kalda.broker.nats.nats_listeners import NatsListeners
    from kalda.broker.share.assembly import Share
    from kalda.net.metrics_http import MetricsServer

PURGATORIES: Final = ("fetch", "produce", "delete_records", "topic")
_SESSION_ID_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerParts:
    """The parts of one broker that its life cycle starts and stops."""

    context: BrokerContext
    services: BrokerServices
    listeners: BrokerListeners
    dispatcher: Dispatcher
    early_requests: EarlyRequests
    timer: LoopTimer[DelayedOperation]
    controller_channel: ControllerChannel
    replication: Replication
    transactions: Transactions
    history: HistoryRecorder | None
    remote_end_offsets: RemoteEndOffsets
    service_tasks: ServiceTasks
    health: BrokerHealth
    metrics_server: "MetricsServer | None"
    nats: "NatsListeners | None"

    @property
    def server(self) -> Server:
        """The server of all listeners."""
        return self.listeners.server

    def open(self) -> None:
        """Serve clients, once the broker has the metadata of the cluster."""
        self.server.set_frame_handler(self.early_requests.handle)
        self.early_requests.open()
        self.health.enter(BrokerState.RUNNING)

    def run(self) -> None:
        """Start the background work of all parts."""
        context, services, tasks = self.context, self.services, self.service_tasks
        tasks.run("registration", context.registration.run())
        if context.recorder is not None:
            tasks.run("events", context.recorder.run())
        run_log_maintenance(tasks, context.config, context.log_manager, services.replica_manager)
        run_log_cleaner(tasks, context)
        self.replication.run(tasks, context)
        self.transactions.run(tasks, context.config)
        services.lazy_share.run(tasks)
        tasks.run("certificates", context.access.tls.run())
        tasks.run("listeners", self.listeners.run(context.registration.update))
        for work in context.access.background():
            tasks.run("access", work)
        if context.access.delegation_tokens.is_enabled:
            tasks.every(
                "delegation tokens",
                context.config.delegation_token_expiry_check_interval_ms,
                self._delete_ended_tokens,
            )
        if context.access.audit is not None:
            tasks.every("audit", AUDIT_INTERVAL_MS, context.access.audit.report_suppressed)
        tasks.every("client metrics", EXPIRY_CHECK_INTERVAL_MS, services.client_metrics.expire)
        tasks.run("registered brokers", context.brokers.run())
        tasks.run("features", context.features.run())
        if self.nats is not None and self.nats.jetstream is not None:
            tasks.run("JetStream", self.nats.jetstream.run())
        if self.history is not None:
            tasks.run("cluster history", self.history.run())
            tasks.every("cluster history snapshots", CHECK_INTERVAL_MS, self.history.check_snapshot)
        tasks.run("controller", services.controller.run())
        tasks.run("end offsets", self.remote_end_offsets.run())
        for work in context.schema_validation.background():
            tasks.run("schema registry", work)

    async def _delete_ended_tokens(self) -> None:
        """Delete the delegation tokens that have ended, as the controller does for all brokers."""
        if self.services.controller.is_active:
            await self.context.access.delegation_tokens.delete_ended()

    def close_metrics(self) -> None:
        """Stop serving metrics."""
        if self.metrics_server is not None:
            self.metrics_server.close_nowait()


def assemble(context: BrokerContext, tasks: asyncio.TaskGroup) -> BrokerParts:
    """Make the parts of a broker; `tasks` runs handlers and replica fetchers.

    Raises `ConfigError`: a setting names something that does not exist here.
    """
    config, clock = context.config, context.clock
    timer, purgatories = _build_purgatories(clock)
    cache = MetadataCache()
    replication = build_replication(context, cache, purgatories, tasks)
    replicas = replication.replica_manager
    control = _build_control(context, cache, replicas)
    topic_admin = _build_topic_admin(context, cache, purgatories["topic"], control.controller)
    internal_topics = InternalTopics(config, clock, cache, replicas, topic_admin)
    share_settings = StoredShareSettings(config, context.config_store)
    groups = build_group_coordinator(context, cache, internal_topics, share_settings)
    share = _build_share(
        context, cache, replicas, topic_admin, internal_topics, groups, purgatories["fetch"], share_settings
    )
    ids = ProducerIds(context.broker_id, context.cluster_store)
    transactions = build_transactions(context, cache, replicas, purgatories["produce"], internal_topics, ids)
    history = build_history(context, cache, topic_admin, internal_topics, control.controller)
    services = BrokerServices(
        access=context.access,
        api_versions=advertised_versions(
            shows_metrics=config.metrics_port is not None, own=_own_apis(config)
        ),
        broker_id=context.broker_id,
        client_metrics=build_client_metrics(
            config, context.config_store, clock, context.runtime.random, context.metrics
        ),
        cluster_id=context.cluster_id,
        config=config,
        clock=clock,
        cluster_store=context.cluster_store,
        config_store=context.config_store,
        consumer_groups=build_consumer_group_coordinator(context, groups),
        controller=control.controller,
        controller_requests=control.requests,
        events=context.recorder,
        features=context.features,
        fetch_sessions=_build_fetch_sessions(context),
        group_coordinator=groups,
        internal_topics=internal_topics,
        lease_grants=_build_lease_grants(context, replicas),
        log_manager=context.log_manager,
        marker_appends=transactions.marker_appends,
        metadata_cache=cache,
        produce_gate=transactions.gate,
        producer_ids=ids,
        purgatories=purgatories,
        refused_batches=RefusedBatches(clock),
        releases=ListenerReleases(config.kalda_as_version),
        replica_alter_log_dirs=replication.alter_log_dirs,
        replica_manager=replicas,
        lazy_share=share,
        topic_admin=topic_admin,
        topic_responses=TopicResponses(cache),
        transaction_coordinator=transactions.coordinator,
    )
    dispatcher = _build_dispatcher(services, context, tasks)
    served_early = frozenset(handler.key for handler in HANDLERS if handler.is_served_early)
    early_requests = EarlyRequests(services.releases.guarded(dispatcher.on_frame), served_early)
    health = BrokerHealth(context.registration)
    parts = BrokerParts(
        context=context,
        services=services,
        listeners=_build_listeners(context, services, dispatcher, early_requests),
        dispatcher=dispatcher,
        early_requests=early_requests,
        timer=timer,
        controller_channel=control.channel,
        replication=replication,
        transactions=transactions,
        history=history,
        remote_end_offsets=_build_remote_end_offsets(context, cache),
        service_tasks=ServiceTasks(tasks),
        health=health,
        metrics_server=_build_metrics_server(context, health),
        nats=_build_nats(context, cache, ids, tasks, services),
    )
    _register_metrics(parts)
    return parts


def _build_share(
    context: BrokerContext,
    cache: MetadataCache,
    replicas: ReplicaManager,
    topic_admin: TopicAdmin,
    internal_topics: InternalTopics,
    groups: GroupCoordinator,
    purgatory: DelayedOperationPurgatory,
    settings: StoredShareSettings,
) -> LazyShare:
    config = context.config.part(ShareCoordinatorConfig)
    runtime = build_share_runtime(internal_topics, config, context.metrics)

    def build() -> "Share":
        from kalda.broker.share.assembly import build_share

        return build_share(
            context, cache, replicas, topic_admin, internal_topics, runtime, groups, purgatory, settings
        )

    share = LazyShare(config, groups, build)
    register_share_metrics(context.metrics, share, groups)
    return share


def _build_dispatcher(
    services: BrokerServices, context: BrokerContext, tasks: asyncio.TaskGroup
) -> Dispatcher:
    dispatcher = Dispatcher(services, HANDLERS, context.metrics, tasks)
    if context.access.authorizer is not None:
        # Imported only when needed: a broker without ACLs starts faster.
        from kalda.broker.requests.checks.check import CheckParts
        from kalda.broker.requests.checks.request_access import RequestAccess

        parts = CheckParts(
            authorizer=context.access.authorizer,
            cache=services.metadata_cache,
            config=context.config,
            tokens=context.access.delegation_tokens,
        )
        dispatcher.set_access(RequestAccess(parts))
    if context.access.authorizer is not None or any(
        each.uses_tls or each.uses_sasl for each in context.config.listeners
    ):
        dispatcher.set_audit(context.access.audit)
    dispatcher.set_throttle(context.access.throttle)
    return dispatcher


def _own_apis(config: BrokerConfig) -> list[ApiKey]:
    """Return the APIs that few brokers have: those of tests, and that of brokers with listeners of NATS."""
    enabled = {
        ApiKey.ALTER_FAULTS: config.kalda_faults_api_enable,
        ApiKey.ALTER_NAMESPACES: config.kalda_namespaces_api_enable,
        ApiKey.ROUTE_NATS: bool(config.nats_listeners),
    }
    return [key for key, is_enabled in enabled.items() if is_enabled]


def _build_purgatories(
    clock: Clock,
) -> tuple[LoopTimer[DelayedOperation], dict[str, DelayedOperationPurgatory]]:
    loop = asyncio.get_running_loop()
    timer = LoopTimer[DelayedOperation](TimingWheel(clock), loop, DelayedOperation.expire)
    return timer, {name: DelayedOperationPurgatory(name, timer) for name in PURGATORIES}


@dataclass(frozen=True, slots=True)
class _Control:
    """The controller of this broker and the way of its requests to this and other brokers."""

    requests: ControllerRequests
    channel: ControllerChannel
    controller: ControllerDriver


def _build_control(context: BrokerContext, cache: MetadataCache, replicas: ReplicaManager) -> _Control:
    config, logs = context.config, context.log_manager
    requests = ControllerRequests(
        context.cluster_store,
        context.config_store,
        replicas.roles,
        cache,
        has_log=lambda partition: logs.get(partition) is not None,
        broker_epoch=lambda: context.registration.broker_epoch,
    )
    routes = [ControllerRoute(config.inter_broker_listener_name, context.dialer)]
    if config.control_plane_listener_name is not None:
        assert context.control_plane_dialer is not None, "a control plane without a dialer"
        routes.insert(0, ControllerRoute(config.control_plane_listener_name, context.control_plane_dialer))
    channel = ControllerChannel(
        context.broker_id,
        requests,
        routes,
        timeout_ms=config.controller_socket_timeout_ms,
    )
    return _Control(requests, channel, _build_controller(context, channel))


def _build_topic_admin(
    context: BrokerContext,
    cache: MetadataCache,
    purgatory: DelayedOperationPurgatory,
    controller: ControllerDriver,
) -> TopicAdmin:
    admin = TopicAdmin(
        context.broker_id,
        context.config,
        context.cluster_store,
        cache,
        context.config_store,
        purgatory,
        context.clock,
        context.runtime.random,
        complete_deletions=controller.complete_deletions,
    )
    admin.configs.add_check(context.access.validate)
    return admin


def _build_remote_end_offsets(context: BrokerContext, cache: MetadataCache) -> RemoteEndOffsets:
    return RemoteEndOffsets(
        context.broker_id,
        cache,
        context.clock,
        context.dialer,
        context.runtime.random,
        listener=context.config.inter_broker_listener_name,
        timeout_ms=context.config.request_timeout_ms,
    )


def _build_fetch_sessions(context: BrokerContext) -> FetchSessionCache:
    random = context.runtime.random
    return FetchSessionCache(
        context.config.max_incremental_fetch_session_cache_slots,
        context.clock,
        lambda: random.randrange(1, _SESSION_ID_MAX + 1),
    )


def _build_lease_grants(context: BrokerContext, replicas: ReplicaManager) -> LeaseGrants | None:
    """Make what grants read leases, and have deletion and the log cleaner ask it."""
    config, resources = context.config, context.log_manager.resources
    if not config.kalda_read_lease_enable:
        return None
    limits = LeaseLimits(
        config.kalda_read_lease_max, config.kalda_read_lease_ms, config.kalda_read_lease_lifetime_ms
    )
    grants = LeaseGrants(replicas, resources.file_system, context.clock, context.runtime.random, limits)
    resources.read_leases = grants
    return grants


def build_controlled_shutdown(parts: BrokerParts) -> ControlledShutdown:
    """Make what hands the leaderships of a stopping broker over."""
    context, services = parts.context, parts.services
    return ControlledShutdown(
        context.broker_id,
        context.config,
        services.metadata_cache,
        services.controller,
        context.dialer,
        broker_epoch=lambda: context.registration.broker_epoch,
        stop_following=lambda: services.controller_requests.stop_following(
            parts.replication.fetchers.unfollow
        ),
    )


def _build_controller(context: BrokerContext, channel: ControllerChannel) -> ControllerDriver:
    """Make the controller; it elects leaders again when unclean elections become allowed."""
    config, store = context.config, context.config_store
    controller = ControllerDriver(
        context.broker_id,
        context.cluster_store,
        channel,
        context.clock,
        is_topic_deletion_enabled=config.delete_topic_enable,
        is_unclean_election_default=lambda: config.unclean_leader_election_enable,
        is_eligible=lambda: context.brokers.may_be_controller(context.broker_id, config.controller_eligible),
        balance_check_seconds=(
            config.leader_imbalance_check_interval_seconds if config.auto_leader_rebalance_enable else None
        ),
        leader_imbalance_percentage=config.leader_imbalance_per_broker_percentage,
        events=context.events,
    )

    def on_broker_change(names: frozenset[str]) -> None:
        if "unclean.leader.election.enable" in names:
            controller.on_unclean_default_changed()
        if "kalda.controller.eligible" in names:
            controller.on_eligibility_changed()

    context.brokers.on_change(controller.on_eligibility_changed)
    store.on_topic_change(lambda topic, _: controller.on_topic_config_changed(topic))
    store.on_broker_change(on_broker_change)
    return controller


def _register_metrics(parts: BrokerParts) -> None:
    context, services = parts.context, parts.services
    metrics, replicas, cache = context.metrics, services.replica_manager, services.metadata_cache
    parts.server.register_metrics(metrics)
    context.access.throttle.register_metrics(metrics)
    for purgatory in services.purgatories.values():
        purgatory.register_metrics(metrics)
    register_partition_metrics(metrics, context.broker_id, replicas, cache)
    register_directory_metrics(metrics, context.log_manager)
    register_cluster_metrics(metrics, cache, lambda: services.controller.is_active)
    register_consumer_group_metrics(metrics, services.group_coordinator, replicas, parts.remote_end_offsets)
    register_process_metrics(metrics)
    register_loop_metrics(metrics)
    register_replica_metrics(metrics, replicas, parts.replication.isr_changes)
    register_fetcher_metrics(metrics, parts.replication.fetchers)
    register_alter_log_dirs_metrics(metrics, services.replica_alter_log_dirs, context.log_manager)
    register_log_metrics(metrics, context.log_manager)
    register_fetch_session_metrics(metrics, services.fetch_sessions)
    register_controller_metrics(metrics, services.controller)
    register_session_metrics(metrics, context.registration)
    if services.lease_grants is not None:
        services.lease_grants.register_metrics(metrics)


def _build_server(context: BrokerContext, early_requests: EarlyRequests) -> Server:
    config = context.config

    def reconfigure() -> None:
        server.reconfigure(_server_config(config, hosts))

    hosts = HostAddresses(context.runtime.network, reconfigure)
    server = Server(_server_config(config, hosts), early_requests.on_frame, context.runtime.network)
    context.config_store.on_broker_change(lambda _: reconfigure())
    throttle = context.access.throttle
    throttle.on_ip_rate(server.rates.set_ip_rate)

    def measure_turns() -> None:
        server.turn_ended = throttle.end if throttle.limits_time else None

    throttle.on_change(measure_turns)
    return server


def _build_listeners(
    context: BrokerContext, services: BrokerServices, dispatcher: Dispatcher, early_requests: EarlyRequests
) -> BrokerListeners:
    config, access = context.config, context.access
    server = _build_server(context, early_requests)
    access.logins.attach(server)
    server.on_login = access.audit.login
    server.on_refused = partial(_note_refused, context.events)
    access.audit.events = access.throttle.events = context.events
    services.topic_admin.configs.events = context.events
    listeners = BrokerListeners(
        config, server, access, context.runtime, on_secured=lambda: dispatcher.set_audit(access.audit)
    )
    services.topic_admin.configs.add_check(listeners.validate)
    services.topic_admin.configs.add_check(check_groups)

    def on_broker_change(_: frozenset[str]) -> None:
        services.releases.update(config.kalda_as_version)
        listeners.wake()

    context.config_store.on_broker_change(on_broker_change)
    return listeners


def _note_refused(events: EventSink, address: str, setting: str) -> None:
    subject: Subject = {"host": address} if address else {}
    events.emit_seldom(EventKind.CONNECTION_REFUSED, subject, {"reason": setting})


def _build_metrics_server(context: BrokerContext, health: BrokerHealth) -> "MetricsServer | None":
    if context.config.metrics_port is None:
        return None
    # Imported only when needed: a broker without `metrics.port` starts faster.
    from kalda.net.metrics_http import MetricsServer

    health.register_metrics(context.metrics)
    return MetricsServer(
        context.metrics,
        health.unready_reason,
        login=context.config.metrics_login,
        network=context.runtime.network,
    )


def _build_nats(
    context: BrokerContext,
    cache: MetadataCache,
    ids: ProducerIds,
    tasks: asyncio.TaskGroup,
    services: BrokerServices,
) -> "NatsListeners | None":
    if not context.config.nats_listeners:
        return None
    # Imported only when needed: few brokers have clients of NATS.
    from kalda.broker.nats.nats_listeners import NatsListeners

    if not context.config.kalda_nats_jetstream_enable:
        return NatsListeners(context, cache, ids, tasks)
    from kalda.broker.nats.jetstream.assembly import jetstream_factory

    factory = jetstream_factory(
        context,
        cache,
        services.replica_manager,
        services.topic_admin,
        services.purgatories["fetch"],
        services.lazy_share,
    )
    return NatsListeners(context, cache, ids, tasks, factory)


def _server_config(config: BrokerConfig, hosts: HostAddresses) -> ServerConfig:
    """Take the limits of connections from the settings.

    Socket buffers have Kafka's size only where it is asked for: left alone, the system grows them as needed.
    """
    written = config.static
    return ServerConfig(
        socket_request_max_bytes=config.socket_request_max_bytes,
        connections_max_idle_ms=config.connections_max_idle_ms,
        max_connections=config.max_connections,
        max_connection_creation_rate=config.max_connection_creation_rate,
        listener_max_connections=_of_listeners(config, "max.connections"),
        listener_max_connection_creation_rate=_of_listeners(config, "max.connection.creation.rate"),
        inter_broker_listener_name=config.inter_broker_listener_name,
        quota_window=Window(config.quota_window_num, config.quota_window_size_seconds),
        max_connections_per_ip=config.max_connections_per_ip,
        max_connections_per_ip_overrides=hosts.by_address(config.max_connections_per_ip_overrides),
        socket_listen_backlog_size=config.socket_listen_backlog_size,
        socket_send_buffer_bytes=(
            config.socket_send_buffer_bytes if "socket.send.buffer.bytes" in written else -1
        ),
        socket_receive_buffer_bytes=(
            config.socket_receive_buffer_bytes if "socket.receive.buffer.bytes" in written else -1
        ),
    )


def _of_listeners(config: BrokerConfig, setting: str) -> dict[str, int]:
    values = {listener.name: config.of_listener(listener.name, setting) for listener in config.listeners}
    return {name: value for name, value in values.items() if isinstance(value, int)}

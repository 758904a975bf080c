"""Puts the parts of one broker together, in the order in which they need each other.

Nothing here starts, listens or waits: `kalda.broker.server` does that. The sides of replication have
assemblies of their own: `kalda.broker.replication.leader.assembly` and
`kalda.broker.replication.follower.assembly`.
"""

import asyncio
import random
from dataclasses import dataclass
from typing import Final

from kalda.broker.config import BrokerConfig
from kalda.broker.consumer_groups import build_consumer_groups
from kalda.broker.controller_link.channel import ControllerChannel
from kalda.broker.controller_link.requests import ControllerRequests
from kalda.broker.coordinators import build_coordinators
from kalda.broker.dispatch import Dispatcher
from kalda.broker.early_requests import EarlyRequests
from kalda.broker.fetch_session import FetchSessionCache
from kalda.broker.group_coordination import build_group_coordinator
from kalda.broker.handlers import HANDLERS
from kalda.broker.metadata_cache import MetadataCache
from kalda.broker.metrics import register_broker_metrics
from kalda.broker.metrics.consumer_groups import build_remote_end_offsets
from kalda.broker.producer_ids import ProducerIds
from kalda.broker.purgatory import DelayedOperation, DelayedOperationPurgatory
from kalda.broker.refused_batches import RefusedBatches
from kalda.broker.replication.follower.assembly import build_replica_fetchers
from kalda.broker.replication.leader.assembly import build_replica_manager
from kalda.broker.services import BrokerServices
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.broker.transactions.assembly import build_transactions
from kalda.common.loop_timer import LoopTimer
from kalda.common.timing_wheel import TimingWheel
from kalda.controller.driver import ControllerDriver
from kalda.net.peer.dialer import Dialer
from kalda.net.server import Server, ServerConfig

PURGATORIES: Final = ("fetch", "produce", "delete_records", "topic")
_SESSION_ID_MAX: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Machinery:
    """What runs a broker and what handlers do not reach."""

    server: Server
    dispatcher: Dispatcher
    early_requests: EarlyRequests
    timer: LoopTimer[DelayedOperation]
    controller_channel: ControllerChannel

    def open(self) -> None:
        """Serve clients: the broker knows what there is."""
        # New connections go straight to the dispatcher; those that are there pass it by one call.
        self.server.on_frame = self.dispatcher.on_frame
        self.early_requests.open()


def assemble(services: BrokerServices, dialer: Dialer, tasks: asyncio.TaskGroup) -> Machinery:
    """Make the parts; needs settings, logs, registration and coordination in the services.

    Raises:
        ConfigError: a setting names something that does not exist here.
    """
    config, cluster, clock = services.config, services.cluster_store, services.clock
    registration, logs = services.registration, services.log_manager
    wheel: TimingWheel[DelayedOperation] = TimingWheel(clock)
    timer = LoopTimer(wheel, asyncio.get_running_loop(), DelayedOperation.expire)
    services.purgatories = {name: DelayedOperationPurgatory(name, timer) for name in PURGATORIES}
    services.metadata_cache = MetadataCache()
    services.replica_fetchers = build_replica_fetchers(
        services, dialer, tasks, lambda: registration.broker_epoch
    )
    services.replica_manager = build_replica_manager(services)
    services.topic_admin = TopicAdmin(
        services.broker_id,
        config,
        cluster,
        services.metadata_cache,
        services.config_store,
        services.purgatories["topic"],
        clock,
        complete_deletions=lambda topics: services.controller.complete_deletions(topics),
    )
    chance = random.SystemRandom()
    services.refused_batches = RefusedBatches(clock)
    services.fetch_sessions = FetchSessionCache(
        config.max_incremental_fetch_session_cache_slots,
        clock,
        lambda: chance.randint(1, _SESSION_ID_MAX),
    )
    services.producer_ids = ProducerIds(services.broker_id, cluster)
    services.coordinators = build_coordinators(services)
    services.group_coordinator = build_group_coordinator(services)
    services.consumer_groups = build_consumer_groups(services, services.group_coordinator)
    services.transactions = build_transactions(services, dialer)
    services.remote_end_offsets = build_remote_end_offsets(services, dialer)
    services.controller_requests = ControllerRequests(
        cluster,
        services.config_store,
        services.replica_manager,
        services.metadata_cache,
        has_log=lambda partition: logs.get(partition) is not None,
        broker_epoch=lambda: registration.broker_epoch,
    )
    channel = ControllerChannel(
        services.broker_id,
        services.controller_requests,
        dialer,
        listener=config.inter_broker_listener_name,
        timeout_ms=config.controller_socket_timeout_ms,
    )
    services.controller = ControllerDriver(
        services.broker_id,
        cluster,
        channel,
        clock,
        is_topic_deletion_enabled=config.delete_topic_enable,
        is_unclean_election_default=lambda: config.unclean_leader_election_enable,
        balance_check_seconds=(
            config.leader_imbalance_check_interval_seconds if config.auto_leader_rebalance_enable else None
        ),
        leader_imbalance_percentage=config.leader_imbalance_per_broker_percentage,
    )
    _follow_unclean_election(services)
    return _machinery(services, timer, channel, tasks)


def _follow_unclean_election(services: BrokerServices) -> None:
    """An offline partition may get a leader as soon as its topic, or the broker, allows an unclean one."""
    store, controller = services.config_store, services.controller

    def on_broker_change(names: frozenset[str]) -> None:
        if "unclean.leader.election.enable" in names:
            controller.on_unclean_default_changed()

    store.on_topic_change(lambda topic, _: controller.on_topic_config_changed(topic))
    store.on_broker_change(on_broker_change)


def _machinery(
    services: BrokerServices,
    timer: LoopTimer[DelayedOperation],
    channel: ControllerChannel,
    tasks: asyncio.TaskGroup,
) -> Machinery:
    config, metrics = services.config, services.metrics
    dispatcher = Dispatcher(services, HANDLERS, metrics, tasks)
    early = EarlyRequests(dispatcher.on_frame)
    server = Server(_server_config(config), early.on_frame)
    services.config_store.on_broker_change(lambda _: server.reconfigure(_server_config(config)))
    server.register_metrics(metrics)
    for purgatory in services.purgatories.values():
        purgatory.register_metrics(metrics)
    register_broker_metrics(metrics, services)
    return Machinery(server, dispatcher, early, timer, channel)


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

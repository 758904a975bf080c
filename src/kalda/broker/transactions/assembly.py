"""Puts the transactional parts of a broker together, and runs what they do beside requests."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kalda.broker.producer_ids import ProducerIds
from kalda.broker.topics.topic_names import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC
from kalda.broker.transactions.marker_appends import MarkerAppends
from kalda.broker.transactions.marker_sender import TransactionMarkers
from kalda.broker.transactions.produce_gate import ProduceGate
from kalda.broker.transactions.verification import TransactionVerification
from kalda.broker.upkeep import Upkeep
from kalda.common.metrics import metric_name
from kalda.common.types import TopicPartition
from kalda.coordinator.runtime.coordinator_runtime import CoordinatorRuntime, PartitionState, RuntimeConfig
from kalda.coordinator.transaction.transaction_coordinator import TransactionConfig, TransactionCoordinator
from kalda.coordinator.transaction.transaction_shard import TransactionShard
from kalda.net.peer.dialer import Dialer
from kalda.zk.client.zookeeper_errors import ZooKeeperError

if TYPE_CHECKING:
    from kalda.broker.services import BrokerServices

logger: Final = logging.getLogger(__name__)


class Transactions:
    """The parts of one broker that only transactions have."""

    def __init__(
        self,
        services: "BrokerServices",
        runtime: CoordinatorRuntime[TransactionShard],
        markers: TransactionMarkers,
        verification: TransactionVerification,
        ids: "ProducerIdTasks",
    ) -> None:
        self._services: Final = services
        self._runtime: Final = runtime
        self.markers: Final = markers
        self._verification: Final = verification
        self._ids: Final = ids

    @property
    def is_loading(self) -> bool:
        """Whether the state of a partition that is coordinated here is not complete."""
        return any(state is PartitionState.LOADING for state in self._runtime.states().values())

    def offsets_partition(self, group_id: str) -> TopicPartition:
        """Return the partition in which a group's offsets are."""
        partition = self._services.coordinators.partition_for(GROUP_METADATA_TOPIC, group_id)
        return TopicPartition(GROUP_METADATA_TOPIC, partition)

    def start(self, upkeep: Upkeep) -> None:
        """Run what goes on beside requests."""
        config, coordinator = self._services.config, self._services.transaction_coordinator
        upkeep.run("transaction markers", self.markers.run())
        upkeep.run("transaction verification", self._verification.run())
        upkeep.run("producer ids", self._ids.run())
        upkeep.every(
            "transaction time-outs",
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            coordinator.abort_timed_out,
        )
        upkeep.every(
            "transactional id expiration",
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            coordinator.forget_expired,
        )


def build_transactions(services: "BrokerServices", dialer: Dialer) -> Transactions:
    """Make the parts; needs coordinators, replica manager, metadata cache and producer ids."""
    config, coordinators, cache = services.config, services.coordinators, services.metadata_cache
    listener = config.inter_broker_listener_name
    services.marker_appends = MarkerAppends(services, timeout_ms=config.request_timeout_ms)
    markers = TransactionMarkers(
        services.broker_id,
        cache,
        services.marker_appends,
        services.clock,
        dialer,
        listener=listener,
        timeout_ms=config.request_timeout_ms,
    )

    def partition_for(transactional_id: str) -> int:
        return coordinators.partition_for(TRANSACTION_STATE_TOPIC, transactional_id)

    ids = ProducerIdTasks(services.producer_ids)
    coordinator = TransactionCoordinator(
        TransactionConfig(
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            two_phase_commit_enable=config.transaction_two_phase_commit_enable,
            request_timeout_ms=config.request_timeout_ms,
        ),
        services.clock,
        markers,
        ids,
        partition_for=partition_for,
        coordinator_epoch=lambda partition: runtime.leader_epoch(partition),
        transaction_version=lambda: services.features.transaction_version,
    )
    runtime = coordinators.add(
        coordinator.make_shard,
        RuntimeConfig(
            name=TRANSACTION_STATE_TOPIC,
            load_buffer_bytes=config.transaction_state_log_load_buffer_size,
        ),
    )
    coordinator.runtime = runtime
    services.transaction_coordinator = coordinator
    services.transaction_verification = TransactionVerification(
        services,
        dialer,
        partition_for=partition_for,
        listener=listener,
        timeout_ms=config.request_timeout_ms,
    )
    services.produce_gate = ProduceGate(
        services, is_verifying=lambda: config.transaction_partition_verification_enable
    )
    _register_metrics(services, markers)
    return Transactions(services, runtime, markers, services.transaction_verification, ids)


def _register_metrics(services: "BrokerServices", markers: TransactionMarkers) -> None:
    """Publish what is under way, and what stays there."""
    coordinator, gate = services.transaction_coordinator, services.produce_gate

    def name(kind: str, metric: str) -> str:
        return metric_name("kafka.coordinator.transaction", kind, metric)

    services.metrics.gauge(
        name("TransactionStateManager", "NumTransactionalIds"),
        "Transactional ids that are coordinated here.",
        lambda: len(coordinator.transactions()),
    )
    services.metrics.gauge(
        name("TransactionMarkerChannelManager", "NumPendingTransactions"),
        "Transactions that are decided and have markers to be written.",
        lambda: markers.waiting_count,
    )
    services.metrics.gauge(
        metric_name("kafka.server", "AddPartitionsToTxnManager", "NumWaitingRequests"),
        "Produce requests that wait for the coordinator's word on their transaction.",
        lambda: gate.waiting_count,
    )


class ProducerIdTasks:
    """Gives producer ids to the coordinator: at once from the broker's block, or when there is a new one."""

    def __init__(self, ids: ProducerIds) -> None:
        self._ids: Final = ids
        self._waiting: list[Callable[[int | None], None]] = []
        self._has_waiting: Final = asyncio.Event()

    def take(self, on_done: Callable[[int | None], None]) -> None:
        """Call `on_done` with a new id, or with None if coordination has none now."""
        producer_id = self._ids.take_nowait()
        if producer_id is not None:
            on_done(producer_id)
            return
        self._waiting.append(on_done)
        self._has_waiting.set()

    async def run(self) -> None:
        """Ask for blocks of ids whenever somebody waits, until cancelled."""
        while True:
            await self._has_waiting.wait()
            self._has_waiting.clear()
            waiting, self._waiting = self._waiting, []
            for on_done in waiting:
                try:
                    producer_id: int | None = await self._ids.take()
                except ZooKeeperError as error:
                    logger.warning("no producer id can be had now: %s", error)
                    producer_id = None
                on_done(producer_id)

"""Builds the transactional parts of a broker, registers their metrics and starts their background work."""

import logging
from dataclasses import dataclass
from typing import Final

from kalda.broker.context.broker_context import BrokerContext
from kalda.broker.context.service_tasks import ServiceTasks
from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.topics.topic_names import TRANSACTION_STATE_TOPIC
from kalda.broker.transactions.marker_appends import MarkerAppends
from kalda.broker.transactions.marker_sender import TransactionMarkers
from kalda.broker.transactions.produce_gate import ProduceGate
from kalda.broker.transactions.producer_id_tasks import ProducerIdTasks
from kalda.broker.transactions.producer_ids import ProducerIds
from kalda.broker.transactions.verification import TransactionVerification
from kalda.common.metrics import Metrics, metric_name
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.coordinator.runtime.coordinator_runtime import RuntimeConfig
from kalda.coordinator.transaction.transaction_coordinator import TransactionConfig, TransactionCoordinator
from kalda.settings import BrokerConfig

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transactions:
    """The parts of one broker that only transactions need."""

    coordinator: TransactionCoordinator
    markers: TransactionMarkers
    marker_appends: MarkerAppends
    verification: TransactionVerification
    gate: ProduceGate
    ids: ProducerIdTasks

    def run(self, tasks: ServiceTasks, config: BrokerConfig) -> None:
        """Start the background work of transactions."""
        tasks.run("transaction markers", self.markers.run())
        tasks.run("transaction verification", self.verification.run())
        tasks.run("producer ids", self.ids.run())
        tasks.every(
            "transaction time-outs",
            config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            self.coordinator.abort_timed_out,
        )
        tasks.every(
            "transactional id expiration",
            config.transaction_remove_expired_transaction_cleanup_interval_ms,
            self.coordinator.forget_expired,
        )


def build_transactions(
    context: BrokerContext,
    cache: MetadataCache,
    replicas: ReplicaManager,
    produce_purgatory: DelayedOperationPurgatory,
    internal_topics: InternalTopics,
    producer_ids: ProducerIds,
) -> Transactions:
    """Make the parts of transactions and the runtime for ``__transaction_state``."""
    config, features = context.config, context.features
    listener, timeout_ms = config.inter_broker_listener_name, config.request_timeout_ms
    marker_appends = MarkerAppends(
        replicas, internal_topics, produce_purgatory, context.clock, timeout_ms=timeout_ms
    )
    markers = TransactionMarkers(
        context.broker_id,
        cache,
        marker_appends,
        context.clock,
        context.runtime.random,
        context.dialer,
        listener=listener,
        timeout_ms=timeout_ms,
        deleted_topics=context.cluster_store.deleted_topics,
    )
    runtime_config = RuntimeConfig(
        name=TRANSACTION_STATE_TOPIC, load_buffer_bytes=config.transaction_state_log_load_buffer_size
    )
    ids = ProducerIdTasks(producer_ids)
    coordinator = TransactionCoordinator(
        TransactionConfig(
            transaction_max_timeout_ms=config.transaction_max_timeout_ms,
            transactional_id_expiration_ms=config.transactional_id_expiration_ms,
            two_phase_commit_enable=config.transaction_two_phase_commit_enable,
            request_timeout_ms=timeout_ms,
        ),
        context.clock,
        markers,
        ids,
        lambda make_shard: internal_topics.add(make_shard, runtime_config, context.metrics),
        partition_for=lambda name: internal_topics.partition_for(TRANSACTION_STATE_TOPIC, name),
        transaction_version=lambda: features.transaction_version,
        events=context.events,
    )
    verification = TransactionVerification(
        context.broker_id,
        cache,
        coordinator,
        context.dialer,
        context.runtime.random,
        listener=listener,
        timeout_ms=timeout_ms,
    )
    gate = ProduceGate(
        replicas, verification, is_verifying=lambda: config.transaction_partition_verification_enable
    )
    _register_metrics(context.metrics, coordinator, markers, gate)
    return Transactions(
        coordinator=coordinator,
        markers=markers,
        marker_appends=marker_appends,
        verification=verification,
        gate=gate,
        ids=ids,
    )


def _register_metrics(
    metrics: Metrics, coordinator: TransactionCoordinator, markers: TransactionMarkers, gate: ProduceGate
) -> None:
    def name(kind: str, metric: str) -> str:
        return metric_name("kafka.coordinator.transaction", kind, metric)

    metrics.gauge(
        name("TransactionStateManager", "NumTransactionalIds"),
        "Transactional ids that are coordinated here.",
        lambda: len(coordinator.transactions()),
    )
    metrics.gauge(
        name("TransactionMarkerChannelManager", "NumPendingTransactions"),
        "Transactions that are decided and have markers to be written.",
        lambda: markers.waiting_count,
    )
    metrics.gauge(
        metric_name("kafka.server", "AddPartitionsToTxnManager", "NumWaitingRequests"),
        "Produce requests that wait until the coordinator has verified their transaction.",
        lambda: gate.waiting_count,
    )

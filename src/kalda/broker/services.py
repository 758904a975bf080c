"""What a request handler may reach: the parts of one running broker, by name.

The composition root (`kalda.broker.server`) fills it in the order of start-up; handlers and delayed
operations get it as their first argument. It holds references only: no behaviour, no defaults, so a test
sets just the parts that the code under test uses.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kalda.broker.config import BrokerConfig, ConfigStore
    from kalda.broker.controller_link.requests import ControllerRequests
    from kalda.broker.coordinators import Coordinators
    from kalda.broker.features import Features
    from kalda.broker.fetch_session import FetchSessionCache
    from kalda.broker.metadata_cache import MetadataCache
    from kalda.broker.metrics.remote_end_offsets import RemoteEndOffsets
    from kalda.broker.producer_ids import ProducerIds
    from kalda.broker.purgatory import DelayedOperationPurgatory
    from kalda.broker.refused_batches import RefusedBatches
    from kalda.broker.registration import BrokerRegistration
    from kalda.broker.replica_manager import ReplicaManager
    from kalda.broker.replication.follower.manager import ReplicaFetcherManager
    from kalda.broker.replication.leader.isr_changes import IsrChanges
    from kalda.broker.replication.missing_records import MissingRecords
    from kalda.broker.topics.topic_admin import TopicAdmin
    from kalda.broker.transactions.assembly import Transactions
    from kalda.broker.transactions.marker_appends import MarkerAppends
    from kalda.broker.transactions.produce_gate import ProduceGate
    from kalda.broker.transactions.verification import TransactionVerification
    from kalda.common.clock import Clock
    from kalda.common.metrics import Metrics
    from kalda.common.types import BrokerEndpoint
    from kalda.controller.driver import ControllerDriver
    from kalda.coordinator.group.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
    from kalda.coordinator.group.group_coordinator import GroupCoordinator
    from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
    from kalda.storage.log_manager import LogManager
    from kalda.zk.client.cluster_store import ClusterStore


class BrokerServices:
    """The parts of one broker."""

    broker_id: int
    cluster_id: str
    config: "BrokerConfig"
    clock: "Clock"
    metrics: "Metrics"
    cluster_store: "ClusterStore"
    controller: "ControllerDriver"
    consumer_groups: "ConsumerGroupCoordinator"
    coordinators: "Coordinators"
    controller_requests: "ControllerRequests"
    isr_changes: "IsrChanges"
    group_coordinator: "GroupCoordinator"
    log_manager: "LogManager"
    replica_fetchers: "ReplicaFetcherManager"
    replica_manager: "ReplicaManager"
    missing_records: "MissingRecords"
    metadata_cache: "MetadataCache"
    registration: "BrokerRegistration"
    remote_end_offsets: "RemoteEndOffsets"
    topic_admin: "TopicAdmin"
    config_store: "ConfigStore"
    features: "Features"
    fetch_sessions: "FetchSessionCache"
    producer_ids: "ProducerIds"
    marker_appends: "MarkerAppends"
    produce_gate: "ProduceGate"
    refused_batches: "RefusedBatches"
    transaction_coordinator: "TransactionCoordinator"
    transaction_verification: "TransactionVerification"
    transactions: "Transactions"
    purgatories: "dict[str, DelayedOperationPurgatory]"
    """By name: ``fetch``, ``produce``, ``delete_records``, ``topic``."""
    listeners: "tuple[BrokerEndpoint, ...]"
    """Where clients reach this broker: the advertised address of each listener, the default first."""

"""Declares by name the parts of a broker that request handlers can be built with.

`kalda.broker.assembly` makes the one `BrokerServices` of a broker when all parts exist; it never changes
afterwards. It is the argument of `ApiHandler.build`: a handler keeps the parts that it uses, as every other
class does.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kalda.broker.config import ConfigStore
from kalda.broker.control_plane.requests import ControllerRequests
from kalda.broker.fetching.fetch_session import FetchSessionCache
from kalda.broker.internal_topics.internal_topics import InternalTopics
from kalda.broker.leases.lease_grants import LeaseGrants
from kalda.broker.metadata.features import Features
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.replica_alter_log_dirs import ReplicaAlterLogDirs
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.broker.requests.listener_releases import ListenerReleases
from kalda.broker.requests.refused_batches import RefusedBatches
from kalda.broker.requests.topic_responses import TopicResponses
from kalda.broker.security.broker_access import BrokerAccess
from kalda.broker.share.lazy_share import LazyShare
from kalda.broker.telemetry.client_metrics_manager import ClientMetricsManager
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.broker.transactions.marker_appends import MarkerAppends
from kalda.broker.transactions.produce_gate import ProduceGate
from kalda.broker.transactions.producer_ids import ProducerIds
from kalda.cluster.cluster_store import ClusterStore
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.controller.driver import ControllerDriver
from kalda.coordinator.group.consumer.consumer_group_coordinator import ConsumerGroupCoordinator
from kalda.coordinator.group.group_coordinator import GroupCoordinator
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.events.recorder import EventRecorder
from kalda.protocol.messages.api_versions import ApiVersion
from kalda.runtime.clock import Clock
from kalda.settings import BrokerConfig
from kalda.storage.log_manager import LogManager

if TYPE_CHECKING:
    from kalda.broker.share.assembly import Share


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """The parts of one broker from which a request handler is built."""

    access: BrokerAccess
    api_versions: tuple[ApiVersion, ...]
    """The answer to ApiVersions: every API with the versions that clients may use."""
    broker_id: int
    cluster_id: str
    client_metrics: ClientMetricsManager
    config: BrokerConfig
    clock: Clock
    cluster_store: ClusterStore
    config_store: ConfigStore
    consumer_groups: ConsumerGroupCoordinator
    controller: ControllerDriver
    controller_requests: ControllerRequests
    events: EventRecorder | None
    """None if `kalda.events.bytes` is 0."""
    features: Features
    fetch_sessions: FetchSessionCache
    group_coordinator: GroupCoordinator
    internal_topics: InternalTopics
    lazy_share: LazyShare
    lease_grants: LeaseGrants | None
    """None if `kalda.read.lease.enable` is false."""
    log_manager: LogManager
    marker_appends: MarkerAppends
    metadata_cache: MetadataCache
    produce_gate: ProduceGate
    producer_ids: ProducerIds
    purgatories: dict[str, DelayedOperationPurgatory]
    """By name: ``fetch``, ``produce``, ``delete_records``, ``topic``."""
    refused_batches: RefusedBatches
    releases: ListenerReleases
    replica_alter_log_dirs: ReplicaAlterLogDirs
    replica_manager: ReplicaManager
    topic_admin: TopicAdmin
    topic_responses: TopicResponses
    transaction_coordinator: TransactionCoordinator

    @property
    def share(self) -> "Share":
        """The parts of share groups, which are made when they are first asked for."""
        return self.lazy_share.parts

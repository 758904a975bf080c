"""Publishes Kafka's figures of a broker: replicas, logs, fetch sessions, controller and registration."""

from collections.abc import Callable

from kalda.broker.fetching.fetch_session import FetchSessionCache
from kalda.broker.metadata.registration import BrokerRegistration
from kalda.broker.replicas.isr_changes import IsrChanges
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.common.metrics import Metrics, metric_name
from kalda.controller.driver import ControllerDriver
from kalda.controller.statistics import ControllerStatistics
from kalda.storage.log_manager import LogManager


def register_replica_metrics(metrics: Metrics, replicas: ReplicaManager, changes: IsrChanges) -> None:
    """Publish the partitions that are hosted here and the changes of their in-sync replicas."""

    def name(attribute: str) -> str:
        return metric_name("kafka.server", "ReplicaManager", attribute)

    def count(condition: Callable[[Partition], bool]) -> Callable[[], int]:
        return lambda: sum(map(condition, replicas.partitions.values()))

    metrics.gauge(name("PartitionCount"), "Partitions hosted here.", lambda: len(replicas.partitions))
    for attribute, description, condition in (
        ("LeaderCount", "Partitions led here.", lambda partition: partition.is_leader),
        (
            "UnderReplicatedPartitions",
            "Partitions led here with a replica out of sync.",
            lambda partition: partition.is_under_replicated,
        ),
        (
            "UnderMinIsrPartitionCount",
            "Partitions led here with fewer replicas in sync than min.insync.replicas.",
            lambda partition: partition.is_under_min_isr,
        ),
        (
            "AtMinIsrPartitionCount",
            "Partitions led here that cannot lose another in-sync replica.",
            lambda partition: partition.is_at_min_isr,
        ),
    ):
        metrics.gauge(name(attribute), description, count(condition))
    metrics.gauge(
        name("OfflineReplicaCount"),
        "Replicas in log directories that failed.",
        lambda: len(replicas.offline_partitions),
    )
    for attribute, description, read in (
        ("IsrShrinksPerSec", "Shrinks of in-sync replicas.", lambda: changes.shrinks),
        ("IsrExpandsPerSec", "Expansions of in-sync replicas.", lambda: changes.expansions),
        (
            "FailedIsrUpdatesPerSec",
            "Changes of in-sync replicas that were refused or not answered.",
            lambda: changes.failures,
        ),
    ):
        metrics.counter_function(name(attribute), description, read)
    metrics.counter_function(
        metric_name("kafka.server", "BrokerTopicMetrics", "ReplicationBytesOutPerSec"),
        "Bytes of records sent to followers.",
        lambda: replicas.topic_stats.replication_bytes_out,
    )


def register_log_metrics(metrics: Metrics, logs: LogManager) -> None:
    """Publish the state of the log directories and the offsets that logs have lost."""
    for kind, attribute, description, read in (
        (
            "kafka.log",
            "OfflineLogDirectoryCount",
            "Log directories out of service.",
            lambda: len(logs.offline_directories),
        ),
        (
            "kafka.log",
            "FullLogDirectoryCount",
            "Log directories without room: their replicas are read, not written.",
            lambda: len(logs.resources.failures.full),
        ),
        (
            "kalda.log",
            "MissingOffsets",
            "Offsets that logs here have lost to damage on disk and that no replica has given back.",
            lambda: sum(log.missing.count for log in logs.logs().values()),
        ),
    ):
        metrics.gauge(metric_name(kind, "LogManager", attribute), description, read)


def register_fetch_session_metrics(metrics: Metrics, sessions: FetchSessionCache) -> None:
    """Publish the fetch sessions that the broker holds."""

    def name(attribute: str) -> str:
        return metric_name("kafka.server", "FetchSessionCache", attribute)

    metrics.gauge(name("NumIncrementalFetchSessions"), "Fetch sessions held.", lambda: len(sessions))
    metrics.gauge(
        name("NumIncrementalFetchPartitionsCached"),
        "Partitions in all fetch sessions.",
        lambda: sessions.partitions_cached,
    )
    metrics.counter_function(
        name("IncrementalFetchSessionEvictionsPerSec"),
        "Fetch sessions dropped for others.",
        lambda: sessions.evictions,
    )


def register_controller_metrics(metrics: Metrics, controller: ControllerDriver) -> None:
    """Publish the state of the cluster as the active controller sees it; other brokers publish zeros."""
    statistics = controller.statistics

    def gauge(attribute: str, description: str, value: Callable[[ControllerStatistics], int]) -> None:
        name = metric_name("kafka.controller", "KafkaController", attribute)
        metrics.gauge(name, description, lambda: value(statistics()))

    gauge(
        "ActiveControllerCount",
        "1 if this broker is the controller.",
        lambda each: each.active_controller_count,
    )
    gauge(
        "OfflinePartitionsCount", "Partitions without a leader.", lambda each: each.offline_partitions_count
    )
    gauge(
        "PreferredReplicaImbalanceCount",
        "Partitions that their preferred replica does not lead.",
        lambda each: each.preferred_replica_imbalance_count,
    )
    gauge("GlobalTopicCount", "Topics of the cluster.", lambda each: each.global_topic_count)
    gauge("GlobalPartitionCount", "Partitions of the cluster.", lambda each: each.global_partition_count)
    gauge("TopicsToDeleteCount", "Topics marked for deletion.", lambda each: each.topics_to_delete_count)
    gauge("ActiveBrokerCount", "Brokers that live.", lambda each: each.active_broker_count)
    elections = controller.election_counts
    for attribute, description, read in (
        (
            "LeaderElectionsPerSec",
            "Leaders that this broker elected as the controller.",
            lambda: elections.elections,
        ),
        (
            "UncleanLeaderElectionsPerSec",
            "Of these, replicas that were not in sync: records may have been lost.",
            lambda: elections.unclean,
        ),
    ):
        name = metric_name("kafka.controller", "ControllerStats", attribute)
        metrics.counter_function(name, description, read)


def register_session_metrics(metrics: Metrics, registration: BrokerRegistration) -> None:
    """Publish the state of the ZooKeeper session and of the registration."""

    def name(attribute: str) -> str:
        return metric_name("kafka.server", "SessionExpireListener", attribute)

    metrics.gauge(
        name("SessionState"),
        "1 if the broker is registered and reaches ZooKeeper.",
        lambda: int(registration.is_healthy),
    )
    for attribute, description, read in (
        (
            "ZooKeeperExpiresPerSec",
            "ZooKeeper sessions that expired.",
            lambda: registration.statistics().expiries,
        ),
        (
            "ZooKeeperDisconnectsPerSec",
            "Times that ZooKeeper could not be reached.",
            lambda: registration.statistics().disconnects,
        ),
        (
            "ZooKeeperSyncConnectsPerSec",
            "Registrations of this broker with the cluster.",
            lambda: registration.statistics().registrations,
        ),
    ):
        metrics.counter_function(name(attribute), description, read)

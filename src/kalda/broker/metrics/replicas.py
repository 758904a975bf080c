"""Kafka's figures of a broker as a whole: replicas, fetch sessions, controller, coordination session."""

from collections.abc import Callable

from kalda.broker.metrics.consumer_groups import register_consumer_group_metrics
from kalda.broker.metrics.partitions import register_partition_metrics
from kalda.broker.metrics.process import register_loop_metrics, register_process_metrics
from kalda.broker.partition import Partition
from kalda.broker.replication.follower.metrics import register_fetcher_metrics
from kalda.broker.services import BrokerServices
from kalda.common.metrics import Metrics, metric_name
from kalda.controller.statistics import ControllerStatistics


def register_broker_metrics(metrics: Metrics, services: BrokerServices) -> None:
    """Publish everything, under Kafka's names as `metric_name` writes them and those of Kafka Exporter."""
    replicas, sessions = services.replica_manager, services.fetch_sessions
    counter, gauge = metrics.counter_function, metrics.gauge
    register_partition_metrics(metrics, services)
    register_consumer_group_metrics(metrics, services)
    register_process_metrics(metrics)
    register_loop_metrics(metrics)

    def replica_name(attribute: str) -> str:
        return metric_name("kafka.server", "ReplicaManager", attribute)

    gauge(replica_name("PartitionCount"), "Partitions hosted here.", lambda: len(replicas.partitions))
    _register_replication_metrics(metrics, services)
    register_fetcher_metrics(metrics, services.replica_fetchers)

    gauge(
        metric_name("kalda.log", "LogManager", "MissingOffsets"),
        "Offsets that logs here have lost to damage on disk and that no replica has given back.",
        lambda: sum(log.missing.count for log in services.log_manager.logs().values()),
    )

    def session_name(attribute: str) -> str:
        return metric_name("kafka.server", "FetchSessionCache", attribute)

    gauge(session_name("NumIncrementalFetchSessions"), "Fetch sessions held.", lambda: len(sessions))
    gauge(
        session_name("NumIncrementalFetchPartitionsCached"),
        "Partitions in all fetch sessions.",
        lambda: sessions.partitions_cached,
    )
    counter(
        session_name("IncrementalFetchSessionEvictionsPerSec"),
        "Fetch sessions dropped for others.",
        lambda: sessions.evictions,
    )
    _register_controller_metrics(metrics, services)
    _register_session_metrics(metrics, services)


def _register_controller_metrics(metrics: Metrics, services: BrokerServices) -> None:
    statistics = services.controller.statistics

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
    elections = services.controller.election_counts
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


def _register_session_metrics(metrics: Metrics, services: BrokerServices) -> None:
    registration = services.registration

    def name(attribute: str) -> str:
        return metric_name("kafka.server", "SessionExpireListener", attribute)

    metrics.gauge(
        name("SessionState"),
        "1 if the broker is registered and reaches coordination.",
        lambda: int(registration.is_healthy),
    )
    for attribute, description, read in (
        (
            "ZooKeeperExpiresPerSec",
            "Sessions with coordination that expired.",
            lambda: registration.statistics().expiries,
        ),
        (
            "ZooKeeperDisconnectsPerSec",
            "Times that coordination could not be reached.",
            lambda: registration.statistics().disconnects,
        ),
        (
            "ZooKeeperSyncConnectsPerSec",
            "Registrations of this broker with the cluster.",
            lambda: registration.statistics().registrations,
        ),
    ):
        metrics.counter_function(name(attribute), description, read)


def _register_replication_metrics(metrics: Metrics, services: BrokerServices) -> None:
    replicas, changes = services.replica_manager, services.isr_changes

    def replica_name(attribute: str) -> str:
        return metric_name("kafka.server", "ReplicaManager", attribute)

    def count(condition: Callable[[Partition], bool]) -> Callable[[], int]:
        return lambda: sum(map(condition, replicas.partitions.values()))

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
        metrics.gauge(replica_name(attribute), description, count(condition))
    metrics.gauge(
        replica_name("OfflineReplicaCount"),
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
        metrics.counter_function(replica_name(attribute), description, read)
    metrics.counter_function(
        metric_name("kafka.server", "BrokerTopicMetrics", "ReplicationBytesOutPerSec"),
        "Bytes of records sent to followers.",
        lambda: replicas.topic_stats.replication_bytes_out,
    )
    logs = services.log_manager
    metrics.gauge(
        metric_name("kafka.log", "LogManager", "OfflineLogDirectoryCount"),
        "Log directories out of service.",
        lambda: len(logs.offline_directories),
    )
    metrics.gauge(
        metric_name("kafka.log", "LogManager", "FullLogDirectoryCount"),
        "Log directories without room: their replicas are read, not written.",
        lambda: len(logs.resources.failures.full),
    )

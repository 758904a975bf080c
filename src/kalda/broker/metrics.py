"""What a broker publishes about itself beside requests and connections: topics, logs, sessions.

Everything is read when the metrics are rendered; the hot path only adds to plain integers.
"""

from kalda.broker.services import BrokerServices
from kalda.common.metrics import Metrics, metric_name


def register_broker_metrics(metrics: Metrics, services: BrokerServices) -> None:
    """Publish under Kafka's names, made lower case and joined as `metric_name` says."""
    replicas, sessions = services.replica_manager, services.fetch_sessions

    def topic_name(attribute: str) -> str:
        return metric_name("kafka.server", "BrokerTopicMetrics", attribute)

    counter, gauge = metrics.counter_function, metrics.gauge
    counter(
        topic_name("BytesInPerSec"), "Bytes of records appended for producers.", lambda: replicas.bytes_in
    )
    counter(topic_name("BytesOutPerSec"), "Bytes of records sent to consumers.", lambda: replicas.bytes_out)
    counter(topic_name("MessagesInPerSec"), "Records appended for producers.", lambda: replicas.messages_in)
    counter(
        topic_name("FailedProduceRequestsPerSec"),
        "Batches that could not be appended.",
        lambda: replicas.produce_failures,
    )
    counter(
        topic_name("FailedFetchRequestsPerSec"),
        "Partitions that could not be read.",
        lambda: replicas.fetch_failures,
    )

    def replica_name(attribute: str) -> str:
        return metric_name("kafka.server", "ReplicaManager", attribute)

    gauge(replica_name("PartitionCount"), "Partitions hosted here.", lambda: len(replicas.partitions))
    gauge(
        replica_name("LeaderCount"),
        "Partitions led here.",
        lambda: sum(partition.is_leader for partition in replicas.partitions.values()),
    )
    gauge(
        metric_name("kafka.log", "Log", "Size"),
        "Bytes in all logs together.",
        lambda: sum(log.size for log in services.log_manager.logs().values()),
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
    gauge(
        metric_name("kafka.controller", "KafkaController", "ActiveControllerCount"),
        "1 if this broker is the controller.",
        lambda: int(services.controller.is_active),
    )

"""Publishes the metrics of single partitions, topics and log directories.

Names are those of Kafka Exporter (``kafka_topic_…``) and of Kafka's MBeans (``kafka_cluster_partition_…``,
``kafka_log_log_…``, ``kafka_server_brokertopicmetrics_…``). Every broker publishes the partitions that it
leads, its own traffic by topic, and the sizes of its logs. One broker publishes a topic's number of
partitions: the leader of its first partition that has one.
"""

from collections.abc import Iterator
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.common.metrics import Column, Labels, Metrics, metric_name
from kalda.storage.log_manager import LogManager
from kalda.storage.volume import UNKNOWN_BYTES, volume_bytes

Row = tuple[Labels, tuple[float | None, ...]]

_LOGS_PER_PIECE: Final = 256
"""The number of logs whose sizes are summed without a pause, in a quarter of a millisecond."""

_EXPORTER_COLUMNS: Final = tuple(
    Column(f"kafka_topic_partition_{name}", "gauge", text)
    for name, text in (
        ("current_offset", "High watermark of a partition led here: what consumers can read up to."),
        ("oldest_offset", "First offset of a partition led here."),
        ("leader", "Broker id of the leader."),
        ("leader_is_preferred", "1 if the leader is the first replica of the assignment."),
        ("replicas", "Replicas of a partition led here."),
        ("in_sync_replica", "In-sync replicas of a partition led here."),
        ("under_replicated_partition", "1 if a replica of a partition led here is out of sync."),
    )
)

_KAFKA_COLUMNS: Final = tuple(
    Column(metric_name("kafka.cluster", "Partition", name), "gauge", text)
    for name, text in (
        ("ReplicasCount", "Replicas of a partition led here."),
        ("UnderMinIsr", "1 if a partition led here has fewer in-sync replicas than min.insync.replicas."),
        ("AtMinIsr", "1 if a partition led here has just as many in-sync replicas as min.insync.replicas."),
        ("LastStableOffsetLag", "Records behind the last stable offset: what open transactions hold back."),
    )
)

_TOPIC_COLUMNS: Final = tuple(
    Column(metric_name("kafka.server", "BrokerTopicMetrics", name), "counter", text)
    for name, text in (
        ("MessagesInPerSec", "Records appended for producers."),
        ("BytesInPerSec", "Bytes of records appended for producers."),
        ("BytesOutPerSec", "Bytes of records sent to consumers."),
        ("TotalProduceRequestsPerSec", "Appends asked for, by partition."),
        ("TotalFetchRequestsPerSec", "Reads asked for, by partition."),
        ("FailedProduceRequestsPerSec", "Batches that could not be appended."),
        ("FailedFetchRequestsPerSec", "Partitions that could not be read."),
        ("ProduceMessageConversionsPerSec", "Records that came in another message format than the log's."),
        ("FetchMessageConversionsPerSec", "Records converted for clients of an older message format."),
    )
)

_DIRECTORY_COLUMNS: Final = (
    Column("kalda_log_directory_total_bytes", "gauge", "Size of the volume of a log directory."),
    Column("kalda_log_directory_free_bytes", "gauge", "Bytes of that volume that the broker may still use."),
    Column("kalda_log_directory_used_bytes", "gauge", "Bytes of the logs in a log directory."),
    Column(
        metric_name("kafka.log", "LogManager", "LogDirectoryOffline"), "gauge", "1 if it is out of service."
    ),
    Column(
        metric_name("kafka.log", "LogManager", "LogDirectoryCordoned"),
        "gauge",
        "1 if it gets no new replicas (`cordoned.log.dirs`).",
    ),
)


def register_partition_metrics(
    metrics: Metrics, broker_id: int, replicas: ReplicaManager, cache: MetadataCache
) -> None:
    """Publish tables of partitions and topics."""
    metrics.table(lambda: _partition_rows(replicas), *_EXPORTER_COLUMNS, *_KAFKA_COLUMNS)
    metrics.table(
        lambda: _log_rows(replicas),
        Column(metric_name("kafka.log", "Log", "Size"), "gauge", "Bytes of a log on this broker."),
    )
    metrics.table(
        lambda: _topic_rows(broker_id, cache),
        Column("kafka_topic_partitions", "gauge", "Partitions of a topic."),
    )
    metrics.table(lambda: _traffic_rows(replicas), *_TOPIC_COLUMNS)


def register_directory_metrics(metrics: Metrics, logs: LogManager) -> None:
    """Publish a table of log directories."""
    metrics.table(lambda: _directory_rows(logs), *_DIRECTORY_COLUMNS)


def _partition_rows(replicas: ReplicaManager) -> Iterator[Row]:
    for partition in tuple(replicas.partitions.values()):
        if partition.is_leader:
            yield _labels(partition), _leader_values(partition)


def _leader_values(partition: Partition) -> tuple[float, ...]:
    log = partition.log
    replicas, in_sync = partition.replicas, partition.isr
    return (
        log.high_watermark,
        log.log_start_offset,
        partition.leader_id,
        int(partition.leader_id == replicas[0]),
        len(replicas),
        len(in_sync),
        int(partition.is_under_replicated),
        len(replicas),
        int(partition.is_under_min_isr),
        int(partition.is_at_min_isr),
        max(log.high_watermark - log.last_stable_offset, 0),
    )


def _log_rows(replicas: ReplicaManager) -> Iterator[Row]:
    for partition in tuple(replicas.partitions.values()):
        yield _labels(partition), (partition.log.size,)


def _labels(partition: Partition) -> Labels:
    topic, number = partition.topic_partition
    return ("topic", topic), ("partition", str(number))


def _topic_rows(own_id: int, cache: MetadataCache) -> Iterator[Row]:
    for topic in cache.all_topics():
        leaders = (each.leader for each in topic.partitions.values())
        if next((leader for leader in leaders if leader >= 0), None) == own_id:
            yield (("topic", topic.name),), (len(topic.partitions),)


def _traffic_rows(replicas: ReplicaManager) -> Iterator[Row]:
    stats = replicas.topic_stats
    for labels, each in (
        ((), stats.total()),
        *(((("topic", topic),), each) for topic, each in stats.by_topic.items()),
    ):
        yield (
            labels,
            (
                each.messages_in,
                each.bytes_in,
                each.bytes_out,
                each.produces,
                each.fetches,
                each.failed_produces,
                each.failed_fetches,
                each.produce_conversions,
                each.fetch_conversions,
            ),
        )


def _directory_rows(logs: LogManager) -> Iterator[Row | None]:
    used: dict[str, int] = {}
    for number, log in enumerate((*logs.logs().values(), *logs.futures.logs().values())):
        if number % _LOGS_PER_PIECE == 0:
            yield None
        directory = log.directory.rpartition("/")[0]
        used[directory] = used.get(directory, 0) + log.size
    cordoned = logs.cordoned_directories()
    for directory in logs.directories:
        is_offline = directory in logs.offline_directories
        total, free = (UNKNOWN_BYTES, UNKNOWN_BYTES) if is_offline else volume_bytes(directory)
        yield (
            (("logdirectory", directory),),
            (
                None if total == UNKNOWN_BYTES else total,
                None if free == UNKNOWN_BYTES else free,
                None if is_offline else used.get(directory, 0),
                int(is_offline),
                int(directory in cordoned),
            ),
        )

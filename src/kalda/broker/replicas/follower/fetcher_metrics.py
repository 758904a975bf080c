"""Registers the metrics of replica fetchers, under Kafka's names."""

from collections.abc import Iterator
from typing import Final

from kalda.broker.replicas.follower.replica_fetcher_manager import ReplicaFetcherManager
from kalda.common.metrics import Column, Labels, Metrics, metric_name

_MANAGER: Final = "ReplicaFetcherManager"


def register_fetcher_metrics(metrics: Metrics, fetchers: ReplicaFetcherManager) -> None:
    """Register the lag of this broker's followers and the counts of what failed."""

    def manager_name(attribute: str) -> str:
        return metric_name("kafka.server", _MANAGER, attribute)

    metrics.gauge(
        manager_name("MaxLag"),
        "Records that the replica furthest behind its leader's high watermark lacks.",
        lambda: fetchers.statistics().max_lag,
    )
    metrics.gauge(
        manager_name("FailedPartitionsCount"),
        "Partitions that are not fetched, because of the disk or of a fenced leader epoch.",
        lambda: fetchers.statistics().failed_partitions,
    )
    metrics.gauge(
        manager_name("DeadThreadCount"),
        "Fetchers that have partitions and no connection to their leader.",
        lambda: fetchers.statistics().dead_fetchers,
    )
    metrics.counter_function(
        metric_name("kafka.server", "BrokerTopicMetrics", "ReplicationBytesInPerSec"),
        "Bytes of records appended from leaders.",
        lambda: fetchers.bytes_in,
    )
    metrics.gauge(
        metric_name("kafka.server", "FollowerReplication", "byte-rate"),
        "Bytes a second that throttled replicas fetched in the quota's window.",
        lambda: fetchers.quota.byte_rate,
    )

    def lags() -> Iterator[tuple[Labels, tuple[float]]]:
        for client_id, state in tuple(fetchers.states()):
            name = state.topic_partition
            labels = (("clientid", client_id), ("topic", name.topic), ("partition", str(name.partition)))
            yield labels, (state.lag or 0,)

    metrics.table(
        lags,
        Column(
            metric_name("kafka.server", "FetcherLagMetrics", "ConsumerLag"),
            "gauge",
            "Records below the leader's high watermark that a replica of this broker lacks.",
        ),
    )

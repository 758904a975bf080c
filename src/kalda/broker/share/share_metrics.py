"""Publishes share sessions and share partitions, under Kafka's names where it has some."""

from collections.abc import Iterator

from kalda.broker.share.lazy_share import LazyShare
from kalda.common.metrics import Column, Labels, Metrics, metric_name
from kalda.coordinator.group.group import GroupType
from kalda.coordinator.group.group_coordinator import GroupCoordinator


def register_share_metrics(metrics: Metrics, share: LazyShare, groups: GroupCoordinator) -> None:
    """Publish the share groups that this broker coordinates, and the share partitions that it leads."""
    metrics.gauge(
        metric_name("kafka.server", "ShareSessionCache", "ShareSessionsCount"),
        "Share sessions of this broker.",
        lambda: 0 if share.made is None else len(share.made.partitions.sessions),
    )
    metrics.gauge(
        metric_name("kafka.server", "group-coordinator-metrics", "share-group-count"),
        "Share groups that this broker coordinates.",
        lambda: sum(group.kind is GroupType.SHARE for group in groups.groups()),
    )
    metrics.counter_function(
        "kalda_share_dead_letters",
        "Dead letters of share groups that were written.",
        lambda: 0 if share.made is None else share.made.letters.counts.written,
    )
    metrics.counter_function(
        "kalda_share_dead_letter_failures",
        "Attempts to write dead letters that failed; each is repeated.",
        lambda: 0 if share.made is None else share.made.letters.counts.failures,
    )
    metrics.table(
        lambda: _rows(share),
        Column(
            metric_name("kafka.server", "SharePartitionMetrics", "InFlightMessageCount"),
            "gauge",
            "Records of a partition between the start and the end of what a share group was delivered.",
        ),
        Column("kalda_share_partition_acquired", "gauge", "Records that members have acquired."),
        Column("kalda_share_partition_waiting", "gauge", "Records that wait before a delivery."),
        Column("kalda_share_partition_start_offset", "gauge", "Every record below it is done."),
        Column("kalda_share_partition_dead", "gauge", "Records that wait for their dead letters."),
        Column("kalda_share_partition_lag", "gauge", "Records below the high watermark that are not done."),
    )


def _rows(share: LazyShare) -> Iterator[tuple[Labels, tuple[float, ...]]]:
    for led in () if share.made is None else share.made.partitions:
        core = led.core
        if core is None:
            continue
        name = led.partition.topic_partition
        labels = ("group", led.key.group_id), ("topic", name.topic), ("partition", str(name.partition))
        lag = max(led.partition.log.high_watermark - core.start_offset - core.complete_count, 0)
        yield (
            labels,
            (
                core.in_flight_count,
                core.acquired_count,
                core.waiting_count,
                core.start_offset,
                core.dead_count,
                lag,
            ),
        )

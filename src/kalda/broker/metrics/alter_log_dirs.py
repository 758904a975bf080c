"""Registers the metrics of moves between log directories, under Kafka's names."""

from collections.abc import Iterator
from typing import Final

from kalda.broker.replicas.replica_alter_log_dirs import ReplicaAlterLogDirs
from kalda.common.metrics import Column, Labels, Metrics, metric_name
from kalda.storage.log_manager import LogManager

_MANAGER: Final = "ReplicaAlterLogDirsManager"


def register_alter_log_dirs_metrics(metrics: Metrics, moves: ReplicaAlterLogDirs, logs: LogManager) -> None:
    """Register the lag of the future logs, the moves that failed, and the rate of copying."""
    metrics.gauge(
        metric_name("kafka.server", _MANAGER, "MaxLag"),
        "Records that the future log lacks that is furthest behind the log it will replace.",
        lambda: moves.max_lag,
    )
    metrics.gauge(
        metric_name("kafka.server", _MANAGER, "FailedPartitionsCount"),
        "Moves between log directories whose last attempt failed; they are tried again.",
        lambda: moves.failed_count,
    )
    metrics.gauge(
        metric_name("kafka.server", "AlterLogDirsReplication", "byte-rate"),
        "Bytes a second copied between log directories in the quota's window.",
        lambda: moves.quota.byte_rate,
    )

    def sizes() -> Iterator[tuple[Labels, tuple[float]]]:
        for name, log in tuple(logs.futures.logs().items()):
            labels = ("topic", name.topic), ("partition", str(name.partition)), ("is_future", "true")
            yield labels, (log.size,)

    metrics.table(
        sizes, Column(metric_name("kafka.log", "Log", "Size"), "gauge", "Bytes of a log on this broker.")
    )

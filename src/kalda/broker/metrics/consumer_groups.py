"""Publishes the progress of consumer groups under the names of Kafka Exporter.

A broker publishes the groups that it coordinates. The lag of a partition is the high watermark minus the
committed offset. The high watermark is that of the replica on this broker or, without a replica, the one that
the leader returned (`RemoteEndOffsets`). An unknown lag is left out, and so is a sum that needs it.
"""

from collections.abc import Callable, Iterator
from typing import Final

from kalda.broker.metrics.remote_end_offsets import RemoteEndOffsets
from kalda.broker.replicas.replica_manager import ReplicaManager
from kalda.common.metrics import Column, Labels, Metrics
from kalda.common.types import TopicPartition
from kalda.coordinator.group.group_coordinator import GroupCoordinator

EndOffset = Callable[[TopicPartition], int | None]

_SUM_COLUMNS: Final = (
    Column("kafka_consumergroup_current_offset_sum", "gauge", "Sum of the committed offsets of a topic."),
    Column("kafka_consumergroup_lag_sum", "gauge", "Records of a topic that the group has not committed."),
)


def register_consumer_group_metrics(
    metrics: Metrics,
    coordinator: GroupCoordinator,
    replicas: ReplicaManager,
    remote_end_offsets: RemoteEndOffsets,
) -> None:
    """Publish members, committed offsets and lag of the groups that are coordinated here."""

    def end_offset(topic_partition: TopicPartition) -> int | None:
        partition = replicas.partitions.get(topic_partition)
        if partition is not None:
            return partition.log.high_watermark
        return remote_end_offsets.get(topic_partition)

    metrics.table(
        lambda: _member_rows(coordinator),
        Column("kafka_consumergroup_members", "gauge", "Members of a group coordinated here."),
    )
    metrics.table(
        lambda: _offset_rows(coordinator, end_offset),
        Column("kafka_consumergroup_current_offset", "gauge", "Offset that a group has committed."),
        Column("kafka_consumergroup_lag", "gauge", "Records below the high watermark that it has not."),
    )
    metrics.table(lambda: _sum_rows(coordinator, end_offset), *_SUM_COLUMNS)


def _member_rows(coordinator: GroupCoordinator) -> Iterator[tuple[Labels, tuple[float]]]:
    for group in coordinator.groups():
        yield (("consumergroup", group.group_id),), (group.member_count,)


def _offset_rows(
    coordinator: GroupCoordinator, end_offset: EndOffset
) -> Iterator[tuple[Labels, tuple[float | None, ...]]]:
    for group_id, topic, offsets in coordinator.committed_offsets():
        for number, offset in offsets:
            labels = ("consumergroup", group_id), ("topic", topic), ("partition", str(number))
            yield labels, (offset, _lag(end_offset, topic, number, offset))


def _sum_rows(
    coordinator: GroupCoordinator, end_offset: EndOffset
) -> Iterator[tuple[Labels, tuple[float | None, ...]]]:
    for group_id, topic, offsets in coordinator.committed_offsets():
        lags = [_lag(end_offset, topic, number, offset) for number, offset in offsets]
        known = [lag for lag in lags if lag is not None]
        labels = ("consumergroup", group_id), ("topic", topic)
        yield labels, (sum(offset for _, offset in offsets), sum(known) if len(known) == len(lags) else None)


def _lag(end_offset: EndOffset, topic: str, number: int, committed: int) -> int | None:
    """Return the lag; 0 where the known high watermark is older than the commit."""
    end = end_offset(TopicPartition(topic, number))
    return None if end is None else max(end - committed, 0)

"""Checks of partitions: leaders, replicas in sync, and how both are spread. Pure functions."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kalda.inspection.cluster_health import partition_health
from kalda.inspection.doctor.findings import Finding, Severity, counted, some
from kalda.inspection.doctor.snapshot import ClusterSnapshot

if TYPE_CHECKING:
    from kalda.clients.admin.topics import TopicPartitionInfo
    from kalda.common.types import TopicPartition

_UNBALANCED_PERCENT = 10
"""Kafka's default of `leader.imbalance.per.broker.percentage`: the controller moves leaders above it."""


def check_offline(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find partitions without a leader."""
    found = [each for each, info in cluster.partitions.items() if not info.has_leader]
    if found:
        yield Finding(
            check="partitions.offline",
            severity=Severity.CRITICAL,
            what=f"{counted(found, 'partition has', 'partitions have')} no leader.",
            evidence=some(found),
            why="Nothing can be written to or read from a partition without a leader.",
            mend="kalda topics describe --unavailable-partitions  # start one of the brokers of their ISR",
        )


def _needed(cluster: ClusterSnapshot, partition: "TopicPartition", info: "TopicPartitionInfo") -> int:
    """Return how many in-sync replicas writes need, which is no more than there are."""
    return min(cluster.min_isr(partition.topic), len(info.replicas))


def check_in_sync(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find partitions with fewer replicas in sync than writes need, and those with fewer than they have."""
    led = {each: info for each, info in cluster.partitions.items() if info.has_leader}
    needed = {each: _needed(cluster, each, info) for each, info in led.items()}
    below = [each for each, info in led.items() if len(info.isr) < needed[each]]
    lacking = [each for each, info in led.items() if needed[each] <= len(info.isr) < len(info.replicas)]
    if below:
        yield Finding(
            check="partitions.under-min-isr",
            severity=Severity.CRITICAL,
            what=f"{counted(below, 'partition has', 'partitions have')} fewer in-sync replicas than "
            "min.insync.replicas.",
            evidence=some(f"{each} (ISR {len(led[each].isr)}, minimum {needed[each]})" for each in below),
            why="Producers with acks=all get NOT_ENOUGH_REPLICAS and cannot write to it.",
            mend="kalda topics describe --under-min-isr-partitions  # start the other brokers",
        )
    if lacking:
        absent = sorted({each for part in lacking for each in set(led[part].replicas) - set(led[part].isr)})
        brokers = "broker" if len(absent) == 1 else "brokers"
        yield Finding(
            check="partitions.under-replicated",
            severity=Severity.WARNING,
            what=f"{counted(lacking, 'partition lacks', 'partitions lack')} in-sync replicas.",
            evidence=f"{some(lacking)}; out of sync on {brokers} {some(absent)}",
            why="The records that a replica lacks are lost to it if the brokers in sync fail.",
            mend="kalda topics describe --under-replicated-partitions",
        )


def check_preferred_leaders(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find partitions that another replica than the first leads, although that one is in sync."""
    health = partition_health(cluster.topics.values())
    if not health.not_preferred:
        return
    moved = [
        each
        for each, info in cluster.partitions.items()
        if info.has_leader and info.replicas and info.leader_id != info.replicas[0]
    ]
    is_much = health.not_preferred * 100 > _UNBALANCED_PERCENT * health.partitions
    automatic = {value for _, value in cluster.settings_with_value("auto.leader.rebalance.enable")}
    yield Finding(
        check="partitions.not-preferred",
        severity=Severity.WARNING if is_much else Severity.ADVICE,
        what=f"{health.not_preferred} of {health.partitions} partitions are not led by their preferred "
        "replica, although it is in sync.",
        evidence=f"{some(moved)}; auto.leader.rebalance.enable={','.join(sorted(automatic)) or 'unknown'}",
        why="Some brokers serve more clients than they should, and others fewer.",
        mend="kalda elect-leaders --election-type preferred --all-topic-partitions",
    )

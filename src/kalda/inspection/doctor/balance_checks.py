"""Checks of how leaders and replicas are spread over brokers, racks and directories. Pure functions."""

from collections.abc import Iterator, Mapping
from typing import Final

from kalda.inspection.cluster_health import partition_health
from kalda.inspection.doctor.findings import Finding, Severity, counted, some
from kalda.inspection.doctor.snapshot import ClusterSnapshot

_SKEW_RATIO: Final = 1.3
_SKEW_COUNT: Final = 10
"""A broker has too many with 1.3 times the mean and 10 more; a few partitions are never spread evenly."""

_DIRECTORY_RATIO: Final = 2
_DIRECTORY_BYTES: Final = 2**30


def check_skew(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find brokers with many more leaders or replicas than the others."""
    health = partition_health(cluster.topics.values())
    replicas = _skewed(health.replicas, cluster)
    if replicas:
        yield Finding(
            check="balance.replicas",
            severity=Severity.WARNING,
            what="Some brokers have many more replicas than others.",
            evidence=f"{replicas}; by broker: {_by_broker(health.replicas, cluster)}",
            why="Their disks fill first and their network is the limit of the cluster.",
            mend="kalda reassign generate --all-topics > plan.json  # then: kalda reassign execute",
        )
    leaders = _skewed(health.leaders, cluster)
    if leaders and not replicas:
        yield Finding(
            check="balance.leaders",
            severity=Severity.WARNING,
            what="Some brokers lead many more partitions than others.",
            evidence=f"{leaders}; by broker: {_by_broker(health.leaders, cluster)}",
            why="Clients write to and read from leaders: these brokers do most of the work.",
            mend="kalda elect-leaders --election-type preferred --all-topic-partitions  # if it stays so: "
            "kalda reassign generate --all-topics",
        )


def check_racks(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find partitions with all replicas in one rack, and brokers without a rack beside others with one."""
    racks = {each.id: each.rack for each in cluster.brokers}
    named = {each for each in racks.values() if each}
    if not named:
        return
    without = [each for each, rack in racks.items() if not rack]
    if without:
        yield Finding(
            check="balance.no-rack",
            severity=Severity.WARNING,
            what=f"{counted(without, 'broker has', 'brokers have')} no rack, while others have one.",
            evidence=f"brokers {some(without)}; racks {some(sorted(named))}",
            why="Replicas are not spread over racks while a broker has none: creation of topics can fail.",
            mend="set broker.rack in server.properties and restart the broker",
        )
    if len(named) < 2:
        return
    together = [
        f"{each} ({racks[info.replicas[0]]})"
        for each, info in cluster.partitions.items()
        if len(info.replicas) > 1
        and len({racks.get(broker_id) for broker_id in info.replicas}) == 1
        and racks.get(info.replicas[0])
    ]
    if together:
        yield Finding(
            check="balance.one-rack",
            severity=Severity.WARNING,
            what=f"{counted(together, 'partition has', 'partitions have')} all replicas in one rack.",
            evidence=some(together),
            why="If the rack loses power or network, the partition is gone although it has several copies.",
            mend="kalda reassign generate --all-topics > plan.json  # spreads replicas over racks",
        )


def check_directories(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find brokers with one log directory that is much fuller than the others."""
    found = []
    for broker_id, dirs in sorted(cluster.log_dirs.items()):
        sizes = {
            path: sum(info.size for info in each.replica_infos.values())
            for path, each in dirs.items()
            if each.error is None
        }
        if len(sizes) < 2:
            continue
        fullest = max(sizes, key=lambda path: sizes[path])
        others = [size for path, size in sizes.items() if path != fullest]
        mean = sum(others) / len(others)
        if sizes[fullest] >= _DIRECTORY_RATIO * mean and sizes[fullest] - mean >= _DIRECTORY_BYTES:
            found.append(
                f"{fullest} of broker {broker_id} has {sizes[fullest] / 2**30:.1f} GiB, the others "
                f"{mean / 2**30:.1f} GiB"
            )
    if found:
        yield Finding(
            check="balance.directories",
            severity=Severity.WARNING,
            what=f"{counted(found, 'log directory is', 'log directories are')} much fuller than the "
            "others of the broker.",
            evidence=some(found),
            why="A broker places new replicas by number, not by size: this volume fills first.",
            mend="kalda reassign execute --reassignment-json-file FILE  # with log_dirs of some replicas",
        )


def check_reassignments(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find reassignments that make no progress, and throttles left behind by finished ones."""
    absent = [
        f"{partition} (to broker {some(gone)})"
        for partition, move in sorted(cluster.reassignments.items())
        if (gone := [each for each in move.adding_replicas if each not in cluster.running])
    ]
    stuck = [*absent, *(f"{each} (no progress)" for each in sorted(cluster.stalled_moves))]
    if stuck:
        yield Finding(
            check="reassignment.stuck",
            severity=Severity.WARNING,
            what=f"{counted(stuck, 'move of a partition does', 'moves of partitions do')} not go on.",
            evidence=some(stuck),
            why="The partition keeps its former replicas, and no other move of it can begin.",
            mend="kalda reassign list; kalda reassign cancel --reassignment-json-file FILE",
        )
    elif cluster.reassignments:
        yield Finding(
            check="reassignment.in-progress",
            severity=Severity.ADVICE,
            what=f"{counted(list(cluster.reassignments), 'partition is', 'partitions are')} being moved.",
            evidence=some(sorted(cluster.reassignments)),
            why="Replicas that are being added are not in sync yet.",
            mend="kalda reassign list",
        )
    if cluster.reassignments:
        return
    throttled = [
        f"{name}={value} on broker {broker_id}"
        for name in ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
        for broker_id in sorted(cluster.broker_settings)
        if (entry := cluster.broker_settings[broker_id].get(name)) is not None
        and not entry.is_default
        and (value := entry.value) is not None
    ]
    if throttled:
        yield Finding(
            check="reassignment.throttle-left",
            severity=Severity.WARNING,
            what="A throttle of replication is set while nothing is being moved.",
            evidence=some(throttled),
            why="Followers that fall behind catch up slowly, or never.",
            mend="kalda reassign verify --reassignment-json-file FILE  # removes it; or kalda configs alter",
        )


def _skewed(counts: Mapping[int, int], cluster: ClusterSnapshot) -> str | None:
    """Return the brokers with too many; None if there is none."""
    if len(cluster.brokers) < 2:
        return None
    mean = sum(counts.values()) / len(cluster.brokers)
    many = [
        broker_id
        for broker_id, count in sorted(counts.items())
        if count >= _SKEW_RATIO * mean and count - mean >= _SKEW_COUNT
    ]
    return f"brokers {some(many)} are above the mean of {mean:.1f}" if many else None


def _by_broker(counts: Mapping[int, int], cluster: ClusterSnapshot) -> str:
    ids = sorted(counts.keys() | {each.id for each in cluster.brokers})
    return some(f"{each}={counts.get(each, 0)}" for each in ids)

"""Checks of brokers and their log directories. Pure functions."""

from collections.abc import Iterator

from kalda.inspection.cluster_health import is_full
from kalda.inspection.doctor.findings import Finding, Severity, counted, some
from kalda.inspection.doctor.snapshot import ClusterSnapshot

_NEARLY_FULL_PERCENT = 10
"""A volume with less room than this gets a warning, so that there is time to act."""


def check_brokers_run(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find brokers that have replicas or are listed, and do not respond; and a cluster without controller."""
    if cluster.controller_id is None:
        yield Finding(
            check="brokers.no-controller",
            severity=Severity.CRITICAL,
            what="The cluster has no controller.",
            evidence="no broker holds the controller's role",
            why="No leader is elected when a broker fails, and no topic can be created or changed.",
            mend="kalda cluster describe  # and look for the reason in the logs of the brokers",
        )
    absent = sorted(cluster.known_brokers - cluster.running)
    if absent:
        replicas = [
            each for each, info in cluster.partitions.items() if not cluster.running.issuperset(info.replicas)
        ]
        verb = "does not respond" if len(absent) == 1 else "do not respond"
        yield Finding(
            check="brokers.absent",
            severity=Severity.CRITICAL,
            what=f"{'Broker' if len(absent) == 1 else 'Brokers'} {some(absent)} {verb}.",
            evidence=f"replicas of {counted(replicas, 'partition is', 'partitions are')} there",
            why="The partitions with replicas there have fewer copies, or none that can be reached.",
            mend="kalda broker --id ID …  # start it; or for good: kalda cluster decommission ID",
        )


def check_log_dirs(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find log directories that failed, that are full, and that will be."""
    offline, full, nearly = [], [], []
    for broker_id, dirs in sorted(cluster.log_dirs.items()):
        for path, each in sorted(dirs.items()):
            place = f"{path} of broker {broker_id}"
            if each.error is not None:
                offline.append(f"{place} ({each.error})")
            elif each.usable_bytes is None or not each.total_bytes:
                continue
            elif is_full(each.usable_bytes, each.total_bytes):
                full.append(f"{place} ({_room(each.usable_bytes, each.total_bytes)})")
            elif each.usable_bytes * 100 < _NEARLY_FULL_PERCENT * each.total_bytes:
                nearly.append(f"{place} ({_room(each.usable_bytes, each.total_bytes)})")
    if offline:
        yield Finding(
            check="log-dirs.offline",
            severity=Severity.CRITICAL,
            what=f"{counted(offline, 'log directory is', 'log directories are')} offline.",
            evidence=some(offline),
            why="Its replicas are gone from the cluster until the directory is mended and the broker starts.",
            mend="kalda log-dirs describe --summary  # mend the volume, then restart the broker",
        )
    if full:
        yield Finding(
            check="log-dirs.full",
            severity=Severity.CRITICAL,
            what=f"{counted(full, 'log directory is', 'log directories are')} full.",
            evidence=some(full),
            why="A broker takes a directory offline when it cannot write to it.",
            mend="kalda configs alter --topic TOPIC --add-config retention.ms=…  # or enlarge the volume",
        )
    if nearly:
        yield Finding(
            check="log-dirs.nearly-full",
            severity=Severity.WARNING,
            what=f"{counted(nearly, 'log directory has', 'log directories have')} less than "
            f"{_NEARLY_FULL_PERCENT} % of free space.",
            evidence=some(nearly),
            why="A broker takes a directory offline when it cannot write to it.",
            mend="kalda log-dirs describe  # shows the largest logs",
        )


def _room(usable: int, total: int) -> str:
    return f"{usable / 2**30:.1f} of {total / 2**30:.1f} GiB free"

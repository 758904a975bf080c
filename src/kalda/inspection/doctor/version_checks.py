"""Checks of brokers' releases, features and clocks. Pure functions."""

from collections.abc import Iterator
from typing import Final

from kalda.inspection.cluster_health import spoken_release
from kalda.inspection.doctor.findings import Finding, Severity, some
from kalda.inspection.doctor.snapshot import ClusterSnapshot

_SKEW_MS: Final = 1000
"""Clocks that are further apart get a warning: retention, timestamps and tokens are compared by them."""

_SKEW_CRITICAL_MS: Final = 30_000
"""From here on logins by tokens are refused."""


def check_releases(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find brokers that are of different versions."""
    releases: dict[str, list[int]] = {}
    for broker_id, each in sorted(cluster.versions.items()):
        spoken = spoken_release({key: served.highest for key, served in each.api_versions.items()})
        process = cluster.processes.get(broker_id)
        name = f"protocol {spoken or 'before 2.1'}" + (f", Kalda {process.version}" if process else "")
        releases.setdefault(name, []).append(broker_id)
    if len(releases) > 1:
        yield Finding(
            check="versions.differ",
            severity=Severity.WARNING,
            what="The brokers are of different versions.",
            evidence="; ".join(f"{name} on {some(ids)}" for name, ids in releases.items()),
            why="What clients can do depends on the broker; an upgrade that nobody finished goes unnoticed.",
            mend="kalda cluster describe  # then finish the rolling upgrade",
        )


def check_features(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find features at levels that a broker lacks, and those that could be raised."""
    lacking, raisable = [], []
    finalized = {
        name: level.max_version_level
        for each in cluster.versions.values()
        for name, level in each.features.finalized_features.items()
    }
    supported: dict[str, list[int]] = {}
    for broker_id, each in sorted(cluster.versions.items()):
        for name, level in each.features.supported_features.items():
            supported.setdefault(name, []).append(level.max_version)
            if level.max_version < finalized.get(name, 0):
                lacking.append(f"{name}={finalized[name]}, broker {broker_id} has {level.max_version}")
    for name, levels in sorted(supported.items()):
        if len(levels) == len(cluster.versions) and min(levels) > finalized.get(name, 0):
            raisable.append(f"{name}={finalized.get(name, 0)}, all brokers support {min(levels)}")
    if lacking:
        yield Finding(
            check="features.unsupported",
            severity=Severity.WARNING,
            what="A broker does not support a feature that the cluster uses.",
            evidence=some(lacking),
            why="Its replicas and coordinators may not understand what the others write.",
            mend="upgrade the broker, or: kalda features downgrade --feature NAME=LEVEL",
        )
    if raisable:
        yield Finding(
            check="features.not-finalised",
            severity=Severity.ADVICE,
            what="All brokers support more than the cluster uses.",
            evidence=some(raisable),
            why="An upgrade is finished only when its features are finalised; until then it can be undone.",
            mend="kalda features upgrade --feature NAME=LEVEL",
        )


def check_clocks(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Compare the clocks of brokers, each known with an error of half its response time at most."""
    offsets = {each: process.clock for each, process in sorted(cluster.processes.items())}
    if len(offsets) < 2:
        return
    low = min(offsets, key=lambda each: offsets[each].offset_ms + offsets[each].error_ms)
    high = max(offsets, key=lambda each: offsets[each].offset_ms - offsets[each].error_ms)
    apart = (offsets[high].offset_ms - offsets[high].error_ms) - (
        offsets[low].offset_ms + offsets[low].error_ms
    )
    if apart > _SKEW_MS:
        yield Finding(
            check="clocks.skew",
            severity=Severity.CRITICAL if apart > _SKEW_CRITICAL_MS else Severity.WARNING,
            what=f"The clocks of brokers {low} and {high} are at least {apart:.0f} ms apart.",
            evidence=some(
                f"broker {each}: {clock.offset_ms:+.0f} ms ± {clock.error_ms:.0f} ms"
                for each, clock in offsets.items()
            )
            + " from this machine's clock",
            why="Timestamps, retention by time, offsets by time and tokens of logins are wrong by that much.",
            mend="timedatectl status  # on these machines; let chrony or systemd-timesyncd run",
        )


def check_processes(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find brokers whose process is short of descriptors or lacks the compiled modules."""
    short = []
    for broker_id, each in sorted(cluster.processes.items()):
        if each.open_files_max > 0 and each.open_files * 10 > each.open_files_max * 8:
            short.append(f"broker {broker_id} has {each.open_files} of {each.open_files_max} open")
    if short:
        yield Finding(
            check="brokers.few-descriptors",
            severity=Severity.CRITICAL,
            what="A broker has nearly as many files and connections open as it may.",
            evidence=some(short),
            why="When none is left, no client can connect, and a log that cannot be opened goes offline.",
            mend="raise LimitNOFILE of its unit (ulimit -n) and restart the broker",
        )
    plain = [each for each, process in sorted(cluster.processes.items()) if not process.is_compiled]
    if plain:
        yield Finding(
            check="brokers.not-compiled",
            severity=Severity.WARNING,
            what="Brokers run without the compiled modules.",
            evidence=f"brokers {some(plain)}",
            why="Requests and records of old formats take several times as long.",
            mend="pip install --force-reinstall kalda  # a wheel for this Python and platform has them",
        )

"""Checks of settings that contradict each other, in a broker, a topic, or between them. Pure functions."""

from collections.abc import Iterator
from typing import Final

from kalda.inspection.doctor.durability_checks import is_internal
from kalda.inspection.doctor.findings import Finding, Severity, counted, some
from kalda.inspection.doctor.snapshot import ClusterSnapshot

_LOG_OVERHEAD: Final = 12
"""Bytes of a batch in front of what its size counts: by this much the defaults of `message.max.bytes` and
`replica.fetch.max.bytes` differ."""

_DIRTY_RATIO_HIGH: Final = 0.9
"""From here on a log is ten times as long as its compacted part before it is compacted."""

_SESSION_DEFAULT_MS: Final = 45_000
"""`session.timeout.ms` of clients since Kafka 3.0; older ones have 10 s."""

_MINUTE_MS: Final = 60_000

_SAME_EVERYWHERE: Final = (
    "allow.everyone.if.no.acl.found",
    "authorizer.class.name",
    "auto.create.topics.enable",
    "compression.type",
    "default.replication.factor",
    "inter.broker.protocol.version",
    "log.cleaner.enable",
    "log.cleanup.policy",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.segment.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "offsets.retention.minutes",
    "replica.fetch.max.bytes",
    "replica.lag.time.max.ms",
    "socket.request.max.bytes",
    "super.users",
    "transaction.max.timeout.ms",
    "unclean.leader.election.enable",
)
"""What a client or a topic meets on whichever broker happens to lead: the outcome must not depend on it."""


def check_request_size(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find records that may be larger than the request that would carry them."""
    low = _least(cluster, "socket.request.max.bytes")
    if low is None:
        return
    places = [
        f"message.max.bytes={value} of broker {broker_id}"
        for broker_id, value in _numbers(cluster, "message.max.bytes")
        if value > low
    ]
    places += [f"max.message.bytes={value} of {topic}" for topic, value in _largest(cluster) if value > low]
    if places:
        yield Finding(
            check="settings.message-above-request",
            severity=Severity.WARNING,
            what="Records are allowed that no request can carry.",
            evidence=f"{some(places)}; socket.request.max.bytes={low}",
            why="A broker closes the connection on a request above its limit; the producer retries for ever.",
            mend="raise socket.request.max.bytes, or lower the size of messages",
        )


def check_replica_fetch_size(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find records that are larger than what followers fetch of a partition at once."""
    low = _least(cluster, "replica.fetch.max.bytes")
    if low is None or len(cluster.brokers) < 2:
        return
    above = [
        f"{topic} (max.message.bytes={value})"
        for topic, value in _largest(cluster)
        if value > low + _LOG_OVERHEAD and not is_internal(cluster, topic)
    ]
    above += [
        f"message.max.bytes={value} of broker {broker_id}"
        for broker_id, value in _numbers(cluster, "message.max.bytes")
        if value > low + _LOG_OVERHEAD
    ]
    if above:
        yield Finding(
            check="settings.message-above-replica-fetch",
            severity=Severity.WARNING,
            what="Records may be larger than what a follower fetches at once.",
            evidence=f"{some(above)}; replica.fetch.max.bytes={low}",
            why="Followers fetch such records one at a time, fall behind and leave the ISR.",
            mend="set replica.fetch.max.bytes at least as high as the largest message and restart brokers",
        )


def check_retention_and_segments(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find topics that keep records for longer than their retention, as segments end late."""
    found = []
    for name in sorted(cluster.topics):
        if "delete" not in _policies(cluster, name) or is_internal(cluster, name):
            continue
        retention, segment = (cluster.topic_number(name, each) for each in ("retention.ms", "segment.ms"))
        if retention is not None and segment is not None and 0 <= retention < segment:
            found.append(f"{name} (retention.ms={retention}, segment.ms={segment})")
            continue
        retention, segment = (
            cluster.topic_number(name, each) for each in ("retention.bytes", "segment.bytes")
        )
        if retention is not None and segment is not None and 0 <= retention < segment:
            found.append(f"{name} (retention.bytes={retention}, segment.bytes={segment})")
    if found:
        yield Finding(
            check="settings.retention-below-segment",
            severity=Severity.WARNING,
            what=f"{counted(found, 'topic keeps', 'topics keep')} records for longer than asked: the "
            "retention is below the segment.",
            evidence=some(found),
            why="Only whole segments are deleted: a record stays until the last one of its segment expires.",
            mend="kalda configs alter --topic TOPIC --add-config segment.ms=…  # or segment.bytes",
        )


def check_retention_of_compacted(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find topics with a retention of their own that is not used, as they are compacted only."""
    found = [
        f"{name} ({setting}={entry.value})"
        for name in sorted(cluster.topics)
        if _policies(cluster, name) == {"compact"}
        for setting in ("retention.ms", "retention.bytes")
        if (entry := cluster.topic_settings.get(name, {}).get(setting)) is not None
        and entry.source.name == "DYNAMIC_TOPIC_CONFIG"
        and entry.value != "-1"
    ]
    if found:
        yield Finding(
            check="settings.retention-of-compacted",
            severity=Severity.WARNING,
            what=f"{counted(found, 'retention has', 'retentions have')} no effect on a compacted topic.",
            evidence=f"{some(found)}; cleanup.policy=compact",
            why="Nothing is deleted by age or size, although the setting asks for it.",
            mend="kalda configs alter --topic TOPIC --add-config cleanup.policy=[compact,delete]",
        )


def check_compaction(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find compacted topics that are not compacted, or very late."""
    compacted = [each for each in sorted(cluster.topics) if "compact" in _policies(cluster, each)]
    late = [
        f"{name} (min.cleanable.dirty.ratio={ratio})"
        for name in compacted
        if (ratio := _ratio(cluster.topic_setting(name, "min.cleanable.dirty.ratio"))) is not None
        and ratio >= _DIRTY_RATIO_HIGH
    ]
    late += [
        f"{name} (min.compaction.lag.ms={low} above max.compaction.lag.ms={high})"
        for name in compacted
        if (low := cluster.topic_number(name, "min.compaction.lag.ms")) is not None
        and (high := cluster.topic_number(name, "max.compaction.lag.ms")) is not None
        and low > high
    ]
    if late:
        yield Finding(
            check="settings.compaction-late",
            severity=Severity.WARNING,
            what=f"{counted(late, 'topic is', 'topics are')} compacted very late.",
            evidence=some(late),
            why="The log grows to many times its compacted size; readers start slowly, disks fill.",
            mend="kalda configs alter --topic TOPIC --delete-config min.cleanable.dirty.ratio",
        )
    off = [each for each, value in cluster.settings_with_value("log.cleaner.enable") if value == "false"]
    if off:
        yield Finding(
            check="settings.cleaner-off",
            severity=Severity.WARNING,
            what="The log cleaner is off: compacted topics grow for ever.",
            evidence=f"log.cleaner.enable=false on brokers {some(off)}; {len(compacted)} compacted topics",
            why="__consumer_offsets is compacted: it fills the disk, and coordinators load for minutes.",
            mend="set log.cleaner.enable=true in server.properties and restart the brokers",
        )


def check_session_timeouts(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find bounds of session timeouts that members with the default are outside of."""
    found: dict[str, list[int]] = {}
    for broker_id in sorted(cluster.broker_settings):
        low = cluster.broker_number(broker_id, "group.min.session.timeout.ms")
        high = cluster.broker_number(broker_id, "group.max.session.timeout.ms")
        if low is None or high is None or low <= _SESSION_DEFAULT_MS <= high:
            continue
        text = f"group.min.session.timeout.ms={low}, group.max.session.timeout.ms={high}"
        found.setdefault(text, []).append(broker_id)
    if found:
        yield Finding(
            check="settings.session-bounds",
            severity=Severity.WARNING,
            what="Consumers with the default session timeout cannot join groups.",
            evidence="; ".join(f"{text} on brokers {some(ids)}" for text, ids in found.items()),
            why=f"session.timeout.ms is {_SESSION_DEFAULT_MS} by default; outside of the bounds a member "
            "gets INVALID_SESSION_TIMEOUT.",
            mend="set the bounds around 45000 in server.properties and restart the brokers",
        )


def check_offsets_retention(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find topics that keep records for longer than groups without members keep their offsets."""
    minutes = _least(cluster, "offsets.retention.minutes")
    if minutes is None:
        return
    is_set = any(
        entry is not None and not entry.is_default
        for each in cluster.broker_settings.values()
        for entry in (each.get("offsets.retention.minutes"),)
    )
    longer = []
    for name in sorted(cluster.topics):
        retention = cluster.topic_number(name, "retention.ms")
        if retention is None or is_internal(cluster, name):
            continue
        if retention == -1 or "delete" not in _policies(cluster, name) or retention > minutes * _MINUTE_MS:
            longer.append(name)
    if longer:
        yield Finding(
            check="settings.offsets-retention",
            severity=Severity.WARNING if is_set else Severity.ADVICE,
            what=f"{counted(longer, 'topic keeps', 'topics keep')} records for longer than idle groups keep "
            "their offsets.",
            evidence=f"{some(longer)}; offsets.retention.minutes={minutes}",
            why="A group that stops for longer than that starts again at auto.offset.reset, and reads twice "
            "or skips.",
            mend="set offsets.retention.minutes in server.properties to the longest retention",
        )


def check_same_settings(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find differences in settings that should be the same on all brokers."""
    differing = []
    for name in _SAME_EVERYWHERE:
        values: dict[str | None, list[int]] = {}
        for broker_id, settings in sorted(cluster.broker_settings.items()):
            if name in settings:
                values.setdefault(settings[name].value, []).append(broker_id)
        if len(values) > 1:
            texts = [f"{value} on {some(ids)}" for value, ids in values.items()]
            differing.append(f"{name}: {', '.join(texts)}")
    if differing:
        yield Finding(
            check="settings.differ",
            severity=Severity.WARNING,
            what=f"{counted(differing, 'setting differs', 'settings differ')} between brokers.",
            evidence="; ".join(differing[:5]) + (f" and {len(differing) - 5} more" if differing[5:] else ""),
            why="What a client may do, or how long records stay, depends on which broker leads.",
            mend="kalda configs describe --broker ID --all  # compare, then write the same into each file",
        )


def check_for_tests(cluster: ClusterSnapshot) -> Iterator[Finding]:
    """Find settings that are meant for test brokers."""
    on = [
        f"{name} on brokers {some(ids)}"
        for name in ("kalda.faults.api.enable", "kalda.namespaces.api.enable")
        if (ids := [each for each, value in cluster.settings_with_value(name) if value == "true"])
    ]
    on += [
        f"kalda.as.version={value} on broker {each}"
        for each, value in cluster.settings_with_value("kalda.as.version")
        if value
    ]
    if on:
        yield Finding(
            check="settings.for-tests",
            severity=Severity.ADVICE,
            what="Brokers have settings that are for tests.",
            evidence="; ".join(on),
            why="An administrator can make brokers fail on purpose, or clients see an older release.",
            mend="remove the settings from server.properties, unless this is a cluster for tests",
        )


def _policies(cluster: ClusterSnapshot, topic: str) -> set[str]:
    text = cluster.topic_setting(topic, "cleanup.policy") or ""
    return {each.strip() for each in text.split(",") if each.strip()}


def _largest(cluster: ClusterSnapshot) -> Iterator[tuple[str, int]]:
    """Yield the topics that have a largest message of their own."""
    for name in sorted(cluster.topics):
        entry = cluster.topic_settings.get(name, {}).get("max.message.bytes")
        value = cluster.topic_number(name, "max.message.bytes")
        if entry is not None and value is not None and entry.source.name == "DYNAMIC_TOPIC_CONFIG":
            yield name, value


def _numbers(cluster: ClusterSnapshot, name: str) -> Iterator[tuple[int, int]]:
    for broker_id in sorted(cluster.broker_settings):
        value = cluster.broker_number(broker_id, name)
        if value is not None:
            yield broker_id, value


def _least(cluster: ClusterSnapshot, name: str) -> int | None:
    return min((value for _, value in _numbers(cluster, name)), default=None)


def _ratio(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None

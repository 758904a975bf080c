"""Which settings `kalda doctor` finds to contradict each other."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kalda.clients.admin.configs import ConfigEntry, ConfigSource
from kalda.inspection.doctor.findings import Severity
from tests.unit.inspection.doctor.snapshots import cluster, entries, found, topic

T = topic("t", (0, (0, 1, 2), (0, 1, 2)))

SOUND: Mapping[str, str | None] = {
    "message.max.bytes": "1048588",
    "socket.request.max.bytes": "104857600",
    "replica.fetch.max.bytes": "1048576",
    "group.min.session.timeout.ms": "6000",
    "group.max.session.timeout.ms": "1800000",
    "log.cleaner.enable": "true",
    "offsets.retention.minutes": "10080",
}
SOUND_TOPIC: Mapping[str, str | None] = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "segment.ms": "604800000",
    "retention.bytes": "-1",
    "segment.bytes": "1073741824",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "9223372036854775807",
}


def of_all(setting: str) -> str:
    """Return the setting with each broker."""
    return ", ".join(f"{setting} of broker {each}" for each in range(3))


def own(name: str, value: str) -> dict[str, ConfigEntry]:
    """Return the setting of a topic that was set for it."""
    return {name: ConfigEntry(name, value, ConfigSource.DYNAMIC_TOPIC_CONFIG)}


def test_nothing_is_found_in_the_defaults() -> None:
    assert {} == found(cluster(T, settings=SOUND, topic_settings={"t": SOUND_TOPIC}))


@pytest.mark.parametrize(
    ("check", "settings", "evidence"),
    [
        (
            "settings.message-above-request",
            {"message.max.bytes": "1048576", "socket.request.max.bytes": "1000000"},
            f"{of_all('message.max.bytes=1048576')}; socket.request.max.bytes=1000000",
        ),
        (
            "settings.message-above-replica-fetch",
            {"replica.fetch.max.bytes": "1000"},
            f"{of_all('message.max.bytes=1048588')}; replica.fetch.max.bytes=1000",
        ),
        (
            "settings.session-bounds",
            {"group.max.session.timeout.ms": "30000"},
            "group.min.session.timeout.ms=6000, group.max.session.timeout.ms=30000 on brokers 0, 1, 2",
        ),
        (
            "settings.cleaner-off",
            {"log.cleaner.enable": "false"},
            "log.cleaner.enable=false on brokers 0, 1, 2; 0 compacted topics",
        ),
        (
            "settings.offsets-retention",
            {"offsets.retention.minutes": "60"},
            "t; offsets.retention.minutes=60",
        ),
        (
            "settings.for-tests",
            {"kalda.faults.api.enable": "true"},
            "kalda.faults.api.enable on brokers 0, 1, 2",
        ),
    ],
)
def test_settings_of_brokers_that_contradict_each_other_are_named(
    check: str, settings: Mapping[str, str], evidence: str
) -> None:
    findings = found(cluster(T, settings={**SOUND, **settings}, topic_settings={"t": SOUND_TOPIC}))

    assert [check] == list(findings)
    assert evidence == findings[check].evidence


@pytest.mark.parametrize(
    ("check", "settings", "evidence"),
    [
        (
            "settings.retention-below-segment",
            {"retention.ms": "3600000"},
            "t (retention.ms=3600000, segment.ms=604800000)",
        ),
        (
            "settings.retention-below-segment",
            {"retention.bytes": "1000"},
            "t (retention.bytes=1000, segment.bytes=1073741824)",
        ),
        (
            "settings.compaction-late",
            {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.99"},
            "t (min.cleanable.dirty.ratio=0.99)",
        ),
        (
            "settings.compaction-late",
            {"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"},
            "t (min.compaction.lag.ms=2 above max.compaction.lag.ms=1)",
        ),
    ],
)
def test_settings_of_topics_that_contradict_each_other_are_named(
    check: str, settings: Mapping[str, str], evidence: str
) -> None:
    findings = found(cluster(T, settings=SOUND, topic_settings={"t": {**SOUND_TOPIC, **settings}}))

    assert [check] == list(findings)
    assert evidence == findings[check].evidence


def test_a_large_message_of_one_topic_is_compared_with_what_brokers_carry() -> None:
    snapshot = cluster(T, settings=SOUND)
    large = own("max.message.bytes", "200000000")
    findings = found(replace(snapshot, topic_settings={"t": large}))

    assert {} == found(snapshot)
    assert "max.message.bytes=200000000 of t; socket.request.max.bytes=104857600" == (
        findings["settings.message-above-request"].evidence
    )
    assert "t (max.message.bytes=200000000); replica.fetch.max.bytes=1048576" == (
        findings["settings.message-above-replica-fetch"].evidence
    )


def test_topic_that_brokers_create_for_themselves_is_no_finding() -> None:
    """They write `__cluster_history` from the first change on; a new cluster is to be sound."""
    history = topic("__cluster_history", (0, (0, 1, 2), (0, 1, 2)))
    large = {"__cluster_history": own("max.message.bytes", "4194304")}
    snapshot = replace(cluster(T, history, settings=SOUND), topic_settings=large)

    assert "settings.message-above-replica-fetch" not in found(snapshot)


def test_a_retention_of_a_compacted_topic_counts_only_if_it_was_set_for_the_topic() -> None:
    snapshot = cluster(T, topic_settings={"t": {"cleanup.policy": "compact", "retention.ms": "1000"}})
    assert {} == found(snapshot)

    settings = {**entries({"cleanup.policy": "compact"}), **own("retention.ms", "1000")}
    findings = found(replace(snapshot, topic_settings={"t": settings}))
    assert "t (retention.ms=1000); cleanup.policy=compact" == (
        findings["settings.retention-of-compacted"].evidence
    )


def test_default_offsets_retention_below_the_topics_is_advice() -> None:
    name = "offsets.retention.minutes"
    default = {name: ConfigEntry(name, "10080", ConfigSource.DEFAULT_CONFIG)}
    forever = {"t": {**SOUND_TOPIC, "retention.ms": "-1"}}
    findings = found(cluster(T, topic_settings=forever, broker_settings={0: default}))

    assert Severity.ADVICE is findings["settings.offsets-retention"].severity


def test_settings_that_differ_between_brokers_are_named_with_their_values() -> None:
    settings = {0: entries({"message.max.bytes": "1"}), 1: entries({"message.max.bytes": "2"})}
    findings = found(cluster(brokers=(0, 1), broker_settings=settings))

    assert "message.max.bytes: 1 on 0, 2 on 1" == findings["settings.differ"].evidence

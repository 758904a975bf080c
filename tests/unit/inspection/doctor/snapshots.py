"""Makes small snapshots of clusters for the checks of `kalda doctor`."""

from collections.abc import Mapping, Sequence
from typing import Any

from kalda.clients.admin.configs import ConfigEntry, ConfigSource
from kalda.clients.admin.topics import TopicDescription, TopicPartitionInfo
from kalda.common.types import BrokerEndpoint
from kalda.inspection.doctor.diagnosis import examine_cluster
from kalda.inspection.doctor.findings import Finding
from kalda.inspection.doctor.snapshot import ClusterSnapshot

Replicas = tuple[int, ...]


def topic(
    name: str, *partitions: tuple[int, Replicas, Replicas], is_internal: bool = False
) -> TopicDescription:
    """Return a topic whose partitions are given as leader, replicas and ISR."""
    infos = [
        TopicPartitionInfo(number, leader, 0, replicas, isr)
        for number, (leader, replicas, isr) in enumerate(partitions)
    ]
    return TopicDescription(name, None, is_internal, tuple(infos))


def entries(settings: Mapping[str, str | None]) -> dict[str, ConfigEntry]:
    """Return settings as the admin client describes them."""
    return {
        name: ConfigEntry(name, value, ConfigSource.STATIC_BROKER_CONFIG) for name, value in settings.items()
    }


def cluster(
    *topics: TopicDescription,
    brokers: Sequence[int] = (0, 1, 2),
    racks: Mapping[int, str] | None = None,
    settings: Mapping[str, str | None] | None = None,
    topic_settings: Mapping[str, Mapping[str, str | None]] | None = None,
    **more: Any,
) -> ClusterSnapshot:
    """Return a cluster whose brokers run and share their settings; the first one is the controller."""
    facts: dict[str, Any] = {
        "brokers": [BrokerEndpoint(each, f"host-{each}", 9092, (racks or {}).get(each)) for each in brokers],
        "running": frozenset(brokers),
        "controller_id": brokers[0],
        "topics": {each.name: each for each in topics},
        "broker_settings": {each: entries(settings or {}) for each in brokers},
        "topic_settings": {name: entries(found) for name, found in (topic_settings or {}).items()},
    }
    return ClusterSnapshot(**{**facts, **more})


def found(snapshot: ClusterSnapshot) -> dict[str, Finding]:
    """Return the findings by the name of their check, which no two of them share."""
    findings = examine_cluster(snapshot)
    by_check = {each.check: each for each in findings}
    assert len(by_check) == len(findings), [each.check for each in findings]
    return by_check

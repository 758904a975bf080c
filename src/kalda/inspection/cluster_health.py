"""Judges a cluster from brokers' responses: which release they serve, and what is wrong. Pure functions."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kalda.common.api_keys import ApiKey

if TYPE_CHECKING:
    from kalda.clients.admin.topics import TopicDescription

RESPONSE_TIMEOUT_MS: Final = 3000
"""How long a broker may take for its first response before a tool takes it for one that does not run.

A killed broker is listed until its session expires.
"""

_RELEASES: Final = (
    ("4.4", ApiKey.TXN_OFFSET_COMMIT, 6),
    ("4.3", ApiKey.LIST_OFFSETS, 11),
    ("4.1", ApiKey.FETCH, 18),
    ("4.0", ApiKey.PRODUCE, 12),
    ("3.9", ApiKey.FETCH, 17),
    ("3.8", ApiKey.LIST_GROUPS, 5),
    ("3.7", ApiKey.FETCH, 16),
    ("3.6", ApiKey.LIST_OFFSETS, 8),
    ("3.5", ApiKey.FETCH, 15),
    ("3.3", ApiKey.DESCRIBE_LOG_DIRS, 4),
    ("3.2", ApiKey.JOIN_GROUP, 9),
    ("3.1", ApiKey.FETCH, 13),
    ("3.0", ApiKey.LIST_OFFSETS, 7),
    ("2.8", ApiKey.DESCRIBE_CLUSTER, 0),
    ("2.7", ApiKey.FETCH, 12),
    ("2.6", ApiKey.DESCRIBE_CONFIGS, 3),
    ("2.5", ApiKey.OFFSET_FETCH, 7),
    ("2.4", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0),
    ("2.3", ApiKey.INCREMENTAL_ALTER_CONFIGS, 0),
    ("2.2", ApiKey.ELECT_LEADERS, 0),
    ("2.1", ApiKey.FETCH, 10),
)
"""The first release with a version of an API, newest first."""


def spoken_release(highest_versions: Mapping[int, int]) -> str | None:
    """Return the newest release of Apache Kafka whose requests a broker serves; None for one before 2.1.

    Brokers do not name their release; this is what their APIs show.

    Args:
        highest_versions: by API key, the highest version that the broker serves.
    """
    for release, key, version in _RELEASES:
        if highest_versions.get(key, -1) >= version:
            return release
    return None


def is_full(usable_bytes: int | None, total_bytes: int | None) -> bool:
    """Return whether less than one percent of a volume is free; False where a broker does not say."""
    return usable_bytes is not None and total_bytes is not None and usable_bytes * 100 < total_bytes


@dataclass(frozen=True, slots=True)
class PartitionHealth:
    """The partitions of a cluster, and those with a problem."""

    partitions: int
    offline: int
    """Without a leader: nothing can be read or written."""
    under_replicated: int
    """With replicas that are not in sync."""
    not_preferred: int
    """Led by another replica than the first, although that one is in sync."""
    leaders: Mapping[int, int]
    """By broker, how many partitions it leads."""
    replicas: Mapping[int, int]
    """By broker, how many replicas it has."""


def partition_health(topics: "Iterable[TopicDescription]") -> PartitionHealth:
    """Count partitions by state and by broker."""
    total = offline = under_replicated = not_preferred = 0
    leaders: dict[int, int] = {}
    replicas: dict[int, int] = {}
    for topic in topics:
        for partition in topic.partitions:
            total += 1
            offline += not partition.has_leader
            under_replicated += len(partition.isr) < len(partition.replicas)
            if partition.has_leader:
                preferred = partition.replicas[0] if partition.replicas else partition.leader_id
                not_preferred += partition.leader_id != preferred and preferred in partition.isr
                leaders[partition.leader_id] = leaders.get(partition.leader_id, 0) + 1
            for broker_id in partition.replicas:
                replicas[broker_id] = replicas.get(broker_id, 0) + 1
    return PartitionHealth(total, offline, under_replicated, not_preferred, leaders, replicas)


def problems(
    health: PartitionHealth,
    listed: Iterable[int],
    running: Iterable[int],
    *,
    has_controller: bool,
    offline_dirs: Iterable[str],
    full_dirs: Iterable[str] = (),
) -> list[str]:
    """Return one line for each problem, with where to look for its cause; none for a healthy cluster.

    Args:
        health: the partitions.
        listed: the brokers that the cluster lists.
        running: those of them that respond.
        has_controller: whether there is a controller.
        offline_dirs: the log directories that failed, with their brokers.
        full_dirs: those with next to no room.
    """
    found = []
    if not has_controller:
        found.append("There is no controller: topics and leaders cannot change; look at the brokers' logs.")
    missing = sorted((health.replicas.keys() | set(listed)) - set(running))
    if missing:
        verb, object_ = ("is", "it") if len(missing) == 1 else ("are", "them")
        names = ", ".join(map(str, missing))
        found.append(f"Broker{'s' * (len(missing) > 1)} {names} {verb} not running; start {object_}.")
    if health.offline:
        found.append(
            f"{_partitions(health.offline, 'has', 'have')} no leader: "
            "`kalda topics describe --unavailable-partitions`."
        )
    if health.under_replicated:
        found.append(
            f"{_partitions(health.under_replicated, 'lacks', 'lack')} in-sync replicas: "
            "`kalda topics describe --under-replicated-partitions`."
        )
    found += [f"Log directory {each} is offline; see the broker's log." for each in offline_dirs]
    found += [
        f"Log directory {each} is full; delete topics, lower their retention or enlarge the volume."
        for each in full_dirs
    ]
    return found


def _partitions(count: int, one: str, many: str) -> str:
    return f"1 partition {one}" if count == 1 else f"{count} partitions {many}"

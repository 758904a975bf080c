"""Computes the rows and totals that pages show of topics and brokers from brokers' responses. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.clusters import BrokerApiVersions, ClusterDescription
from kalda.clients.admin.log_dirs import LogDirDescription
from kalda.clients.admin.topics import TopicDescription
from kalda.common.types import TopicPartition
from kalda.inspection.cluster_health import is_full, partition_health, problems, spoken_release

_RATE_SECONDS_MIN: Final = 0.5

LogDirs = Mapping[int, Mapping[str, LogDirDescription]]


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic in a list."""

    name: str
    is_internal: bool
    partitions: int
    replication: int
    offline: int
    """Partitions without a leader."""
    under_replicated: int
    """Partitions with replicas that are not in sync."""
    size: int | None
    """Bytes of all replicas; None if no broker said it."""

    @property
    def state(self) -> tuple[str, str]:
        """The state in words, and how bad it is."""
        if self.offline:
            return f"{self.offline} without leader", "bad"
        if self.under_replicated:
            return f"{self.under_replicated} under-replicated", "warn"
        return "healthy", "good"


def topic_rows(topics: Iterable[TopicDescription], sizes: Mapping[str, int] | None) -> list[TopicRow]:
    """Return a row for each topic."""
    return [
        TopicRow(
            each.name,
            each.is_internal,
            len(each.partitions),
            max((len(partition.replicas) for partition in each.partitions), default=0),
            sum(not partition.has_leader for partition in each.partitions),
            sum(len(partition.isr) < len(partition.replicas) for partition in each.partitions),
            None if sizes is None else sizes.get(each.name, 0),
        )
        for each in topics
    ]


def sizes_by_topic(dirs: LogDirs) -> dict[str, int]:
    """Return the bytes of all replicas of each topic."""
    sizes: dict[str, int] = {}
    for of_broker in dirs.values():
        for directory in of_broker.values():
            for partition, replica in directory.replica_infos.items():
                sizes[partition.topic] = sizes.get(partition.topic, 0) + replica.size
    return sizes


def sizes_of_replicas(dirs: LogDirs, topic: str) -> dict[tuple[int, int], int]:
    """Return the bytes of a topic's replicas, by partition and broker."""
    return {
        (partition.partition, broker_id): replica.size
        for broker_id, of_broker in dirs.items()
        for directory in of_broker.values()
        for partition, replica in directory.replica_infos.items()
        if partition.topic == topic and not replica.is_future
    }


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker in a list."""

    id: int
    address: str
    rack: str | None
    is_controller: bool
    protocol: str | None
    """The newest release of Apache Kafka whose requests it serves; None if it does not respond."""
    leaders: int
    replicas: int
    size: int | None
    usable: int | None
    total: int | None
    offline_dirs: int

    @property
    def used_percent(self) -> int | None:
        """The percentage of its volumes that is used, by Kalda or by other data."""
        if self.usable is None or not self.total:
            return None
        return round(100 * (self.total - self.usable) / self.total)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster at a glance."""

    cluster_id: str | None
    brokers: tuple[BrokerRow, ...]
    topics: int
    internal_topics: int
    partitions: int
    offline: int
    under_replicated: int
    size: int | None
    problems: tuple[str, ...]


def cluster_view(
    cluster: ClusterDescription,
    topics: Sequence[TopicDescription],
    dirs: LogDirs,
    versions: Mapping[int, BrokerApiVersions],
) -> ClusterView:
    """Return the view of a cluster from its brokers' responses; a broker without one has empty values."""
    health = partition_health(topics)
    controller_id = None if cluster.controller is None else cluster.controller.id
    brokers = []
    for node in cluster.nodes:
        of_broker = dirs.get(node.id)
        served = versions.get(node.id)
        usable, total = _smallest_volume({} if of_broker is None else of_broker)
        brokers.append(
            BrokerRow(
                node.id,
                f"{node.host}:{node.port}",
                node.rack,
                node.id == controller_id,
                None if served is None else release_text(served),
                health.leaders.get(node.id, 0),
                health.replicas.get(node.id, 0),
                None if of_broker is None else _size_of(of_broker),
                usable,
                total,
                sum(each.error is not None for each in (of_broker or {}).values()),
            )
        )
    places = {
        f"{path} of broker {broker_id}": each
        for broker_id, found in sorted(dirs.items())
        for path, each in found.items()
    }
    return ClusterView(
        cluster.cluster_id,
        tuple(brokers),
        sum(not each.is_internal for each in topics),
        sum(each.is_internal for each in topics),
        health.partitions,
        health.offline,
        health.under_replicated,
        sum(each.size or 0 for each in brokers) if dirs else None,
        tuple(
            problems(
                health,
                [node.id for node in cluster.nodes],
                versions,
                has_controller=cluster.controller is not None,
                offline_dirs=[place for place, each in places.items() if each.error is not None],
                full_dirs=[
                    place for place, each in places.items() if is_full(each.usable_bytes, each.total_bytes)
                ],
            )
        ),
    )


def release_text(versions: BrokerApiVersions) -> str | None:
    """Return the newest release of Apache Kafka whose requests a broker serves."""
    return spoken_release({key: served.highest for key, served in versions.api_versions.items()})


def _size_of(directories: Mapping[str, LogDirDescription]) -> int:
    return sum(replica.size for each in directories.values() for replica in each.replica_infos.values())


def _smallest_volume(directories: Mapping[str, LogDirDescription]) -> tuple[int | None, int | None]:
    """Return free and total bytes of the directory with the least room, which is the first to be full."""
    known = [
        (each.usable_bytes, each.total_bytes)
        for each in directories.values()
        if each.usable_bytes is not None and each.total_bytes is not None
    ]
    return min(known) if known else (None, None)


@dataclass(frozen=True, slots=True)
class Ends:
    """The first offset and the end of partitions, and when they were read (monotonic seconds)."""

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    at: float

    def records_of(self, partitions: Iterable[TopicPartition]) -> int | None:
        """Return how many offsets partitions hold; None if one of them is not known."""
        total = 0
        for each in partitions:
            if each not in self.ends or each not in self.starts:
                return None
            total += max(0, self.ends[each] - self.starts[each])
        return total


def rate_between(former: Ends | None, present: Ends, partitions: Iterable[TopicPartition]) -> float | None:
    """Return how many records a second came between two reads; None if that is not known."""
    if former is None or present.at - former.at < _RATE_SECONDS_MIN:
        return None
    growth = 0
    for each in partitions:
        if each not in former.ends or each not in present.ends:
            return None
        growth += max(0, present.ends[each] - former.ends[each])
    return growth / (present.at - former.at)

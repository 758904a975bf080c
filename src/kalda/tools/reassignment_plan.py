"""Decides about partition reassignments: Kafka's JSON files, the proposed assignment, moves and throttles.

Sans-IO: `kalda.tools.reassign` reads the cluster and carries out what is decided here. The files are those of
`kafka-reassign-partitions`, so that either tool can continue what the other has begun.
"""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from kalda.command.errors import ToolError, ToolUsageError
from kalda.command.output import Json
from kalda.command.values import partitions_text
from kalda.common.errors import ApiError
from kalda.common.replica_assignment import assign_replicas
from kalda.common.types import TopicPartition

ANY_LOG_DIR: Final = "any"
_VERSION: Final = 1

Assignment = dict[TopicPartition, tuple[int, ...]]
"""The replicas of partitions, the preferred leader first."""

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LOG_DIR_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
BROKER_THROTTLES: Final = (LEADER_RATE, FOLLOWER_RATE, LOG_DIR_RATE)
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
TOPIC_THROTTLES: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)


@dataclass(frozen=True, slots=True, order=True)
class Replica:
    """A replica of a partition on a broker."""

    partition: TopicPartition
    broker_id: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker_id}"


@dataclass(frozen=True, slots=True)
class ReassignmentFile:
    """What a reassignment file asks for."""

    assignment: Assignment
    log_dirs: dict[Replica, str] = field(default_factory=dict)
    """Where a replica shall be; a replica that may be anywhere is not here."""

    @property
    def topics(self) -> list[str]:
        """The topics, sorted."""
        return sorted({partition.topic for partition in self.assignment})


def parse_reassignment(document: Mapping[str, Json], source: str) -> ReassignmentFile:
    """Read ``{"version": 1, "partitions": [{"topic", "partition", "replicas", "log_dirs"}]}``.

    Raises:
        ToolUsageError: the document has another form, is empty, or names something twice.
    """
    _check_version(document, source)
    assignment: Assignment = {}
    log_dirs: dict[Replica, str] = {}
    for entry in _objects(document, "partitions", source):
        partition = TopicPartition(_text(entry, "topic", source), _number(entry, "partition", source))
        replicas = _numbers(entry, "replicas", source)
        if partition in assignment:
            raise ToolUsageError(f"{source} names partition {partition} twice; keep one of the entries")
        if not replicas or len(set(replicas)) < len(replicas):
            raise ToolUsageError(
                f"{source}: the replicas of partition {partition} are {list(replicas)}; "
                "they must be broker ids, at least one and none twice"
            )
        assignment[partition] = replicas
        for broker_id, log_dir in zip(replicas, _log_dirs(entry, partition, replicas, source), strict=True):
            if log_dir != ANY_LOG_DIR:
                log_dirs[Replica(partition, broker_id)] = log_dir
    if not assignment:
        raise ToolUsageError(f'{source} has no "partitions"; there is nothing to reassign')
    return ReassignmentFile(assignment, log_dirs)


def parse_topics_to_move(document: Mapping[str, Json], source: str) -> list[str]:
    """Read ``{"version": 1, "topics": [{"topic": "foo"}]}``.

    Raises:
        ToolUsageError: the document has another form, or names a topic twice.
    """
    _check_version(document, source)
    topics = [_text(entry, "topic", source) for entry in _objects(document, "topics", source)]
    twice = sorted({topic for topic in topics if topics.count(topic) > 1})
    if twice:
        raise ToolUsageError(f"{source} names topics twice: {', '.join(twice)}")
    if not topics:
        raise ToolUsageError(f'{source} has no "topics"; there is nothing to move')
    return topics


def reassignment_json(
    assignment: Mapping[TopicPartition, Sequence[int]], log_dirs: Mapping[Replica, str] | None = None
) -> dict[str, Json]:
    """Return the document for an assignment, partitions sorted."""
    places = log_dirs or {}
    return {
        "version": _VERSION,
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(assignment[partition]),
                "log_dirs": [
                    places.get(Replica(partition, broker_id), ANY_LOG_DIR)
                    for broker_id in assignment[partition]
                ],
            }
            for partition in sorted(assignment)
        ],
    }


def usable_racks(racks: Mapping[int, str | None], is_rack_aware: bool) -> dict[int, str | None]:
    """Return the racks that an assignment heeds: those of the brokers, or none for each of them.

    Raises:
        ToolError: only some brokers have a rack.
    """
    without = [broker_id for broker_id, rack in racks.items() if rack is None]
    if is_rack_aware and 0 < len(without) < len(racks):
        raise ToolError(
            f"brokers {', '.join(map(str, sorted(without)))} have no rack and others have one; set "
            "broker.rack on all brokers, or use --disable-rack-aware"
        )
    return dict(racks) if is_rack_aware else dict.fromkeys(racks)


def propose(
    current: Mapping[TopicPartition, Sequence[int]], racks: Mapping[int, str | None], *, chance: random.Random
) -> Assignment:
    """Return an assignment of the partitions to brokers, by the rule for new topics, as Kafka's tool does.

    Args:
        current: the partitions with their replicas; a topic keeps the replication factor of its first one.
        racks: the brokers to use, with their racks: all have one, or none has (see `usable_racks`).
        chance: chooses where to start.

    Raises:
        ToolError: there are fewer brokers than replicas.
    """
    proposed: Assignment = {}
    for topic, partitions in _by_topic(current).items():
        try:
            replicas = assign_replicas(racks, len(partitions), len(current[partitions[0]]), chance=chance)
        except ApiError as error:
            raise ToolError(f"topic {topic}: {error.message}") from error
        proposed |= {TopicPartition(topic, number): brokers for number, brokers in replicas.items()}
    return proposed


@dataclass(frozen=True, slots=True)
class Move:
    """Where the data of a partition comes from and where it goes."""

    sources: frozenset[int]
    destinations: frozenset[int]


@dataclass(frozen=True, slots=True)
class OngoingReassignment:
    """A reassignment that the controller works on."""

    replicas: tuple[int, ...]
    """All replicas, the adding ones among them."""

    adding: tuple[int, ...]
    removing: tuple[int, ...]


def moves(
    ongoing: Mapping[TopicPartition, OngoingReassignment],
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
) -> dict[TopicPartition, Move]:
    """Return every move that is under way once the proposed ones have begun.

    A partition that is already being reassigned keeps its sources: its new replicas have no data yet.
    """
    found = {
        partition: Move(frozenset(each.replicas) - frozenset(each.adding), frozenset(each.adding))
        for partition, each in ongoing.items()
    }
    for partition, replicas in proposed.items():
        before = found.get(partition)
        sources = before.sources if before is not None else frozenset(current[partition])
        found[partition] = Move(sources, frozenset(replicas) - sources)
    return found


@dataclass(frozen=True, slots=True)
class Throttles:
    """The settings that bound the traffic of moves (KIP-73)."""

    topics: dict[str, dict[str, str]]
    """For each topic, which replicas are throttled as leaders and as followers: ``partition:broker,...``."""

    brokers: dict[int, dict[str, str]]
    """For each broker that takes part, its rates in bytes a second."""


def throttles(
    moving: Mapping[TopicPartition, Move],
    log_dirs: Iterable[Replica],
    *,
    rate: int | None,
    log_dir_rate: int | None,
) -> Throttles:
    """Return the settings for moves; None for a rate leaves its settings alone.

    >>> move = {TopicPartition("foo", 0): Move(frozenset({0, 1}), frozenset({2}))}
    >>> throttles(move, [], rate=1000, log_dir_rate=None).topics["foo"][LEADER_REPLICAS]
    '0:0,0:1'
    """
    topics: dict[str, dict[str, str]] = {}
    brokers: dict[int, dict[str, str]] = {}
    if rate is not None:
        for topic, partitions in _by_topic(moving).items():
            topics[topic] = {
                name: text
                for name, text in (
                    (LEADER_REPLICAS, _replicas(partitions, {p: moving[p].sources for p in partitions})),
                    (
                        FOLLOWER_REPLICAS,
                        _replicas(partitions, {p: moving[p].destinations for p in partitions}),
                    ),
                )
                if text
            }
        for broker_id in sorted(
            {each for move in moving.values() for each in move.sources | move.destinations}
        ):
            brokers[broker_id] = {LEADER_RATE: str(rate), FOLLOWER_RATE: str(rate)}
    if log_dir_rate is not None:
        for broker_id in sorted({replica.broker_id for replica in log_dirs}):
            brokers.setdefault(broker_id, {})[LOG_DIR_RATE] = str(log_dir_rate)
    return Throttles(topics, brokers)


def _replicas(partitions: Iterable[TopicPartition], brokers: Mapping[TopicPartition, Iterable[int]]) -> str:
    # As text, as Java's TreeSet of strings has them: 10:0 comes before 2:0.
    return ",".join(sorted(f"{p.partition}:{broker}" for p in partitions for broker in brokers[p]))


def check_current(
    proposed: Mapping[TopicPartition, Sequence[int]],
    current: Mapping[TopicPartition, Sequence[int]],
    brokers: Iterable[int],
) -> None:
    """Check that a plan names partitions and brokers of the cluster.

    Raises:
        ToolError: one does not exist.
    """
    missing = proposed.keys() - current.keys()
    if missing:
        raise ToolError(f"the cluster has no partition {partitions_text(missing)}; correct the file")
    unknown = {broker_id for replicas in proposed.values() for broker_id in replicas} - set(brokers)
    if unknown:
        names = ", ".join(map(str, sorted(unknown)))
        raise ToolError(f"the cluster has no broker {names}; its brokers are {', '.join(map(str, brokers))}")


def check_replication_factors(wanted: Assignment, current: Assignment) -> None:
    """Check that each partition keeps its number of replicas (KIP-860).

    Raises:
        ToolError: one does not.
    """
    for each, replicas in sorted(wanted.items()):
        if len(replicas) != len(current[each]):
            raise ToolError(
                f"{each} has {len(current[each])} replicas and would have {len(replicas)}, which "
                "--disallow-replication-factor-change refuses; nothing was moved"
            )


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    grouped: dict[str, list[TopicPartition]] = {}
    for partition in sorted(partitions):
        grouped.setdefault(partition.topic, []).append(partition)
    return grouped


def _check_version(document: Mapping[str, Json], source: str) -> None:
    version = document.get("version", _VERSION)
    if version != _VERSION:
        raise ToolUsageError(f'{source} has "version": {version}; this tool reads version {_VERSION}')


def _objects(document: Mapping[str, Json], name: str, source: str) -> list[Mapping[str, Json]]:
    entries = document.get(name, [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ToolUsageError(f'{source}: "{name}" must be a list of objects')
    return entries


def _text(entry: Mapping[str, Json], name: str, source: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        raise ToolUsageError(f'{source}: "{name}" must be a text in {dict(entry)}')
    return value


def _number(entry: Mapping[str, Json], name: str, source: str) -> int:
    value = entry.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ToolUsageError(f'{source}: "{name}" must be a number, at least 0, in {dict(entry)}')
    return value


def _numbers(entry: Mapping[str, Json], name: str, source: str) -> tuple[int, ...]:
    values = entry.get(name)
    if not isinstance(values, list) or not all(type(value) is int and value >= 0 for value in values):
        raise ToolUsageError(f'{source}: "{name}" must be a list of broker ids in {dict(entry)}')
    return tuple(values)


def _log_dirs(
    entry: Mapping[str, Json], partition: TopicPartition, replicas: Sequence[int], source: str
) -> list[str]:
    values = entry.get("log_dirs")
    if values is None:
        return [ANY_LOG_DIR] * len(replicas)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise ToolUsageError(f'{source}: "log_dirs" of partition {partition} must be a list of texts')
    if len(values) != len(replicas):
        raise ToolUsageError(
            f"{source}: partition {partition} has {len(replicas)} replicas and {len(values)} log_dirs; "
            'give one for each replica, or "any"'
        )
    return values

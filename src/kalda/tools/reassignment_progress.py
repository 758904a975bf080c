"""Compares a reassignment file with the cluster to show how far its moves are; changes nothing.

A move that is neither under way nor where the file wants it was cancelled, or never begun.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from kalda.common.types import TopicPartition
from kalda.tools.reassignment_plan import Assignment, ReassignmentFile, Replica

if TYPE_CHECKING:
    pass

if TYPE_CHECKING:
    from kalda.clients.admin.async_admin import AsyncAdmin


class MoveStatus(StrEnum):
    """How far one move is."""

    COMPLETED = "completed"
    IN_PROGRESS = "in-progress"
    NOT_ACTIVE = "not-active"
    """Not under way, and not where the file wants it."""
    MISSING = "missing"
    """The partition or replica does not exist, or its directory is offline."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """The move of one partition."""

    partition: TopicPartition
    status: MoveStatus
    current: tuple[int, ...]
    target: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DirectoryProgress:
    """The move of one replica to a directory."""

    replica: Replica
    status: MoveStatus
    current_dir: str
    """Empty if it is not known."""
    target_dir: str

    @property
    def is_ongoing(self) -> bool:
        """Whether the replica is being copied to a directory."""
        return self.status is MoveStatus.IN_PROGRESS


@dataclass(frozen=True, slots=True)
class Progress:
    """The moves of a file."""

    partitions: tuple[PartitionProgress, ...]
    directories: tuple[DirectoryProgress, ...]
    others_ongoing: bool
    """Whether the cluster also moves partitions that the file does not name."""

    @property
    def is_own_ongoing(self) -> bool:
        """Whether a move of the file is under way."""
        return MoveStatus.IN_PROGRESS in self._statuses()

    @property
    def is_ongoing(self) -> bool:
        """Whether any partition of the cluster, or a directory of the file, moves."""
        return self.others_ongoing or self.is_own_ongoing

    @property
    def done_count(self) -> int:
        """How many moves are completed."""
        return self._statuses().count(MoveStatus.COMPLETED)

    def failed_texts(self) -> list[str]:
        """Return one text for each move that has ended elsewhere."""
        ended = (MoveStatus.NOT_ACTIVE, MoveStatus.MISSING)
        return [
            *(
                f"partition {each.partition} is not being moved and has replicas {list(each.current)} "
                f"instead of {list(each.target)}"
                for each in self.partitions
                if each.status in ended
            ),
            *(
                f"replica {each.replica} is not being moved to {each.target_dir}"
                for each in self.directories
                if each.status in ended
            ),
        ]

    def _statuses(self) -> list[MoveStatus]:
        return [*(each.status for each in self.partitions), *(each.status for each in self.directories)]


def partition_progress(
    file: ReassignmentFile, ongoing: Mapping[TopicPartition, object], current: Assignment
) -> tuple[PartitionProgress, ...]:
    """Compare the file with what the cluster does and has."""

    def status(partition: TopicPartition, target: tuple[int, ...]) -> MoveStatus:
        if partition in ongoing:
            return MoveStatus.IN_PROGRESS
        if partition not in current:
            return MoveStatus.MISSING
        return MoveStatus.COMPLETED if current[partition] == target else MoveStatus.NOT_ACTIVE

    return tuple(
        PartitionProgress(partition, status(partition, target), current.get(partition, ()), target)
        for partition, target in sorted(file.assignment.items())
    )


@dataclass(frozen=True, slots=True)
class ReplicaPlace:
    """Where a replica is, and where a copy of it is being made."""

    current_dir: str | None
    future_dir: str | None


def directory_progress(
    file: ReassignmentFile, places: Mapping[Replica, ReplicaPlace]
) -> tuple[DirectoryProgress, ...]:
    """Compare the directories in the file with those of the replicas."""

    def status(replica: Replica, target: str) -> MoveStatus:
        place = places.get(replica)
        if place is None or place.current_dir is None:
            return MoveStatus.MISSING
        if place.future_dir is not None:
            return MoveStatus.IN_PROGRESS
        return MoveStatus.COMPLETED if place.current_dir == target else MoveStatus.NOT_ACTIVE

    return tuple(
        DirectoryProgress(replica, status(replica, target), _current_dir(places.get(replica)), target)
        for replica, target in sorted(file.log_dirs.items())
    )


def _current_dir(place: ReplicaPlace | None) -> str:
    return "" if place is None else place.current_dir or ""


async def read_progress(admin: "AsyncAdmin", file: ReassignmentFile) -> Progress:
    """Read how far the moves are.

    Raises:
        ClientError: the cluster cannot be read.
    """
    from kalda.clients.admin.log_dirs import TopicPartitionReplica
    from kalda.common.errors import ErrorCode

    ongoing = await admin.list_partition_reassignments()
    described = await admin.describe_topics(file.topics, outcomes=True)
    for error in described.errors.values():
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
    current = {
        TopicPartition(topic.name, partition.partition): partition.replicas
        for topic in described.results.values()
        for partition in topic.partitions
    }
    keys = {TopicPartitionReplica(*each.partition, each.broker_id): each for each in file.log_dirs}
    found = await admin.describe_replica_log_dirs(keys)
    places = {
        keys[key]: ReplicaPlace(info.current_replica_log_dir, info.future_replica_log_dir)
        for key, info in found.results.items()
    }
    return Progress(
        partition_progress(file, ongoing, current),
        directory_progress(file, places),
        others_ongoing=bool(ongoing.keys() - file.assignment.keys()),
    )

"""Holds the values that admin calls on log directories take and return; names are those of Java's client."""

from collections.abc import Mapping
from dataclasses import dataclass

from kalda.clients.errors import ClientError
from kalda.clients.reprs import fields_html
from kalda.common.public import public
from kalda.common.types import TopicPartition


@public
@dataclass(frozen=True, slots=True, order=True)
class TopicPartitionReplica:
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id}"


@public
@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    """A replica in a directory."""

    size: int
    """Bytes of its segments."""
    offset_lag: int
    """How many records the replica is behind the high watermark; a future one, behind the present one."""
    is_future: bool
    """Whether the replica is being copied to this directory and will replace the present one."""


@public
@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A directory of a broker."""

    replica_infos: Mapping[TopicPartition, ReplicaInfo]
    error: ClientError | None = None
    """Why the directory is offline; None if it is not."""
    total_bytes: int | None = None
    """The size of the volume; None from brokers before 3.3 (KIP-827)."""
    usable_bytes: int | None = None
    """What is left of the volume; None from brokers before 3.3."""
    is_cordoned: bool = False
    """Whether the directory gets no new replicas (brokers 4.3 and newer, KIP-1066)."""

    _repr_html_ = fields_html


@public
@dataclass(frozen=True, slots=True)
class ReplicaLogDirInfo:
    """Where a replica is, and where it moves to."""

    current_replica_log_dir: str | None = None
    """None if the broker has no such replica."""
    current_replica_offset_lag: int | None = None
    future_replica_log_dir: str | None = None
    """None unless the replica moves to another directory."""
    future_replica_offset_lag: int | None = None

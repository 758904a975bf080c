"""Holds the values that admin calls on topics take and return; names are those of Java's client.

Brokers appear by their ids; `AsyncAdmin.describe_cluster` has their addresses.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from kalda.clients.admin.acl_operation import AclOperation
from kalda.clients.admin.configs import ConfigEntry, ConfigText
from kalda.clients.errors import ClientConfigError
from kalda.clients.reprs import fields_html
from kalda.common.public import public
from kalda.common.types import NO_PARTITION_LEADER, UUID

TopicKey: TypeAlias = str | UUID
"""A topic by name or by id."""


@public
@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create: with counts, or with brokers chosen for each partition.

    Raises:
        ClientConfigError: `replica_assignments` is given besides a count, or does not number its partitions
            from 0.
    """

    name: str
    partitions: int | None = None
    """How many partitions; None takes the broker's `num.partitions` (brokers 2.4 and newer, KIP-464)."""
    replication_factor: int | None = None
    """How many replicas each has; None takes the broker's `default.replication.factor`."""
    replica_assignments: Mapping[int, Sequence[int]] | None = None
    """Broker ids for each partition, the preferred leader first."""
    config: Mapping[str, ConfigText] = field(default_factory=dict)
    """Topic settings by Kafka's names, e.g. ``{"retention.ms": 3_600_000}``."""

    def __post_init__(self) -> None:
        assignments = self.replica_assignments
        if assignments is None:
            return
        if self.partitions is not None or self.replication_factor is not None:
            raise ClientConfigError(
                f"NewTopic {self.name!r} has `replica_assignments` and also `partitions` or "
                "`replication_factor`; give the assignments alone, they imply both counts"
            )
        if sorted(assignments) != list(range(len(assignments))) or not assignments:
            raise ClientConfigError(
                f"NewTopic {self.name!r} assigns the partitions {sorted(assignments)}; "
                "`replica_assignments` must number them 0, 1, 2, … without a gap"
            )


@public
@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new total number of a topic's partitions."""

    total_count: int
    new_assignments: Sequence[Sequence[int]] | None = None
    """Broker ids for each added partition, the preferred leader first; None leaves it to the broker."""


@public
@dataclass(frozen=True, slots=True)
class TopicMetadataAndConfig:
    """A created topic. Brokers before 2.4 return no counts and no settings, those before 2.8 no id."""

    topic_id: UUID | None
    partitions: int | None
    replication_factor: int | None
    config: Mapping[str, ConfigEntry] | None
    """None if the broker did not return it, for example because the client may not describe settings."""


@public
@dataclass(frozen=True, slots=True)
class TopicListing:
    """A topic that exists."""

    name: str
    topic_id: UUID | None
    """None from brokers before 2.8, which have no ids (KIP-516)."""
    is_internal: bool


@public
@dataclass(frozen=True, slots=True)
class TopicPartitionInfo:
    """One partition: leader and replicas, as broker ids."""

    partition: int
    leader_id: int
    """-1 while there is no leader."""
    leader_epoch: int
    """-1 from brokers before 2.2."""
    replicas: tuple[int, ...]
    """The preferred leader first."""
    isr: tuple[int, ...]
    """The replicas that are in sync."""
    offline_replicas: tuple[int, ...] = ()
    eligible_leader_replicas: tuple[int, ...] | None = None
    """Replicas outside the ISR that may lead without loss (KIP-966); None without such a list."""
    last_known_eligible_leader_replicas: tuple[int, ...] | None = None

    @property
    def has_leader(self) -> bool:
        """Whether some broker leads the partition."""
        return self.leader_id != NO_PARTITION_LEADER


@public
@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions in order of number."""

    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[TopicPartitionInfo, ...]
    authorized_operations: frozenset[AclOperation] | None = None
    """What this client may do with the topic; None if that was not asked for."""

    _repr_html_ = fields_html

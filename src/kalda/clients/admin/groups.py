"""Holds the values that admin calls on groups take and return; names are those of Java's client."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from kalda.clients.admin.acl_operation import AclOperation
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.reprs import fields_html
from kalda.clients.values import OffsetAndMetadata
from kalda.common.public import public
from kalda.common.types import TopicPartition

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

FetchedOffsets: TypeAlias = Outcomes[TopicPartition, OffsetAndMetadata | None]
"""The committed offsets of a group by partition; None for a partition without one."""

PartitionOutcomes: TypeAlias = Outcomes[TopicPartition, None]
"""What became of each partition of a group."""


@public
class GroupType(StrEnum):
    """The protocol that a group uses; the values are the protocol's words."""

    UNKNOWN = "Unknown"
    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"

    @classmethod
    def of(cls, word: str) -> "GroupType":
        """Return the type with this name in any case; UNKNOWN for one that Kalda does not know."""
        return _TYPES.get(word.lower(), cls.UNKNOWN)


@public
class GroupState(StrEnum):
    """The state of a group; the values are the protocol's words."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"

    @classmethod
    def of(cls, word: str) -> "GroupState":
        """Return the state with this name in any case; UNKNOWN for one that Kalda does not know."""
        return _STATES.get(word.lower(), cls.UNKNOWN)


_TYPES: Final = {each.value.lower(): each for each in GroupType}
_STATES: Final = {each.value.lower(): each for each in GroupState}


@public
@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group that exists."""

    group_id: str
    protocol_type: str
    """``consumer`` for consumers, ``connect`` for Kafka Connect, empty if the group only stores offsets."""
    state: GroupState | None
    """None from brokers before 2.6 (KIP-518)."""
    type: GroupType | None
    """None from brokers before 3.8 (KIP-848)."""

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether the group only stores offsets and has no protocol for members."""
        return not self.protocol_type and self.type in (None, GroupType.CLASSIC)


@public
@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a group."""

    member_id: str
    group_instance_id: str | None
    """The id of a static member (KIP-345)."""
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    """The partitions that it has; empty while the group rebalances, and if its protocol is no consumer's."""
    target_assignment: frozenset[TopicPartition] | None = None
    """The partitions that it is to have; None in a classic group."""
    member_epoch: int | None = None
    """None in a classic group."""
    is_classic: bool | None = None
    """Whether a member of a consumer group still uses the classic protocol; None if not known (KIP-1099)."""
    rack_id: str | None = None
    subscribed_topics: tuple[str, ...] = ()
    subscribed_topic_regex: str | None = None


@public
@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group of consumers, of the classic or of the consumer protocol (KIP-848)."""

    group_id: str
    is_simple_consumer_group: bool
    """Whether the group only stores offsets and has no protocol for members."""
    members: tuple[MemberDescription, ...]
    partition_assignor: str
    """The assignor in use; empty while there is none."""
    type: GroupType
    state: GroupState
    coordinator_id: int
    """The broker that coordinates the group."""
    authorized_operations: frozenset[AclOperation] | None = None
    """What this client may do with the group; None if that was not asked for."""
    group_epoch: int | None = None
    """None in a classic group."""
    target_assignment_epoch: int | None = None
    """None in a classic group."""

    _repr_html_ = fields_html


@public
@dataclass(frozen=True, slots=True)
class ClassicGroupDescription:
    """A group of the classic protocol with any protocol type, e.g. one of Kafka Connect."""

    group_id: str
    protocol_type: str
    protocol_data: str
    """The protocol in use, for consumers the assignor; empty while there is none."""
    members: tuple[MemberDescription, ...]
    state: GroupState
    coordinator_id: int
    """The broker that coordinates the group."""
    authorized_operations: frozenset[AclOperation] | None = None
    """What this client may do with the group; None if that was not asked for."""

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether the group only stores offsets and has no protocol for members."""
        return not self.protocol_type

    _repr_html_ = fields_html


@public
@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member to remove from a group: a static one by its instance id, another one by its member id."""

    member_id: str = ""
    group_instance_id: str | None = None

    def __str__(self) -> str:
        if self.group_instance_id is not None:
            return f"static member {self.group_instance_id}"
        return f"member {self.member_id}"

"""Members of a consumer group and what they have: values that never change but are replaced.

An assignment maps a topic's id to its partitions; a topic without partitions is not in it, so that equal
assignments compare equal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Final, NewType, Protocol, TypeAlias
from uuid import UUID

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
TopicMetadata = NewType("TopicMetadata", tuple[UUID, int])
"""Id and number of partitions of a topic, as the group last saw it."""

EMPTY_ASSIGNMENT: Final[Assignment] = {}

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""The epoch of a static member that has left and will be back."""


class PartitionsOfTopic(Protocol):
    """Some partitions of one topic, as messages and records have them."""

    topic_id: UUID
    partitions: list[int]


class MemberState(IntEnum):
    """How far a member is on its way to its target; the numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def read(cls, value: int) -> "MemberState":
        """The state of that number; UNKNOWN if only a newer broker knows it."""
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN


class ConsumerGroupState(StrEnum):
    """The state of a group as clients are told."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ClassicProtocolOffer:
    """A way of assigning that a classic member offers, and what it says of itself in it."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """What is known besides of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocolOffer, ...]


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """The topics that an expression matched.

    `version` counts changes of the topics there are; `timestamp_ms` is when it was resolved.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Member:
    """One member.

    The first half comes from the member's metadata, the second from its current assignment. `assigned` is
    what it may use, `pending_revocation` what it still holds and must give back; nobody else may have either.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: frozenset[str] = frozenset()
    subscribed_regex: str | None = None
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicSide | None = None

    epoch: int = 0
    previous_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: Assignment = field(default_factory=dict)
    pending_revocation: Assignment = field(default_factory=dict)

    @property
    def speaks_classic(self) -> bool:
        """Whether it is a classic member that the consumer group serves."""
        return self.classic is not None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Whether it has all that the target assignment of that epoch gives it, and nothing else."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def without_assignment(self) -> "Member":
        """The member as if it had just come: in no epoch, with nothing."""
        return replace(
            self, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned={}, pending_revocation={}
        )


def assignment_of(topics: Iterable[PartitionsOfTopic]) -> Assignment:
    """Read an assignment from a message or a record, where a topic may come more than once."""
    found: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            present = found.get(topic.topic_id)
            partitions = frozenset(topic.partitions)
            found[topic.topic_id] = partitions if present is None else present | partitions
    return found


def is_within(owned: Assignment, target: Assignment) -> bool:
    """Whether every partition of `owned` is in `target`."""
    return all(partitions <= target.get(topic_id, frozenset()) for topic_id, partitions in owned.items())


def overlaps(owned: Assignment, other: Assignment) -> bool:
    """Whether the two share a partition."""
    return any(not partitions.isdisjoint(other.get(topic_id, ())) for topic_id, partitions in owned.items())

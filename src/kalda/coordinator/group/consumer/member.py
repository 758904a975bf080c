"""Defines the members of a consumer group and their assignments as immutable values.

An assignment maps a topic id to a set of partitions. A topic without partitions is not in it, so that equal
assignments compare equal.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from typing import Final, NewType, Protocol, TypeAlias

from kalda.common.types import UUID
from kalda.coordinator.group.member_memory import ENTRY_BYTES, MEMBER_BYTES

Assignment: TypeAlias = Mapping[UUID, frozenset[int]]
TopicMetadata = NewType("TopicMetadata", tuple[UUID, int])
"""Id and partition count of a topic, as of the last group epoch."""

EMPTY_ASSIGNMENT: Final[Assignment] = {}

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1
LEAVE_STATIC_EPOCH: Final = -2
"""The epoch of a static member that has left temporarily."""


class PartitionsOfTopic(Protocol):
    """Partitions of one topic, as in messages and records."""

    topic_id: UUID
    partitions: list[int]


class MemberState(IntEnum):
    """The progress of a member towards its target; the numbers are those of the records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127

    @classmethod
    def read(cls, value: int) -> "MemberState":
        """Return the state with that number, UNKNOWN for a number of a newer broker."""
        try:
            return cls(value)
        except ValueError:
            return cls.UNKNOWN


class ConsumerGroupState(StrEnum):
    """The state of a group; the values are the names in responses."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


@dataclass(frozen=True, slots=True)
class ClassicProtocolOffer:
    """A protocol that a classic member supports, with its metadata."""

    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicSide:
    """The additional state of a member that uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[ClassicProtocolOffer, ...]


@dataclass(frozen=True, slots=True)
class RegularExpression:
    """The topics that an expression matched.

    `version` is the generation of the cluster's topics; `timestamp_ms` is the time of the match.
    """

    topics: frozenset[str]
    version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class Member:
    """One member.

    The first half comes from the member's metadata record, the second from its current assignment record. The
    member may use `assigned` and must revoke `pending_revocation`; no other member may own either.
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
        """Whether the member uses the classic protocol."""
        return self.classic is not None

    @property
    def held_bytes(self) -> int:
        """The memory that the member takes, apart from its assignment and the names of its topics."""
        texts = (self.member_id, self.instance_id, self.rack_id, self.client_id, self.subscribed_regex)
        offers = self.classic.protocols if self.classic is not None else ()
        return (
            MEMBER_BYTES
            + sum(len(text) for text in texts if text)
            + sum(ENTRY_BYTES + len(offer.name) + len(offer.metadata) for offer in offers)
        )

    def is_reconciled_to(self, target_epoch: int) -> bool:
        """Return whether the member owns exactly its target of that epoch."""
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def without_assignment(self) -> "Member":
        """Return the member without an epoch and an assignment, as if it had just joined."""
        return replace(
            self, epoch=0, previous_epoch=0, state=MemberState.STABLE, assigned={}, pending_revocation={}
        )


def assignment_of(topics: Iterable[PartitionsOfTopic]) -> Assignment:
    """Return the assignment in a message or a record, where a topic may be repeated."""
    found: dict[UUID, frozenset[int]] = {}
    for topic in topics:
        if topic.partitions:
            present = found.get(topic.topic_id)
            partitions = frozenset(topic.partitions)
            found[topic.topic_id] = partitions if present is None else present | partitions
    return found


def held_by_names(names: frozenset[str]) -> int:
    """Return the memory that the names of topics take."""
    return ENTRY_BYTES * len(names) + sum(map(len, names))


def is_within(owned: Assignment, target: Assignment) -> bool:
    """Return whether `target` contains all partitions of `owned`."""
    return all(partitions <= target.get(topic_id, frozenset()) for topic_id, partitions in owned.items())


def overlaps(owned: Assignment, other: Assignment) -> bool:
    """Return whether the two have a partition in common."""
    return any(not partitions.isdisjoint(other.get(topic_id, ())) for topic_id, partitions in owned.items())

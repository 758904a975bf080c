"""The interface of an assignor, and its input.

An assignor does its work in steps, because the event loop has other work, too: five thousand members take
seconds. Every assignor keeps these laws: each partition of a subscribed topic goes to exactly one subscriber
of the topic; the same input gives the same output, whatever the order of the members.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, Protocol

from kalda.common.steps import Steps
from kalda.common.types import UUID
from kalda.coordinator.group.consumer.member import Assignment


@dataclass(frozen=True, slots=True)
class MemberSpec:
    """One member: the existing topics it subscribes to, and its current target assignment."""

    topics: frozenset[UUID]
    assigned: Assignment = field(default_factory=dict)
    instance_id: str | None = None
    rack_id: str | None = None


@dataclass(frozen=True)
class GroupSpec:
    """The group: its members by id, and the number of partitions of each subscribed topic."""

    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[UUID, int]

    @cached_property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        members = iter(self.members.values())
        first = next(members, None)
        return first is None or all(
            member.topics is first.topics or member.topics == first.topics for member in members
        )

    @cached_property
    def ordered_ids(self) -> list[str]:
        """The members in the order that decides ties: by instance id, then the others by member id."""
        members = self.members
        return sorted(members, key=lambda member_id: _order(member_id, members[member_id].instance_id))


MEMBERS_PER_STEP: Final = 32
"""Members that a step handles, where each takes some 10 microseconds."""


def _order(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    return (False, instance_id) if instance_id is not None else (True, member_id)


class Assignor(Protocol):
    """Assigns the partitions of a group."""

    @property
    def name(self) -> str:
        """The name by which members request it."""
        ...

    def assign(self, group: GroupSpec) -> Steps[dict[str, Assignment]]:
        """Make the new assignment, with an entry for every member."""
        ...

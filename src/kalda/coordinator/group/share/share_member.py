"""Defines the members of a share group, and its partitions with stored state, as immutable values."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kalda.common.types import UUID
from kalda.coordinator.group.consumer.member import Assignment, held_by_names
from kalda.coordinator.group.member_memory import MEMBER_BYTES

StatePartitions = Mapping[UUID, tuple[str, frozenset[int]]]
"""By topic id: the name and some partitions of the topic."""


@dataclass(frozen=True, slots=True)
class ShareMember:
    """One member: its metadata, and its current assignment with the epoch of that."""

    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_names: frozenset[str] = frozenset()

    epoch: int = 0
    previous_epoch: int = 0
    assigned: Assignment = field(default_factory=dict)

    @property
    def held_bytes(self) -> int:
        """The memory that the member takes, apart from its assignment."""
        texts = (self.member_id, self.rack_id, self.client_id)
        return MEMBER_BYTES + sum(len(each) for each in texts if each) + held_by_names(self.subscribed_names)


@dataclass(frozen=True, slots=True)
class StoredPartitions:
    """The partitions that have state at share coordinators, for one group."""

    initializing: StatePartitions = field(default_factory=dict)
    """Their state was asked for, and it is not known yet whether it is there."""
    initialized: StatePartitions = field(default_factory=dict)
    deleting: Mapping[UUID, str] = field(default_factory=dict)
    """Topics by id whose state is to be deleted."""

"""What every kind of group is to the rest of the coordinator.

Offsets are committed, fetched, deleted and expired in the same way whatever protocol a group speaks; what
differs is who may do it and when. That is all this module says; it does nothing.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from kalda.coordinator.coordinator_record import CoordinatorRecord


class GroupType(StrEnum):
    """The type of a group, as ListGroups writes it from version 5."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Group(Protocol):
    """One group, of whatever kind."""

    @property
    def group_id(self) -> str:
        """Its id."""
        ...

    @property
    def kind(self) -> GroupType:
        """Which protocol it speaks."""
        ...

    @property
    def state_name(self) -> str:
        """Its state as clients are told, e.g. ``Stable``."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """``consumer`` for consumers, others for the likes of Kafka Connect; None for a simple group."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether it has no members, and will have none without a new request."""
        ...

    @property
    def member_count(self) -> int:
        """How many members it has."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Whether a member subscribes to the topic, or might."""
        ...

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, api_version: int
    ) -> None:
        """Check that a commit of this member may pass; `epoch` is its generation or member epoch.

        Raises:
            ApiError: it may not.
        """
        ...

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that this member may read the group's offsets; without a member (None, -1) anybody may.

        Raises:
            ApiError: it may not.
        """
        ...

    def validate_offset_delete(self) -> None:
        """Check that offsets may be deleted at all; `is_subscribed` then decides topic by topic.

        Raises:
            ApiError: they may not.
        """
        ...

    def validate_delete(self) -> None:
        """Check that the group may be deleted.

        Raises:
            ApiError: it may not.
        """
        ...

    def offsets_expire_since(self, commit_timestamp_ms: int) -> int | None:
        """From when on the retention of an offset counts that was committed then (KIP-211).

        None while nothing of the group expires. Topics that the group subscribes to are not asked about.
        """
        ...

    def check_invariants(self) -> None:
        """Assert that the group is consistent in itself."""
        ...

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """What deletes the group itself from the log, its offsets aside."""
        ...

"""Defines the interface of a group of any type, as the rest of the coordinator uses it.

Offsets are committed, fetched, deleted and expired in the same way for all groups. The group decides which
member may do it, and when.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

from kalda.coordinator.coordinator_record import CoordinatorRecord


class GroupType(StrEnum):
    """The type of a group, as ListGroups returns it from version 5 on."""

    CLASSIC = "classic"
    CONSUMER = "consumer"
    SHARE = "share"


class Group(Protocol):
    """One group, of any type."""

    @property
    def group_id(self) -> str:
        """The group id."""
        ...

    @property
    def kind(self) -> GroupType:
        """The type of the group."""
        ...

    @property
    def state_name(self) -> str:
        """The name of the group's state in responses, e.g. ``Stable``."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """``consumer`` for consumers, another name e.g. for Kafka Connect; None for a simple group."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members, and gets none without a new request."""
        ...

    @property
    def member_count(self) -> int:
        """The number of members."""
        ...

    @property
    def held_bytes(self) -> int:
        """The memory that the members take, for `MemberMemory`; their assignments are not in it."""
        ...

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic, or may do so without the coordinator seeing it."""
        ...

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, api_version: int
    ) -> None:
        """Check that this member may commit offsets; `epoch` is its generation or member epoch.

        Raises:
            ApiError: the member may not commit.
        """
        ...

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Check that this member may fetch offsets; requests without a member (None, -1) always may.

        Raises:
            ApiError: the member may not fetch.
        """
        ...

    def validate_offset_delete(self) -> None:
        """Check that offsets may be deleted at all; `is_subscribed` then decides for each topic.

        Raises:
            ApiError: no offset may be deleted.
        """
        ...

    def validate_delete(self) -> None:
        """Check that the group may be deleted.

        Raises:
            ApiError: the group may not be deleted.
        """
        ...

    def offsets_expire_since(self, commit_timestamp_ms: int) -> int | None:
        """Return the time from which the retention of an offset counts, given its commit time (KIP-211).

        None while no offset of the group expires. Callers skip topics that the group subscribes to.
        """
        ...

    def check_invariants(self) -> None:
        """Assert that the group is consistent in itself."""
        ...

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """Return the records that delete the group, without its offsets."""
        ...

"""Keeps the state of a share group, computed from its records.

Only replaying records changes a group; `share_protocol` reads it and decides.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from typing import Final

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.types import ZERO_UUID
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.group.consumer.member import Assignment, TopicMetadata
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.coordinator.group.group import GroupType
from kalda.coordinator.group.share.share_group_records import group_removal
from kalda.coordinator.group.share.share_member import ShareMember, StoredPartitions

PROTOCOL_TYPE: Final = "share"


class ShareGroupState(StrEnum):
    """The state of a group; the values are the names in responses."""

    EMPTY = "Empty"
    STABLE = "Stable"


class ShareGroup:
    """One share group."""

    kind: Final = GroupType.SHARE
    protocol_type: Final = PROTOCOL_TYPE

    def __init__(self, group_id: str) -> None:
        self.group_id: Final = group_id
        self.epoch = 0
        """The group epoch, which grows when members, subscriptions or subscribed topics change."""
        self.topics_hash = 0
        """A hash of the subscribed topics with which the group epoch was last bumped."""
        self.assignment_epoch = 0
        """The group epoch of the target assignment; never above `epoch`."""
        self.assigned_ms = 0
        """When the target assignment was made; 0: there was none."""
        self.members: Final[dict[str, ShareMember]] = {}
        self.targets: Final[dict[str, Assignment]] = {}
        self.stored = StoredPartitions()
        self.held_bytes = 0
        """The memory that the members take."""
        self._names: Final[Counter[str]] = Counter()

    # The interface `Group`.

    @property
    def state_name(self) -> str:
        """The name of the state in responses."""
        return ShareGroupState.STABLE if self.members else ShareGroupState.EMPTY

    @property
    def is_empty(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def member_count(self) -> int:
        """The number of members."""
        return len(self.members)

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic."""
        return topic in self._names

    def validate_offset_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, transactional: bool, api_version: int
    ) -> None:
        """Refuse: a share group has no committed offsets.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        raise self._no_offsets()

    def validate_offset_fetch(self, member_id: str | None, epoch: int) -> None:
        """Refuse: a share group has no committed offsets.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        raise self._no_offsets()

    def validate_offset_delete(self) -> None:
        """Refuse: a share group has no committed offsets.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        raise self._no_offsets()

    def _no_offsets(self) -> ApiError:
        return ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Group {self.group_id} is a share group, without committed offsets.",
        )

    def validate_delete(self) -> None:
        """Check that the group may be deleted.

        Raises:
            ApiError: NON_EMPTY_GROUP.
        """
        if self.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)

    def offsets_expire_since(self, commit_timestamp_ms: int) -> int | None:
        """Return None: there are no committed offsets."""
        return None

    def tombstones(self) -> Sequence[CoordinatorRecord]:
        """Return the records that delete the group."""
        return group_removal(self.group_id, self.members)

    def check_invariants(self) -> None:
        """Assert the order of epochs and that the names of topics are counted."""
        name = f"group {self.group_id}"
        assert self.epoch >= self.assignment_epoch, (
            f"{name}: epoch {self.epoch} is below the assignment epoch {self.assignment_epoch}"
        )
        names: Counter[str] = Counter()
        for member in self.members.values():
            names.update(member.subscribed_names)
            assert member.epoch <= self.assignment_epoch, (
                f"{name}: {member.member_id} is in epoch {member.epoch}, above {self.assignment_epoch}"
            )
        assert names == self._names, f"{name}: the names of topics are not counted right"

    # Members and their topics.

    def member(self, member_id: str) -> ShareMember:
        """Return a member.

        Raises:
            ApiError: UNKNOWN_MEMBER_ID.
        """
        found = self.members.get(member_id)
        if found is None:
            raise ApiError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}."
            )
        return found

    def subscribed_topics(
        self, view: TopicsView, *, without: str | None = None, member: ShareMember | None = None
    ) -> dict[str, TopicMetadata]:
        """Return the subscribed topics that exist, by name in order, if one member goes and another comes."""
        names = set(self._names)
        gone = self.members.get(without) if without is not None else None
        if gone is not None:
            names -= {name for name in gone.subscribed_names if self._names[name] <= 1}
        if member is not None:
            names |= member.subscribed_names
        found: dict[str, TopicMetadata] = {}
        for name in sorted(names):
            topic = view.topic(name)
            if topic is not None and topic.topic_id != ZERO_UUID and topic.partition_count > 0:
                found[name] = TopicMetadata((topic.topic_id, topic.partition_count))
        return found

    # Replaying.

    def put_member(self, member: ShareMember) -> None:
        """Add or replace a member."""
        self.remove_member(member.member_id)
        self.members[member.member_id] = member
        self._names.update(member.subscribed_names)
        self.held_bytes += member.held_bytes

    def remove_member(self, member_id: str) -> None:
        """Remove a member, if it exists."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.held_bytes -= member.held_bytes
        for name in member.subscribed_names:
            self._names[name] -= 1
            if not self._names[name]:
                del self._names[name]


def topics_hash(topics: Mapping[str, TopicMetadata]) -> int:
    """Return a number of 64 bits that differs when topics, their ids or their partition counts do; 0 for
    none."""
    if not topics:
        return 0
    text = "\n".join(f"{name} {topic_id} {count}" for name, (topic_id, count) in sorted(topics.items()))
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big", signed=True)

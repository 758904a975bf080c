"""Replays the records of share groups, which is the only way in which share groups change.

Compaction may have removed some of a group's records, so each record is applied on its own.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, TypeAlias

from kalda.coordinator.coordinator_record import decode_value
from kalda.coordinator.group.consumer.member import assignment_of
from kalda.coordinator.group.group import Group
from kalda.coordinator.group.share.share_group import ShareGroup
from kalda.coordinator.group.share.share_group_records import (
    CURRENT_KEY,
    GROUP_KEY,
    MEMBER_KEY,
    STORED_KEY,
    TARGET_EPOCH_KEY,
    TARGET_KEY,
)
from kalda.coordinator.group.share.share_member import ShareMember, StatePartitions, StoredPartitions
from kalda.protocol.codec import decode
from kalda.protocol.messages import share_group_records as messages

_VERSION_SIZE: Final = 2

Reader: TypeAlias = Callable[[bytes, bytes | None], None]


class ShareReplay:
    """Replays records into the groups of one shard."""

    def __init__(
        self,
        groups: dict[str, Group],
        on_removed: Callable[[str, str], None],
        on_deleted: Callable[[str], None],
    ) -> None:
        """`on_removed` is called with the group id and the member id of each removed member.

        `on_deleted` is called with the id of each deleted group.
        """
        self._groups: Final = groups
        self._on_removed: Final = on_removed
        self._on_deleted: Final = on_deleted

    def readers(self) -> dict[int, Reader]:
        """Return the replay functions by key version; they raise ProtocolError for bytes of another kind."""
        return {
            MEMBER_KEY: self._read_member,
            GROUP_KEY: self._read_group,
            TARGET_EPOCH_KEY: self._read_target_epoch,
            TARGET_KEY: self._read_target,
            CURRENT_KEY: self._read_current,
            STORED_KEY: self._read_stored,
        }

    def _present(self, group_id: str) -> ShareGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ShareGroup) else None

    def _group(self, group_id: str) -> ShareGroup:
        group = self._present(group_id)
        if group is None:
            group = self._groups[group_id] = ShareGroup(group_id)
        return group

    def _read_member(self, key: bytes, value: bytes | None) -> None:
        named = decode(messages.ShareGroupMemberMetadataKey, MEMBER_KEY, key, _VERSION_SIZE)
        if value is not None:
            group = self._group(named.group_id)
            decoded = decode_value(messages.ShareGroupMemberMetadataValue, value)
            group.put_member(
                replace(
                    group.members.get(named.member_id) or ShareMember(named.member_id),
                    rack_id=decoded.rack_id,
                    client_id=decoded.client_id,
                    client_host=decoded.client_host,
                    subscribed_names=frozenset(decoded.subscribed_topic_names),
                )
            )
        elif (present := self._present(named.group_id)) is not None:
            present.remove_member(named.member_id)
            self._on_removed(named.group_id, named.member_id)

    def _read_group(self, key: bytes, value: bytes | None) -> None:
        group_id = decode(messages.ShareGroupMetadataKey, GROUP_KEY, key, _VERSION_SIZE).group_id
        if value is not None:
            decoded = decode_value(messages.ShareGroupMetadataValue, value)
            group = self._group(group_id)
            group.epoch, group.topics_hash = decoded.epoch, decoded.metadata_hash
        elif self._present(group_id) is not None:
            del self._groups[group_id]
            self._on_deleted(group_id)

    def _read_target_epoch(self, key: bytes, value: bytes | None) -> None:
        group_id = decode(
            messages.ShareGroupTargetAssignmentMetadataKey, TARGET_EPOCH_KEY, key, _VERSION_SIZE
        ).group_id
        if value is not None:
            decoded = decode_value(messages.ShareGroupTargetAssignmentMetadataValue, value)
            group = self._group(group_id)
            group.assignment_epoch, group.assigned_ms = decoded.assignment_epoch, decoded.assignment_timestamp
        elif (present := self._present(group_id)) is not None:
            present.assignment_epoch = present.assigned_ms = 0

    def _read_target(self, key: bytes, value: bytes | None) -> None:
        named = decode(messages.ShareGroupTargetAssignmentMemberKey, TARGET_KEY, key, _VERSION_SIZE)
        if value is not None:
            decoded = decode_value(messages.ShareGroupTargetAssignmentMemberValue, value)
            self._group(named.group_id).targets[named.member_id] = assignment_of(decoded.topic_partitions)
        elif (group := self._present(named.group_id)) is not None:
            group.targets.pop(named.member_id, None)

    def _read_current(self, key: bytes, value: bytes | None) -> None:
        named = decode(messages.ShareGroupCurrentMemberAssignmentKey, CURRENT_KEY, key, _VERSION_SIZE)
        if value is None:
            present = self._present(named.group_id)
            member = present.members.get(named.member_id) if present is not None else None
            if present is not None and member is not None:
                present.put_member(replace(member, epoch=0, previous_epoch=0, assigned={}))
            return
        decoded = decode_value(messages.ShareGroupCurrentMemberAssignmentValue, value)
        group = self._group(named.group_id)
        group.put_member(
            replace(
                group.members.get(named.member_id) or ShareMember(named.member_id),
                epoch=decoded.member_epoch,
                previous_epoch=decoded.previous_member_epoch,
                assigned=assignment_of(decoded.assigned_partitions),
            )
        )

    def _read_stored(self, key: bytes, value: bytes | None) -> None:
        group_id = decode(
            messages.ShareGroupStatePartitionMetadataKey, STORED_KEY, key, _VERSION_SIZE
        ).group_id
        if value is not None:
            decoded = decode_value(messages.ShareGroupStatePartitionMetadataValue, value)
            self._group(group_id).stored = StoredPartitions(
                _read_named(decoded.initializing_topics),
                _read_named(decoded.initialized_topics),
                {each.topic_id: each.topic_name for each in decoded.deleting_topics},
            )
        elif (group := self._present(group_id)) is not None:
            group.stored = StoredPartitions()


def _read_named(topics: Iterable[messages.TopicPartitionsInfo]) -> StatePartitions:
    return {each.topic_id: (each.topic_name, frozenset(each.partitions)) for each in topics}

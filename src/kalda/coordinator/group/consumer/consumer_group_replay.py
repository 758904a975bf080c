"""Replays the records of KIP-848, which is the only way in which consumer groups change.

Compaction may have removed some of a group's records, so each record is applied on its own: a tombstone of
something that does not exist has no effect, and a record of a group that does not exist creates it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeAlias

from kalda.coordinator.coordinator_record import decode_value
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_records import (
    CURRENT_KEY,
    GROUP_KEY,
    MEMBER_KEY,
    REGEX_KEY,
    TARGET_EPOCH_KEY,
    TARGET_KEY,
    TOPICS_KEY,
    read_assigned,
    read_member,
    read_state,
)
from kalda.coordinator.group.consumer.member import Member, RegularExpression, TopicMetadata, assignment_of
from kalda.coordinator.group.group import Group
from kalda.protocol.codec import decode
from kalda.protocol.messages import consumer_group_records as messages

_VERSION_SIZE: Final = 2

Reader: TypeAlias = Callable[[bytes, bytes | None], None]


class ConsumerReplay:
    """Replays records into the groups of one shard."""

    def __init__(self, groups: dict[str, Group], on_removed: Callable[[str, str], None]) -> None:
        """`on_removed` is called with the group id and the member id of each removed member."""
        self._groups: Final = groups
        self._on_removed: Final = on_removed

    def readers(self) -> dict[int, Reader]:
        """Return the replay functions by key version; they raise ProtocolError for bytes of another kind."""
        return {
            GROUP_KEY: self._read_group,
            TOPICS_KEY: self._read_topics,
            MEMBER_KEY: self._read_member,
            TARGET_EPOCH_KEY: self._read_target_epoch,
            TARGET_KEY: self._read_target,
            CURRENT_KEY: self._read_current,
            REGEX_KEY: self._read_regex,
        }

    def _present(self, group_id: str) -> ConsumerGroup | None:
        group = self._groups.get(group_id)
        return group if isinstance(group, ConsumerGroup) else None

    def _group(self, group_id: str) -> ConsumerGroup:
        """Return the group; create it if it is missing, or replaces a classic group without a tombstone."""
        group = self._present(group_id)
        if group is None:
            group = ConsumerGroup(group_id)
            self._groups[group_id] = group
        return group

    def _read_group(self, key: bytes, value: bytes | None) -> None:
        group_id = decode(messages.ConsumerGroupMetadataKey, GROUP_KEY, key, _VERSION_SIZE).group_id
        if value is not None:
            self._group(group_id).epoch = decode_value(messages.ConsumerGroupMetadataValue, value).epoch
        elif self._present(group_id) is not None:
            del self._groups[group_id]

    def _read_topics(self, key: bytes, value: bytes | None) -> None:
        group_id = decode(messages.ConsumerGroupPartitionMetadataKey, TOPICS_KEY, key, _VERSION_SIZE).group_id
        if value is not None:
            topics = decode_value(messages.ConsumerGroupPartitionMetadataValue, value).topics
            self._group(group_id).topics = {
                topic.topic_name: TopicMetadata((topic.topic_id, topic.num_partitions)) for topic in topics
            }
        elif (group := self._present(group_id)) is not None:
            group.topics = {}

    def _read_member(self, key: bytes, value: bytes | None) -> None:
        named = decode(messages.ConsumerGroupMemberMetadataKey, MEMBER_KEY, key, _VERSION_SIZE)
        if value is not None:
            group = self._group(named.group_id)
            base = group.members.get(named.member_id) or Member(named.member_id)
            group.put_member(
                read_member(base, decode_value(messages.ConsumerGroupMemberMetadataValue, value))
            )
        elif (present := self._present(named.group_id)) is not None:
            present.remove_member(named.member_id)
            self._on_removed(named.group_id, named.member_id)

    def _read_target_epoch(self, key: bytes, value: bytes | None) -> None:
        group_id = decode(
            messages.ConsumerGroupTargetAssignmentMetadataKey, TARGET_EPOCH_KEY, key, _VERSION_SIZE
        ).group_id
        if value is not None:
            decoded = decode_value(messages.ConsumerGroupTargetAssignmentMetadataValue, value)
            group = self._group(group_id)
            group.assignment_epoch, group.assigned_ms = decoded.assignment_epoch, decoded.assignment_timestamp
        elif (present := self._present(group_id)) is not None:
            present.assignment_epoch = present.assigned_ms = 0

    def _read_target(self, key: bytes, value: bytes | None) -> None:
        named = decode(messages.ConsumerGroupTargetAssignmentMemberKey, TARGET_KEY, key, _VERSION_SIZE)
        if value is not None:
            decoded = decode_value(messages.ConsumerGroupTargetAssignmentMemberValue, value)
            self._group(named.group_id).targets[named.member_id] = assignment_of(decoded.topic_partitions)
        elif (group := self._present(named.group_id)) is not None:
            group.targets.pop(named.member_id, None)

    def _read_current(self, key: bytes, value: bytes | None) -> None:
        named = decode(messages.ConsumerGroupCurrentMemberAssignmentKey, CURRENT_KEY, key, _VERSION_SIZE)
        if value is None:
            present = self._present(named.group_id)
            member = present.members.get(named.member_id) if present is not None else None
            if present is not None and member is not None:
                present.put_member(member.without_assignment())
            return
        decoded = decode_value(messages.ConsumerGroupCurrentMemberAssignmentValue, value)
        group = self._group(named.group_id)
        assigned, pending = read_assigned(decoded)
        group.put_member(
            replace(
                group.members.get(named.member_id) or Member(named.member_id),
                epoch=decoded.member_epoch,
                previous_epoch=decoded.previous_member_epoch,
                state=read_state(decoded),
                assigned=assigned,
                pending_revocation=pending,
            )
        )

    def _read_regex(self, key: bytes, value: bytes | None) -> None:
        named = decode(messages.ConsumerGroupRegularExpressionKey, REGEX_KEY, key, _VERSION_SIZE)
        if value is not None:
            decoded = decode_value(messages.ConsumerGroupRegularExpressionValue, value)
            self._group(named.group_id).regexes[named.regular_expression] = RegularExpression(
                frozenset(decoded.topics), decoded.version, decoded.timestamp
            )
        elif (group := self._present(named.group_id)) is not None:
            group.regexes.pop(named.regular_expression, None)

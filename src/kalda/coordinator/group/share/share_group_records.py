"""The records of ``__consumer_offsets`` that share groups write: encodes them.

Equal state gives equal bytes: topics by id, partitions by number.
"""

from collections.abc import Iterable
from typing import Final, TypeVar

from kalda.common.types import UUID
from kalda.coordinator.coordinator_record import CoordinatorRecord, encode_record
from kalda.coordinator.group.consumer.member import Assignment
from kalda.coordinator.group.share.share_member import ShareMember, StatePartitions, StoredPartitions
from kalda.protocol.messages import share_group_records as messages

MEMBER_KEY: Final = 10
GROUP_KEY: Final = 11
TARGET_EPOCH_KEY: Final = 12
TARGET_KEY: Final = 13
CURRENT_KEY: Final = 14
STORED_KEY: Final = 15

_STABLE: Final = 0

Partitions = TypeVar("Partitions", messages.TopicPartition, messages.TopicPartitions)


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record of a member's metadata."""
    value = messages.ShareGroupMemberMetadataValue(
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_names),
    )
    key = messages.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return encode_record(key, MEMBER_KEY, value)


def group_record(group_id: str, epoch: int, topics_hash: int) -> CoordinatorRecord:
    """Return the record of the group epoch."""
    value = messages.ShareGroupMetadataValue(epoch=epoch, metadata_hash=topics_hash)
    return encode_record(messages.ShareGroupMetadataKey(group_id=group_id), GROUP_KEY, value)


def target_epoch_record(group_id: str, epoch: int, assigned_ms: int) -> CoordinatorRecord:
    """Return the record that completes the target assignment of a group epoch."""
    value = messages.ShareGroupTargetAssignmentMetadataValue(
        assignment_epoch=epoch, assignment_timestamp=assigned_ms
    )
    key = messages.ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
    return encode_record(key, TARGET_EPOCH_KEY, value)


def target_record(group_id: str, member_id: str, target: Assignment | None) -> CoordinatorRecord:
    """Return the record of a member's target assignment; None deletes it."""
    value = None
    if target is not None:
        value = messages.ShareGroupTargetAssignmentMemberValue(
            topic_partitions=_partitions(messages.TopicPartition, target)
        )
    key = messages.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode_record(key, TARGET_KEY, value)


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    """Return the record of a member's current assignment."""
    value = messages.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=_STABLE,
        assigned_partitions=_partitions(messages.TopicPartitions, member.assigned),
    )
    key = messages.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return encode_record(key, CURRENT_KEY, value)


def stored_record(group_id: str, stored: StoredPartitions) -> CoordinatorRecord:
    """Return the record of the partitions that have state at share coordinators."""
    value = messages.ShareGroupStatePartitionMetadataValue(
        initializing_topics=_named(stored.initializing),
        initialized_topics=_named(stored.initialized),
        deleting_topics=[
            messages.TopicInfo(topic_id=topic_id, topic_name=stored.deleting[topic_id])
            for topic_id in sorted(stored.deleting, key=_number)
        ],
    )
    return encode_record(messages.ShareGroupStatePartitionMetadataKey(group_id=group_id), STORED_KEY, value)


def member_removal(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that delete a member."""
    current = messages.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    member = messages.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    return [
        encode_record(current, CURRENT_KEY, None),
        target_record(group_id, member_id, None),
        encode_record(member, MEMBER_KEY, None),
    ]


def group_removal(group_id: str, member_ids: Iterable[str]) -> list[CoordinatorRecord]:
    """Return the records that delete a group."""
    records = [record for member_id in sorted(member_ids) for record in member_removal(group_id, member_id)]
    target = messages.ShareGroupTargetAssignmentMetadataKey(group_id=group_id)
    stored = messages.ShareGroupStatePartitionMetadataKey(group_id=group_id)
    group = messages.ShareGroupMetadataKey(group_id=group_id)
    return [
        *records,
        encode_record(target, TARGET_EPOCH_KEY, None),
        encode_record(stored, STORED_KEY, None),
        encode_record(group, GROUP_KEY, None),
    ]


def _number(topic_id: UUID) -> int:
    return topic_id.int


def _partitions(struct: type[Partitions], assignment: Assignment) -> list[Partitions]:
    return [
        struct(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment, key=_number)
    ]


def _named(partitions: StatePartitions) -> list[messages.TopicPartitionsInfo]:
    return [
        messages.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=partitions[topic_id][0], partitions=sorted(partitions[topic_id][1])
        )
        for topic_id in sorted(partitions, key=_number)
    ]

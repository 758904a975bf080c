"""The records of ``__consumer_offsets`` that consumer groups write (KIP-848): encodes and decodes them.

A member's metadata record comes before its assignments, and its tombstone after theirs.

What must not break: equal state gives equal bytes (topics by id, partitions by number), so that a compacted
log and its copies can be compared.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from kalda.coordinator.coordinator_record import CoordinatorRecord, encode_record
from kalda.coordinator.group.consumer.member import (
    Assignment,
    ClassicProtocolOffer,
    ClassicSide,
    Member,
    MemberState,
    RegularExpression,
    TopicMetadata,
    assignment_of,
)
from kalda.protocol.messages import consumer_group_records as messages

GROUP_KEY: Final = 3
TOPICS_KEY: Final = 4
MEMBER_KEY: Final = 5
TARGET_EPOCH_KEY: Final = 6
TARGET_KEY: Final = 7
CURRENT_KEY: Final = 8
REGEX_KEY: Final = 16

Partitions = TypeVar("Partitions", messages.TopicPartition, messages.TopicPartitions)


def group_epoch_record(group_id: str, epoch: int | None) -> CoordinatorRecord:
    """Return the record of the group epoch; None deletes the group."""
    value = None if epoch is None else messages.ConsumerGroupMetadataValue(epoch=epoch)
    return encode_record(messages.ConsumerGroupMetadataKey(group_id=group_id), GROUP_KEY, value)


def topics_record(group_id: str, topics: Mapping[str, TopicMetadata] | None) -> CoordinatorRecord:
    """Return the record of the subscribed topics."""
    value = None
    if topics is not None:
        value = messages.ConsumerGroupPartitionMetadataValue(
            topics=[
                messages.TopicMetadata(topic_id=topic_id, topic_name=name, num_partitions=count)
                for name, (topic_id, count) in sorted(topics.items())
            ]
        )
    return encode_record(messages.ConsumerGroupPartitionMetadataKey(group_id=group_id), TOPICS_KEY, value)


def member_record(group_id: str, member: Member) -> CoordinatorRecord:
    """Return the record of a member's metadata."""
    classic = None
    if member.classic is not None:
        classic = messages.ClassicMemberMetadata(
            session_timeout_ms=member.classic.session_timeout_ms,
            supported_protocols=[
                messages.ClassicProtocol(name=offer.name, metadata=offer.metadata)
                for offer in member.classic.protocols
            ],
        )
    value = messages.ConsumerGroupMemberMetadataValue(
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_names),
        subscribed_topic_regex=member.subscribed_regex,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        server_assignor=member.server_assignor,
        classic_member_metadata=classic,
    )
    key = messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id)
    return encode_record(key, MEMBER_KEY, value)


def member_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member, which follows those of its assignments."""
    return encode_record(
        messages.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id), MEMBER_KEY, None
    )


def target_epoch_record(group_id: str, epoch: int | None, assigned_ms: int = 0) -> CoordinatorRecord:
    """Return the record that completes the target assignment of a group epoch; None deletes it."""
    value = None
    if epoch is not None:
        value = messages.ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=epoch, assignment_timestamp=assigned_ms
        )
    return encode_record(
        messages.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id), TARGET_EPOCH_KEY, value
    )


def target_record(group_id: str, member_id: str, target: Assignment | None) -> CoordinatorRecord:
    """Return the record of a member's target assignment; None deletes it."""
    value = None
    if target is not None:
        value = messages.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=_partitions(messages.TopicPartition, target)
        )
    key = messages.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    return encode_record(key, TARGET_KEY, value)


def current_record(group_id: str, member: Member) -> CoordinatorRecord:
    """Return the record of a member's current assignment and of the partitions to revoke."""
    value = messages.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=member.epoch,
        previous_member_epoch=member.previous_epoch,
        state=member.state,
        assigned_partitions=_partitions(messages.TopicPartitions, member.assigned),
        partitions_pending_revocation=_partitions(messages.TopicPartitions, member.pending_revocation),
    )
    key = messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id)
    return encode_record(key, CURRENT_KEY, value)


def current_tombstone(group_id: str, member_id: str) -> CoordinatorRecord:
    """Return the tombstone of a member's current assignment."""
    key = messages.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    return encode_record(key, CURRENT_KEY, None)


def regex_record(group_id: str, regex: str, resolved: RegularExpression | None) -> CoordinatorRecord:
    """Return the record of the topics that an expression matched; None deletes it."""
    value = None
    if resolved is not None:
        value = messages.ConsumerGroupRegularExpressionValue(
            topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
        )
    key = messages.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    return encode_record(key, REGEX_KEY, value)


def member_removal(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    """Return the records that delete a member."""
    return [
        current_tombstone(group_id, member_id),
        target_record(group_id, member_id, None),
        member_tombstone(group_id, member_id),
    ]


def group_removal(
    group_id: str, member_ids: Iterable[str], regexes: Iterable[str]
) -> list[CoordinatorRecord]:
    """Return the records that delete a group, without its offsets."""
    ids = sorted(member_ids)
    return [
        *(current_tombstone(group_id, member_id) for member_id in ids),
        *(target_record(group_id, member_id, None) for member_id in ids),
        target_epoch_record(group_id, None),
        *(member_tombstone(group_id, member_id) for member_id in ids),
        *(regex_record(group_id, regex, None) for regex in sorted(regexes)),
        topics_record(group_id, None),
        group_epoch_record(group_id, None),
    ]


def read_member(base: Member, value: messages.ConsumerGroupMemberMetadataValue) -> Member:
    """Return the member with the metadata of a record and the assignment of `base`."""
    metadata = value.classic_member_metadata
    classic = None
    # A record without the tagged field decodes to a struct without protocols.
    if metadata is not None and metadata.supported_protocols:
        classic = ClassicSide(
            metadata.session_timeout_ms,
            tuple(ClassicProtocolOffer(offer.name, offer.metadata) for offer in metadata.supported_protocols),
        )
    return Member(
        member_id=base.member_id,
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_names=frozenset(value.subscribed_topic_names),
        subscribed_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=classic,
        epoch=base.epoch,
        previous_epoch=base.previous_epoch,
        state=base.state,
        assigned=base.assigned,
        pending_revocation=base.pending_revocation,
    )


def read_assigned(value: messages.ConsumerGroupCurrentMemberAssignmentValue) -> tuple[Assignment, Assignment]:
    """Return the assigned partitions in a record, and those to revoke."""
    return assignment_of(value.assigned_partitions), assignment_of(value.partitions_pending_revocation)


def read_state(value: messages.ConsumerGroupCurrentMemberAssignmentValue) -> MemberState:
    """Return the member state in a record."""
    return MemberState.read(value.state)


def _partitions(struct: type[Partitions], assignment: Assignment) -> list[Partitions]:
    return [
        struct(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment, key=lambda topic_id: topic_id.int)
    ]

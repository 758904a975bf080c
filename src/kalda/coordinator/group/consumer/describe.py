"""ConsumerGroupDescribe: what administrators see of a consumer group."""

from typing import Final

from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.member import EMPTY_ASSIGNMENT, Assignment, Member
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.protocol.messages.consumer_group_describe import Assignment as AssignmentStruct
from kalda.protocol.messages.consumer_group_describe import DescribedGroup, TopicPartitions
from kalda.protocol.messages.consumer_group_describe import Member as MemberStruct

__all__ = ["describe"]

_CLASSIC: Final = 0
_CONSUMER: Final = 1


def describe(group: ConsumerGroup, topics: TopicsView, default_assignor: str) -> DescribedGroup:
    """The group with its members; topics that are gone are left out of assignments."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[
            _member(member, group.targets.get(member_id, EMPTY_ASSIGNMENT), topics)
            for member_id, member in sorted(group.members.items())
        ],
    )


def _member(member: Member, target: Assignment, topics: TopicsView) -> MemberStruct:
    return MemberStruct(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_names),
        subscribed_topic_regex=member.subscribed_regex or None,
        assignment=_assignment(member.assigned, topics),
        target_assignment=_assignment(target, topics),
        member_type=_CLASSIC if member.speaks_classic else _CONSUMER,
    )


def _assignment(assignment: Assignment, topics: TopicsView) -> AssignmentStruct:
    named = ((topics.topic_name(topic_id), topic_id, numbers) for topic_id, numbers in assignment.items())
    found = sorted((name, topic_id, sorted(numbers)) for name, topic_id, numbers in named if name is not None)
    return AssignmentStruct(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=name, partitions=numbers)
            for name, topic_id, numbers in found
        ]
    )

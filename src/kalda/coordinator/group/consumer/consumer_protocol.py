"""Serves the consumer protocol (KIP-848) for the groups of one shard: heartbeats and descriptions.

The shard replays the records of the protocol through `readers`; requests of the classic protocol that concern
a consumer group go to `classic_members`.
"""

from collections.abc import Callable
from typing import Final

from kalda.coordinator.group.classic.classic_protocol import ClassicProtocol
from kalda.coordinator.group.consumer.classic_members import ClassicMembers
from kalda.coordinator.group.consumer.consumer_group import ConsumerGroup
from kalda.coordinator.group.consumer.consumer_group_config import ConsumerGroupConfig, GroupTimes
from kalda.coordinator.group.consumer.consumer_group_replay import ConsumerReplay
from kalda.coordinator.group.consumer.consumer_groups import ConsumerGroups
from kalda.coordinator.group.consumer.heartbeats import Heartbeats
from kalda.coordinator.group.consumer.member import EMPTY_ASSIGNMENT, Assignment, Member
from kalda.coordinator.group.consumer.migration import Migration
from kalda.coordinator.group.consumer.regular_expressions import MayDescribe, may_describe_all
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.coordinator.group.group_shard_state import GroupShardState
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.protocol.messages.consumer_group_describe import Assignment as AssignmentStruct
from kalda.protocol.messages.consumer_group_describe import DescribedGroup, TopicPartitions
from kalda.protocol.messages.consumer_group_describe import Member as MemberStruct
from kalda.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

_CLASSIC: Final = 0
_CONSUMER: Final = 1


class ConsumerProtocol:
    """The operations of consumer groups, called by requests and by the shard."""

    def __init__(
        self,
        shard: GroupShardState,
        classic: ClassicProtocol,
        config: ConsumerGroupConfig,
        topics: TopicsView,
        new_id: Callable[[], str],
        times: GroupTimes,
    ) -> None:
        """`new_id` makes member ids for clients that leave this to the coordinator.

        Groups that change their protocol go over to, or come from, the shard's `classic` protocol.
        """
        migration = Migration(shard, config, topics, classic.rebalance)
        self.groups: Final = ConsumerGroups(shard, config, topics, new_id, migration, times)
        self._heartbeats: Final = Heartbeats(self.groups)
        self.classic_members: Final = ClassicMembers(self.groups, self._heartbeats, classic)
        self.readers: Final = ConsumerReplay(shard.groups, self.groups.cancel_timers).readers()
        self.on_loaded: Final = self.groups.on_loaded
        self.on_unloaded: Final = self.groups.on_unloaded

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        api_version: int,
        client_id: str,
        client_host: str,
        may_describe: MayDescribe = may_describe_all,
    ) -> Result[ConsumerGroupHeartbeatResponse]:
        """Decide a ConsumerGroupHeartbeat.

        Raises:
            ApiError: the request is refused.
        """
        return self._heartbeats.heartbeat(request, api_version, client_id, client_host, may_describe)

    def describe(self, group_id: str) -> DescribedGroup:
        """Describe a group.

        Raises:
            ApiError: GROUP_ID_NOT_FOUND.
        """
        default = next(iter(self.groups.assignors))
        return _describe(self.groups.group(group_id), self.groups.topics, default)


def _describe(group: ConsumerGroup, topics: TopicsView, default_assignor: str) -> DescribedGroup:
    """Return the group with its members; assignments leave out topics that do not exist any more."""
    # Most members have the same names, and a group may have a thousand members of two thousand names.
    names = {each: sorted(each) for each in {member.subscribed_names for member in group.members.values()}}
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor() or default_assignor,
        members=[
            _member(
                member,
                names[member.subscribed_names],
                group.targets.get(member_id, EMPTY_ASSIGNMENT),
                topics,
            )
            for member_id, member in sorted(group.members.items())
        ],
    )


def _member(member: Member, names: list[str], target: Assignment, topics: TopicsView) -> MemberStruct:
    return MemberStruct(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=names,
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

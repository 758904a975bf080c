"""The range assignor: cuts each topic into one contiguous range for each subscriber, rack-aware (KIP-881).

Members are ordered by instance id, then those without one by member id, the same for all topics, so that
partition n of topics with equal partition counts and subscribers goes to the same member (co-partitioning).
Where racks matter, partitions first go to members on a rack of one of their replicas, without giving up
balance or co-partitioning; what is left is then cut into ranges.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import ClassVar

from kalda.clients.consumer.assignors.partition_assignor import (
    BuiltInAssignor,
    GroupTopics,
    Subscription,
    member_order,
    uses_racks,
)
from kalda.common.types import TopicPartition

_Lists = dict[str, list[TopicPartition]]


class RangeAssignor(BuiltInAssignor):
    """Assigns ranges of partitions, topic by topic, as Java's ``RangeAssignor``."""

    name: ClassVar[str] = "range"

    def assign_partitions(self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]) -> _Lists:
        """Divide each topic among its subscribers; with a remainder, the first members get one more."""
        key = member_order(subscriptions)
        subscribers: dict[str, list[str]] = {}
        for member_id in sorted(subscriptions, key=key):
            for topic in dict.fromkeys(subscriptions[member_id].topics):
                subscribers.setdefault(topic, []).append(member_id)
        racks = {member_id: each.rack_id or None for member_id, each in subscriptions.items()}
        states = [
            _TopicState(topic, replica_racks, {each: racks[each] for each in subscribers[topic]})
            for topic, replica_racks in topics.items()
        ]
        assignment: _Lists = {member_id: [] for member_id in subscriptions}
        rack_aware = any(state.is_rack_aware for state in states)
        if rack_aware:
            _assign_with_racks(states, assignment)
        for state in states:
            _assign_ranges(state, lambda member_id, partition: True, assignment)
        if rack_aware:
            for partitions in assignment.values():
                partitions.sort()
        return assignment


class _TopicState:
    """The unassigned partitions of one topic.

    Invariant: a member has at most `quota` partitions, or one more while `extra` members may have that many.
    """

    __slots__ = ("assigned", "extra", "is_rack_aware", "members", "quota", "racks", "topic", "unassigned")

    def __init__(
        self, topic: str, replica_racks: Sequence[frozenset[str]], members: dict[str, str | None]
    ) -> None:
        """`members` maps the subscribers, in order, to their racks."""
        self.topic = topic
        self.members = members
        self.unassigned = {TopicPartition(topic, number): None for number in range(len(replica_racks))}
        self.assigned = dict.fromkeys(members, 0)
        self.quota, self.extra = divmod(len(replica_racks), len(members))
        consumer_racks = {rack for rack in members.values() if rack is not None}
        self.racks = dict(zip(self.unassigned, replica_racks, strict=True)) if consumer_racks else {}
        self.is_rack_aware = uses_racks(consumer_racks, self.racks)

    def racks_match(self, member_id: str, partition: TopicPartition) -> bool:
        """Return whether the member has no rack, or a replica of the partition is on it."""
        rack = self.members[member_id]
        return rack is None or rack in self.racks.get(partition, ())

    def assignable_count(self, member_id: str) -> int:
        """Return the number of partitions that the member may still get."""
        return max(0, self.quota + (self.extra > 0) - self.assigned[member_id])

    def assign(self, member_id: str, partitions: list[TopicPartition], assignment: _Lists) -> None:
        """Give the partitions to the member."""
        assignment[member_id] += partitions
        self.assigned[member_id] += len(partitions)
        if self.assigned[member_id] > self.quota:
            self.extra -= 1
        for partition in partitions:
            del self.unassigned[partition]


def _assign_ranges(
    state: _TopicState, may_assign: Callable[[str, TopicPartition], bool], assignment: _Lists
) -> None:
    for member_id in state.members:
        if not state.unassigned:
            break
        candidates = (each for each in state.unassigned if may_assign(member_id, each))
        partitions = list(islice(candidates, state.assignable_count(member_id)))
        if partitions:
            state.assign(member_id, partitions, assignment)


def _assign_with_racks(states: list[_TopicState], assignment: _Lists) -> None:
    """Assign what can be on the rack of its member; topics that are co-partitioned stay so."""
    groups: dict[tuple[frozenset[tuple[str, str | None]], int], list[_TopicState]] = {}
    for state in states:
        groups.setdefault((frozenset(state.members.items()), len(state.racks)), []).append(state)
    for (_, partition_count), group in groups.items():
        if len(group) > 1:
            _assign_co_partitioned(group, partition_count, assignment)
        elif group[0].is_rack_aware:
            _assign_ranges(group[0], group[0].racks_match, assignment)


def _assign_co_partitioned(group: list[_TopicState], partition_count: int, assignment: _Lists) -> None:
    """Give partition n of all topics to the first member that is on a rack of each of them."""
    remaining = list(group[0].members)
    for number in range(partition_count):
        for member_id in remaining:
            if all(
                state.racks_match(member_id, TopicPartition(state.topic, number))
                and state.assignable_count(member_id) > 0
                for state in group
            ):
                break
        else:
            continue
        for state in group:
            state.assign(member_id, [TopicPartition(state.topic, number)], assignment)
        if not any(state.assignable_count(member_id) for state in group):
            remaining.remove(member_id)
            if not remaining:
                break

"""The range assignor: cuts each topic into one contiguous range for each subscriber.

Members are ordered by instance id, then those without one by member id. The order is the same for all topics,
so that partition n of topics with equal partition counts and equal subscribers goes to the same member
(co-partitioning). The assignor ignores the current assignment and racks. The ranges stay the same while the
members, their subscriptions and the partition counts do.
"""

from typing import ClassVar

from kalda.common.steps import Steps
from kalda.common.types import UUID
from kalda.coordinator.group.consumer.assignors.partition_assignor import MEMBERS_PER_STEP, GroupSpec
from kalda.coordinator.group.consumer.member import Assignment


class RangeAssignor:
    """Assigns ranges of partitions, topic by topic."""

    name: ClassVar[str] = "range"

    def assign(self, group: GroupSpec) -> Steps[dict[str, Assignment]]:
        """Divide each topic among its subscribers; with a remainder, the first members get one more."""
        subscribers = yield from _subscribers(group)
        assignments: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in group.members}
        for topic_id, member_ids in subscribers.items():
            yield
            quota, extra = divmod(group.partition_counts[topic_id], len(member_ids))
            start = 0
            for position, member_id in enumerate(member_ids):
                end = start + quota + (position < extra)
                if start < end:
                    assignments[member_id][topic_id] = frozenset(range(start, end))
                if end == group.partition_counts[topic_id]:
                    break
                start = end
        return dict(assignments)


def _subscribers(group: GroupSpec) -> Steps[dict[UUID, list[str]]]:
    """Return the subscribers of each topic, in the order of `GroupSpec.ordered_ids`."""
    if group.is_homogeneous:
        member_ids = group.ordered_ids
        return {
            topic_id: member_ids for member in list(group.members.values())[:1] for topic_id in member.topics
        }
    subscribers: dict[UUID, list[str]] = {}
    for number, member_id in enumerate(group.ordered_ids):
        if number % MEMBERS_PER_STEP == 0:
            yield
        for topic_id in group.members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    return subscribers

"""The range assignor: each topic is cut into one contiguous range per subscriber.

Members are taken in the same order for every topic, so that partition n of topics with equal counts and equal
subscribers goes to the same member (co-partitioning). As in Kafka it looks at neither what members had before
nor their racks: the order is stable, and so are the ranges while the members stay.
"""

from typing import ClassVar
from uuid import UUID

from kalda.coordinator.group.consumer.assignors.partition_assignor import GroupSpec
from kalda.coordinator.group.consumer.member import Assignment


class RangeAssignor:
    """Ranges of partitions, topic by topic."""

    name: ClassVar[str] = "range"

    def assign(self, group: GroupSpec) -> dict[str, Assignment]:
        """Cut each topic among its subscribers; the first get one more where it does not come out even."""
        subscribers = _subscribers(group)
        assignments: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in group.members}
        for topic_id, member_ids in subscribers.items():
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


def _subscribers(group: GroupSpec) -> dict[UUID, list[str]]:
    """Who subscribes to a topic, in the group's order."""
    if group.is_homogeneous:
        everybody = group.ordered_ids
        return {
            topic_id: everybody for member in list(group.members.values())[:1] for topic_id in member.topics
        }
    subscribers: dict[UUID, list[str]] = {}
    for member_id in group.ordered_ids:
        for topic_id in group.members[member_id].topics:
            subscribers.setdefault(topic_id, []).append(member_id)
    return subscribers

"""The round robin assignor: deals all partitions of all topics to the members in turn.

Members are ordered by instance id, then those without one by member id. A member that does not subscribe to
the topic is passed over. Racks and previous assignments do not matter.
"""

from collections.abc import Mapping
from typing import ClassVar

from kalda.clients.consumer.assignors.partition_assignor import (
    BuiltInAssignor,
    GroupTopics,
    Subscription,
    member_order,
)
from kalda.common.types import TopicPartition


class RoundRobinAssignor(BuiltInAssignor):
    """Assigns partitions in turn, as Java's ``RoundRobinAssignor``."""

    name: ClassVar[str] = "roundrobin"

    def assign_partitions(
        self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Deal the partitions in the order of topics and numbers.

        Members C0, C1 and topics t0, t1 of 3 partitions each: C0 gets t0-0, t0-2, t1-1.
        """
        assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in subscriptions}
        member_ids = sorted(subscriptions, key=member_order(subscriptions))
        subscribed = {member_id: frozenset(each.topics) for member_id, each in subscriptions.items()}
        position = 0
        for topic in sorted(topics):
            for number in range(len(topics[topic])):
                while topic not in subscribed[member_ids[position]]:
                    position = (position + 1) % len(member_ids)
                assignment[member_ids[position]].append(TopicPartition(topic, number))
                position = (position + 1) % len(member_ids)
        return assignment

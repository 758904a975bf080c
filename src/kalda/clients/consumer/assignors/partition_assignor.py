"""Defines what a partition assignor is: the port for assignors of applications, and its values.

The leader of a classic group runs the assignor that the coordinator chose from those that all members offer.
The counterparts in Java are ``ConsumerPartitionAssignor`` and ``AbstractPartitionAssignor``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar

from kalda.clients.consumer.assignors.java_order import hash_order, sort_key
from kalda.common.public import public
from kalda.common.types import TopicPartition

NO_GENERATION = -1
"""The generation of a member that has never been in the group, or that does not state one."""

GroupTopics = Mapping[str, Sequence[frozenset[str]]]
"""The subscribed topics that exist, each with the racks of the replicas of every partition, in order."""


@public
class RebalanceProtocol(IntEnum):
    """The protocol by which members hand over partitions; the higher of two common ones is used (KIP-429)."""

    EAGER = 0
    """Every member revokes all its partitions before it joins."""
    COOPERATIVE = 1
    """Members keep their partitions while they join and revoke what the assignment takes away."""


@public
@dataclass(frozen=True, slots=True)
class Subscription:
    """A member's message to the leader: its topics, the partitions that it owns and its identity."""

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = NO_GENERATION
    """The generation in which the member got `owned_partitions` (KIP-792); -1 if it does not say."""
    rack_id: str | None = None
    group_instance_id: str | None = None


@public
@dataclass(frozen=True, slots=True)
class Assignment:
    """The assignment that the leader sends to one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


@public
class PartitionAssignor(ABC):
    """Divides the partitions of the subscribed topics among the members of a group.

    Derive from this class for an assignor of your own and pass an instance in
    ``partition_assignment_strategy``. One instance serves one consumer; its methods are called on the
    consumer's event loop and must not block.
    """

    name: ClassVar[str]
    """The name on which the members of a group agree, e.g. ``range``; unique among a consumer's assignors."""
    supported_protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset({RebalanceProtocol.EAGER})

    @abstractmethod
    def assign(self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of every member; the keys of `subscriptions` are member ids.

        `topics` leaves out subscribed topics that do not exist.
        """

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return bytes that go with this member's subscription to the leader, or None."""
        return None

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:  # noqa: B027
        """Store this member's new assignment; called after each rebalance on every member."""


class BuiltInAssignor(PartitionAssignor):
    """An assignor that works on lists of partitions and has no user data in assignments."""

    def assign(self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]) -> dict[str, Assignment]:
        """Return the assignment of every member, equal to the one that Java's assignor computes."""
        # The order of Java's maps, which the result may depend on.
        ordered = {member_id: subscriptions[member_id] for member_id in hash_order(subscriptions)}
        subscribed = hash_order(topic for each in ordered.values() for topic in each.topics)
        existing = {
            topic: topics[topic] for topic in hash_order(each for each in subscribed if topics.get(each))
        }
        lists = self.assign_partitions(existing, ordered)
        return {member_id: Assignment(tuple(partitions)) for member_id, partitions in lists.items()}

    @abstractmethod
    def assign_partitions(
        self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member; both mappings iterate in the order of Java's."""


def member_order(subscriptions: Mapping[str, Subscription]) -> Callable[[str], tuple[bool, bytes]]:
    """Return a sort key of member ids: static members by instance id, then the others by member id."""

    def key(member_id: str) -> tuple[bool, bytes]:
        instance_id = subscriptions[member_id].group_instance_id
        if instance_id is not None:
            return False, sort_key(instance_id)
        return True, sort_key(member_id)

    return key


def uses_racks(
    consumer_racks: Collection[str], partition_racks: Mapping[TopicPartition, frozenset[str]]
) -> bool:
    """Return whether racks matter (KIP-881).

    They do where members and replicas share a rack and not every partition is on all racks.
    """
    all_racks: frozenset[str] = frozenset().union(*partition_racks.values())
    if all_racks.isdisjoint(consumer_racks):
        return False
    return any(racks != all_racks for racks in partition_racks.values())

"""The sticky assignor: balanced, and moving as few partitions as possible (KIP-54, KIP-341).

It is eager: members revoke everything and state what they had, and in which generation, as user data.
`AbstractStickyAssignor` is shared with the cooperative assignor. Both equal their Java counterparts.
"""

from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from kalda.clients.consumer.assignors.constrained_assignment import ConstrainedAssignment
from kalda.clients.consumer.assignors.general_assignment import GeneralAssignment
from kalda.clients.consumer.assignors.partition_assignor import (
    NO_GENERATION,
    Assignment,
    BuiltInAssignor,
    GroupTopics,
    Subscription,
)
from kalda.clients.consumer.assignors.rack_info import RackInfo
from kalda.clients.consumer.assignors.sticky_user_data import MemberData, read_user_data, write_user_data
from kalda.common.overriding import override
from kalda.common.types import TopicPartition

_Lists = dict[str, list[TopicPartition]]


@dataclass(slots=True)
class _Ownership:
    """The partitions that members own by their subscriptions, each with one owner."""

    owned: _Lists = field(default_factory=dict)
    owners: dict[TopicPartition, str] = field(default_factory=dict)
    claimed_twice: set[TopicPartition] = field(default_factory=set)
    """Partitions that two members claim in the same generation: neither keeps them."""


class AbstractStickyAssignor(BuiltInAssignor):
    """Base of the two sticky assignors."""

    def __init__(self) -> None:
        self._max_generation = NO_GENERATION
        self._transferring: dict[TopicPartition, str] | None = None
        """As of the last assignment, each partition that changes its owner; None if that is not known."""

    @abstractmethod
    def member_data(self, subscription: Subscription) -> MemberData:
        """Return the partitions that the member owned, and their generation."""

    @override
    def assign_partitions(self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]) -> _Lists:
        data = {member_id: self.member_data(each) for member_id, each in subscriptions.items()}
        ownership = self._ownership(topics, subscriptions, data)
        racks = RackInfo(topics, subscriptions)
        if _subscribe_equally(subscriptions):
            constrained = ConstrainedAssignment(topics, racks, ownership.owned, ownership.claimed_twice)
            self._transferring = constrained.transferring
            return constrained.build()
        self._transferring = None
        previous = self._previous_owners(data)
        return GeneralAssignment(topics, racks, ownership.owned, previous, subscriptions).build()

    def _ownership(
        self,
        topics: GroupTopics,
        subscriptions: Mapping[str, Subscription],
        data: Mapping[str, MemberData],
    ) -> _Ownership:
        result = _Ownership()
        for member_id, each in data.items():
            generation = NO_GENERATION if each.generation is None else each.generation
            self._max_generation = max(self._max_generation, generation)
            result.owned[member_id] = []
            for partition in each.partitions:
                if partition.partition < len(topics.get(partition.topic, ())):
                    _claim(result, partition, member_id, generation, subscriptions)
        return result

    def _previous_owners(self, data: Mapping[str, MemberData]) -> dict[TopicPartition, str]:
        """Return the owners of partitions in generations before the newest, the latest of them for each."""
        found: dict[TopicPartition, tuple[str, int]] = {}
        for member_id, each in data.items():
            generation = NO_GENERATION if each.generation is None else each.generation
            if generation >= self._max_generation:
                continue
            for partition in each.partitions:
                if partition not in found or generation > found[partition][1]:
                    found[partition] = member_id, generation
        return {partition: member_id for partition, (member_id, _) in found.items()}


class StickyAssignor(AbstractStickyAssignor):
    """Keeps assignments across eager rebalances, as Java's ``StickyAssignor``."""

    name: ClassVar[str] = "sticky"

    def __init__(self) -> None:
        super().__init__()
        self._memory: MemberData | None = None

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the last assignment with its generation (version 1), or None before the first one."""
        return None if self._memory is None else write_user_data(self._memory)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Remember the assignment for the next rebalance."""
        self._memory = MemberData(assignment.partitions, generation_id)

    def member_data(self, subscription: Subscription) -> MemberData:
        """Return the partitions in the user data, because owned ones are revoked before an eager join."""
        if not subscription.user_data:
            return MemberData(())
        return read_user_data(subscription.user_data)


def _claim(
    result: _Ownership,
    partition: TopicPartition,
    member_id: str,
    generation: int,
    subscriptions: Mapping[str, Subscription],
) -> None:
    """Settle who owns a partition: the member of the newer generation, neither if they are of the same."""
    other = result.owners.get(partition)
    if other is None:
        result.owned[member_id].append(partition)
        result.owners[partition] = member_id
        return
    other_generation = subscriptions[other].generation_id
    if generation < max(other_generation, NO_GENERATION):
        return
    if generation == max(other_generation, NO_GENERATION):
        result.claimed_twice.add(partition)
    else:
        result.owned[member_id].append(partition)
    if partition in result.owned[other]:
        result.owned[other].remove(partition)
    result.owners[partition] = member_id


def _subscribe_equally(subscriptions: Mapping[str, Subscription]) -> bool:
    """Return whether all members subscribe to the same topics; Java ignores leading members without any."""
    first: frozenset[str] = frozenset()
    for subscription in subscriptions.values():
        if not first:
            first = frozenset(subscription.topics)
        elif len(subscription.topics) != len(first) or not first.issuperset(subscription.topics):
            return False
    return True

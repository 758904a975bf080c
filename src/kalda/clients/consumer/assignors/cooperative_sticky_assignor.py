"""The cooperative sticky assignor: sticky, and a partition is revoked by one member before another gets it.

What is to change its owner is left out of the assignment. The old owner revokes it and joins again, and the
rebalance that follows assigns it (KIP-429). Equal to Java's ``CooperativeStickyAssignor``.
"""

from collections.abc import Collection, Mapping
from typing import ClassVar

from kalda.clients.consumer.assignors.partition_assignor import (
    NO_GENERATION,
    Assignment,
    GroupTopics,
    RebalanceProtocol,
    Subscription,
)
from kalda.clients.consumer.assignors.sticky_assignor import AbstractStickyAssignor
from kalda.clients.consumer.assignors.sticky_user_data import MemberData, read_generation, write_generation
from kalda.common.types import TopicPartition


class CooperativeStickyAssignor(AbstractStickyAssignor):
    """Assigns as the sticky assignor, less what other members still have to revoke."""

    name: ClassVar[str] = "cooperative-sticky"
    supported_protocols: ClassVar[frozenset[RebalanceProtocol]] = frozenset(RebalanceProtocol)

    def __init__(self) -> None:
        super().__init__()
        self._generation = NO_GENERATION

    def subscription_user_data(self, topics: Collection[str]) -> bytes | None:
        """Return the generation of the last assignment, for leaders that read subscriptions below v2."""
        return write_generation(self._generation)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        """Remember the generation for the next rebalance."""
        self._generation = generation_id

    def member_data(self, subscription: Subscription) -> MemberData:
        """Return a subscription's partitions and generation; user data gives a missing generation."""
        generation: int | None = subscription.generation_id
        if subscription.generation_id < 0:
            generation = read_generation(subscription.user_data)
        return MemberData(subscription.owned_partitions, generation)

    def assign_partitions(
        self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]
    ) -> dict[str, list[TopicPartition]]:
        """Return the partitions that every member may have now."""
        assignment = super().assign_partitions(topics, subscriptions)
        transferring = self._transferring
        if transferring is None:
            transferring = _transfers(subscriptions, assignment)
        for partition, member_id in transferring.items():
            if partition in assignment[member_id]:
                assignment[member_id].remove(partition)
        return assignment


def _transfers(
    subscriptions: Mapping[str, Subscription], assignment: Mapping[str, list[TopicPartition]]
) -> dict[TopicPartition, str]:
    """Return the new owner of each partition that another member has to revoke first."""
    added: dict[TopicPartition, str] = {}
    revoked: set[TopicPartition] = set()
    for member_id, partitions in assignment.items():
        owned = set(subscriptions[member_id].owned_partitions)
        added.update((partition, member_id) for partition in partitions if partition not in owned)
        revoked |= owned.difference(partitions)
    return {partition: member_id for partition, member_id in added.items() if partition in revoked}

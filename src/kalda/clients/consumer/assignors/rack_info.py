"""Computes which members and replicas share racks, for the sticky assignors (KIP-881)."""

from collections.abc import Mapping, Sequence

from kalda.clients.consumer.assignors.partition_assignor import GroupTopics, Subscription, uses_racks
from kalda.common.types import TopicPartition

_NO_RACKS: frozenset[str] = frozenset()


class RackInfo:
    """Which members and replicas share a rack; empty where racks do not matter."""

    __slots__ = ("_consumer_counts", "_partition_racks", "consumer_racks")

    def __init__(self, topics: GroupTopics, subscriptions: Mapping[str, Subscription]) -> None:
        racks = {member_id: each.rack_id for member_id, each in subscriptions.items() if each.rack_id}
        partition_racks: dict[TopicPartition, frozenset[str]] = {}
        if racks:
            for topic, replica_racks in topics.items():
                for number, each in enumerate(replica_racks):
                    partition_racks[TopicPartition(topic, number)] = each
        counts: dict[str, int] = {}
        for rack in racks.values():
            counts[rack] = counts.get(rack, 0) + 1
        # Java counts also where racks turn out not to matter, and sorts by it.
        self._consumer_counts = {
            partition: sum(counts.get(rack, 0) for rack in each)
            for partition, each in partition_racks.items()
        }
        matters = uses_racks(counts, partition_racks)
        self.consumer_racks: dict[str, str] = racks if matters else {}
        self._partition_racks = partition_racks if matters else {}

    def replica_racks(self, partition: TopicPartition) -> frozenset[str]:
        """Return the racks of the partition's replicas."""
        return self._partition_racks.get(partition, _NO_RACKS)

    def mismatch(self, member_id: str, partition: TopicPartition) -> bool:
        """Return whether the member has a rack and no replica of the partition is on it."""
        rack = self.consumer_racks.get(member_id)
        return rack is not None and rack not in self.replica_racks(partition)

    def sorted_by_consumers(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions with those first that have the fewest members on their racks."""
        if not self._consumer_counts:
            return partitions
        return sorted(partitions, key=lambda partition: self._consumer_counts.get(partition, 0))

    def next_member(self, partition: TopicPartition, member_ids: Sequence[str], first_index: int) -> int:
        """Return the index of the next member, cyclically, on a rack of the partition, or -1."""
        racks = self.replica_racks(partition)
        if not racks:
            return -1
        for step in range(len(member_ids)):
            index = (first_index + step) % len(member_ids)
            if self.consumer_racks.get(member_ids[index]) in racks:
                return index
        return -1

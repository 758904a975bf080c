"""Remembers which partitions the sticky assignor has moved, so that two members never swap partitions."""

from kalda.clients.consumer.assignors.java_order import HashOrderedSet, partition_hash
from kalda.common.types import TopicPartition

_Pair = tuple[str, str]
"""The member that had the partition at first, and the one that has it now."""


class PartitionMovements:
    """Moves between members, by topic."""

    __slots__ = ("_by_topic", "_pairs")

    def __init__(self) -> None:
        self._pairs: dict[TopicPartition, _Pair] = {}
        self._by_topic: dict[str, dict[_Pair, HashOrderedSet[TopicPartition]]] = {}

    def move(self, partition: TopicPartition, old_member_id: str, new_member_id: str) -> None:
        """Note a move; a partition that moved before counts as moved from its first member."""
        pair = self._pairs.get(partition)
        if pair is None:
            self._add(partition, (old_member_id, new_member_id))
            return
        self._remove(partition, pair)
        if pair[0] != new_member_id:
            self._add(partition, (pair[0], new_member_id))

    def partition_to_move(
        self, partition: TopicPartition, old_member_id: str, new_member_id: str
    ) -> TopicPartition:
        """Return the partition to move instead: one that came the other way if there is one."""
        pairs = self._by_topic.get(partition.topic)
        if pairs is None:
            return partition
        first_member_id = self._pairs[partition][0] if partition in self._pairs else old_member_id
        reverse = pairs.get((new_member_id, first_member_id))
        return partition if reverse is None else reverse.first()

    def _add(self, partition: TopicPartition, pair: _Pair) -> None:
        self._pairs[partition] = pair
        pairs = self._by_topic.setdefault(partition.topic, {})
        pairs.setdefault(pair, HashOrderedSet(partition_hash)).add(partition)

    def _remove(self, partition: TopicPartition, pair: _Pair) -> None:
        del self._pairs[partition]
        pairs = self._by_topic[partition.topic]
        pairs[pair].discard(partition)
        if not pairs[pair]:
            del pairs[pair]
        if not pairs:
            del self._by_topic[partition.topic]

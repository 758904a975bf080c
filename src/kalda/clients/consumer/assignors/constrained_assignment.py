"""Computes the sticky assignment when all members subscribe to the same topics (KIP-54, KIP-341).

Members keep what they own up to their quota; the rest goes in turn to those below it, first within racks
where these matter. The result depends on the order in which Java iterates over the members: keep every loop
in that order.
"""

from collections import deque
from collections.abc import Mapping

from kalda.clients.consumer.assignors.java_order import sort_key
from kalda.clients.consumer.assignors.partition_assignor import GroupTopics
from kalda.clients.consumer.assignors.rack_info import RackInfo
from kalda.common.types import TopicPartition


class ConstrainedAssignment:
    """Computes one assignment; use it once."""

    def __init__(
        self,
        topics: GroupTopics,
        racks: RackInfo,
        owned: Mapping[str, list[TopicPartition]],
        claimed_twice: set[TopicPartition],
    ) -> None:
        """`owned` has the partitions of every member; nobody keeps those in `claimed_twice`."""
        self._topics = topics
        self._racks = racks
        self._owned = owned
        self._claimed_twice = claimed_twice
        partition_count = sum(map(len, topics.values()))
        self._min_quota, self._full_members_expected = divmod(partition_count, len(owned))
        self._max_quota = self._min_quota + (self._full_members_expected > 0)
        # Members with more than `_min_quota` partitions; stays 0 where both quotas are equal.
        self._full_members = 0
        self._below_min: list[str] = []
        self._at_min: deque[str] = deque()
        self._rack_turn = 0
        self._maybe_revoked: dict[TopicPartition, str] = {}
        self._assignment: dict[str, list[TopicPartition]] = {member_id: [] for member_id in owned}
        self.transferring: dict[TopicPartition, str] = {}
        """The new owner of each partition that another member owned: for cooperative rebalancing."""

    def build(self) -> dict[str, list[TopicPartition]]:
        """Return the partitions of every member."""
        for member_id, partitions in self._owned.items():
            self._keep_owned(member_id, partitions)
        unassigned = self._racks.sorted_by_consumers(self._unassigned())
        self._below_min.sort(key=sort_key)
        self._at_min = deque(sorted(self._at_min, key=sort_key))
        if self._racks.consumer_racks:
            unassigned = [each for each in unassigned if not self._assign_in_rack_turn(each)]
        self._assign_in_turn(unassigned)
        return self._assignment

    def _keep_owned(self, member_id: str, partitions: list[TopicPartition]) -> None:
        kept = []
        for partition in partitions:
            if self._racks.mismatch(member_id, partition):
                self._maybe_revoked[partition] = member_id
            elif partition not in self._claimed_twice:
                kept.append(partition)
        kept.sort(key=lambda each: (each.partition, each.topic))
        if len(kept) < self._min_quota:
            self._assignment[member_id] += kept
            self._below_min.append(member_id)
            return
        may_exceed = self._full_members < self._full_members_expected
        if len(kept) >= self._max_quota and may_exceed:
            self._fill()
            quota = self._max_quota
        else:
            quota = self._min_quota
            if may_exceed:
                self._at_min.append(member_id)
        self._assignment[member_id] += kept[:quota]
        for partition in kept[quota:]:
            self._maybe_revoked[partition] = member_id

    def _fill(self) -> None:
        """Count one more full member; after the last one, members at the minimum get nothing more."""
        self._full_members += 1
        if self._full_members == self._full_members_expected:
            self._at_min.clear()

    def _unassigned(self) -> list[TopicPartition]:
        assigned = {partition for each in self._assignment.values() for partition in each}
        every = (
            TopicPartition(topic, n)
            for topic in sorted(self._topics)
            for n in range(len(self._topics[topic]))
        )
        return [partition for partition in every if partition not in assigned]

    def _assign_in_rack_turn(self, partition: TopicPartition) -> bool:
        """Give the partition to the next member on one of its racks, if that member may have one more."""
        index = self._racks.next_member(partition, self._below_min, self._rack_turn)
        if index >= 0:
            member_id = self._below_min[index]
            count = len(self._assignment[member_id]) + 1
            if count >= self._min_quota:
                del self._below_min[index]
                if count < self._max_quota and self._full_members < self._full_members_expected:
                    self._at_min.append(member_id)
            else:
                index += 1
            self._rack_turn = index % len(self._below_min) if self._below_min else 0
            self._assign(partition, member_id)
            return True
        index = self._racks.next_member(partition, self._at_min, 0)
        if index < 0:
            return False
        member_id = self._at_min[index]
        if len(self._assignment[member_id]) + 1 == self._max_quota:
            del self._at_min[index]
            self._fill()
        self._assign(partition, member_id)
        return True

    def _assign_in_turn(self, unassigned: list[TopicPartition]) -> None:
        """Give each partition to the next member below the minimum, then to those at it."""
        index = 0
        for partition in unassigned:
            if not self._below_min:
                member_id = self._at_min.popleft()
            else:
                if index >= len(self._below_min):
                    index = 0
                member_id = self._below_min[index]
                index += 1
            self._assign(partition, member_id)
            if len(self._assignment[member_id]) == self._min_quota:
                index -= 1
                del self._below_min[index]
                self._at_min.append(member_id)

    def _assign(self, partition: TopicPartition, member_id: str) -> None:
        self._assignment[member_id].append(partition)
        if self._maybe_revoked.get(partition, member_id) != member_id or partition in self._claimed_twice:
            self.transferring[partition] = member_id

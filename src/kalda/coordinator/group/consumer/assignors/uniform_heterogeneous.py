"""The uniform assignor for members with different subscriptions.

Members keep what they may. A free partition goes to the subscriber with the fewest partitions; topics with
the fewest subscribers come first, as they have the least choice. Then partitions move from a member to
another subscriber with at least two fewer, until no such pair is left. Each move lowers the sum of the
squared counts, so this ends. What must not break: in the result no move makes two members more equal. Kafka's
counterpart is ``UniformHeterogeneousAssignmentBuilder``.
"""

from collections.abc import Sequence
from heapq import heapify, heappop, heappush, heapreplace

from kalda.common.steps import Steps
from kalda.common.types import UUID
from kalda.coordinator.group.consumer.assignors.partition_assignor import MEMBERS_PER_STEP, GroupSpec
from kalda.coordinator.group.consumer.member import Assignment


def assign_heterogeneous(group: GroupSpec) -> Steps[dict[str, Assignment]]:
    """Assign the partitions of a group; the order of members and of topic ids decides ties."""
    return (yield from _Builder(group).build())


class _Builder:
    """Builds one assignment; members are numbered, `owned[topic][member]` are the partitions so far."""

    def __init__(self, group: GroupSpec) -> None:
        self._group = group
        self._ids = group.ordered_ids
        self._loads = [0] * len(self._ids)
        self._subscribers: dict[UUID, list[int]] = {}
        self._owned: dict[UUID, dict[int, set[int]]] = {}
        self._topics: list[UUID] = []

    def build(self) -> Steps[dict[str, Assignment]]:
        """Keep, fill and balance."""
        subscribers = self._subscribers
        for number, member_id in enumerate(self._ids):
            if number % MEMBERS_PER_STEP == 0:
                yield
            for topic_id in self._group.members[member_id].topics:
                subscribers.setdefault(topic_id, []).append(number)
        self._topics = sorted(subscribers, key=lambda topic_id: (len(subscribers[topic_id]), topic_id.int))
        free = yield from self._keep()
        for topic_id in self._topics:
            if free[topic_id]:
                yield
                self._fill(topic_id, free[topic_id])
        moved = True
        while moved:
            moved = False
            for topic_id in self._topics:
                yield
                moved = bool(self._balance(topic_id)) or moved
        result: dict[str, dict[UUID, frozenset[int]]] = {member_id: {} for member_id in self._ids}
        for topic_id, owners in self._owned.items():
            yield
            for number, partitions in owners.items():
                if partitions:
                    result[self._ids[number]][topic_id] = frozenset(partitions)
        return dict(result)

    def _keep(self) -> Steps[dict[UUID, Sequence[int]]]:
        """Assign what members have and may keep; return the free partitions."""
        taken = {topic_id: bytearray(self._group.partition_counts[topic_id]) for topic_id in self._topics}
        self._owned = {topic_id: {} for topic_id in self._topics}
        for number, member_id in enumerate(self._ids):
            if number % MEMBERS_PER_STEP == 0:
                yield
            member = self._group.members[member_id]
            for topic_id, partitions in member.assigned.items():
                if topic_id not in member.topics:
                    continue
                marks = taken[topic_id]
                stay = {p for p in partitions if 0 <= p < len(marks) and not marks[p]}
                for partition in stay:
                    marks[partition] = 1
                self._owned[topic_id][number] = stay
                self._loads[number] += len(stay)
        return {
            topic_id: [partition for partition, is_taken in enumerate(marks) if not is_taken]
            for topic_id, marks in taken.items()
        }

    def _fill(self, topic_id: UUID, partitions: Sequence[int]) -> None:
        """Assign each free partition to the subscriber with the fewest partitions."""
        loads = self._loads
        owners = self._owned[topic_id]
        heap = [(loads[number], number) for number in self._subscribers[topic_id]]
        heapify(heap)
        for partition in partitions:
            load, number = heap[0]
            owners.setdefault(number, set()).add(partition)
            loads[number] = load + 1
            heapreplace(heap, (load + 1, number))

    def _balance(self, topic_id: UUID) -> int:
        """Move partitions of a topic from the fullest to the emptiest subscriber; return how many moved."""
        loads = self._loads
        owners = self._owned[topic_id]
        most = [(-loads[number], number) for number, partitions in owners.items() if partitions]
        if not most:
            return 0
        least = [(loads[number], number) for number in self._subscribers[topic_id]]
        if -min(most)[0] - min(least)[0] < 2:
            return 0
        heapify(most)
        heapify(least)
        moved = 0
        # An entry with an outdated load is corrected when it comes to the top.
        while most:
            negative, giver = most[0]
            if -negative != loads[giver]:
                heapreplace(most, (-loads[giver], giver))
                continue
            load, taker = least[0]
            if load != loads[taker]:
                heapreplace(least, (loads[taker], taker))
                continue
            if loads[giver] - load < 2:
                break
            partition = max(owners[giver])
            owners[giver].remove(partition)
            owners.setdefault(taker, set()).add(partition)
            loads[giver] -= 1
            loads[taker] += 1
            moved += 1
            heapreplace(least, (load + 1, taker))
            if owners[giver]:
                heapreplace(most, (-loads[giver], giver))
            else:
                heappop(most)
            if len(owners[taker]) == 1:
                heappush(most, (-loads[taker], taker))
        return moved

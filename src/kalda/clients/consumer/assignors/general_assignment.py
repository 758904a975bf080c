"""Computes the sticky assignment when members subscribe to different topics (KIP-54).

Members keep what they own and may have. What is unassigned goes to the member with the fewest partitions.
Then partitions move, at best back to an earlier owner, until the assignment is balanced or no move helps. The
result depends on the order in which Java iterates over members and partitions: keep every loop in it.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping

from kalda.clients.consumer.assignors.java_order import sort_key
from kalda.clients.consumer.assignors.partition_assignor import GroupTopics, Subscription
from kalda.clients.consumer.assignors.partition_movements import PartitionMovements
from kalda.clients.consumer.assignors.rack_info import RackInfo
from kalda.common.types import TopicPartition

_Lists = dict[str, list[TopicPartition]]


class GeneralAssignment:
    """Computes one assignment; use it once."""

    def __init__(
        self,
        topics: GroupTopics,
        racks: RackInfo,
        owned: _Lists,
        previous: Mapping[TopicPartition, str],
        subscriptions: Mapping[str, Subscription],
    ) -> None:
        """`owned` has the partitions of every member, `previous` owners of older generations."""
        self._topics = topics
        self._racks = racks
        self._assignment = owned
        self._previous = previous
        self._subscribers: dict[str, list[str]] = {topic: [] for topic in topics}
        self._subscribed: dict[str, dict[str, None]] = {}
        for member_id, subscription in subscriptions.items():
            existing = dict.fromkeys(topic for topic in subscription.topics if topic in topics)
            self._subscribed[member_id] = existing
            for topic in existing:
                self._subscribers[topic].append(member_id)
        self._owners = {each: member_id for member_id, partitions in owned.items() for each in partitions}
        names = sorted(topics, key=lambda topic: (len(self._subscribers[topic]), topic))
        self._partitions = [TopicPartition(topic, n) for topic in names for n in range(len(topics[topic]))]
        self._by_load = _MembersByLoad(self._load)
        self._revocation_required = False
        self._movements = PartitionMovements()

    def build(self) -> _Lists:
        """Return the partitions of every member."""
        kept = self._keep_owned()
        unassigned = [partition for partition in self._partitions if partition not in kept]
        for member_id in self._assignment:
            self._by_load.add(member_id)
        initializing = not self._assignment[self._by_load.last()]
        self._assign_all(unassigned)
        self._balance(unassigned, initializing)
        return self._assignment

    def _load(self, member_id: str) -> int:
        return len(self._assignment[member_id])

    def _keep_owned(self) -> set[TopicPartition]:
        kept: set[TopicPartition] = set()
        for member_id, partitions in self._assignment.items():
            still_owned = []
            for partition in partitions:
                if partition.topic in self._subscribed[member_id] and not self._racks.mismatch(
                    member_id, partition
                ):
                    still_owned.append(partition)
                else:
                    self._revocation_required = True
            self._assignment[member_id] = still_owned
            kept.update(still_owned)
        return kept

    def _assign_all(self, unassigned: list[TopicPartition]) -> None:
        """Assign first within racks, where these matter, then anywhere."""
        remaining = [each for each in unassigned if self._subscribers[each.topic]]
        if self._racks.consumer_racks:
            remaining = [each for each in remaining if not self._assign(each, within_racks=True)]
        for partition in remaining:
            self._assign(partition, within_racks=False)

    def _assign(self, partition: TopicPartition, *, within_racks: bool) -> bool:
        """Give the partition to the member with the fewest partitions that may have it."""
        for member_id in self._by_load:
            if partition.topic not in self._subscribed[member_id]:
                continue
            if within_racks and self._racks.mismatch(member_id, partition):
                continue
            self._by_load.remove(member_id)
            self._assignment[member_id].append(partition)
            self._owners[partition] = member_id
            self._by_load.add(member_id)
            return True
        return False

    def _balance(self, unassigned: list[TopicPartition], initializing: bool) -> None:
        movable = {topic for topic, members in self._subscribers.items() if len(members) > 1}
        fixed = {each for each in self._subscribed if not self._can_participate(each, movable)}
        fixed_assignment = {each: self._assignment.pop(each) for each in fixed if self._by_load.remove(each)}
        before = {member_id: list(partitions) for member_id, partitions in self._assignment.items()}

        if not self._revocation_required:
            # Without revocations for other reasons, at first only what is new moves.
            self._reassign([each for each in unassigned if each.topic in movable])
        moved = self._reassign([each for each in self._partitions if each.topic in movable])
        if moved and not initializing and _imbalance(self._assignment) >= _imbalance(before):
            self._assignment = before
        self._assignment.update(fixed_assignment)

    def _can_participate(self, member_id: str, movable: set[str]) -> bool:
        """Return whether the member could have more partitions, or has one that others may have."""
        possible = sum(len(self._topics[topic]) for topic in self._subscribed[member_id])
        partitions = self._assignment[member_id]
        return len(partitions) < possible or any(each.topic in movable for each in partitions)

    def _reassign(self, partitions: list[TopicPartition]) -> bool:
        """Move partitions until the assignment is balanced or none can move; return whether one moved."""
        moved_any = False
        while True:
            moved = False
            for partition in partitions:
                if self._is_balanced():
                    break
                moved = self._improve(partition) or moved
            if not moved:
                return moved_any
            moved_any = True

    def _is_balanced(self) -> bool:
        members = self._by_load
        if not members or self._load(members.first()) >= self._load(members.last()) - 1:
            return True
        largest: dict[str, int] = {}
        for partitions in self._assignment.values():
            load = len(partitions)
            for topic in {each.topic for each in partitions}:
                largest[topic] = max(load, largest.get(topic, 0))
        return not any(
            largest.get(topic, 0) > self._load(member_id) + 1
            for member_id in members
            for topic in self._subscribed[member_id]
        )

    def _improve(self, partition: TopicPartition) -> bool:
        """Move the partition if another member that may have it has at least two fewer."""
        owner = self._owners[partition]
        load = self._load(owner)
        previous = self._previous.get(partition)
        # Java also gives the partition back to a member that has stopped to subscribe to the topic, and that
        # member then joins again and again.
        subscribed = self._subscribed.get(previous, ()) if previous in self._assignment else ()
        if previous is not None and partition.topic in subscribed and load > self._load(previous) + 1:
            self._reassign_partition(partition, previous)
            return True
        # Java looks on the racks first, and then moves to the least loaded member all the same.
        if not any(load > self._load(each) + 1 for each in self._subscribers[partition.topic]):
            return False
        target = next(each for each in self._by_load if partition.topic in self._subscribed[each])
        self._reassign_partition(partition, target)
        return True

    def _reassign_partition(self, partition: TopicPartition, new_member_id: str) -> None:
        owner = self._owners[partition]
        moving = self._movements.partition_to_move(partition, owner, new_member_id)
        old_member_id = self._owners[moving]
        self._by_load.remove(old_member_id)
        self._by_load.remove(new_member_id)
        self._movements.move(moving, old_member_id, new_member_id)
        self._assignment[old_member_id].remove(moving)
        self._assignment[new_member_id].append(moving)
        self._owners[moving] = new_member_id
        self._by_load.add(new_member_id)
        self._by_load.add(old_member_id)


class _MembersByLoad:
    """Members by the number of their partitions, then by id.

    Invariant: a member's load changes only while the member is not in here.
    """

    __slots__ = ("_load", "_members")

    def __init__(self, load: Callable[[str], int]) -> None:
        self._load = load
        self._members: list[tuple[int, bytes, str]] = []

    def __bool__(self) -> bool:
        return bool(self._members)

    def __iter__(self) -> Iterator[str]:
        return (member_id for _, _, member_id in self._members)

    def first(self) -> str:
        return self._members[0][2]

    def last(self) -> str:
        return self._members[-1][2]

    def add(self, member_id: str) -> None:
        insort(self._members, self._entry(member_id))

    def remove(self, member_id: str) -> bool:
        """Remove the member; return whether it was in here."""
        entry = self._entry(member_id)
        index = bisect_left(self._members, entry)
        if index < len(self._members) and self._members[index] == entry:
            del self._members[index]
            return True
        return False

    def _entry(self, member_id: str) -> tuple[int, bytes, str]:
        return self._load(member_id), sort_key(member_id), member_id


def _imbalance(assignment: _Lists) -> int:
    """Return the sum of the differences of all pairs of members; 0 is perfect balance."""
    total = seen = 0
    for position, load in enumerate(sorted(map(len, assignment.values()))):
        total += position * load - seen
        seen += load
    return total

"""The uniform assignor: all members get the same number of partitions and keep those that they have.

With equal subscriptions the counts differ by one at most, and no partition moves without need
(`_assign_homogeneous`). Different subscriptions are handled by `uniform_heterogeneous`.
"""

from typing import ClassVar

from kalda.common.steps import Steps
from kalda.common.types import UUID
from kalda.coordinator.group.consumer.assignors.partition_assignor import MEMBERS_PER_STEP, GroupSpec
from kalda.coordinator.group.consumer.assignors.uniform_heterogeneous import assign_heterogeneous
from kalda.coordinator.group.consumer.member import EMPTY_ASSIGNMENT, Assignment


class UniformAssignor:
    """Assigns equal counts with the fewest moves."""

    name: ClassVar[str] = "uniform"

    def assign(self, group: GroupSpec) -> Steps[dict[str, Assignment]]:
        """Assign by the algorithm that fits the subscriptions."""
        if not group.members:
            return {}
        if group.is_homogeneous:
            return (yield from _assign_homogeneous(group))
        return (yield from assign_heterogeneous(group))


def _assign_homogeneous(group: GroupSpec) -> Steps[dict[str, Assignment]]:
    """Let each member keep up to its quota, then fill those that have less.

    The quotas that are one larger go to members that have that many already (Kafka gives them to the first
    members and so moves partitions that could stay).
    """
    topics = next(iter(group.members.values())).topics
    if not topics:
        return dict.fromkeys(group.members, EMPTY_ASSIGNMENT)
    counts = {topic_id: group.partition_counts[topic_id] for topic_id in topics}
    taken: dict[UUID, bytearray] = {topic_id: bytearray(count) for topic_id, count in counts.items()}
    kept: dict[str, Assignment] = {}
    for number, member_id in enumerate(group.ordered_ids):
        if number % MEMBERS_PER_STEP == 0:
            yield
        kept[member_id] = _valid(group.members[member_id].assigned, taken)
    sizes = {
        member_id: sum(len(partitions) for partitions in assigned.values())
        for member_id, assigned in kept.items()
    }
    quota, extra = divmod(sum(counts.values()), len(kept))
    larger: set[str] = set()
    for wants_larger in (True, False):
        for member_id, size in sizes.items():
            if len(larger) < extra and (size > quota) is wants_larger:
                larger.add(member_id)
    for number, (member_id, assigned) in enumerate(kept.items()):
        if number % MEMBERS_PER_STEP == 0:
            yield
        surplus = sizes[member_id] - quota - (member_id in larger)
        if surplus > 0:
            kept[member_id] = _without_surplus(assigned, surplus, taken)
            sizes[member_id] -= surplus
    free: list[tuple[UUID, int]] = []
    for topic_id in sorted(topics, key=_by_number):
        yield
        free += [(topic_id, partition) for partition, is_taken in enumerate(taken[topic_id]) if not is_taken]
    free.reverse()
    for number, (member_id, assigned) in enumerate(kept.items()):
        if number % MEMBERS_PER_STEP == 0:
            yield
        space = quota + (member_id in larger) - sizes[member_id]
        if space > 0 and free:
            kept[member_id] = _with_free(assigned, space, free)
    assert not free, f"{len(free)} partitions are not assigned although the quotas add up to all partitions"
    return dict(kept)


def _by_number(topic_id: UUID) -> int:
    return topic_id.int


def _valid(assigned: Assignment, taken: dict[UUID, bytearray]) -> Assignment:
    """Return the part of an assignment that may stay: partitions that exist, are subscribed and not taken."""
    valid: dict[UUID, frozenset[int]] = {}
    for topic_id, partitions in assigned.items():
        marks = taken.get(topic_id)
        if marks is None:
            continue
        count = len(marks)
        stay = [partition for partition in partitions if 0 <= partition < count and not marks[partition]]
        for partition in stay:
            marks[partition] = 1
        if stay:
            valid[topic_id] = partitions if len(stay) == len(partitions) else frozenset(stay)
    return assigned if len(valid) == len(assigned) and _same(valid, assigned) else valid


def _same(one: Assignment, other: Assignment) -> bool:
    return all(partitions is other[topic_id] for topic_id, partitions in one.items())


def _without_surplus(assigned: Assignment, surplus: int, taken: dict[UUID, bytearray]) -> Assignment:
    """Remove `surplus` partitions, the highest of the last topics first."""
    result = dict(assigned)
    for topic_id in sorted(assigned, key=_by_number, reverse=True):
        if surplus == 0:
            break
        partitions = sorted(result[topic_id])
        stay = max(0, len(partitions) - surplus)
        marks = taken[topic_id]
        for partition in partitions[stay:]:
            marks[partition] = 0
        surplus -= len(partitions) - stay
        if stay:
            result[topic_id] = frozenset(partitions[:stay])
        else:
            del result[topic_id]
    return result


def _with_free(assigned: Assignment, space: int, free: list[tuple[UUID, int]]) -> Assignment:
    """Add the next `space` free partitions, taken from the end of `free`."""
    added: dict[UUID, set[int]] = {}
    for _ in range(min(space, len(free))):
        topic_id, partition = free.pop()
        added.setdefault(topic_id, set()).add(partition)
    result = dict(assigned)
    for topic_id, partitions in added.items():
        result[topic_id] = result.get(topic_id, frozenset()) | partitions
    return result

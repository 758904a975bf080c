"""Proposes assignments that move as few replicas as possible: off brokers, and to brokers with fewer of them.

Sans-IO, as `kalda.tools.reassignment_plan`, whose `propose` assigns everything from the beginning instead.
The number of replicas counts, not their size.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from kalda.command.errors import ToolError
from kalda.common.log_text import counted
from kalda.common.types import TopicPartition
from kalda.tools.reassignment_plan import Assignment

Racks = Mapping[int, str | None]
"""The brokers that may have replicas, with their racks."""


def drain(current: Mapping[TopicPartition, Sequence[int]], racks: Racks, *brokers: int) -> Assignment:
    """Return the assignment with the replicas on some brokers moved to those of `racks`; all else stays.

    A replica goes to a broker in a rack that the partition does not use yet, where there is one, and among
    these to the broker with the fewest replicas, then with the fewest of its topic. It takes the place of the
    former one in the order of replicas.

    Args:
        current: the partitions with their replicas.
        racks: the brokers that may get replicas, with their racks.
        brokers: those that lose theirs.

    Raises:
        ToolError: no broker is left for a replica.

    >>> drain({TopicPartition("foo", 0): (0, 1)}, {1: None, 2: None}, 0)
    {TopicPartition(topic='foo', partition=0): (2, 1)}
    """
    plan = _Plan(racks, {each: list(replicas) for each, replicas in sorted(current.items())})
    for partition, replicas in plan.replicas.items():
        for place, broker_id in enumerate(replicas):
            if broker_id not in brokers:
                continue
            if not racks.keys() - set(replicas):
                raise ToolError(
                    f"{partition} has {counted(len(replicas), 'replica')}, brokers that remain: "
                    f"{len(racks)}; start another broker, or give the partition fewer replicas first"
                )
            plan.move(partition, place, plan.target(partition, place))
    return plan.assignment()


def rebalance(current: Mapping[TopicPartition, Sequence[int]], racks: Racks) -> Assignment:
    """Return an assignment to the brokers of `racks` alone, whose numbers of replicas differ by at most one.

    No more replicas move than that takes. No replica moves to a rack that another one of its partition uses,
    unless its own rack is shared too; brokers can then stay uneven. Preferred leaders are balanced by the
    order of replicas, which moves no data.

    Raises:
        ToolError: a partition has more replicas than there are brokers.
    """
    others = {each for replicas in current.values() for each in replicas} - racks.keys()
    drained = drain(current, racks, *others)
    plan = _Plan(racks, {each: list(replicas) for each, replicas in drained.items()})
    plan.level_replicas()
    plan.level_leaders()
    return plan.assignment()


def check_all_run(current: Mapping[TopicPartition, Sequence[int]], racks: Racks) -> None:
    """Check that `racks` has each broker with a replica: one that restarts must not lose its replicas.

    Raises:
        ToolError: a broker with replicas does not run.
    """
    absent = {each for replicas in current.values() for each in replicas} - racks.keys()
    if absent:
        raise ToolError(
            f"brokers {', '.join(map(str, sorted(absent)))} have replicas and do not run; start them, or "
            "name with --broker-list the brokers that shall have all replicas"
        )


def changes(before: Assignment, after: Assignment) -> tuple[Assignment, Assignment]:
    """Return both assignments with only the partitions in which they differ."""
    changed = [each for each, replicas in after.items() if replicas != before[each]]
    return {each: before[each] for each in changed}, {each: after[each] for each in changed}


def moved_replicas(
    before: Mapping[TopicPartition, Sequence[int]], after: Mapping[TopicPartition, Sequence[int]]
) -> int:
    """Count the replicas that must be copied to another broker."""
    return sum(len(set(replicas) - set(before[partition])) for partition, replicas in after.items())


@dataclass(slots=True)
class _Plan:
    racks: Racks
    replicas: dict[TopicPartition, list[int]]
    counts: Counter[int] = field(default_factory=Counter)
    """By broker, its replicas; always those of `replicas`."""
    topic_counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    """The same by topic and broker."""

    def __post_init__(self) -> None:
        for partition, replicas in self.replicas.items():
            for broker_id in replicas:
                self._count(partition, broker_id, 1)

    def assignment(self) -> Assignment:
        return {partition: tuple(replicas) for partition, replicas in self.replicas.items()}

    def move(self, partition: TopicPartition, place: int, broker_id: int) -> None:
        self._count(partition, self.replicas[partition][place], -1)
        self._count(partition, broker_id, 1)
        self.replicas[partition][place] = broker_id

    def target(self, partition: TopicPartition, place: int) -> int:
        """Return the best broker for a replica that must move."""
        return min(
            (each for each in self.racks if each not in self.replicas[partition]),
            key=lambda each: (
                self._shares_rack(partition, place, each),
                self.counts[each],
                self.topic_counts[partition.topic, each],
                each,
            ),
        )

    def level_replicas(self) -> None:
        """Move replicas from the broker with the most to those with the fewest, until no move evens them."""
        while (found := self._next_move()) is not None:
            self.move(*found)

    def level_leaders(self) -> None:
        """Exchange the first replica with another of its partition, until no exchange evens the leaders."""
        leaders = Counter(replicas[0] for replicas in self.replicas.values())
        is_changed = True
        while is_changed:
            is_changed = False
            for replicas in self.replicas.values():
                place = min(range(len(replicas)), key=lambda each: (leaders[replicas[each]], each))
                first, other = replicas[0], replicas[place]
                if leaders[first] - leaders[other] >= 2:
                    replicas[0], replicas[place] = other, first
                    leaders[first] -= 1
                    leaders[other] += 1
                    is_changed = True

    def _count(self, partition: TopicPartition, broker_id: int, change: int) -> None:
        self.counts[broker_id] += change
        self.topic_counts[partition.topic, broker_id] += change

    def _shares_rack(self, partition: TopicPartition, place: int, broker_id: int) -> bool:
        """Return whether a replica on `broker_id` instead of at `place` shares its rack with another."""
        rack = self.racks.get(broker_id)
        others = self.replicas[partition][:place] + self.replicas[partition][place + 1 :]
        return rack is not None and any(rack == self.racks.get(each) for each in others)

    def _next_move(self) -> tuple[TopicPartition, int, int] | None:
        """Return partition, place and new broker of the move that evens the most; None if none does."""
        by_count = sorted(self.racks, key=lambda each: (self.counts[each], each))
        for source in reversed(by_count):
            for target in by_count:
                if self.counts[source] - self.counts[target] < 2:
                    break
                candidates = self._movable(source, target)
                if candidates:
                    # Of the topic that the two share least evenly, so that no topic gathers on one broker.
                    partition = max(
                        candidates,
                        key=lambda each: (
                            self.topic_counts[each.topic, source] - self.topic_counts[each.topic, target]
                        ),
                    )
                    return partition, self.replicas[partition].index(source), target
        return None

    def _movable(self, source: int, target: int) -> list[TopicPartition]:
        found = []
        for partition, replicas in self.replicas.items():
            if source in replicas and target not in replicas:
                place = replicas.index(source)
                if not self._shares_rack(partition, place, target) or self._shares_rack(
                    partition, place, source
                ):
                    found.append(partition)
        return found

"""Assigns the partitions of a share group: every partition has a member, every member a partition.

A topic with fewer partitions than members is shared by all its members: each has one of its partitions. The
partitions of all other topics have one member each. The numbers differ by one at most. What a member has, it
keeps as far as that allows.

Kafka's counterpart is ``SimpleAssignor``, which spreads all topics together: of two members of a group with
two topics of one partition, each serves one topic. Here both serve both, so that neither is idle while one
topic has no records, nor one topic without a member while the session of a dead member lasts. `SHARED_MAX`
bounds what that costs; a group above it is spread as Kafka does.

The work is done in steps of less than some milliseconds: 1,000 members of many topics take seconds.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, TypeAlias, TypeVar

from kalda.common.steps import Steps, result_of
from kalda.common.types import UUID
from kalda.coordinator.group.consumer.member import Assignment

Partition: TypeAlias = tuple[UUID, int]

SHARED_MAX: Final = 10_000
"""The product of members and topics with fewer partitions than these, up to which each of them is shared."""

_STEP: Final = 500
"""Partitions or members of one step, at some microseconds each."""

Item = TypeVar("Item")
Taker = TypeVar("Taker", str, Partition)
Thing = TypeVar("Thing", str, Partition)


def assign(
    subscriptions: Mapping[str, frozenset[UUID]],
    partition_counts: Mapping[UUID, int],
    previous: Mapping[str, Assignment],
) -> dict[str, Assignment]:
    """Return the assignment of each member.

    Args:
        subscriptions: The topics of each member.
        partition_counts: How many partitions each topic has.
        previous: The last assignments.
    """
    return result_of(assign_steps(subscriptions, partition_counts, previous))


def assign_steps(
    subscriptions: Mapping[str, frozenset[UUID]],
    partition_counts: Mapping[UUID, int],
    previous: Mapping[str, Assignment],
) -> Steps[dict[str, Assignment]]:
    """Do the work of `assign` in steps. What it was given must not change meanwhile."""
    members = sorted(subscriptions)
    before: dict[str, list[Partition]] = {}
    for member in members:
        before[member] = yield from _partitions(previous.get(member, {}))
    found: dict[str, set[Partition]] = {member: set() for member in members}
    by_readers: dict[tuple[str, ...], list[list[Partition]]] = {}
    for topic_id in sorted(partition_counts, key=lambda each: each.int):
        readers = tuple(member for member in members if topic_id in subscriptions[member])
        if readers:
            numbers = range(partition_counts[topic_id])
            by_readers.setdefault(readers, []).append([(topic_id, number) for number in numbers])
        yield
    for readers, topics in by_readers.items():
        lists = yield from _spread_together(len(readers), topics)
        for partitions in lists:
            if len(readers) >= len(partitions):
                chosen = yield from _spread(readers, partitions, before)
                for some in _pieces(chosen.items()):
                    for member, partition in some:
                        found[member].add(partition)
                    yield
            else:
                owners = yield from _owners(readers, before)
                taken = yield from _spread(partitions, readers, owners)
                for others in _pieces(taken.items()):
                    for partition, member in others:
                        found[member].add(partition)
                    yield
    assignments: dict[str, Assignment] = {}
    for member, held in found.items():
        assignments[member] = yield from _assignment(held)
    return assignments


def _spread_together(reader_count: int, topics: list[list[Partition]]) -> Steps[list[list[Partition]]]:
    """Return the partitions of topics with the same readers, in lists that are spread one by one."""
    small = [partitions for partitions in topics if len(partitions) < reader_count]
    if len(small) * reader_count > SHARED_MAX:
        small = []
        rest = topics
    else:
        rest = [partitions for partitions in topics if len(partitions) >= reader_count]
    together: list[Partition] = []
    for partitions in rest:
        together += partitions
        yield
    return [*small, together] if together else small


def _spread(
    takers: Sequence[Taker], things: Sequence[Thing], before: Mapping[Taker, Sequence[Thing]]
) -> Steps[dict[Taker, Thing]]:
    """Give each taker one thing, each thing to as many takers as others, and the one before if possible."""
    low, more = divmod(len(takers), len(things))
    loads: dict[Thing, int] = {}
    for some in _pieces(things):
        loads.update(dict.fromkeys(some, 0))
        yield
    chosen: dict[Taker, Thing] = {}
    looked_at = 0
    for taker in takers:
        for thing in before.get(taker, ()):
            looked_at += 1
            if not looked_at % _STEP:
                yield
            load = loads.get(thing)
            if load is None or load > low or (load == low and not more):
                continue
            more -= load == low
            loads[thing] += 1
            chosen[taker] = thing
            break
    by_load: dict[int, list[int]] = {}
    for first in range(0, len(things), _STEP):
        for number, thing in enumerate(things[first : first + _STEP], first):
            by_load.setdefault(loads[thing], []).append(number)
        yield
    # Those with the least load, in their order; each one that is given away has the next load.
    load = min(by_load)
    least, position = by_load.pop(load), 0
    for some_takers in _pieces(takers):
        for taker in some_takers:
            if taker in chosen:
                continue
            if position == len(least):
                load += 1
                least, position = sorted(least + by_load.pop(load, [])), 0
            chosen[taker] = things[least[position]]
            position += 1
        yield
    return chosen


def _owners(
    members: Sequence[str], before: Mapping[str, list[Partition]]
) -> Steps[dict[Partition, list[str]]]:
    found: dict[Partition, list[str]] = {}
    for member in members:
        for some in _pieces(before[member]):
            for partition in some:
                found.setdefault(partition, []).append(member)
            yield
    return found


def _partitions(assignment: Assignment) -> Steps[list[Partition]]:
    found: list[Partition] = []
    for topic_id, numbers in assignment.items():
        found += [(topic_id, number) for number in sorted(numbers)]
        yield
    return found


def _assignment(partitions: set[Partition]) -> Steps[Assignment]:
    found: dict[UUID, set[int]] = {}
    for some in _pieces(partitions):
        for topic_id, number in some:
            found.setdefault(topic_id, set()).add(number)
        yield
    assignment: dict[UUID, frozenset[int]] = {}
    for topics in _pieces(found.items()):
        for topic_id, numbers in topics:
            assignment[topic_id] = frozenset(numbers)
        yield
    return assignment


def _pieces(items: Iterable[Item]) -> Iterator[Sequence[Item]]:
    """Yield the items, those of one step together."""
    left = iter(items)
    while piece := tuple(islice(left, _STEP)):
        yield piece

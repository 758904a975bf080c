"""Targets of large share groups are computed in slices, while members come, go and change."""

from collections.abc import Mapping, Sequence
from heapq import heapify, heapreplace
from random import Random
from typing import TypeVar
from uuid import UUID

import pytest

from kalda.coordinator.group import sliced_targets
from kalda.coordinator.group.consumer.member import Assignment, TopicMetadata
from kalda.coordinator.group.share import share_targets, simple_assignor
from kalda.coordinator.group.share.share_group import ShareGroup
from kalda.coordinator.group.share.share_member import ShareMember
from kalda.coordinator.group.share.share_targets import COST_MAX, is_long
from kalda.coordinator.group.share.simple_assignor import Partition, assign_steps
from tests.unit.coordinator.share.test_share_protocol import Groups

TOPICS = [UUID(int=number) for number in range(1, 6)]
Taker = TypeVar("Taker", str, Partition)
Thing = TypeVar("Thing", str, Partition)


def in_one_piece(
    subscriptions: Mapping[str, frozenset[UUID]],
    counts: Mapping[UUID, int],
    previous: Mapping[str, Assignment],
) -> dict[str, set[Partition]]:
    """Assign as plainly as can be."""
    members = sorted(subscriptions)
    before = {member: sorted_pairs(previous.get(member, {})) for member in members}
    found: dict[str, set[Partition]] = {member: set() for member in members}
    by_readers: dict[tuple[str, ...], list[UUID]] = {}
    for topic in sorted(counts):
        readers = tuple(member for member in members if topic in subscriptions[member])
        if readers:
            by_readers.setdefault(readers, []).append(topic)
    for readers, topics in by_readers.items():
        small = [topic for topic in topics if counts[topic] < len(readers)]
        if len(small) * len(readers) > simple_assignor.SHARED_MAX:
            small = []
        for each in ([[topic] for topic in small], [[topic for topic in topics if topic not in small]]):
            for some in each:
                partitions = [(topic, number) for topic in some for number in range(counts[topic])]
                if len(readers) >= len(partitions) > 0:
                    for member, partition in spread(readers, partitions, before).items():
                        found[member].add(partition)
                elif partitions:
                    owners = {one: [name for name in readers if one in before[name]] for one in partitions}
                    for partition, member in spread(partitions, readers, owners).items():
                        found[member].add(partition)
    return found


def spread(
    takers: Sequence[Taker], things: Sequence[Thing], before: Mapping[Taker, Sequence[Thing]]
) -> dict[Taker, Thing]:
    low, more = divmod(len(takers), len(things))
    loads = dict.fromkeys(things, 0)
    chosen: dict[Taker, Thing] = {}
    for taker in takers:
        for thing in before.get(taker, ()):
            if thing in loads and (loads[thing] < low or (loads[thing] == low and more)):
                more -= loads[thing] == low
                loads[thing] += 1
                chosen[taker] = thing
                break
    queue = [(loads[thing], number) for number, thing in enumerate(things)]
    heapify(queue)
    for taker in takers:
        if taker not in chosen:
            load, number = queue[0]
            chosen[taker] = things[number]
            heapreplace(queue, (load + 1, number))
    return chosen


def sorted_pairs(assignment: Assignment) -> list[Partition]:
    return [(topic, number) for topic, numbers in assignment.items() for number in sorted(numbers)]


@pytest.mark.parametrize("step", [1, 3, 500])
@pytest.mark.parametrize("seed", range(30))
def test_steps_give_what_one_piece_gives(seed: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simple_assignor, "_STEP", step)
    random = Random(seed)
    monkeypatch.setattr(simple_assignor, "SHARED_MAX", random.choice([0, 10, 10_000]))
    previous: dict[str, Assignment] = {}
    for _ in range(8):
        counts = {topic: random.randint(1, 12) for topic in random.sample(TOPICS, random.randint(1, 5))}
        members = [f"m{number}" for number in random.sample(range(30), random.randint(1, 20))]
        subscriptions = {member: frozenset(random.sample(TOPICS, random.randint(1, 5))) for member in members}
        steps = assign_steps(subscriptions, counts, previous)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                found = done.value
                break
        pairs = {member: set(sorted_pairs(each)) for member, each in found.items()}
        assert in_one_piece(subscriptions, counts, previous) == pairs
        previous = found


class Large(Groups):
    """Groups whose every target is computed in slices; their members remember their epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.epochs: dict[str, int] = {}
        for name in "tuv":
            self.topics.put(name, 8)

    def join(self, member: str, *topics: str) -> None:
        self.epochs[member] = self.beat("g", member, 0, topics).response.member_epoch

    def heartbeat(self, member: str, topics: Sequence[str] = ()) -> None:
        self.epochs[member] = self.beat("g", member, self.epochs[member], topics).response.member_epoch

    def leave(self, member: str) -> None:
        del self.epochs[member]
        self.beat("g", member, -1)

    def settle(self) -> None:
        """Let all members send heartbeats until nothing changes any more."""
        before, quiet = -1, 0
        while quiet < 3:
            quiet = quiet + 1 if before == len(self.records) else 0
            before = len(self.records)
            self.context.advance(1_000)
            for member in self.epochs:
                self.heartbeat(member)

    def counts(self) -> list[int]:
        """Return how many partitions each member has."""
        members = self.group("g").members.values()
        return sorted(sum(map(len, each.assigned.values())) for each in members)


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> Large:
    monkeypatch.setattr(share_targets, "COST_MAX", 0)
    monkeypatch.setattr(sliced_targets, "_SLICE_MS", 0)
    return Large()


def test_heartbeats_do_not_wait_for_the_target_of_a_large_group(groups: Large) -> None:
    groups.join("a")
    assert [8] == groups.counts(), "the first target is made at once"
    groups.context.advance(1_000)
    groups.join("b")
    group = groups.group("g")
    assert (2, 1, [0, 8]) == (group.epoch, group.assignment_epoch, groups.counts())
    groups.context.advance(1)
    assert 1 == group.assignment_epoch, "a slice takes one step"
    groups.context.advance(100)
    assert 2 == group.assignment_epoch
    groups.settle()
    assert [4, 4] == groups.counts()


def test_of_members_that_leave_meanwhile_nothing_is_written(groups: Large) -> None:
    groups.join("a")
    groups.join("b")
    groups.settle()
    groups.context.advance(1_000)
    groups.join("c")
    groups.context.advance(1)
    groups.leave("b")
    groups.context.advance(100)
    group = groups.group("g")
    assert {"a", "c"} == set(group.targets)
    assert group.epoch == group.assignment_epoch + 1
    groups.settle()
    assert [4, 4] == groups.counts()


def test_a_target_that_a_newer_one_has_overtaken_is_not_written(
    groups: Large, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group became so small that a heartbeat computes a target at once."""
    groups.join("a")
    groups.context.advance(1_000)
    groups.join("b")
    groups.context.advance(1)
    monkeypatch.setattr(share_targets, "COST_MAX", COST_MAX)
    groups.join("c")
    assert 3 == groups.group("g").assignment_epoch
    monkeypatch.setattr(share_targets, "COST_MAX", 0)
    groups.join("d")
    groups.context.advance(100)
    assert 3 <= groups.group("g").assignment_epoch
    groups.settle()
    assert [2, 2, 2, 2] == groups.counts()


@pytest.mark.parametrize("seed", range(20))
def test_random_changes_while_targets_are_computed(groups: Large, seed: int) -> None:
    random = Random(seed)
    for _ in range(200):
        member = f"m{random.randrange(6)}"
        step = random.randrange(8)
        topics = tuple(sorted(random.sample("tuv", random.randint(1, 3))))
        if member not in groups.epochs:
            groups.join(member, *topics)
        elif step == 0:
            groups.leave(member)
        elif step == 1:
            groups.heartbeat(member, topics)
        elif step == 2:
            groups.topics.put(random.choice("tuv"), 8 + random.randrange(8))
        else:
            groups.heartbeat(member)
        groups.context.advance(random.choice((1, 2, 3, 400)))
    groups.settle()
    members = groups.group("g").members
    assert set(groups.epochs) == set(members)
    wanted = {name for each in members.values() for name in each.subscribed_names}
    held = {pair for each in members.values() for pair in sorted_pairs(each.assigned)}
    named = {(groups.topics.topic_name(topic), number) for topic, number in held}
    assert groups.topics.partitions(wanted) == named


def test_what_counts_as_large() -> None:
    group, topics = ShareGroup("g"), {"t": TopicMetadata((UUID(int=1), COST_MAX - 2))}
    assert not is_long(group, topics)
    group.assignment_epoch = 1
    assert not is_long(group, topics)
    group.put_member(ShareMember("a"))
    assert is_long(group, topics)

"""Every partition of a share group has a member and every member a partition, and changes move little."""

from collections import Counter
from random import Random
from uuid import UUID

import pytest

from kalda.coordinator.group.consumer.member import Assignment
from kalda.coordinator.group.share import simple_assignor
from kalda.coordinator.group.share.simple_assignor import assign

TOPICS = [UUID(int=number) for number in range(1, 4)]


def pairs(assignment: Assignment) -> set[tuple[UUID, int]]:
    return {(topic, number) for topic, numbers in assignment.items() for number in numbers}


def spread_evenly(found: dict[str, Assignment], counts: dict[UUID, int]) -> None:
    """Check that partitions have as many members, and members as many partitions, as others, or one more."""
    load = Counter(pair for each in found.values() for pair in pairs(each) if pair[0] in counts)
    assert sum(counts.values()) == len(load)
    sizes = [sum(topic in counts for topic, _ in pairs(each)) for each in found.values()]
    assert max(load.values()) - min(load.values()) <= 1
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("is_shared", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_members_and_partitions_are_spread_evenly(
    seed: int, is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_shared:
        monkeypatch.setattr(simple_assignor, "SHARED_MAX", 0)
    random = Random(seed)
    counts = {topic: random.randint(1, 6) for topic in TOPICS}
    topics = frozenset(TOPICS)
    previous: dict[str, Assignment] = {}
    for _ in range(10):
        members = {f"m{random.randrange(30)}" for _ in range(random.randint(1, 20))}
        found = assign(dict.fromkeys(members, topics), counts, previous)
        assert members == found.keys()
        alone = {topic for topic, count in counts.items() if is_shared and count < len(members)}
        for topic in alone:
            spread_evenly(found, {topic: counts[topic]})
        if alone != counts.keys():
            spread_evenly(found, {topic: count for topic, count in counts.items() if topic not in alone})
        assert found == assign(dict.fromkeys(members, topics), counts, found)
        previous = found


def test_members_share_each_topic_that_has_fewer_partitions() -> None:
    """Of a queue of tasks and one of delayed tasks, say: no worker serves the second alone."""
    queue, delayed, _ = TOPICS
    found = assign(dict.fromkeys(("a", "b"), frozenset([queue, delayed])), {queue: 1, delayed: 1}, {})
    assert {"a": {(queue, 0), (delayed, 0)}, "b": {(queue, 0), (delayed, 0)}} == {
        member: pairs(each) for member, each in found.items()
    }


def test_members_have_only_what_they_subscribe_to() -> None:
    one, two, _ = TOPICS
    found = assign(
        {"a": frozenset([one]), "b": frozenset([one, two]), "c": frozenset()}, {one: 2, two: 3}, {}
    )
    assert ({one}, set()) == (set(found["a"]), set(found["c"]))
    assert {(two, number) for number in range(3)} <= pairs(found["b"])


def test_a_member_keeps_its_partition_when_others_come() -> None:
    one = TOPICS[0]
    topics = frozenset([one])
    before = assign(dict.fromkeys(("a", "b"), topics), {one: 2}, {})
    after = assign(dict.fromkeys(("a", "b", "c"), topics), {one: 2}, before)
    assert (before["a"], before["b"]) == (after["a"], after["b"])

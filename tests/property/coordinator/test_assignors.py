"""The laws of the server-side assignors, over random groups."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kalda.common.steps import result_of
from kalda.coordinator.group.consumer.assignors import assignor_named
from kalda.coordinator.group.consumer.assignors.partition_assignor import Assignor, GroupSpec, MemberSpec
from kalda.coordinator.group.consumer.member import Assignment

TOPICS = [UUID(int=number) for number in range(1, 7)]
ASSIGNORS = ["uniform", "range"]


@st.composite
def groups(draw: st.DrawFn, *, homogeneous: bool = False) -> GroupSpec:
    """A group with any assignment so far, even one that says a partition twice or that is out of date."""
    counts = {topic_id: draw(st.integers(1, 6)) for topic_id in TOPICS}
    subsets = st.frozensets(st.sampled_from(TOPICS), min_size=1)
    common = draw(subsets)
    assigned = st.dictionaries(
        st.sampled_from([*TOPICS, UUID(int=99)]), st.frozensets(st.integers(0, 7), min_size=1), max_size=4
    )
    names = draw(st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True))
    members = {
        name: MemberSpec(
            common if homogeneous else draw(subsets),
            draw(assigned),
            f"i-{name}" if draw(st.booleans()) else None,
        )
        for name in names
    }
    return GroupSpec(members, counts)


def again(group: GroupSpec, result: dict[str, Assignment], *, without: str | None = None) -> GroupSpec:
    """The group with what it was assigned."""
    return GroupSpec(
        {
            name: MemberSpec(member.topics, result[name], member.instance_id)
            for name, member in group.members.items()
            if name != without
        },
        group.partition_counts,
    )


def pairs(assignment: Assignment) -> set[tuple[UUID, int]]:
    return {(topic_id, number) for topic_id, numbers in assignment.items() for number in numbers}


def sizes(result: dict[str, Assignment]) -> list[int]:
    return [len(pairs(assignment)) for assignment in result.values()]


def assign(name: str, group: GroupSpec) -> dict[str, Assignment]:
    assignor: Assignor = assignor_named(name)
    return result_of(assignor.assign(group))


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=150, deadline=None)
@given(group=groups())
def test_every_partition_goes_to_one_subscriber(name: str, group: GroupSpec) -> None:
    result = assign(name, group)

    given_out = [pair for assignment in result.values() for pair in pairs(assignment)]
    wanted = {
        (topic_id, number)
        for member in group.members.values()
        for topic_id in member.topics
        for number in range(group.partition_counts[topic_id])
    }
    assert sorted(wanted) == sorted(given_out)
    assert result.keys() == group.members.keys()
    for member_id, assignment in result.items():
        assert assignment.keys() <= group.members[member_id].topics
        assert all(assignment.values()), "a topic without partitions"


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=100, deadline=None)
@given(group=groups())
def test_the_order_of_members_and_topics_is_nothing(name: str, group: GroupSpec) -> None:
    turned = GroupSpec(
        dict(reversed(list(group.members.items()))), dict(reversed(list(group.partition_counts.items())))
    )

    assert assign(name, group) == assign(name, turned)


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=100, deadline=None)
@given(group=groups())
def test_nothing_moves_when_nothing_changes(name: str, group: GroupSpec) -> None:
    result = assign(name, group)

    assert result == assign(name, again(group, result))


@settings(max_examples=150, deadline=None)
@given(group=groups(homogeneous=True))
def test_uniform_counts_differ_by_one_at_most(group: GroupSpec) -> None:
    counts = sizes(assign("uniform", group))

    assert max(counts) - min(counts) <= 1


@settings(max_examples=150, deadline=None)
@given(group=groups(homogeneous=True), leaver=st.integers(0, 7))
def test_uniform_moves_only_what_a_leaver_had(group: GroupSpec, leaver: int) -> None:
    result = assign("uniform", group)
    names = sorted(group.members)
    left = again(group, result, without=names[leaver % len(names)])
    if not left.members:
        return

    after = assign("uniform", left)

    assert all(pairs(result[name]) <= pairs(after[name]) for name in left.members)


@settings(max_examples=150, deadline=None)
@given(group=groups(homogeneous=True))
def test_uniform_moves_no_more_than_a_newcomer_gets(group: GroupSpec) -> None:
    result = assign("uniform", group)
    topics = next(iter(group.members.values())).topics
    joined = again(group, result)
    grown = GroupSpec({**joined.members, "new": MemberSpec(topics)}, group.partition_counts)

    after = assign("uniform", grown)

    moved = sum(len(pairs(result[name]) - pairs(after[name])) for name in group.members)
    assert moved == len(pairs(after["new"]))


@settings(max_examples=200, deadline=None)
@given(group=groups())
def test_no_move_could_make_two_members_more_equal(group: GroupSpec) -> None:
    result = assign("uniform", group)

    loads = {name: len(pairs(assignment)) for name, assignment in result.items()}
    for giver, assignment in result.items():
        for topic_id in assignment:
            for taker, member in group.members.items():
                if topic_id in member.topics:
                    assert loads[giver] - loads[taker] < 2, f"{topic_id} could go from {giver} to {taker}"


@settings(max_examples=100, deadline=None)
@given(group=groups(homogeneous=True))
def test_ranges_are_contiguous_and_co_partitioned(group: GroupSpec) -> None:
    result = assign("range", group)

    for assignment in result.values():
        for numbers in assignment.values():
            assert numbers == set(range(min(numbers), max(numbers) + 1))
        by_count = {
            (group.partition_counts[topic_id], frozenset(numbers)) for topic_id, numbers in assignment.items()
        }
        assert len({count for count, _ in by_count}) == len(by_count)

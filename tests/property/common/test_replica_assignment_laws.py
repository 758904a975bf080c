"""What holds for every assignment of replicas, whatever the brokers, racks and counts."""

import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.replica_assignment import assign_replicas

brokers = st.sets(st.integers(0, 1000), min_size=1, max_size=12)


@given(brokers, st.integers(1, 60), st.integers(1, 12), st.randoms(use_true_random=False))
def test_replicas_are_distinct_and_spread_evenly(
    ids: set[int], partitions: int, replicas: int, chance: random.Random
) -> None:
    replicas = min(replicas, len(ids))

    assignment = assign_replicas(dict.fromkeys(ids), partitions, replicas, chance=chance)

    assert list(range(partitions)) == list(assignment)
    for chosen in assignment.values():
        assert replicas == len(chosen) == len(set(chosen))
        assert set(chosen) <= ids
    leaders = Counter(chosen[0] for chosen in assignment.values())
    assert max(leaders.values()) - min(leaders.get(one, 0) for one in ids) <= 1


@given(
    st.dictionaries(st.integers(0, 100), st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=12),
    st.integers(1, 40),
    st.integers(1, 6),
    st.randoms(use_true_random=False),
)
def test_racks_are_used_before_any_is_used_twice(
    racks: dict[int, str], partitions: int, replicas: int, chance: random.Random
) -> None:
    replicas = min(replicas, len(racks))

    assignment = assign_replicas(racks, partitions, replicas, chance=chance)

    for chosen in assignment.values():
        assert replicas == len(set(chosen))
        assert len({racks[one] for one in chosen}) == min(replicas, len(set(racks.values())))


@given(brokers, st.integers(1, 30), st.integers(1, 30), st.integers(1, 4), st.randoms(use_true_random=False))
def test_a_topic_that_grows_ends_up_as_if_made_in_one_go(
    ids: set[int], first: int, added: int, replicas: int, chance: random.Random
) -> None:
    """Kafka starts over from the same broker and distance, so growth does not pile leaders up."""
    replicas = min(replicas, len(ids))
    racks = dict.fromkeys(ids)
    start = chance.randrange(len(ids))

    whole = assign_replicas(racks, first + added, replicas, chance=chance, start=(start, 0))
    rest = assign_replicas(racks, added, replicas, chance=chance, start=(start, first))

    leaders = {number: chosen[0] for number, chosen in whole.items()}
    assert {number: chosen[0] for number, chosen in rest.items()} == {
        number: leader for number, leader in leaders.items() if number >= first
    }


def test_the_example_of_the_module() -> None:
    class Zero(random.Random):
        def randrange(self, *_: object) -> int:
            return 0

    assignment = assign_replicas(dict.fromkeys(range(5)), 10, 3, chance=Zero())

    assert ((0, 1, 2), (1, 2, 3), (0, 2, 3)) == (assignment[0], assignment[1], assignment[5])


def test_brokers_with_and_without_racks_are_treated_as_without() -> None:
    assignment = assign_replicas({0: "a", 1: None, 2: "a"}, 3, 3, chance=random.Random(1))

    assert all({0, 1, 2} == set(chosen) for chosen in assignment.values())


@pytest.mark.parametrize(
    ("partitions", "replicas", "code"),
    [
        (0, 1, ErrorCode.INVALID_PARTITIONS),
        (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR),
        (1, 3, ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_impossible_counts_are_refused(partitions: int, replicas: int, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        assign_replicas({0: None, 1: None}, partitions, replicas, chance=random.Random(1))

    assert code is caught.value.code


def test_without_brokers_nothing_can_be_placed() -> None:
    with pytest.raises(ApiError) as caught:
        assign_replicas({}, 1, 1, chance=random.Random(1))

    assert ErrorCode.INVALID_REPLICATION_FACTOR is caught.value.code

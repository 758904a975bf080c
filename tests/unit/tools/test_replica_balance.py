"""Assignments that move few replicas."""

from collections import Counter
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.command.errors import ToolError
from kalda.common.types import TopicPartition
from kalda.tools.reassignment_plan import Assignment
from kalda.tools.replica_balance import drain, moved_replicas, rebalance


def partitions(*replicas: Sequence[int]) -> Assignment:
    return {TopicPartition("flights", number): tuple(each) for number, each in enumerate(replicas)}


def without_racks(*brokers: int) -> Mapping[int, str | None]:
    return dict.fromkeys(brokers)


def counts(assignment: Assignment) -> dict[int, int]:
    return dict(Counter(each for replicas in assignment.values() for each in replicas))


def test_only_the_drained_brokers_replicas_move() -> None:
    current = partitions((0, 1), (1, 2), (2, 0))

    drained = drain(current, without_racks(1, 2, 3), 0)

    assert partitions((3, 1), (1, 2), (2, 3)) == drained
    assert 2 == moved_replicas(current, drained)


def test_a_replica_moves_to_a_rack_that_its_partition_does_not_use() -> None:
    """Broker 2 has fewer replicas than broker 3, and the rack of the other replica."""
    current = partitions((0, 1), (3, 1))

    assert (3, 1) == drain(current, {1: "a", 2: "a", 3: "b"}, 0)[TopicPartition("flights", 0)]


def test_too_few_brokers_are_an_error_that_names_the_partition() -> None:
    with pytest.raises(ToolError, match="flights-0 has 3 replicas, brokers that remain: 2"):
        drain(partitions((0, 1, 2)), without_racks(1, 2), 0)


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    """Three brokers with four replicas each: the fourth gets three, of each broker one."""
    current = partitions((0, 1), (1, 2), (2, 0), (0, 1), (1, 2), (2, 0))

    balanced = rebalance(current, without_racks(0, 1, 2, 3))

    assert {0: 3, 1: 3, 2: 3, 3: 3} == counts(balanced)
    assert 3 == moved_replicas(current, balanced)


def test_a_balanced_cluster_is_left_alone() -> None:
    current = partitions((0, 1), (1, 2), (2, 0))

    assert current == rebalance(current, without_racks(0, 1, 2))


def test_leaders_are_balanced_by_the_order_of_replicas() -> None:
    current = partitions((0, 1), (0, 1), (0, 1), (0, 1))

    balanced = rebalance(current, without_racks(0, 1))

    assert 0 == moved_replicas(current, balanced)
    assert {0: 2, 1: 2} == dict(Counter(replicas[0] for replicas in balanced.values()))


def test_balance_does_not_put_two_replicas_into_one_rack() -> None:
    """Broker 2 may replace broker 1, which is in its rack, and not broker 0."""
    current = partitions((0, 1), (0, 1), (0, 1))

    balanced = rebalance(current, {0: "a", 1: "b", 2: "b"})

    assert all(0 in replicas for replicas in balanced.values())
    assert 1 == moved_replicas(current, balanced)


def test_a_new_broker_gets_partitions_of_several_topics() -> None:
    """Whole topics on one broker would be read and written by one processor."""
    current = {
        TopicPartition(topic, number): (number,)
        for topic in ("airports", "flights", "routes")
        for number in range(3)
    }

    balanced = rebalance(current, without_racks(0, 1, 2, 3))

    assert 2 == len({partition.topic for partition, replicas in balanced.items() if replicas == (3,)})


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Assignment, list[int]]:
    """An assignment, and the brokers that shall have it, which can differ from those that have it."""
    wanted = sorted(draw(st.sets(st.integers(0, 5), min_size=1)))
    factor = draw(st.integers(1, len(wanted)))
    replicas = st.lists(st.integers(0, 5), min_size=factor, max_size=factor, unique=True)
    return partitions(*draw(st.lists(replicas, min_size=1, max_size=20))), wanted


@given(clusters())
def test_without_racks_any_cluster_becomes_even_with_the_fewest_moves(
    cluster: tuple[Assignment, list[int]],
) -> None:
    """The fewest: a broker loses what it has above its share, rounded so that as much as possible stays."""
    current, wanted = cluster

    balanced = rebalance(current, without_racks(*wanted))

    assert set(counts(balanced)) <= set(wanted)
    numbers = [counts(balanced).get(broker, 0) for broker in wanted]
    assert max(numbers) - min(numbers) <= 1
    for partition, replicas in balanced.items():
        assert len(current[partition]) == len(replicas) == len(set(replicas))
    if set(counts(current)) <= set(wanted):
        share, larger = divmod(sum(numbers), len(wanted))
        had = sorted((counts(current).get(broker, 0) for broker in wanted), reverse=True)
        stay = sum(min(count, share + (place < larger)) for place, count in enumerate(had))
        assert sum(numbers) - stay == moved_replicas(current, balanced)

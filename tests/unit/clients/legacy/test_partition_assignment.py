"""The documents' examples of who reads what, and that every strategy gives each partition one reader."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.clients.legacy.consumer.partition_assignment import (
    ASSIGNORS,
    AssignmentError,
    GroupView,
    by_broker,
    by_range,
    by_round_robin,
)
from kalda.clients.legacy.consumer.topic_count import ThreadId
from kalda.common.types import TopicPartition


def threads(**streams: int) -> list[ThreadId]:
    return [ThreadId(consumer, number) for consumer, count in streams.items() for number in range(count)]


def rows(assignment: dict[TopicPartition, ThreadId]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for partition, thread in assignment.items():
        found.setdefault(thread.consumer, []).append(partition.partition)
    return found


def test_first_consumer_gets_what_is_left_over() -> None:
    """Five partitions, two consumers of one stream each."""
    view = GroupView({"t": threads(c0=1, c1=1)}, {"t": range(5)}, {})

    assert {"c0": [0, 1, 2], "c1": [3, 4]} == rows(by_range(view))


def test_streams_count_not_consumers() -> None:
    """Five partitions, two consumers of four streams each: the streams of the first come first."""
    view = GroupView({"t": threads(c0=4, c1=4)}, {"t": range(5)}, {})

    assert {"c0": [0, 1, 2, 3], "c1": [4]} == rows(by_range(view))


def test_consumers_without_partitions_read_nothing() -> None:
    view = GroupView({"t": threads(a=1, b=1, c=1)}, {"t": range(2)}, {})

    assert {"a": [0], "b": [1]} == rows(by_range(view))


def test_partitions_of_one_broker_stay_together() -> None:
    """i*N to (i+1)*N-1 of the list sorted by broker: each consumer connects to one broker."""
    leaders = {TopicPartition("t", number): number % 2 for number in range(4)}
    view = GroupView({"t": threads(a=1, b=1)}, {"t": range(4)}, leaders)

    assert {"a": [0, 2], "b": [1, 3]} == rows(by_broker(view))
    assert {"a": [0, 1], "b": [2, 3]} == rows(by_range(view))


def test_threads_are_sorted_as_texts() -> None:
    """As Java's consumers do: the eleventh stream comes before the third."""
    view = GroupView({"t": threads(c=11)}, {"t": range(11)}, {})

    assert [f"c-{n}" for n in (0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9)] == [str(t) for t in by_range(view).values()]


def test_round_robin_mixes_topics_in_the_order_of_javas_hashes() -> None:
    both = threads(a=1, b=1)
    view = GroupView({"x": both, "y": both}, {"x": range(3), "y": range(2)}, {})

    assignment = by_round_robin(view)

    assert ["[x,0]", "[x,1]", "[x,2]", "[y,0]", "[y,1]"] == sorted(
        f"[{p.topic},{p.partition}]" for p in assignment
    )
    assert {"a": 3, "b": 2} == {name: len(row) for name, row in rows(assignment).items()}


def test_round_robin_needs_the_same_threads_everywhere() -> None:
    view = GroupView({"x": threads(a=1), "y": threads(a=1, b=1)}, {"x": [0], "y": [0]}, {})

    with pytest.raises(AssignmentError, match="x has a-0, y has a-0, b-0"):
        by_round_robin(view)


@pytest.mark.parametrize("strategy", ASSIGNORS)
@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.integers(1, 4), min_size=1),
    st.dictionaries(st.sampled_from("tuv"), st.integers(0, 20), min_size=1),
)
def test_each_partition_has_one_reader_and_none_reads_two_more_than_another(
    strategy: str, consumers: dict[str, int], topics: dict[str, int]
) -> None:
    every = threads(**consumers)
    view = GroupView(
        dict.fromkeys(topics, every), {topic: range(count) for topic, count in topics.items()}, {}
    )

    assignment = ASSIGNORS[strategy](view)

    assert {TopicPartition(t, n) for t, count in topics.items() for n in range(count)} == assignment.keys()
    for topic in topics if strategy != "roundrobin" else ():
        counts = [
            sum(owner == thread for part, owner in assignment.items() if part.topic == topic)
            for thread in every
        ]
        assert max(counts) - min(counts) <= 1

"""Where records without a key go."""

from collections.abc import Sequence

from kalda.clients.producer.partitioner import BuiltInPartitioner, RoundRobinPartitioner, as_partitioner


def drawing(*numbers: int) -> BuiltInPartitioner:
    """Return a partitioner of 100 sticky bytes with these random numbers."""
    left = list(numbers)
    return BuiltInPartitioner(100, lambda below: left.pop(0) % below)


def test_the_choice_is_among_the_partitions_with_a_leader() -> None:
    assert 5 == drawing(1).choose(8, [2, 5])


def test_without_any_leader_all_partitions_are_candidates() -> None:
    """The records wait; which partition gets a leader first is not known."""
    assert 3 == drawing(3).choose(8, [])


def test_the_partition_is_kept_until_enough_bytes_fill_its_batches() -> None:
    partitioner = drawing(0)
    partitioner.choose(2, [0, 1])
    partitioner.produced_bytes = 99
    assert not partitioner.is_switch_due(is_queue_full=True)
    partitioner.produced_bytes = 100
    assert partitioner.is_switch_due(is_queue_full=True)
    assert not partitioner.is_switch_due(is_queue_full=False)
    partitioner.produced_bytes = 200
    assert partitioner.is_switch_due(is_queue_full=False)


def test_a_choice_starts_to_count_at_zero() -> None:
    partitioner = drawing(0)
    partitioner.produced_bytes = 500
    partitioner.choose(2, [0, 1])
    assert 0 == partitioner.produced_bytes


def test_partitions_with_short_queues_are_chosen_more_often() -> None:
    """Queues of 0, 3 and 1 weigh 4, 1 and 3 (KIP-794)."""
    partitioner = drawing(*range(8))
    partitioner.update_load([0, 1, 2], [0, 3, 1], 3)
    assert [0, 0, 0, 0, 1, 2, 2, 2] == [partitioner.choose(3, [0, 1, 2]) for _ in range(8)]


def test_equal_queues_mean_a_uniform_choice() -> None:
    partitioner = drawing(0, 1, 2)
    partitioner.update_load([0, 1, 2], [0, 3, 1], 3)
    partitioner.update_load([0, 1, 2], [4, 4, 4], 3)
    assert [0, 1, 2] == [partitioner.choose(3, [0, 1, 2]) for _ in range(3)]


def test_an_unavailable_partition_is_left_out_of_the_weights() -> None:
    partitioner = drawing(0, 1)
    partitioner.update_load([0, 2], [1, 1], 3)
    assert [0, 2] == [partitioner.choose(3, [0, 1, 2]) for _ in range(2)]


def test_round_robin_takes_the_partitions_of_each_topic_in_turn() -> None:
    partitioner = RoundRobinPartitioner()
    assert [0, 1, 2, 0] == [partitioner.partition("a", b"k", None, 3, [0, 1, 2]) for _ in range(4)]
    assert 0 == partitioner.partition("b", None, None, 3, [0, 1, 2])


def test_round_robin_leaves_partitions_without_a_leader_out() -> None:
    partitioner = RoundRobinPartitioner()
    assert [1, 2, 1] == [partitioner.partition("a", None, None, 3, [1, 2]) for _ in range(3)]
    assert 0 == partitioner.partition("a", None, None, 3, [])


def test_a_function_is_a_partitioner() -> None:
    def last(topic: str, key: bytes | None, partition_count: int, available: Sequence[int]) -> int:
        return partition_count - 1

    assert 4 == as_partitioner(last).partition("a", b"k", b"v", 5, [0])
    round_robin = RoundRobinPartitioner()
    assert round_robin is as_partitioner(round_robin)

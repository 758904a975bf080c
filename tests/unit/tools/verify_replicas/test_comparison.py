"""Comparing replicas: equal up to the high watermark, and every difference named once."""

from kalda.common.types import TopicPartition
from kalda.tools.verify_replicas.comparison import Fetched, FetchedBatch, compare

PARTITION = TopicPartition("flights", 2)


def fetched(high_watermark: int, *batches: tuple[int, int]) -> Fetched:
    return Fetched(high_watermark, [FetchedBatch(*batch) for batch in batches])


def test_equal_replicas_are_compared_to_the_end_of_the_shortest() -> None:
    found = compare(PARTITION, 0, {1: fetched(9, (2, 7), (5, 8), (8, 9)), 2: fetched(9, (2, 7), (5, 8))})

    assert (6, 3, 2, []) == (found.next_offset, found.lag, found.compared, list(found.mismatches))


def test_batches_at_or_above_a_high_watermark_are_not_compared() -> None:
    """What is not replicated yet may differ: a leader change removes it."""
    found = compare(PARTITION, 0, {1: fetched(6, (2, 7), (5, 8)), 2: fetched(3, (2, 7), (5, 1))})

    assert (3, 3, []) == (found.next_offset, found.lag, list(found.mismatches))


def test_different_bytes_are_reported_and_the_comparison_goes_on() -> None:
    found = compare(
        PARTITION,
        0,
        {1: fetched(9, (2, 7), (5, 8)), 2: fetched(9, (2, 6), (5, 8)), 3: fetched(9, (2, 7), (5, 8))},
    )

    assert [
        (
            "partition flights-2 has unmatched checksum at offset 2; replica 1's checksum 7; "
            "replica 2's checksum 6"
        )
    ] == [str(each) for each in found.mismatches]
    assert 6 == found.next_offset


def test_different_offsets_end_the_comparison() -> None:
    found = compare(PARTITION, 0, {1: fetched(9, (2, 7), (5, 8)), 2: fetched(9, (3, 7), (5, 9))})

    assert ["partition flights-2: replica 1's offset 2 doesn't match replica 2's offset 3"] == [
        str(each) for each in found.mismatches
    ]
    assert (0, 9, 0) == (found.next_offset, found.lag, found.compared)


def test_a_replica_that_returned_nothing_stops_the_comparison() -> None:
    found = compare(PARTITION, 4, {1: fetched(9, (5, 7)), 2: fetched(4)})

    assert (4, 5, 0) == (found.next_offset, found.lag, found.compared)

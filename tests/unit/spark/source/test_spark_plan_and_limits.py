from kalda.common.types import TopicPartition
from kalda.spark.source.limits import BatchDelay, limit_bytes, limit_offsets
from kalda.spark.source.plan import ByteLimit, OffsetRange, join_ranges, plan_ranges

P0, P1, P2 = (TopicPartition("t", number) for number in range(3))


def spans(ranges: list[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(each.topic_partition.partition, each.start, each.end) for each in ranges]


def test_empty_and_backward_ranges_are_left_out() -> None:
    assert [(0, 5, 9)] == spans(
        plan_ranges([OffsetRange(P0, 5, 9), OffsetRange(P1, 3, 3), OffsetRange(P2, 9, 4)])
    )


def test_min_partitions_cuts_the_long_ranges() -> None:
    ranges = [OffsetRange(P0, 0, 900), OffsetRange(P1, 50, 150)]

    planned = plan_ranges(ranges, partitions_min=10)

    assert [(0, start, start + 100) for start in range(0, 900, 100)] + [(1, 50, 150)] == spans(planned)


def test_min_partitions_below_the_number_of_ranges_changes_nothing() -> None:
    ranges = [OffsetRange(P0, 0, 900), OffsetRange(P1, 0, 1)]

    assert ranges == plan_ranges(ranges, partitions_min=2)


def test_a_range_is_never_cut_below_one_offset() -> None:
    assert [(0, 0, 1), (0, 1, 2), (0, 2, 3)] == spans(plan_ranges([OffsetRange(P0, 0, 3)], partitions_min=10))


def test_max_records_bounds_every_range() -> None:
    planned = plan_ranges([OffsetRange(P0, 10, 35), OffsetRange(P1, 0, 4)], records_max=10)

    assert [(0, 10, 18), (0, 18, 26), (0, 26, 35), (1, 0, 4)] == spans(planned)


def test_max_bytes_cuts_by_the_size_of_the_records() -> None:
    """Partitions with equally many records can differ tenfold in bytes, and so in the time of their task."""
    ranges = [OffsetRange(P0, 0, 100), OffsetRange(P1, 50, 150), OffsetRange(P2, 0, 100)]
    limit = ByteLimit(10_000, {P0: 100.0, P1: 250.0})

    planned = plan_ranges(ranges, byte_limit=limit)

    assert [(0, 0, 100), (1, 50, 83), (1, 83, 116), (1, 116, 150), (2, 0, 100)] == spans(planned)


def test_a_record_over_max_bytes_is_a_range_of_its_own() -> None:
    assert [(0, 7, 8), (0, 8, 9)] == spans(
        plan_ranges([OffsetRange(P0, 7, 9)], byte_limit=ByteLimit(10, {P0: 1e9}))
    )


def test_short_neighbours_become_one_task() -> None:
    """A task takes some ten milliseconds to start, and most micro-batches have few records in a partition."""
    ranges = [
        OffsetRange(P0, 0, 40),
        OffsetRange(P1, 5, 55),
        OffsetRange(P2, 0, 30),
        OffsetRange(P2, 30, 230),
    ]

    assert [tuple(ranges[:2]), (ranges[2],), (ranges[3],)] == join_ranges(ranges, offsets_max=100)
    assert [] == join_ranges([])


def test_backlogs_share_the_limit_in_proportion() -> None:
    assert {P0: 90, P1: 110} == limit_offsets(100, {P0: 0, P1: 100}, {P0: 900, P1: 200})


def test_a_small_backlog_is_not_starved() -> None:
    ends = limit_offsets(100, {P0: 0, P1: 0}, {P0: 10_000, P1: 1})

    assert {P0: 99, P1: 1} == ends


def test_a_limit_above_the_backlog_takes_everything() -> None:
    available = {P0: 7, P1: 3}

    assert available == limit_offsets(1000, {P0: 0, P1: 0}, available)


def test_offsets_near_the_maximum_do_not_overflow() -> None:
    top = 2**63 - 1

    assert {P0: top} == limit_offsets(10**12, {P0: top - 5}, {P0: top})


def test_partitions_without_a_start_or_that_went_back_keep_their_end() -> None:
    assert {P0: 4, P1: 9} == limit_offsets(1, {P1: 20}, {P0: 4, P1: 9})


def test_bytes_are_the_same_part_of_each_backlog() -> None:
    start, available = {P0: 0, P1: 0}, {P0: 10_000, P1: 2_000}

    assert {P0: 2_500, P1: 500} == limit_bytes(1_000_000, start, available, {P0: 100.0, P1: 1_500.0})
    assert available == limit_bytes(10_000_000, start, available, {P0: 100.0, P1: 1_500.0})


def test_bytes_below_one_record_still_make_progress() -> None:
    assert {P0: 1} == limit_bytes(10, {P0: 0}, {P0: 5}, {P0: 100.0})
    assert {P0: 5} == limit_bytes(10, {P0: 0}, {P0: 5}, {})


def test_a_batch_waits_for_enough_offsets_or_for_the_delay() -> None:
    delay = BatchDelay(100, delay_ms_max=1000)

    # The first trigger is never left out, then the time counts from the latest one that was not.
    assert not delay.leaves_out({P0: 0}, {P0: 1}, 5_000)
    assert delay.leaves_out({P0: 1}, {P0: 100}, 5_999)
    assert not delay.leaves_out({P0: 1}, {P0: 101}, 5_999)
    assert delay.leaves_out({P0: 101}, {P0: 102}, 6_998)
    assert not delay.leaves_out({P0: 101}, {P0: 102}, 6_999)

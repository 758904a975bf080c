"""Laws of planning that must hold for all inputs: nothing lost, nothing read twice."""

from hypothesis import given
from hypothesis import strategies as st

from kalda.common.types import TopicPartition
from kalda.spark.source.limits import limit_offsets
from kalda.spark.source.offsets import from_spark_offset, to_spark_offset
from kalda.spark.source.plan import ByteLimit, OffsetRange, plan_ranges

topic_partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d_e-f"]), st.integers(0, 20))
offsets = st.integers(0, 2**62)
backlogs = st.dictionaries(topic_partitions, st.tuples(offsets, st.integers(0, 10**6)), max_size=12)
byte_limits = st.none() | st.integers(10**5, 10**8)


@given(backlogs, st.none() | st.integers(1, 60), st.none() | st.integers(1000, 10**6), byte_limits)
def test_plans_cover_every_offset_once_in_order(
    given_backlogs: dict[TopicPartition, tuple[int, int]],
    partitions_min: int | None,
    records_max: int | None,
    bytes_max: int | None,
) -> None:
    ranges = [OffsetRange(each, start, start + size) for each, (start, size) in given_backlogs.items()]

    limit = (
        None if bytes_max is None else ByteLimit(bytes_max, {each.topic_partition: 100.5 for each in ranges})
    )

    planned = plan_ranges(ranges, partitions_min=partitions_min, records_max=records_max, byte_limit=limit)

    for whole in ranges:
        pieces = [each for each in planned if each.topic_partition == whole.topic_partition]
        position = whole.start
        for piece in pieces:
            assert position == piece.start
            assert piece.end > piece.start
            if records_max is not None:
                assert piece.offset_count <= records_max
            if bytes_max is not None:
                assert piece.offset_count <= bytes_max // 100.5 + 1
            position = piece.end
        assert position == whole.end


@given(backlogs, st.integers(1, 10**7))
def test_limited_batches_advance_and_end(
    given_backlogs: dict[TopicPartition, tuple[int, int]], offsets_max: int
) -> None:
    starts = {each: start for each, (start, _) in given_backlogs.items()}
    available = {each: start + size for each, (start, size) in given_backlogs.items()}

    ends = limit_offsets(offsets_max, starts, available)

    assert ends.keys() == available.keys()
    for each, end in ends.items():
        assert starts[each] <= end <= available[each]
        assert end > starts[each] or available[each] == starts[each]
    # Each share is rounded down, or up to one.
    assert sum(ends[each] - starts[each] for each in ends) <= offsets_max + len(ends)


@given(st.dictionaries(topic_partitions, offsets))
def test_offsets_survive_the_checkpoint(positions: dict[TopicPartition, int]) -> None:
    assert positions == from_spark_offset(to_spark_offset(positions))

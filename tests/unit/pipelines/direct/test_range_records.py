"""Records and gaps of a range, counted each by itself."""

import pyarrow as pa
import pytest

from kalda.common.types import TopicPartition
from kalda.pipelines.direct.range_records import OffsetCount, OffsetOrderError
from kalda.spark.source.plan import OffsetRange

RANGE = OffsetRange(TopicPartition("orders", 0), 2, 10)


def test_gaps_are_counted_before_between_and_behind_records() -> None:
    count = OffsetCount(RANGE)
    count.add(pa.array([3, 4]))
    count.add(pa.array([], pa.int64()))
    count.add(pa.array([7]))
    count.finish()

    assert (3, 5) == (count.records, count.gaps)


def test_a_range_without_records_is_all_gaps() -> None:
    count = OffsetCount(RANGE)
    count.finish()

    assert (0, 8) == (count.records, count.gaps)


@pytest.mark.parametrize("offsets", [[3, 3], [4, 3], [1], [9, 10]])
def test_offsets_that_repeat_go_back_or_leave_the_range_are_an_error(offsets: list[int]) -> None:
    """A reader with such a fault would otherwise count a record twice, or one of the next range."""
    with pytest.raises(OffsetOrderError, match="do not rise from 2 on or reach behind 9"):
        OffsetCount(RANGE).add(pa.array(offsets))


def test_an_offset_of_an_earlier_decode_is_an_error() -> None:
    count = OffsetCount(RANGE)
    count.add(pa.array([2, 3]))

    with pytest.raises(OffsetOrderError):
        count.add(pa.array([3]))

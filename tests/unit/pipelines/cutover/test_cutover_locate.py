"""The place of a group in a copy is that of its very next record."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.journal import Cut
from kalda.pipelines.cutover.locate import How, Locator, Place, inverted
from kalda.pipelines.cutover.log_rows import Digest, Row
from kalda.pipelines.mirror.offset_syncs import OffsetSyncs, Run, runs_of

PARTITION = TopicPartition("orders", 0)


class Log:
    """The records of a partition: what each offset has; offsets in between are markers, or compacted."""

    def __init__(self, records: Mapping[int, int]) -> None:
        self.records = dict(sorted(records.items()))

    def rows(self, _: TopicPartition, start: int, end: int) -> Iterator[Row]:
        for offset, record in self.records.items():
            if start <= offset < end:
                yield Row(offset, Digest(1, record))

    def first(self, partition: TopicPartition, start: int, end: int) -> Row | None:
        return next(self.rows(partition, start, end), None)

    def offsets(self, partition: TopicPartition, start: int, end: int) -> npt.NDArray[np.int64]:
        return np.array([each.offset for each in self.rows(partition, start, end)], np.int64)


def place(
    offset: int,
    runs: Sequence[Run],
    source: Mapping[int, int],
    target: Mapping[int, int],
    cut: Cut,
    *,
    source_begin: int = 0,
    target_begin: int = 0,
) -> Place:
    locator = Locator(
        PARTITION,
        runs,
        cut,
        Log(source),
        Log(target),
        source_begin=source_begin,
        target_begin=target_begin,
    )
    return locator.place(offset)


SOURCE = {0: 100, 1: 101, 2: 102, 5: 105, 6: 106, 9: 109}
"""Offsets 3, 4, 7 and 8 are markers or aborted records; 10 is the end."""
TARGET = {0: 100, 1: 101, 2: 102, 4: 105, 5: 106, 7: 109}
RUNS = [Run(0, 0, 3), Run(5, 4, 2), Run(9, 7, 1)]
CUT = Cut(10, 9)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [(0, 0), (2, 2), (3, 4), (4, 4), (5, 4), (6, 5), (7, 7), (9, 7)],
)
def test_a_group_goes_on_at_its_next_record(offset: int, expected: int) -> None:
    assert Place(expected, How.EXACT) == place(offset, RUNS, SOURCE, TARGET, CUT)


@pytest.mark.parametrize("offset", [10, 11])
def test_a_group_that_has_read_everything_goes_on_at_the_end(offset: int) -> None:
    assert Place(9, How.END) == place(offset, RUNS, SOURCE, TARGET, CUT)


def test_a_group_before_the_beginning_goes_on_at_the_first_record() -> None:
    source = {offset: record for offset, record in SOURCE.items() if offset >= 5}
    assert Place(4, How.EXACT) == place(1, RUNS, source, TARGET, CUT, source_begin=4)


def test_an_empty_partition_has_only_an_end() -> None:
    assert Place(0, How.END) == place(0, [], {}, {}, Cut(0, 0))
    assert Place(0, How.END) == place(3, [], {}, {}, Cut(7, 0), source_begin=7)


@pytest.mark.parametrize("runs", [[], RUNS[:1], RUNS[1:2], RUNS[2:], [RUNS[0], RUNS[2]]])
@pytest.mark.parametrize("offset", range(10))
def test_records_that_no_run_has_are_counted(runs: list[Run], offset: int) -> None:
    assert place(offset, RUNS, SOURCE, TARGET, CUT) == place(offset, runs, SOURCE, TARGET, CUT)


def test_what_was_compacted_away_in_the_copy_is_passed() -> None:
    target = {offset: record for offset, record in TARGET.items() if offset != 4}
    assert Place(4, How.COMPACTED) == place(5, RUNS, SOURCE, target, CUT)


def test_counts_that_compaction_made_unequal_are_not_trusted() -> None:
    """Between known runs, the record itself decides."""
    source = {offset: record for offset, record in SOURCE.items() if offset != 2}
    assert Place(4, How.EXACT) == place(5, [RUNS[0], RUNS[2]], source, TARGET, CUT)
    source = {offset: record for offset, record in SOURCE.items() if offset != 5}
    assert Place(5, How.EXACT) == place(5, [RUNS[0], RUNS[2]], source, TARGET, CUT)


def test_a_record_that_is_not_found_makes_the_group_begin_before_it() -> None:
    source = {**SOURCE, 5: 999}
    assert Place(3, How.EARLIER) == place(5, [RUNS[0], RUNS[2]], source, TARGET, CUT)


def test_another_record_at_the_place_is_found_out() -> None:
    assert Place(4, How.DIFFERENT) == place(5, RUNS, SOURCE, {**TARGET, 4: 999}, CUT)


def test_a_copy_that_lost_its_beginning_is_read_from_there() -> None:
    target = {offset: record for offset, record in TARGET.items() if offset >= 4}
    assert Place(4, How.COMPACTED) == place(1, RUNS, SOURCE, target, CUT, target_begin=4)


def test_the_way_back_has_the_runs_the_other_way_round() -> None:
    back = inverted(RUNS)
    for offset in SOURCE:
        there = place(offset, RUNS, SOURCE, TARGET, CUT).target
        assert Place(offset, How.EXACT) == place(there, back, TARGET, SOURCE, Cut(9, 10))


@given(
    st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=30),
    st.integers(0, 100),
    st.integers(1, 4),
    st.data(),
)
def test_places_are_exact_whatever_runs_are_known(
    steps: list[tuple[int, int]], offset: int, kept: int, data: st.DataObject
) -> None:
    """Records with random gaps on both sides; some runs are forgotten."""
    source, target = {}, {}
    here = there = 0
    for record, (gap, other_gap) in enumerate(steps):
        here, there = here + gap, there + other_gap
        source[here], target[there] = record, record
    runs = runs_of([np.array(list(source), np.int64)], [(each, 1) for each in target])
    known = [each for each in runs if data.draw(st.booleans())]
    cut = Cut(here + 1, there + 1)
    found = place(offset, OffsetSyncs(known, kept_max=kept).runs, source, target, cut)
    following = next((record for at, record in source.items() if at >= offset), None)
    if following is None:
        assert Place(cut.target, How.END) == found
    else:
        assert Place(list(target)[following], How.EXACT) == found

"""Pieces of a partition are compared once, and differences are named."""

import numpy as np
import pyarrow as pa
import pytest

from kalda.clients.errors import OffsetOutOfRangeError
from kalda.common.types import TopicPartition
from kalda.pipelines.cutover.compare import Begins, Comparison, DifferenceError, common_begin
from kalda.pipelines.cutover.journal import Cut
from kalda.pipelines.cutover.log_rows import Digest
from kalda.pipelines.mirror.offset_syncs import Run
from kalda.records.columnar import ColumnarBatch
from kalda.records.columnar_fields import HEADERS_TYPE

PARTITION = TopicPartition("orders", 0)
RUNS = [Run(0, 0, 10), Run(20, 11, 5)]
Record = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int]


def batch(*records: Record) -> ColumnarBatch:
    keys, values, headers, timestamps = zip(*records, strict=True)
    entries = [
        None if each is None else [{"key": name, "value": value} for name, value in each] for each in headers
    ]
    return ColumnarBatch(
        offsets=pa.array(np.arange(len(records))),
        timestamps_ms=pa.array(timestamps, pa.int64()),
        timestamp_types=pa.array([0] * len(records), pa.int32()),
        keys=pa.array(keys, pa.binary()),
        values=pa.array(values, pa.binary()),
        headers=pa.array(entries, HEADERS_TYPE),
        next_offset=len(records),
        consumed_bytes=0,
    )


RECORDS: list[Record] = [
    (b"k", b"v", [("h", b"x"), ("i", None)], 5),
    (None, b"", [], -1),
    (b"", None, [("", b"")], 6),
    (b"kk", b"vv", [("h", b"")], 7),
]


def test_a_digest_does_not_depend_on_how_records_are_cut() -> None:
    whole = Digest().add(batch(*RECORDS))
    for cut in range(1, len(RECORDS)):
        assert whole == Digest().add(batch(*RECORDS[:cut])).add(batch(*RECORDS[cut:]))
    assert 4 == whole.count


@pytest.mark.parametrize(
    "other",
    [
        (b"k", b"v", [("h", b"x"), ("i", b"")], 5),
        (b"k", b"v", [("h", b"x")], 5),
        (b"k", b"v", [("hi", b"x"), ("", None)], 5),
        (b"k", b"w", [("h", b"x"), ("i", None)], 5),
        (b"", b"v", [("h", b"x"), ("i", None)], 5),
        (None, b"v", [("h", b"x"), ("i", None)], 5),
        (b"k", None, [("h", b"x"), ("i", None)], 5),
        (b"k", b"v", [("h", b"x"), ("i", None)], 6),
    ],
)
def test_a_digest_shows_every_difference(other: Record) -> None:
    assert Digest().add(batch(*RECORDS)) != Digest().add(batch(other, *RECORDS[1:]))


def test_the_end_of_one_value_is_part_of_the_digest() -> None:
    one: list[Record] = [(None, b"ab", [], 0), (None, b"c", [], 0)]
    other: list[Record] = [(None, b"a", [], 0), (None, b"bc", [], 0)]
    assert Digest().add(batch(*one)) != Digest().add(batch(*other))


@pytest.mark.parametrize(
    ("begins", "expected"),
    [
        (Begins(0, 0), Cut(0, 0)),
        (Begins(4, 2), Cut(4, 4)),
        (Begins(0, 12), Cut(21, 12)),
        (Begins(15, 0), Cut(20, 11)),
        (Begins(24, 15), Cut(24, 15)),
        (Begins(25, 0), Cut(30, 16)),
    ],
)
def test_comparing_begins_with_the_first_record_of_both(begins: Begins, expected: Cut) -> None:
    assert expected == common_begin(RUNS, begins, Cut(30, 16))


class Digests:
    """Digests that were prepared for ranges."""

    def __init__(self, *digests: Digest | None) -> None:
        self.digests = list(digests)
        self.ranges: list[tuple[int, int]] = []

    def digest(self, _: TopicPartition, start: int, end: int, before: Digest) -> Digest:
        self.ranges.append((start, end))
        found = self.digests.pop(0)
        if found is None:
            raise OffsetOutOfRangeError("deleted")
        return found


def test_a_piece_begins_where_the_last_one_ended() -> None:
    source, target = Digests(Digest(3), Digest(2)), Digests(Digest(3), Digest(2))
    comparison = Comparison(source, target, {})
    records = [
        comparison.extend(PARTITION, RUNS, Begins(0, 0), end, is_compacted=False)
        for end in (Cut(12, 11), Cut(25, 16))
    ]
    assert ([(0, 12), (12, 25)], [(0, 11), (11, 16)]) == (source.ranges, target.ranges)
    assert ({PARTITION: Cut(25, 16)}, [3, 2], {}) == (
        comparison.compared,
        records,
        comparison.passed_over,
    )


def test_a_difference_is_named() -> None:
    comparison = Comparison(Digests(Digest(3, values=1)), Digests(Digest(3, values=2)), {})
    with pytest.raises(DifferenceError, match=r"orders-0 has 3 records .* with other values"):
        comparison.extend(PARTITION, RUNS, Begins(0, 0), Cut(12, 11), is_compacted=False)


def test_a_compacted_partition_may_differ() -> None:
    comparison = Comparison(Digests(Digest(3)), Digests(Digest(2)), {})
    comparison.extend(PARTITION, RUNS, Begins(0, 0), Cut(12, 11), is_compacted=True)
    assert [PARTITION] == list(comparison.passed_over)


def test_records_that_are_deleted_meanwhile_are_passed_over() -> None:
    comparison = Comparison(Digests(None), Digests(), {})
    comparison.extend(PARTITION, RUNS, Begins(0, 0), Cut(12, 11), is_compacted=False)
    assert {PARTITION: Cut(12, 11)} == comparison.compared
    assert [PARTITION] == list(comparison.passed_over)

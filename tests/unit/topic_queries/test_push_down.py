"""A filter narrows the offsets that are read, and never leaves out a row that passes it."""

import itertools

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest

from kalda.common.types import TopicPartition
from kalda.topic_queries.columns import Columns
from kalda.topic_queries.push_down import TIMESTAMP, Pruning

SCHEMA = Columns().schema
P0, P1, P2 = (TopicPartition("t", number) for number in range(3))
OFFSET, PARTITION, KEY = (ds.field(name) for name in ("offset", "partition", "key"))
TIME = ds.field("timestamp")


def time(ms: float) -> pa.Scalar:
    return pa.scalar(int(ms * 1000), TIMESTAMP)


def offsets(filter: ds.Expression, partition: TopicPartition = P0, begin: int = 0, end: int = 100) -> range:
    return Pruning(filter, SCHEMA).offsets(partition, begin, end)


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (OFFSET == 7, range(7, 8)),
        (OFFSET >= 7, range(7, 100)),
        (OFFSET > 7, range(8, 100)),
        (OFFSET < 7, range(7)),
        (OFFSET <= 7, range(8)),
        ((OFFSET >= 10) & (OFFSET < 20), range(10, 20)),
        ((OFFSET >= 10) & (KEY == "k"), range(10, 100)),
        ((OFFSET == 10) | (OFFSET == 30), range(10, 31)),
        (OFFSET.isin([10, 30]), range(10, 31)),
        (OFFSET != 7, range(100)),
        (KEY == "k", range(100)),
        (OFFSET > 1000, range(0)),
        ((OFFSET > 50) & (OFFSET < 40), range(0)),
        (OFFSET == 99, range(99, 100)),
        (OFFSET == 0, range(1)),
        ((OFFSET < 10) | (KEY == "k"), range(100)),
    ],
    ids=str,
)
def test_conditions_on_offsets_become_a_range(filter: ds.Expression, expected: range) -> None:
    assert expected == offsets(filter)


def test_a_range_stays_within_the_log() -> None:
    assert range(40, 45) == offsets((OFFSET >= 3) & (OFFSET < 45), begin=40, end=60)
    assert not offsets(OFFSET < 40, begin=40, end=60)
    assert not offsets(OFFSET >= 0, begin=40, end=40)
    assert range(2**61, 2**61 + 1) == offsets(OFFSET == 2**61, begin=5, end=2**62)


def test_conditions_on_partitions_leave_partitions_out() -> None:
    in_list = pc.if_else(PARTITION.is_valid(), PARTITION.isin([0, 2]), pa.scalar(None, pa.bool_()))
    for filter in (in_list, (PARTITION == 0) | (PARTITION == 2), PARTITION != 1):
        assert [True, False, True] == [bool(offsets(filter, each)) for each in (P0, P1, P2)]
    assert not offsets(ds.field("topic") == "other")


def test_each_partition_has_its_own_range() -> None:
    filter = ((PARTITION == 0) & (OFFSET >= 90)) | ((PARTITION == 1) & (OFFSET < 5))

    assert [range(90, 100), range(5), range(0)] == [offsets(filter, each) for each in (P0, P1, P2)]


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        (TIME >= time(5000), 5000),
        (TIME > time(5000), 5001),
        (TIME >= time(5000.5), 5001),
        (TIME == time(5000), 5000),
        ((TIME >= time(5000)) & (TIME < time(6000)), 5000),
        ((TIME >= time(5000)) | (TIME == time(3000)), 3000),
        (TIME < time(6000), None),
        (OFFSET > 5, None),
        ((TIME >= time(5000)) | (KEY == "k"), None),
        (TIME >= time(1_800_000_000_000), 1_800_000_000_000),
    ],
    ids=str,
)
def test_a_lower_bound_on_the_time_is_found(filter: ds.Expression, expected: int | None) -> None:
    """An upper one says nothing: timestamps do not rise with the offsets."""
    assert expected == Pruning(filter, SCHEMA).least_timestamp_ms(P0)


def test_no_row_that_passes_is_left_out() -> None:
    """Conditions of all forms, two and two, against the rows that Arrow itself lets pass."""
    table = pa.table(
        {
            "topic": ["t"] * 40,
            "partition": pa.array([0] * 40, pa.int32()),
            "offset": pa.array(range(100, 140), pa.int64()),
            "timestamp": pa.array([(n * 7919) % 40 * 1_000_000 for n in range(40)], TIMESTAMP),
            "key": [None if n % 7 == 0 else "ab"[n % 2] for n in range(40)],
        }
    )
    conditions = [
        OFFSET > 110,
        OFFSET.isin([105, 131]),
        ~(OFFSET < 120),
        (OFFSET * 2) > 230,
        TIME >= time(20_000),
        ~(TIME < time(30_000)),
        KEY == "a",
        KEY.is_null(),
        PARTITION == 0,
        PARTITION > 0,
    ]
    for one, other in itertools.product(conditions, repeat=2):
        for filter in (one & other, one | other, ~(one & other)):
            pruning = Pruning(filter, SCHEMA)
            within = pruning.offsets(P0, 100, 140)
            least_ms = pruning.least_timestamp_ms(P0)
            for row in table.filter(filter).to_pylist():
                assert row["offset"] in within, str(filter)
                assert least_ms is None or row["timestamp"].timestamp() * 1000 >= least_ms, str(filter)

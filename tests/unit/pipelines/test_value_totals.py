"""Totals of values: the same in any order, cut and type, and different for other values."""

import datetime as dt
import random
from decimal import Decimal

import pyarrow as pa
import pytest

from kalda.pipelines.value_totals import ColumnTotal, TotalCount, from_json, to_json, totals_of

MOMENT = dt.datetime(2026, 1, 2, 3, 4, 5, 678_901, tzinfo=dt.UTC)
NESTED = pa.struct([("a", pa.int64()), ("l", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.int64()))])
COLUMNS = {
    "number": pa.array([1, -5, None, 1 << 40]),
    "real": pa.array([1.5, -0.25, None, 1e300]),
    "flag": pa.array([True, False, None, True]),
    "text": pa.array(["", "short", None, "a text of more than thirty-two bytes, é"]),
    "money": pa.array([Decimal("1.50"), Decimal("-3.00"), None, Decimal("0.01")]),
    "at": pa.array([MOMENT, MOMENT, None, MOMENT], pa.timestamp("us", "UTC")),
    "day": pa.array([dt.date(2026, 1, 2), dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "nested": pa.array(
        [
            {"a": 1, "l": ["x", None], "m": [("k", 1), ("o", 2)]},
            {"a": None, "l": [], "m": None},
            None,
            {"a": 2},
        ],
        NESTED,
    ),
}
ROWS = pa.record_batch(COLUMNS)


def total(column: pa.Array) -> ColumnTotal:
    found = totals_of(pa.record_batch({"c": column}))
    assert found is not None
    return found[0]


def test_totals_depend_on_no_order_and_no_cut() -> None:
    order = list(range(len(ROWS)))
    random.Random(1).shuffle(order)
    shuffled = ROWS.take(pa.array(order))
    count = TotalCount()
    for start, length in ((0, 1), (1, 0), (1, 3)):
        part = shuffled.slice(start, length)
        count.add(part.num_rows, totals_of(part))
    assert totals_of(ROWS) == count.totals
    assert [1] * len(COLUMNS) == [each.nulls for each in count.totals or ()]
    assert count.totals == from_json(to_json(count.totals))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (pa.array([1, None]), pa.array([1, None], pa.int32())),
        (pa.array([1, None]), pa.array([1.0, None])),
        (pa.array([1, None]), pa.array([Decimal("1.00"), None])),
        (pa.array([1.5]), pa.array([1.5], pa.float32())),
        (pa.array(["a"]), pa.array(["a"]).dictionary_encode()),
        (pa.array(["a"]), pa.array(["a"], pa.large_string())),
        (pa.array([MOMENT], pa.timestamp("us", "UTC")), pa.array([MOMENT], pa.timestamp("ns", "UTC"))),
        (pa.array([{"a": 1}]), pa.array([{"b": None, "a": 1.0}])),
        (pa.array([[1]]), pa.array([[1]], pa.large_list(pa.int32()))),
    ],
    ids=lambda each: str(each.type),
)
def test_a_value_counts_the_same_in_each_type_that_holds_it(one: pa.Array, other: pa.Array) -> None:
    assert total(one) == total(other)


def test_other_values_have_another_checksum() -> None:
    text = "x" * 50
    columns = [
        *COLUMNS.values(),
        pa.array([2]),
        pa.array([2.5]),
        *(
            pa.array([each])
            for each in ("", "x", "xx", text, "y" + text[1:], text[:25] + "y" + text[26:], text[:-1] + "y")
        ),
        *(pa.array([each]) for each in ([], [1], [2], [1, 2], [2, 1], [None], [[1]])),
        *(pa.array([each]) for each in ({"a": 1}, {"b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 1})),
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.array([[("k", 2)]], pa.map_(pa.string(), pa.int64())),
    ]
    checksums = [total(each).checksum for each in columns]
    assert len(checksums) == len(set(checksums))


def test_a_column_that_rows_lack_is_null_in_them() -> None:
    count = TotalCount()
    for rows in (pa.record_batch({"a": pa.array([1, 2])}), pa.record_batch({"b": pa.array([3])})):
        count.add(rows.num_rows, totals_of(rows))
    assert [("a", 1), ("b", 2)] == [(each.name, each.nulls) for each in count.totals or ()]


@pytest.mark.parametrize("text", ["0", "0.00000012", "-0.0000001", "1E-10"])
def test_small_decimals_count_the_same_in_each_scale(text: str) -> None:
    """Arrow writes them with an exponent and the zeros of the scale before it."""
    totals = [total(pa.array([Decimal(text)], pa.decimal128(38, scale))) for scale in (10, 12, 18)]

    assert [totals[0]] * 3 == totals
    if text == "0":
        assert total(pa.array([0])) == totals[0]


@pytest.mark.parametrize("number", [(1 << 64) - 1, 1 << 63, (1 << 63) - 1, -(1 << 63), 10**18])
def test_long_integers_count_the_same_as_decimals(number: int) -> None:
    """Tables have a decimal for an unsigned integer of 64 bits."""
    kind = pa.uint64() if number >> 63 == 1 else pa.int64()

    assert total(pa.array([number], kind)) == total(pa.array([Decimal(number)], pa.decimal128(20, 0)))
    assert total(pa.array([number - 1 if number > 0 else number + 1], kind)) != total(
        pa.array([number], kind)
    )

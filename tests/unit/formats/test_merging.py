"""Columns that the schemas of several values are merged to."""

import itertools

import pyarrow as pa
import pytest

from kalda.formats.merging import converted, extended, leaf_count, merged_all, settled

FAR = [253_402_300_800, -62_135_596_801, 0, None]


@pytest.mark.parametrize(
    ("kind", "scale", "expected"),
    [
        (pa.timestamp("us", "UTC"), 10**6, ["10000-01-01 00:00:00.000000Z", "0000-12-31 23:59:59.000000Z"]),
        (pa.timestamp("ms"), 10**3, ["10000-01-01 00:00:00.000", "0000-12-31 23:59:59.000"]),
        (pa.timestamp("s"), 10, ["82269-12-29 00:00:00", "-17720-01-05 23:59:50"]),
    ],
)
def test_moments_in_any_year_have_a_text(kind: pa.DataType, scale: int, expected: list[str]) -> None:
    """A column of moments and texts is text; Arrow writes other years, or that it has none."""
    numbers = [None if each is None else each * scale for each in FAR]

    texts = converted(pa.array(numbers, pa.int64()).cast(kind), pa.string()).to_pylist()

    assert expected == texts[:2]
    assert texts[2].startswith("1970-01-01 00:00:00")
    assert texts[3] is None


def test_days_in_any_year_have_a_text() -> None:
    days = pa.array([2_932_897, -719_163, 10**9, 0, None], pa.int32()).cast(pa.date32())

    expected = ["10000-01-01", "0000-12-31", "2739877-01-03", "1970-01-01", None]
    assert expected == converted(days, pa.string()).to_pylist()


def test_structures_become_json_that_every_parser_reads() -> None:
    rows = pa.array([{"x": 1.5}, {"x": float("nan")}, None])

    assert ['{"x":1.5}', '{"x":"NaN"}', None] == converted(rows, pa.string()).to_pylist()


def test_decimals_beside_doubles_become_the_nearest_one() -> None:
    texts = ["476807.47", "85889800.07", "-0.10", None]

    found = converted(pa.array(texts).cast(pa.decimal128(10, 2)), pa.float64())

    assert [476807.47, 85889800.07, -0.1, None] == found.to_pylist()


def column(kind: pa.DataType) -> pa.DataType:
    return pa.struct([("c", kind)])


def test_types_with_nothing_in_common_are_texts_in_the_end_in_whatever_order_they_come() -> None:
    kinds = [
        column(kind)
        for kind in (
            pa.struct([("q", pa.int64())]),
            pa.list_(pa.null()),
            pa.struct([("p", pa.string())]),
            pa.int64(),
            pa.float64(),
        )
    ]

    assert 1 == len({str(settled(merged_all(each))) for each in itertools.permutations(kinds)})
    assert column(pa.string()) == settled(merged_all(kinds))
    assert 1 == leaf_count(merged_all(kinds))


@pytest.mark.parametrize("known", [pa.struct([("q", pa.int64())]), pa.list_(pa.int64()), pa.int64()])
def test_a_known_column_gets_of_several_types_what_fits_it(known: pa.DataType) -> None:
    shown = [
        pa.struct([("q", pa.float64()), ("p", pa.bool_())]),
        pa.list_(pa.float64()),
        pa.float64(),
        pa.string(),
        pa.bool_(),
    ]
    expected = {pa.int64(): pa.float64(), pa.list_(pa.int64()): pa.list_(pa.float64())}.get(known, shown[0])

    for kinds in itertools.permutations(shown):
        found = extended(column(known), merged_all(map(column, kinds)))
        assert column(expected) == found


def test_a_known_text_stays_one() -> None:
    shown = merged_all([column(pa.int64()), column(pa.list_(pa.int64()))])

    assert column(pa.string()) == extended(column(pa.string()), shown)


def test_types_of_which_none_is_known_are_a_text() -> None:
    shown = merged_all([column(pa.int64()), column(pa.bool_())])

    assert column(pa.string()) == settled(extended(column(pa.null()), shown))
    assert column(pa.string()) == settled(extended(pa.struct([]), shown))

"""Partition fields: their values, the split of a batch, and Hive's directories."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.pipelines.tables.errors import TableSpecError
from kalda.pipelines.tables.partitions import (
    HIVE_NULL,
    check_fields,
    hive_directory,
    hive_values,
    parse_fields,
    plain_directory,
    split,
    value_of_text,
    value_text,
    with_partition_columns,
)

COLUMNS = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC")), ("day", pa.date32())])
MOMENT = dt.datetime(2026, 3, 1, 4, 5, 6, 70, tzinfo=dt.UTC)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


def test_fields_are_read() -> None:
    fields = parse_fields(("id", " day( ts ) ", "year(day)"))
    assert [("id", "identity", "id"), ("ts", "day", "ts_day"), ("day", "year", "day_year")] == [
        (field.source, field.transform.value, field.name) for field in fields
    ]
    made = with_partition_columns(COLUMNS, fields)
    assert ["id", "ts", "day", "ts_day", "day_year"] == made.names
    assert [pa.date32(), pa.int32()] == made.types[3:]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (("week(ts)",), r"partition_by has 'week\(ts\)'; allowed are a column"),
        (("day(ts",), "allowed are a column"),
        (("id", "id"), "names a field twice"),
        (("nope",), "names the column 'nope', which the rows lack; they have id, ts, day"),
        (("day(id)",), "but 'id' is int64; it must be a timestamp"),
        (("hour(day)",), "it must be a timestamp"),
    ],
)
def test_wrong_fields_are_refused(given: tuple[str, ...], message: str) -> None:
    with pytest.raises(TableSpecError, match=message):
        check_fields(parse_fields(given), COLUMNS)


@pytest.mark.parametrize(
    "kind", [pa.float64(), pa.binary(), pa.list_(pa.int64()), pa.struct([("a", pa.int8())])]
)
def test_types_without_a_directory_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(TableSpecError, match="Make a column of such a type and partition by it"):
        check_fields(parse_fields(("x",)), pa.schema([("x", kind)]))


def test_a_made_column_does_not_hide_another() -> None:
    rows = COLUMNS.append(pa.field("ts_day", pa.string()))
    with pytest.raises(TableSpecError, match="makes the column 'ts_day', but the rows have that column"):
        check_fields(parse_fields(("day(ts)",)), rows)


@given(st.lists(st.tuples(texts.filter(bool), st.none() | texts), min_size=1, max_size=3))
def test_a_directory_shows_its_values(partition: list[tuple[str, str | None]]) -> None:
    """What a compaction and a reader take from the path is what the writer put there; an empty text is
    null."""
    directory = hive_directory(partition)
    expected = tuple((name, None if value in ("", HIVE_NULL) else value) for name, value in partition)
    assert expected == hive_values(f"{directory}/kalda-x.parquet")
    assert all(part not in (".", "..") and "\n" not in part for part in directory.split("/"))
    assert len(partition) == len(directory.split("/"))


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, pa.string(), None),
        ("", pa.string(), None),
        (True, pa.bool_(), "true"),
        (False, pa.bool_(), "false"),
        (-7, pa.int32(), "-7"),
        (Decimal("1.50"), pa.decimal128(5, 2), "1.50"),
        (dt.date(2026, 3, 1), pa.date32(), "2026-03-01"),
        (MOMENT.replace(tzinfo=None), pa.timestamp("us"), "2026-03-01 04:05:06.000070"),
        (MOMENT, pa.timestamp("us", "UTC"), "2026-03-01 04:05:06.000070"),
    ],
)
def test_a_value_comes_back_from_its_text(value: object, kind: pa.DataType, text: str | None) -> None:
    assert text == value_text(value)
    assert (value or None if value == "" else value) == value_of_text(text, kind)


def test_names_that_no_file_system_takes_are_refused() -> None:
    with pytest.raises(TableSpecError, match="Partition by a shorter column"):
        hive_directory((("k", "x" * 300),))
    assert "k=" + "x" * 80 == plain_directory((("k", "x" * 300),))
    assert "a_b=_._" == plain_directory((("a/b", "%./"),))


@given(
    st.lists(
        st.fixed_dictionaries({"a": st.none() | st.integers(0, 3), "b": st.sampled_from(["x", "y", None])}),
        max_size=40,
    )
)
def test_a_split_has_each_row_once_in_order(rows: list[dict[str, object]]) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("number", pa.int64())])
    numbered = [row | {"number": number} for number, row in enumerate(rows)]
    batch = pa.RecordBatch.from_pylist(numbered, schema)
    found: dict[tuple[tuple[str, object], ...], list[dict[str, object]]] = {}
    for partition, part in split(batch, parse_fields(("a", "b"))):
        if part.num_rows:
            assert partition not in found
            found[partition] = part.to_pylist()
    for key, part_rows in found.items():
        values = dict(key)
        assert [row for row in numbered if row["a"] == values["a"] and row["b"] == values["b"]] == part_rows
    assert len(numbered) == sum(map(len, found.values()))

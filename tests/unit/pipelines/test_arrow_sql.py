"""Simple SQL becomes Arrow expressions with Spark's values; tests/spark compares with Spark itself."""

from datetime import UTC, date, datetime
from math import isnan, nan

import pyarrow as pa
import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.arrow_sql import NotDirectError, row_steps
from kalda.pipelines.direct.row_steps import OFFSET_COLUMN
from kalda.pipelines.sql_text import RowSql, parse_step

SCHEMA = pa.schema(
    [
        ("amount", pa.float64()),
        ("id", pa.int64()),
        ("name", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("s", pa.struct([("b", pa.int32())])),
        ("raw", pa.binary()),
    ]
)
TIME = datetime(2024, 1, 31, 13, 5, 7, 9, tzinfo=UTC)
EARLY = datetime(1969, 12, 31, 23, 59, tzinfo=UTC)
LISTED = "*, s.b as q, to_date(ts) dt, hour(ts) h, date_trunc('hour', ts) t, 1 one"
ROWS: list[dict[str, object]] = [
    {"amount": nan, "id": 5, "name": "a", "ts": TIME, "s": {"b": 3}},
    {"amount": 1.5, "id": None, "name": None, "ts": None, "s": None},
    {
        "amount": None,
        "id": -7,
        "name": "b",
        "ts": datetime(1969, 12, 31, 23, 59, tzinfo=UTC),
        "s": {"b": None},
    },
]


def apply(text: str) -> pa.RecordBatch:
    parsed = parse_step(text)
    assert isinstance(parsed, RowSql)
    steps, schema = row_steps(parsed, SCHEMA)
    rows = pa.RecordBatch.from_pylist(
        [row | {OFFSET_COLUMN: offset} for offset, row in enumerate(ROWS)],
        schema=SCHEMA.append(pa.field(OFFSET_COLUMN, pa.int64())),
    )
    for step in steps:
        rows = step.apply(rows)
    assert schema.names == rows.schema.names[:-1]
    assert schema.types == rows.schema.types[:-1]
    return rows


@pytest.mark.parametrize(
    ("condition", "offsets"),
    [
        ("amount > 1.4", [0, 1]),
        ("amount >= 1.5", [0, 1]),
        ("amount < 2", [1]),
        ("amount <= 1e3", [1]),
        ("amount = amount", [0, 1]),
        ("amount <> amount", []),
        ("id in (5, 6) or name is null", [0, 1]),
        ("not (id in (5, 6))", [2]),
        ("id not between -9 and 0", [0]),
        ("id <> -7 and name = 'a'", [0]),
        ("not (name = 'a' and id = 5)", [2]),
        ("s.b is not null", [0]),
        ("input.id > 0", [0]),
        ("true", [0, 1, 2]),
        ("hour(ts) = 13", [0]),
    ],
)
def test_conditions_have_three_values(condition: str, offsets: list[int]) -> None:
    """Null is not true, NaN is greater than every number."""
    assert offsets == apply(f"where {condition}").column(OFFSET_COLUMN).to_pylist()


def test_a_select_list_makes_columns() -> None:
    """The filter sees the columns before the list."""
    rows = apply(f"select {LISTED} where id is not null")
    first, last = rows.to_pylist()
    assert isnan(first["amount"])
    assert (3, date(2024, 1, 31), 13, datetime(2024, 1, 31, 13, tzinfo=UTC), 1) == tuple(
        first[name] for name in ("q", "dt", "h", "t", "one")
    )
    assert (None, date(1969, 12, 31), 23, datetime(1969, 12, 31, 23, tzinfo=UTC), 2) == tuple(
        last[name] for name in ("q", "dt", "h", "t", OFFSET_COLUMN)
    )


def test_a_star_can_leave_columns_out() -> None:
    """The hidden column stays."""
    assert ["name", "ts", "raw", OFFSET_COLUMN] == apply("select * except (amount, id, s)").schema.names


@pytest.mark.parametrize(
    "text",
    [
        "select id + 1 as x",
        "select cast(id as string) as x",
        "select upper(name) as x",
        "select 1.5 as x",
        "select null as x",
        "select ID as x",
        "select nothing as x",
        "select id, id",
        "select * except (nothing)",
        "where raw = 'a'",
        "where id > 1.5",
        "where id > 9223372036854775808",
        "where amount = 0.12345678901234567",
        "where name > 1",
        "where name",
        "where -id > 1",
        "where name like 'a%'",
        "where year(name) = 1",
        "where date_trunc('week', ts) = ts",
        "where id in (1, null)",
    ],
)
def test_what_might_differ_from_spark_is_left_to_spark(text: str) -> None:
    """Types that Spark converts, arithmetic that may overflow, names that differ in case."""
    parsed = parse_step(text)
    assert isinstance(parsed, RowSql)
    with pytest.raises(NotDirectError):
        row_steps(parsed, SCHEMA)

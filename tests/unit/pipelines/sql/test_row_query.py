"""SQL that Kalda evaluates itself; that the values are Spark's is a test with Spark."""

import pickle

import pyarrow as pa
import pytest

from kalda.pipelines.sql.nodes import SqlError, UnsupportedSqlError
from kalda.pipelines.sql.row_query import RowCondition, RowQuery

ROWS = pa.RecordBatch.from_pydict(
    {
        "a": [1, 0, None, 4],
        "b": ["x", "y", None, "z"],
        "dec": pa.array([1, 2, 3, 4], pa.decimal128(9, 2)),
        "__o": [5, 6, 7, 8],
    }
)


def test_a_step_projects_and_filters_and_carries_hidden_columns() -> None:
    """The hidden column follows its row, and * does not show it."""
    query = pickle.loads(pickle.dumps(RowQuery("select *, a + 1 as c from input where a > 0", ["__o"])))

    rows = query.apply(ROWS)

    assert ["a", "b", "dec", "c", "__o"] == rows.schema.names
    assert [(1, 2, 5), (4, 5, 8)] == [(row["a"], row["c"], row["__o"]) for row in rows.to_pylist()]
    assert rows.schema == query.output_schema(ROWS.schema)


def test_a_filter_alone_keeps_the_columns() -> None:
    rows = RowQuery("where b is not null and a <> 0").apply(ROWS)

    assert ROWS.schema == rows.schema
    assert [1, 4] == rows.column("a").to_pylist()


def test_what_a_row_does_not_need_is_not_computed() -> None:
    """Spark divides only in the rows that the condition lets through."""
    query = RowQuery(
        "select case when a <> 0 then 8 / a end as q, a <> 0 and 8 / a > 2 as p, coalesce(a, 1 / 0) c"
    )
    rows = query.apply(ROWS.filter(pa.array([True, True, False, True])))

    assert [8.0, None, 2.0] == rows.column("q").to_pylist()
    assert [True, False, False] == rows.column("p").to_pylist()


def test_a_condition_is_met_where_it_is_true() -> None:
    condition = pickle.loads(pickle.dumps(RowCondition("a > 0")))

    assert [True, False, False, True] == condition.met(ROWS).to_pylist()


@pytest.mark.parametrize(
    "text",
    [
        "select",
        "select a +",
        "select a + 1",
        "select * from other",
        "select a from input join x on 1 = 1",
        "select a from input group by a",
        "select distinct a",
        "select count(*) c",
        "select a from input order by a",
        "select a from input limit 1",
        "select (select 1) x",
        "select row_number() over (partition by a) r",
        "select rand() r",
        "select current_timestamp() t",
        "select dec * dec x",
        "select dec + 1 x",
        "select a > b c",
        "select cast(dec as string) x",
        "select to_json(struct(*)) value",
        "select null n",
        "select a, a",
        "select missing",
        "select a.b",
        "select b rlike 'x' r",
        "select 'it''s' s",
        "select 'a' 'b' c",
        "select a[0] x",
        "select a = 1 = true x",
        "select a = a like 'x' x",
        "select b || a + 1 x",
        "select -128::tinyint x",
        "select -cast(128 as tinyint) x",
        "select b like 'x' escape '!' x",
        "select concat(distinct b) x",
        "select input.* from input",
        "select a from input as t",
        "select a from input tablesample (10 percent)",
        "select a from input where a > 1 limit 1",
        "where a",
        "where a = 1; drop table x",
        "with x as (select 1) select * from x",
        "delete from input",
        "select " + "(" * 500 + "1" + ")" * 500 + " x",
        "select #",
        "",
    ],
)
def test_what_only_spark_knows_is_refused(text: str) -> None:
    """The planner then leaves the pipeline to Spark; a guess would change rows."""
    with pytest.raises(UnsupportedSqlError):
        RowQuery(text).output_schema(ROWS.schema)


@pytest.mark.parametrize("text", ["a", "a >", "missing > 1", "1", "b > 1"])
def test_conditions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(UnsupportedSqlError):
        RowCondition(text).check(ROWS.schema)


def test_a_failing_expression_names_the_cause() -> None:
    with pytest.raises(SqlError, match="division by zero"):
        RowQuery("select 1 / a as x").apply(ROWS)


def test_an_empty_batch_has_the_columns() -> None:
    query = RowQuery("select a + 1 c, upper(b) u, case when a > 1 then b end k where a > 0")

    rows = query.apply(ROWS.slice(0, 0))

    assert (0, ["c", "u", "k"]) == (rows.num_rows, rows.schema.names)

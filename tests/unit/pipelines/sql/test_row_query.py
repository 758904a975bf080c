"""SQL that Kalda evaluates itself; that the values are Spark's is a test with Spark."""

import pickle
import time

import pyarrow as pa
import pytest

from kalda.pipelines.sql.nodes import InvalidSqlError, SqlError, UnsupportedSqlError
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


NUMBERS = pa.RecordBatch.from_pydict(
    {
        "j": pa.array([9_007_199_254_740_993, -(1 << 63), 2, None], pa.int64()),
        "x": [9_007_199_254_740_992.0, 0.5, 2.0, None],
        "d": pa.array(["476807.47", "85889800.07", "-0.10", None]).cast(pa.decimal128(10, 2)),
        "y": [476807.47, 85889800.07, -0.1, None],
        "ts": pa.array([1_800_000_000_000_000] * 4).cast(pa.timestamp("us", tz="UTC")),
    }
)


def test_decimals_become_the_nearest_double() -> None:
    """Arrow multiplies by a rounded power of ten, so that 476807.47 would be 476807.47000000003."""
    rows = RowQuery("select cast(d as double) as r, d = y as same, d * 1D as p").apply(NUMBERS).to_pydict()

    assert NUMBERS.column("y").to_pylist() == rows["r"] == rows["p"]
    assert [True, True, True, None] == rows["same"]


def test_large_integers_beside_doubles_are_rounded() -> None:
    """Arrow refuses to round an integer beyond 2^53 where Spark does, which stopped the pipeline."""
    rows = RowQuery("select j * 1D as r, j = x as same, coalesce(x, j) as c").apply(NUMBERS).to_pydict()

    assert [float(1 << 53), -float(1 << 63), 2.0, None] == rows["r"]
    assert [True, False, True, None] == rows["same"]
    assert NUMBERS.column("x").to_pylist() == rows["c"]


def test_integers_become_decimals_where_their_values_fit() -> None:
    """Arrow asks for a decimal that holds all integers of the type."""
    small = NUMBERS.slice(2)

    rows = RowQuery("select cast(j as decimal(3, 2)) as r, try_cast(255 as decimal(4, 2)) as n").apply(small)

    assert ["2.00", None] == rows.column("r").cast(pa.string()).to_pylist()
    assert [None, None] == rows.column("n").to_pylist()
    assert [None, None, "2.00", None] == RowQuery("select try_cast(j as decimal(3, 2)) as r").apply(
        NUMBERS
    ).column("r").cast(pa.string()).to_pylist()


def test_what_arrow_refuses_is_an_error_of_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row with such a value becomes a dead letter; another error would stop the pipeline."""
    query, condition = RowQuery("select abs(j) as r"), RowCondition("abs(j) > 0")

    def refuse(values: pa.Array) -> pa.Array:
        raise pa.ArrowNotImplementedError("no such kernel")

    monkeypatch.setattr("kalda.pipelines.sql.functions.pc.abs_checked", refuse)

    with pytest.raises(SqlError, match="no such kernel"):
        query.apply(NUMBERS)
    with pytest.raises(SqlError, match="no such kernel"):
        condition.met(NUMBERS)


def test_a_number_too_small_for_a_decimal_is_a_float() -> None:
    """The error of the comparison with a decimal left the step, and its batch was read again for ever."""
    rows = pa.RecordBatch.from_pydict({"s": ["1e-9999999999999999999", "0e9999999999999999999", "1.5"]})
    for function in ("cast", "try_cast"):
        query = RowQuery(f"select {function}(s as float) as r")
        assert [0.0, 0.0, 1.5] == query.apply(rows).column("r").to_pylist()


@pytest.mark.parametrize("pattern", ["MMMM", "HHHH", "dddd", "mmmm", "yyyyyyyy", "yyyyMMMdd", "M", "yyy"])
def test_a_run_of_letters_is_one_field_of_a_pattern(pattern: str) -> None:
    """In Java ``MMMM`` is the name of the month, not twice its number."""
    with pytest.raises(UnsupportedSqlError):
        RowQuery(f"select date_format(ts, '{pattern}') as r").output_schema(NUMBERS.schema)


@pytest.mark.parametrize(
    "expression",
    [
        "case when null then 1 else 2 end",
        "ts = '12:30'",
        "ts > 'Today'",
        "try_cast(' T12:30 ' as timestamp)",
        "try_cast('now' as date)",
        "to_date('epoch Europe/Paris')",
    ],
)
def test_what_only_spark_can_judge_is_left_to_it(expression: str) -> None:
    """Spark refuses a condition without a type, and completes a time or a word with the day of today."""
    with pytest.raises(UnsupportedSqlError):
        RowQuery(f"select {expression} as r").output_schema(NUMBERS.schema)


@pytest.mark.parametrize("pattern", ["\\\\", "a\\\\b", "%\\\\"])
def test_patterns_that_spark_refuses_are_left_to_it(pattern: str) -> None:
    with pytest.raises(UnsupportedSqlError):
        RowQuery(f"select b like '{pattern}' as r").output_schema(ROWS.schema)


def test_a_time_without_a_date_is_one_of_today() -> None:
    """Spark reads such texts of rows as well; a null or a dead letter would be another row."""
    texts = ["12:30", " T1 ", "1:2:3.5", "12:30:15 +01:00", "12", "T12Z", "24:00", "12:30Z", "12:30:", "now"]
    query = RowQuery("select unix_micros(try_cast(s as timestamp)) as r")

    def found() -> list[int | None]:
        rows = query.apply(pa.RecordBatch.from_pydict({"s": texts})).to_pylist()
        return [row["r"] for row in rows]

    before, micros, after = time.time() // 86_400, found(), time.time() // 86_400

    assert [45_000, 3_600, 3_723.5, 41_415, *[None] * 6] == [
        None if each is None else each % 86_400_000_000 / 1_000_000 for each in micros
    ]
    days = [each // 86_400_000_000 for each in micros if each is not None]
    assert before - 1 <= min(days), "the day of the zone is meant"
    assert max(days) <= after + 1


def test_words_for_moments_are_none_in_rows() -> None:
    """Spark knows them in constants alone."""
    with pytest.raises(SqlError, match="'today' cannot be cast to date"):
        RowQuery("select cast(s as date) as r").apply(pa.RecordBatch.from_pydict({"s": ["today"]}))


def test_texts_are_trimmed_and_cut_as_in_spark() -> None:
    rows = pa.RecordBatch.from_pydict({"s": ["\x7f12\x1f", "34"]})

    made = RowQuery("select cast(s as int) as i, substring('ab', -2147483648) as t").apply(rows)

    assert [12, 34] == made.column("i").to_pylist()
    assert ["a", "a"] == made.column("t").to_pylist()


@pytest.mark.parametrize(
    "expression",
    [
        "a + 10 / zero",
        "a > 10 / zero",
        "a in (10 div zero, 1)",
        "(10 div zero) / a",
        "(10 div zero) % a",
        "concat(cast(a as string), 10 % zero)",
        "datediff(cast(null as date), date_add(day, cast((10 div zero) as int)))",
    ],
)
def test_what_stands_beside_a_null_is_not_computed(expression: str) -> None:
    """The row is null in Spark; a division by zero would make a dead letter of it."""
    columns = {"a": pa.array([None], pa.int64()), "zero": pa.array([0]), "day": pa.array([1], pa.date32())}
    rows = pa.RecordBatch.from_pydict(columns)

    assert [None] == RowQuery(f"select {expression} as r").apply(rows).column("r").to_pylist()


@pytest.mark.parametrize(
    "expression", ["10 / zero + a", "a / (10 div zero)", "greatest(a, 10 div zero)", "a <=> 10 / zero"]
)
def test_what_stands_before_a_null_is_computed(expression: str) -> None:
    rows = pa.RecordBatch.from_pydict({"a": pa.array([None], pa.int64()), "zero": pa.array([0])})

    with pytest.raises(SqlError, match="division by zero"):
        RowQuery(f"select {expression} as r").apply(rows)


def test_doubles_beyond_bigint_fail_where_spark_fails() -> None:
    """2^63 is the largest bigint as a double; it can be cast, and not rounded up."""
    rows = pa.RecordBatch.from_pydict({"x": [float(1 << 63), -float(1 << 63), None]})

    assert [(1 << 63) - 1, -(1 << 63), None] == (
        RowQuery("select cast(x as bigint) as r").apply(rows).column("r").to_pylist()
    )
    for function in ("ceil", "floor"):
        query = RowQuery(f"select {function}(x) as r")
        assert [-(1 << 63), None] == query.apply(rows.slice(1)).column("r").to_pylist()
        with pytest.raises(SqlError, match="does not fit bigint"):
            query.apply(rows)


def test_a_lenient_cast_is_null_where_the_other_fails() -> None:
    days = pa.array([(1 << 31) - 1, 0, None], pa.int32()).cast(pa.date32())
    query = RowQuery("select unix_micros(try_cast(day as timestamp)) as r")

    assert [None, 0, None] == query.apply(pa.RecordBatch.from_pydict({"day": days})).column("r").to_pylist()


@pytest.mark.parametrize(
    "expression",
    [
        "cast(null as int) % (1 div zero)",
        "cast(null as int) + 1 / zero",
        "1 div zero > null",
        "(1 / zero) / cast(null as double)",
        "(10 div zero) div cast(null as int)",
    ],
)
def test_what_stands_beside_null_itself_is_not_computed(expression: str) -> None:
    """Spark makes null of the whole expression before it sees a row."""
    rows = pa.RecordBatch.from_pydict({"zero": pa.array([0])})

    assert [None] == RowQuery(f"select {expression} as r").apply(rows).column("r").to_pylist()


@pytest.mark.parametrize(
    "expression",
    ["lpad('a', 2000000000, 'x')", "rpad(s, 2000000000)", "repeat('a', 2000000000)", "repeat(s, 2000000000)"],
)
def test_texts_that_no_memory_holds_are_refused_when_they_are_read(expression: str) -> None:
    """`validate` says so; the first batch would end the process."""
    rows = pa.RecordBatch.from_pydict({"s": ["a", None]})

    with pytest.raises(InvalidSqlError, match=r"with 2000000000 is not evaluated: texts have up to"):
        RowQuery(f"select {expression} as r").apply(rows)


@pytest.mark.parametrize(
    "expression",
    ["rpad(s, 1000000)", "repeat(s, 500000)", "lpad('a', 1000000, 'é')", "upper(repeat('é', 500000))"],
)
def test_rows_whose_texts_are_too_much_together_are_divided(expression: str) -> None:
    """The step fails for many rows and not for few, so a task tries it with fewer."""
    rows = pa.RecordBatch.from_pydict({"s": ["ab"] * 1_000})
    query = RowQuery(f"select {expression} as r")

    with pytest.raises(SqlError, match=r"are made at once"):
        query.apply(rows)

    (text,) = query.apply(rows.slice(0, 1)).column("r").to_pylist()
    assert 500_000 <= len(text)


@pytest.mark.parametrize("expression", ["datediff(hour, b, b)", "date_add(day, 1, b)"])
def test_functions_with_a_unit_are_left_to_spark(expression: str) -> None:
    """The unit is no column, so the step is not wrong."""
    with pytest.raises(UnsupportedSqlError, match="with a unit is not evaluated") as refused:
        RowQuery(f"select {expression} as r").output_schema(ROWS.schema)

    assert not isinstance(refused.value, InvalidSqlError)

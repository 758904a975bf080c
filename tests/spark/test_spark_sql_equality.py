"""Expressions that Kalda evaluates itself have the values and the types that Spark gives them."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kalda.pipelines.sql.nodes import MalformedSqlError, SqlError
from kalda.pipelines.sql.row_query import RowCondition, RowQuery
from kalda.pipelines.sql.steps import parse_step
from tests.golden.pipelines.sql_expressions import (
    EXPRESSIONS,
    FAILING,
    SparkValues,
    batch,
    shown,
    spark_values,
    split,
)

FAR_MICROS = (
    253402300799999999, 253402300800000000, 1_700_000_000_000_000_000, (1 << 63) - 1, -62135596800000001,
    -62135596800000000, -62167219200000001, -12219292800000001, -9223332036854775808, None, 0,
)  # fmt: skip
FAR_DAYS = (
    2147483647, -2147483648, 2932896, 2932897, -719162, -719163, -719529, 106751990, -106751991, None,
    3_000_000,
)  # fmt: skip
FAR = """
year(ts) | month(ts) | day(ts) | dayofyear(ts) | quarter(ts) | hour(ts) | minute(ts) | second(ts) | year(day)
month(day) | dayofmonth(day) | dayofyear(day) | quarter(day) | cast(ts as string) | cast(day as string)
cast(ts as date) | to_date(ts) | cast(ts as bigint) | unix_seconds(ts) | unix_millis(ts) | unix_micros(ts)
date_trunc('year', ts) | date_trunc('quarter', ts) | date_trunc('month', ts) | date_trunc('week', ts)
date_trunc('day', ts) | date_trunc('hour', ts) | date_trunc('minute', ts) | date_trunc('second', ts)
date_format(ts, 'yyyy-MM-dd HH:mm') | date_format(ts, 'yyyyMMdd') | date_format(ts, 'MMdd') | date_add(day, 1)
date_sub(day, 1) | datediff(ts, day) | datediff(day, ts) | ts > '9999-12-31' | ts < timestamp'0001-01-01'
day > '9999-12-31' | cast(n as timestamp) | cast((n * 1000) as timestamp) | cast(-n as timestamp)
timestamp_micros(n) | concat(ts, '|', day)
"""
TEXTS = """
12345-01-01|+12345-01-01 00:00:00|-0001-01-01|294247-01-10T04:00:54.775807Z|294247-01-10T04:00:54.775808Z
0000-01-01|12345-1-1|-5877641-06-23|5881580-07-11|5881580-07-12|9999-12-31 23:59:59-05:00|2026-01 foo
2026-01-01 foo|2026-01-01T|2026-01-01 10:00:00+5|2026-01-01 10:00:00UTC+5|2026-01-01 24:00:00
2026-01-01 10|2026-01-01 10:1:2|2026-01-01 10:00:00.1234567891|2026-01-01 10:00:00.|2026-01-01 10:00:00 UTC
2026-01-01 10:00:00 +05:30|2026-01-01 10:00:00GMT+5|2026-01-01 10:00:00 Europe/Paris
2026-03-29 02:30:00 Europe/Paris|2026-10-25 02:30:00 Europe/Paris
2026-01-01 10:00:00+05:30:10|2026-01-01 10:00:00+0530|2026-01-01 10:00:00+5:3
2026-01-01 10:00:00+053|2026-01-01 10:00:00+18:01|2026-01-01 10:00:00-18:00|2026-01-01 10:00:00z
2026-01-01 10:00 Z|2026-01-01 10+5|2026-01-01 10:00+5|2026-01-01 10:00:00.5+5|2026-01-01 10:00:00.Z
2026-01-01T10:00:|2026-01-01 100:00:00|2026-|2026-1|202|12345678-01-01|0012345-01-01|2026-01-01+5
2026-01-01t10:00|+2026-01-01|--2026-01-01|2026-001-01|2026-01-011|+12345|2026T|300000-01-01|-290308-12-21
-290308-12-21 19:59:05.224192|-290308-12-21 19:59:05.224191|2026-02-29|2024-02-29|1900-02-29
2000-02-29|-0004-02-29|2026-01-01 10:00:00 EST|2026-01-01 10:00:00 Mars/Base|2026-00-01|2026-01-00|
"""

TIMES = """
12:30|T12:30|12:30:15.5|24:00| 12:30 |12|1:2|T1|12:30Z|12:30+05:30|t12:30|12:30:15 Europe/Paris|T12|:30|T
1:|12:30:|12:30:15.|12:30 UTC|-12:30|123:30|12:30:15.123456789|T12Z|T1:2:3|12:60|1:2:3+05:00|now|today|epoch
"""


@pytest.fixture(scope="module")
def view(spark: SparkSession) -> str:
    """The rows as a view of Spark, in UTC."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.createDataFrame(pa.Table.from_batches([batch()])).coalesce(1).createOrReplaceTempView("input")
    return "input"


def test_expressions_have_sparks_values_and_types(spark: SparkSession, view: str) -> None:
    """The planner may choose either way; the rows must not depend on it."""
    expressions = split(EXPRESSIONS)
    items = ", ".join(f"{text} as r{index}" for index, text in enumerate(expressions))
    expected = spark.sql(f"select {items} from {view}").toArrow()

    found = pa.Table.from_batches([RowQuery(f"select {items}").apply(batch())])

    assert spark_values() == [
        SparkValues(text, str(column.type), tuple(shown(column.to_pylist())))
        for text, column in zip(expressions, expected.columns, strict=True)
    ], "the file for the test without Spark is that of another version"
    for index, text in enumerate(expressions):
        name = f"r{index}"
        assert (text, str(expected.schema.field(name).type)) == (text, str(found.schema.field(name).type))
        assert (text, shown(expected[name].to_pylist())) == (text, shown(found[name].to_pylist()))


def test_expressions_fail_where_spark_fails(spark: SparkSession, view: str) -> None:
    """ANSI mode: a value that does not fit is an error and never null."""
    for text in split(FAILING):
        with pytest.raises(SqlError):
            RowQuery(f"select {text} as r").apply(batch())
        with pytest.raises(PySparkException):
            spark.sql(f"select {text} as r from {view}").toArrow()


def test_far_moments_have_sparks_values(spark: SparkSession, view: str) -> None:
    """A time beyond year 9999 or before year 1 is a value as any other; a wrong year would go unnoticed."""
    columns = {
        "ts": pa.array(FAR_MICROS, pa.int64()).cast(pa.timestamp("us", tz="UTC")),
        "day": pa.array(FAR_DAYS, pa.int32()).cast(pa.date32()),
        "n": pa.array([None if n is None else n // 1000 for n in FAR_MICROS], pa.int64()),
    }
    rows = pa.RecordBatch.from_pydict(columns)
    spark.createDataFrame(pa.Table.from_batches([rows])).coalesce(1).createOrReplaceTempView("far")
    expressions = split(FAR)
    # Python has no such dates, so numbers are compared.
    plain = {"timestamp[us, tz=UTC]": "unix_micros({})", "date32[day]": "datediff({}, date'1970-01-01')"}
    kinds = [
        str(RowQuery(f"select {text} as r").output_schema(rows.schema).field(0).type) for text in expressions
    ]
    items = ", ".join(
        f"{plain.get(kind, '{}').format(text)} as r{index}"
        for index, (text, kind) in enumerate(zip(expressions, kinds, strict=True))
    )
    expected = spark.sql(f"select {items} from far").toArrow().to_pydict()

    found = RowQuery(f"select {items}").apply(rows).to_pydict()

    for index, text in enumerate(expressions):
        assert (text, expected[f"r{index}"]) == (text, found[f"r{index}"])


def test_moments_beyond_their_type_fail_as_in_spark(spark: SparkSession, view: str) -> None:
    """A wrapped number would be a wrong moment in silence."""
    rows = pa.RecordBatch.from_pydict(
        {
            "ts": pa.array([-(1 << 63)], pa.int64()).cast(pa.timestamp("us", tz="UTC")),
            "day": pa.array([(1 << 31) - 1], pa.int32()).cast(pa.date32()),
            "n": pa.array([(1 << 63) // 1000 + 1], pa.int64()),
        }
    )
    spark.createDataFrame(pa.Table.from_batches([rows])).createOrReplaceTempView("beyond")
    for text in split("""
        date_trunc('year', ts) | date_trunc('week', ts) | date_trunc('second', ts) | date_trunc('day', day)
        cast(day as timestamp) = ts | day < ts | day = ts | date_format(day, 'yyyy') | timestamp_seconds(n)
        timestamp_millis(n)
    """):
        with pytest.raises(SqlError):
            RowQuery(f"select {text} as r").apply(rows)
        with pytest.raises(PySparkException):
            spark.sql(f"select cast({text} as string) as r from beyond").toArrow()


def test_texts_are_the_moments_that_spark_reads(spark: SparkSession, view: str) -> None:
    """A text that one way reads and the other refuses would make other rows."""
    texts = [text for line in TEXTS.strip().splitlines() for text in line.split("|")]
    rows = pa.RecordBatch.from_pydict({"s": texts})
    spark.createDataFrame(pa.Table.from_batches([rows])).coalesce(1).createOrReplaceTempView("texts")
    items = (
        "s, unix_micros(try_cast(s as timestamp)) as t, datediff(try_cast(s as date), date'1970-01-01') as d"
    )

    found = RowQuery(f"select {items}").apply(rows).to_pylist()

    assert [row.asDict() for row in spark.sql(f"select {items} from texts").collect()] == found


def test_times_without_a_date_are_those_that_spark_reads(spark: SparkSession, view: str) -> None:
    """The day is that of the run, so that only the time is compared."""
    texts = [text for line in TIMES.strip().splitlines() for text in line.split("|")]
    rows = pa.RecordBatch.from_pydict({"s": texts})
    spark.createDataFrame(pa.Table.from_batches([rows])).coalesce(1).createOrReplaceTempView("times")
    items = "s, unix_micros(try_cast(s as timestamp)) % 86400000000L as t, try_cast(s as date) as d"

    found = RowQuery(f"select {items}").apply(rows).to_pylist()

    assert [row.asDict() for row in spark.sql(f"select {items} from times").collect()] == found


@pytest.mark.parametrize(
    "text",
    [
        "select i from input group by",
        "select sum(i) over (partition by) s from input",
        "select i from input,",
        "select i from input where i in ()",
        "select date'2026-02-30' d from input",
        "select date'now UTC' d from input",
        "select timestamp'2026-01-01 25:00' d from input",
        "select 128Y n from input",
        "select -129Y n from input",
        "select 1e400 n from input",
        "select 1e39F n from input",
        "select 1e38BD n from input",
    ],
)
def test_a_step_that_is_refused_is_refused_by_spark(spark: SparkSession, view: str, text: str) -> None:
    """A check that is stricter than Spark would refuse pipelines that run."""
    with pytest.raises(MalformedSqlError):
        parse_step(text)
    with pytest.raises(PySparkException):
        spark.sql(text)


def test_filters_and_projections_keep_the_rows_that_spark_keeps(spark: SparkSession, view: str) -> None:
    """Null is not true, and the filter sees the columns before the projection."""
    for text in (
        "select *, to_date(ts) dt where i is not null and not b",
        "select I, j as i2, `s` from input where x > 1 or x is null",
        "where d > 0",
        "select n.k, n.v as v where 10 / nullif(i, 0) > 0;",
        "select * except (n, bin), /* why */ n.k from input -- the rows",
    ):
        full = text if "from input" in text else text.replace(" where", " from input where", 1)
        expected = spark.sql(full if full.startswith("select") else f"select * from input {text}").toArrow()

        found = pa.Table.from_batches([RowQuery(text).apply(batch())])

        assert [f.name for f in expected.schema] == [f.name for f in found.schema]
        assert shown(expected.to_pylist()) == shown(found.to_pylist())


def test_conditions_are_sparks(spark: SparkSession, view: str) -> None:
    """An expectation drops the same rows by either way."""
    for text in ("i > 0", "b", "x > 0 and s <> ''", "n.k is not null", "coalesce(b, i = 0)"):
        expected = [row[0] for row in spark.sql(f"select coalesce({text}, false) from {view}").collect()]

        assert expected == RowCondition(text).met(batch()).to_pylist()

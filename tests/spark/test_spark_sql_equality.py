"""Expressions that Kalda evaluates itself have the values and the types that Spark gives them."""

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from kalda.formats.ddl import parse_schema
from kalda.pipelines.sql.nodes import SqlError
from kalda.pipelines.sql.row_query import RowCondition, RowQuery

SCHEMA = parse_schema(
    "i int, j bigint, t tinyint, x double, f float, d decimal(10,2), s string, u string, b boolean, "
    "day date, ts timestamp, n struct<k: string, v: bigint>, bin binary"
)
ROWS: list[tuple[object, ...]] = [
    (1, 2, 3, 1.5, 0.5, Decimal("12.50"), " aB ", "12", True, date(2026, 11, 22),
     datetime(2026, 11, 22, 13, 14, 15, 123_456, UTC), {"k": "x", "v": 1}, b"ab"),
    (-7, 3, -2, -2.5, math.nan, Decimal("-0.01"), "straße ÄÖ", " -5 ", False, date(1969, 12, 31),
     datetime(1969, 12, 31, 23, 59, 59, 500_000, UTC), {"k": None, "v": None}, b""),
    (None, None, None, None, None, None, None, None, None, None, None, None, None),
    (2147483647, -9223372036854775808, 127, math.nan, math.inf, Decimal("99999999.99"), "a%b_c\\d", "0", True,
     date(2000, 2, 29), datetime(2000, 2, 29, 0, 0, 0, 0, UTC), {"k": "", "v": -1}, b"\xc3\xa9"),
    (0, 0, 0, -0.0, -math.inf, Decimal("0.00"), "", "7", None, date(2026, 1, 1),
     datetime(2026, 1, 1, 0, 0, 0, 1, UTC), None, b"z"),
]  # fmt: skip

EXPRESSIONS = """
i = 1 | i <> j | i < j | i >= t | i <=> null | j <=> j | x = x | x > 1 | x >= f | f < x | x <> 1.5
x = 'nan'::double | d > 0 | d >= 12.5 | d = 12.50 | d < i | d <> j | s = ' aB ' | s < u | b | not b
b = true | b is true | b is not false | i is null | i is not null | n is null | n.k is null | n.v + 1
N.K | day = '2026-11-22' | ts > '2026-01-01' | ts >= timestamp'2026-11-22 13:14:15.123456'
day < date'2000-03-01' | ts > day | day <= ts | day = ts | b and i > 0 | b or i > 0 | b and null
b or null | null and false | not (b and i > 0) | true or i / 0 > 1 | i in (1, 2, null) | i not in (1, 2)
i in (1, 2) | s in ('', 'x') | i between 0 and 5 | i not between -7 and 0 | s like '%a%' | s like ' _B '
s not like 'a\\\\%%' | s like '%\\\\_c%' | s ilike '%AB%' | lower(s) like 'stra%' | t + x | t * 2 | i - 1
j + i * 0 | x + i | x * 2.5 | x - d | -x | -t | - 5 + i * 0 | x / 2 | i / 3 | j / 7 | t / 2 | i % 3
j % 4 | t % -2 | i div 2 | t div 2 | mod(i, 4) | x / nullif(x, 0) | case when i <> 0 then 10 / i end
case when i > 0 then 'p' when i < 0 then 'n' else s end | case i when 1 then 'one' when 0 then 'zero' end
if(b, i, j) | if(i > 0, 1, 2.5) | coalesce(i, 0) | coalesce(i, j, 5) | coalesce(d, 0) | nvl(s, 'none')
nvl2(i, 'y', 'n') | nullif(i, 1) | nullif(x, x) | ifnull(u, s) | coalesce(x, 1) | coalesce(null, s)
coalesce(t, j) | cast(i as bigint) | cast(i as double) | cast(i as string) | cast(b as int)
cast(i as boolean) | cast(t as decimal(12,3)) | cast(x as float) | cast(f as double) | try_cast(x as int)
try_cast(f as bigint) | try_cast(j as int) | try_cast(i as tinyint) | cast(d as double)
cast(d as decimal(20,4)) | try_cast(s as int) | cast(u as int) | u::bigint | cast(u as double)
try_cast(s as date) | cast(day as string) | cast(ts as string) | cast(ts as date)
cast(day as timestamp) | cast(ts as bigint) | cast(i as timestamp) | cast(b as string)
cast(bin as string) | cast(s as binary) | cast('2026-1-2' as date) | cast('2026' as timestamp)
to_date(ts) | cast('2026-01-02T03:04:05.678+02:00' as timestamp) | to_date('2026-02-03')
to_timestamp('2026-02-03 04:05:06') | date(ts) | cast(' 1e3 ' as double) | cast('NaN' as double)
cast('1.5d' as double) | cast('yes' as boolean) | cast('+7' as int) | try_cast('12x' as int)
try_cast('1.5' as int) | try_cast('2026-02-30' as date) | try_cast('x' as timestamp)
try_cast('' as int) | upper(s) | lower(s) | trim(s) | ltrim(s) | rtrim(s) | length(s) | char_length(u)
length(bin) | concat(s, '-', u) | s || i | substring(s, 2, 3) | substr(s, 0, 2) | substring(s, -3)
substring(s, -3, 2) | substring(s, -9, 3) | substring(s, 2) | substring(s, 1, 0) | startswith(s, 'a')
endswith(s, 'd') | contains(s, 'B') | replace(s, 'a', 'xx') | concat('a', 'b') | replace(s, 'B', '')
year(ts) | month(day) | day(ts) | dayofmonth(day) | dayofyear(ts) | quarter(ts) | hour(ts) | minute(ts)
second(ts) | year(day) | date_trunc('hour', ts) | date_trunc('DAY', ts) | date_trunc('week', ts)
date_trunc('month', day) | date_trunc('quarter', ts) | date_format(ts, 'yyyy-MM-dd HH:mm')
date_format(day, 'yyyyMMdd') | timestamp_millis(j % 1000) | timestamp_seconds(i) | timestamp_micros(i)
unix_seconds(ts) | unix_millis(ts) | unix_micros(ts) | date_add(day, 31) | date_sub(day, t)
datediff(ts, day) | datediff(day, ts) | abs(i) | abs(x) | abs(t) | ceil(x) | floor(x) | ceiling(x)
isnan(x) | 1 | 'text' | 1.25 | 5000000000 | 1e3 | true | 7L | 2.5D | -2147483648
-9223372036854775808 | -7S | -1.50 | .5 | 5. | "double" | 'it\\'s' | '\\u0041\\101\\x41\\d\\0\\t'
i is not distinct from 1 | x - t % 2 | t + 1 * 2 - 3 | 'a' || s || 'b' | not b = true
not i is null | i = i is null | - - t
i = 1 or i = 0 and b | ! b | cast(s as string) | cast(i as decimal(12, 2)) | -x + 1 | +i
`i` | input.i | (x + 1) * 2 | md5(s) | md5(bin) | md5('x') | sha(s) | sha1(bin) | sha2(s, 256) | sha2(s, 0)
sha2(u, 224) | sha2(u, 384) | sha2(bin, 512) | crc32(s) | crc32(bin) | hex(s) | hex(bin) | hex(i) | hex(j)
hex(t) | base64(bin) | base64(s) | concat_ws('-', s, u) | concat_ws(u, s, 'x') | concat_ws('', s)
greatest(i, 5) | least(i, 5, 0) | greatest(j, j) | greatest(day, date'2026-01-01')
least(ts, timestamp'2026-01-01 00:00:00') | left(s, 2) | left(s, 0) | left(s, -1) | right(s, 2)
right(s, 0) | right(s, 99) | repeat(u, 2) | repeat(u, 0) | repeat(u, -1) | lpad(s, 8, 'xy')
rpad(s, 8, 'xy') | lpad(s, 2) | rpad(s, 9) | lpad(s, 6, '') | lpad(s, -1, 'x') | instr(s, 'B')
instr(s, '') | locate('B', s) | position('B', s) | reverse(s) | sign(x) | sign(i) | signum(x)
base64(repeat(u, 50)) | sqrt(x) | dayofweek(day) | dayofweek(ts) | weekday(day) | weekday(ts)
base64(sha1(u)) | cast(d as float) | d * x | d = x | coalesce(x, d) | j * 0.5D | j = x | j > f::double
try_cast(j as decimal(12,2)) | cast(t as decimal(3,0)) | try_cast(255 as decimal(4,2))
substring(s, -2147483648) | i + 1 / nullif(i, 0) | i * x > d | floor(x / 1e300)
try_cast('\\u007f1' as int) | try_cast('\\u007f1' as double) | if(null, i, 2) | greatest(i, t % 7)
"""  # fmt: skip

FAILING = """
t + t - t | i / 0 | i % 0 | i + 1 | j - 1 | t + 1Y | -j | cast(x as int) | cast(j as int)
cast(s as int) | cast(s as date) | cast('1e3' as int) | cast('' as double) | abs(j) | i div 0
cast('2026-13-01' as date) | i * i | cast(i as tinyint) | cast('x' as boolean) | ceil(x * 1e300)
floor(f::double) | cast(j as decimal(12,2)) | 10 / (t - t) + i | greatest(j, 10 div (t - t))
i <=> 1 / (t - t)
"""


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


def split(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


def batch() -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in ROWS], field.type) for i, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def shown(values: list[object]) -> list[str]:
    return [repr(bytes(v) if isinstance(v, bytearray) else v) for v in values]


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

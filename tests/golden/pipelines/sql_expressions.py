"""Expressions of SQL steps, the rows that they are evaluated on, and what Spark 4.3 makes of them.

`spark-4.3-values.txt` has a line of JSON for each expression: its text, the type, and the values as Python
shows them. `tests/spark/test_spark_sql_equality.py` compares the file with Spark.
"""

import json
import math
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa

from kalda.formats.ddl import parse_schema

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
i % -1 | j % cast(-1 as bigint) | mod(t, -1) | -12345678901234567890123456789.5
12345678901234567890123456789012345.678 | cast('0x1.8P-1' as double) | cast('-0x1p5000d' as double)
cast('1.00000005960464477539062500001' as float) | cast('1.00000017881393432617187499999' as float)
cast('000000000000000000000000000000000000000000000012' as int)
cast('-000000000000000000000000000000000000000000000012' as bigint)
"""  # fmt: skip

FAILING = """
t + t - t | i / 0 | i % 0 | i + 1 | j - 1 | t + 1Y | -j | cast(x as int) | cast(j as int)
cast(s as int) | cast(s as date) | cast('1e3' as int) | cast('' as double) | abs(j) | i div 0
cast('2026-13-01' as date) | i * i | cast(i as tinyint) | cast('x' as boolean) | ceil(x * 1e300)
floor(f::double) | cast(j as decimal(12,2)) | 10 / (t - t) + i | greatest(j, 10 div (t - t))
i <=> 1 / (t - t)
"""


@dataclass(frozen=True, slots=True)
class SparkValues:
    """What Spark makes of an expression."""

    text: str
    type: str
    values: tuple[str, ...]


def spark_values() -> list[SparkValues]:
    """Return the lines of the file, in the order of `EXPRESSIONS`."""
    lines = Path(__file__).with_name("spark-4.3-values.txt").read_text().splitlines()
    return [SparkValues(text, kind, tuple(values)) for text, kind, values in map(json.loads, lines)]


def split(text: str) -> list[str]:
    return [part.strip() for line in text.strip().splitlines() for part in line.split(" | ")]


def batch() -> pa.RecordBatch:
    columns = [pa.array([row[i] for row in ROWS], field.type) for i, field in enumerate(SCHEMA)]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def shown(values: list[object]) -> list[str]:
    return [repr(bytes(v) if isinstance(v, bytearray) else v) for v in values]

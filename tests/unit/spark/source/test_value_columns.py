"""`value.format`: the column `value` becomes a struct, and bad values are an error or null with a reason."""

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from kalda.spark.datasource import KaldaDataSource
from kalda.spark.source.option_values import OptionError
from kalda.spark.source.options import OnBadValue, ValueOptions, parse_batch_options
from kalda.spark.source.value_columns import BadValueError, decode_values, raw_schema

BASE = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
JSON = {"value.format": "json", "value.schema": "id bigint, name string"}
VALUES = [b'{"id":1,"name":"a"}', None, b'{"id":', b'{"id":4}']


def raw(values: list[bytes | None]) -> pa.RecordBatch:
    count = len(values)
    return pa.RecordBatch.from_pydict(
        {
            "value": pa.array(values, pa.binary()),
            "topic": ["t"] * count,
            "partition": pa.array([3] * count, pa.int32()),
            "offset": list(range(40, 40 + count)),
        }
    )


def decoded(values: list[bytes | None], **given: str) -> list[dict[str, object]]:
    source = KaldaDataSource(BASE | JSON | {"columns": "value,offset"} | given)
    options = parse_batch_options(BASE | JSON | given).value
    assert options is not None
    (batch,) = decode_values([raw(values)], source.schema(), options)
    rows: list[dict[str, object]] = batch.to_pylist()
    return rows


def test_the_value_is_a_struct_in_its_place() -> None:
    schema = KaldaDataSource(BASE | JSON).schema()

    fields = [StructField("id", LongType()), StructField("name", StringType())]
    assert ["key", "value", "topic"] == schema.names[:3]
    assert StructType(fields).simpleString() == schema["value"].dataType.simpleString()
    KaldaDataSource(BASE | JSON).reader(schema)


def test_rows_and_tombstones() -> None:
    assert [
        {"value": {"id": 1, "name": "a"}, "offset": 40},
        {"value": None, "offset": 41},
        {"value": {"id": 4, "name": None}, "offset": 42},
    ] == decoded([VALUES[0], None, VALUES[3]])


def test_a_bad_value_fails_and_names_its_place() -> None:
    with pytest.raises(BadValueError, match=r"t-3 at offset 42 is not json.*`value.onError` to null"):
        decoded(VALUES)


def test_a_bad_value_is_null_with_its_reason() -> None:
    rows = decoded(VALUES, **{"value.onError": "null", "columns": "value,offset,value_error"})

    assert [False, True, True, False] == [row["value"] is None for row in rows]
    assert [True, True, False, True] == [row["value_error"] is None for row in rows]


def test_columns_that_the_query_does_not_want_are_read_for_errors_only() -> None:
    schema = StructType([StructField("value", StructType([]))])

    assert ["value", "topic", "partition", "offset"] == raw_schema(schema).names


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"value.format": "jsn"}, "value.*jsn"),
        ({"value.schema": "id bigint"}, "`value.schema` is set without `value.format`"),
        ({"value.format": "json"}, "value.schema"),
        ({"value.format": "json", "value.schema": "id biggish"}, "value.*biggish"),
        ({"value.format": "json", "value.schema": "id bigint", "value.x": "1"}, "no option 'x'"),
        ({"value.format": "json", "value.schema": "id bigint", "value.onError": "skip"}, "value.onError"),
    ],
)
def test_refused_formats(given: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        KaldaDataSource(BASE | given).schema()


def test_format_options_keep_their_names() -> None:
    options = parse_batch_options(BASE | JSON | {"value.onError": "null"}).value

    assert ValueOptions("json", JSON["value.schema"], None, {}, OnBadValue.NULL) == options

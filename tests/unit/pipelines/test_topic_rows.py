"""Rows of columns as the key and value of records."""

import math

import pyarrow as pa
import pytest

from kalda.pipelines.topic_rows import TopicRowError, TopicRows

ROWS = pa.RecordBatch.from_pydict(
    {"id": [1, 2], "name": ["a", None], "value": ["x", None], "headers": pa.nulls(2, pa.string())}
)


class Encoded:
    def encode(self, rows: pa.StructArray) -> pa.BinaryArray:
        return pa.array([str(each).encode() for each in rows.to_pylist()], pa.binary())


def test_a_value_is_taken_as_it_is_with_the_columns_of_records() -> None:
    records = TopicRows().records(ROWS)

    assert ["value", "headers"] == records.schema.names
    assert [b"x", None] == records.column("value").to_pylist()


def test_one_column_of_the_key_is_its_text_and_several_are_json() -> None:
    assert [b"1", b"2"] == TopicRows(("id",)).records(ROWS).column("key").to_pylist()
    assert [b'{"id":1,"name":"a"}', b'{"id":2,"name":null}'] == (
        TopicRows(("id", "name")).records(ROWS).column("key").to_pylist()
    )


def test_a_key_with_a_number_that_json_lacks_is_json() -> None:
    rows = pa.record_batch({"a": [math.nan, math.inf], "b": [1.5, -math.inf], "value": ["x", "y"]})

    records = TopicRows(key=("a", "b")).records(rows)

    assert [b'{"a":"NaN","b":1.5}', b'{"a":"Infinity","b":"-Infinity"}'] == records.column("key").to_pylist()


def test_times_that_python_and_arrow_do_not_have_are_keys() -> None:
    """Each has its own text, and those beside it keep theirs."""
    micros = [1_600_000_000_500_000, 253_402_300_800_000_000, 2**63 - 1, -(2**63) + 1, None]
    days = [0, 2_932_897, 2**31 - 1, -(2**31), None]
    columns = [pa.array(micros, pa.timestamp("us", "UTC")), pa.array(days, pa.date32())]
    rows = pa.record_batch([*columns, pa.array(["v"] * 5)], ["at", "day", "value"])

    def keys(*names: str) -> list[bytes | None]:
        return [each.as_py() for each in TopicRows(names).records(rows).column("key")]

    assert [
        b"2020-09-13 12:26:40.500000Z",
        b"10000-01-01 00:00:00.000000Z",
        b"+294247-01-10 04:00:54.775807Z",
        b"-290308-12-21 19:59:05.224193Z",
        None,
    ] == keys("at")
    assert [b"1970-01-01", b"10000-01-01", b"+5881580-07-11", b"-5877641-06-23", None] == keys("day")
    assert [
        b'{"at":"2020-09-13 12:26:40.500000+00:00","day":"1970-01-01"}',
        b'{"at":"+10000-01-01 00:00:00+00:00","day":"+10000-01-01"}',
    ] == keys("at", "day")[:2]


def test_an_encoder_gets_all_columns() -> None:
    records = TopicRows(("id",), Encoded()).records(ROWS.select(["id", "name"]))

    assert ["key", "value"] == sorted(records.schema.names)
    assert b"{'id': 1, 'name': 'a'}" == records.column("value")[0].as_py()


def test_deleted_rows_are_keys_without_values() -> None:
    records = TopicRows(("id",)).tombstones(ROWS)

    assert [(b"1", None), (b"2", None)] == [(each["key"], each["value"]) for each in records.to_pylist()]


def test_what_is_missing_is_named() -> None:
    with pytest.raises(TopicRowError, match=r"no column value; they have id\. Select it .* or set"):
        TopicRows().records(ROWS.select(["id"]))
    with pytest.raises(TopicRowError, match=r"no column nr; they have id, name, value, headers\. "):
        TopicRows(("nr",)).records(ROWS)
    with pytest.raises(TopicRowError, match=r"the key tags is list<.*>; select its parts"):
        TopicRows(("tags",)).keys(pa.record_batch({"tags": [["a"]]}))
    with pytest.raises(TopicRowError, match="a deleted row needs a key"):
        TopicRows().tombstones(ROWS)
    numbers = pa.RecordBatch.from_pydict({"value": [1]})
    with pytest.raises(TopicRowError, match="the column value is int64; a record takes binary or string"):
        TopicRows().records(numbers)

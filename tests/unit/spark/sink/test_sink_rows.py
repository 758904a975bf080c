import pyarrow as pa
import pytest
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
)

from kalda.spark.sink.rows import RowError, TopicRows, check_write_schema
from kalda.spark.source.option_values import OptionError

TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "map<string,binary>": MapType(StringType(), BinaryType()),
}


def schema(text: str) -> StructType:
    """Spark's own parser of such a text needs a JVM."""
    made = StructType()
    for each in text.split(", "):
        name, _, kind = each.partition(" ")
        made.add(name, TYPES[kind])
    return made


@pytest.mark.parametrize(
    ("columns", "topic", "message"),
    [
        ("value string", None, "topic option required when no column `topic`"),
        ("key string", "t", "required column `value`"),
        ("value string, VALUE string", "t", "there are two columns `value`"),
        ("value int", "t", "column `value` must be string or binary, it is int"),
        ("value string, key bigint", "t", "column `key` must be string or binary, it is bigint"),
        ("value string, topic binary", "t", "column `topic` must be string, it is binary"),
        ("value string, partition bigint", "t", "column `partition` must be int, it is bigint"),
        ("value string, timestamp bigint", "t", "column `timestamp` must be timestamp, it is bigint"),
        ("value string, headers map<string,binary>", "t", "column `headers` must be array<struct<key:string"),
    ],
)
def test_columns_of_other_types_are_refused(columns: str, topic: str | None, message: str) -> None:
    """The categories are those of Spark's connector, and the message names column, type and remedy."""
    with pytest.raises(OptionError) as raised:
        check_write_schema(schema(columns), topic)
    assert message in str(raised.value)


def test_other_columns_are_ignored() -> None:
    """The rows of the source can be written as they are, offsets and all."""
    columns = schema("key binary, value binary, topic string, partition int, offset bigint")
    check_write_schema(columns, None)
    batch = pa.record_batch(
        [pa.array([b"k"]), pa.array([b"v"]), pa.array(["t"]), pa.array([0], pa.int32()), pa.array([9])],
        ["key", "value", "topic", "partition", "offset"],
    )
    ((topic, records),) = TopicRows(columns.names, None).split(batch)
    assert "t" == topic
    assert ["value", "key", "partition"] == records.schema.names


def test_the_option_overrides_the_column() -> None:
    """As in Spark's connector, also where the column is null."""
    columns = schema("topic string, value string")
    batch = pa.record_batch([pa.array(["a", None]), pa.array(["1", "2"])], ["topic", "value"])
    ((topic, records),) = TopicRows(columns.names, "forced").split(batch)
    assert ("forced", ["1", "2"]) == (topic, records.column("value").to_pylist())


def test_rows_are_split_by_topic_in_their_order() -> None:
    """The order of rows of one topic must stay: it is the order of records of one key."""
    columns = schema("topic string, value string")
    topics, values = ["a", "b", "a", "b", "b"], ["1", "2", "3", "4", "5"]
    batch = pa.record_batch([pa.array(topics), pa.array(values)], ["topic", "value"])
    found = {
        topic: part.column("value").to_pylist() for topic, part in TopicRows(columns.names, None).split(batch)
    }
    assert {"a": ["1", "3"], "b": ["2", "4", "5"]} == found


def test_a_row_without_topic_is_an_error_that_names_the_row() -> None:
    """No row of the batch is sent: the caller sees the error before the first topic."""
    columns = schema("topic string, value string")
    batch = pa.record_batch([pa.array(["a", "a", None]), pa.array(["1", "2", "3"])], ["topic", "value"])
    with pytest.raises(RowError, match=r"null topic present in the data \(row 2 of a batch of 3\)"):
        list(TopicRows(columns.names, None).split(batch))

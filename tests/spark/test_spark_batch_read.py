"""Batch queries on the source `kalda`, through a real session and a real broker."""

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

T0 = 1_700_000_000_000


@pytest.fixture
def read(spark: "SparkSession", options: Any) -> Any:
    def load(**given: str) -> "DataFrame":
        return spark.read.format("kalda").options(**options(**given)).load()

    return load


def values(frame: "DataFrame") -> list[bytes]:
    return sorted(bytes(row.value) for row in frame.select("value").collect())


def test_columns_are_those_of_sparks_own_connector(read: Any, topics: Any) -> None:
    """A query that changes the format's name must find the same names and types."""
    topic = topics.create("columns")
    topics.fill(topic, [b"v0", None], keys=[None, b"k1"], timestamps=[T0, T0 + 1])

    frame = read(subscribe=topic)

    assert [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ] == frame.dtypes
    assert all(field.nullable for field in frame.schema)
    rows = frame.orderBy("offset").collect()
    assert [(None, b"v0", topic, 0, 0, 0), (b"k1", None, topic, 0, 1, 0)] == [
        (_bytes(row.key), _bytes(row.value), row.topic, row.partition, row.offset, row.timestampType)
        for row in rows
    ]
    in_ms = frame.selectExpr("unix_millis(timestamp) AS ms").orderBy("ms").collect()
    assert [T0, T0 + 1] == [row.ms for row in in_ms]


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


def test_every_way_to_select_topics(read: Any, topics: Any) -> None:
    first, second = topics.create("select.a", partitions=2), topics.create("select.b")
    topics.fill(first, [b"a0"], partition=0)
    topics.fill(first, [b"a1"], partition=1)
    topics.fill(second, [b"b0"])

    assert [b"a0", b"a1", b"b0"] == values(read(subscribe=f" {first} , {second},"))
    assert [b"a0", b"a1"] == values(read(subscribePattern=rf"\Q{first}\E"))
    # The pattern is looked up anywhere in the name, as in Spark's own connector.
    assert [b"a0", b"a1"] == values(read(subscribePattern=first[1:-1]))
    assert [] == values(read(subscribePattern=f"^{first[:-1]}$"))
    assert [b"a1"] == values(read(assign=json.dumps({first: [1]})))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_reads_back(read: Any, topics: Any, codec: str) -> None:
    topic = topics.create(f"codec-{codec}")
    sent = [b"value-%d" % number for number in range(3000)]
    topics.fill(topic, sent, config={"compression.type": codec, "linger.ms": "20"})

    assert sorted(sent) == values(read(subscribe=topic))


def test_offsets_bound_the_read(read: Any, topics: Any) -> None:
    topic = topics.create("bounds", partitions=2)
    topics.fill(topic, [b"a%d" % number for number in range(5)], partition=0)
    topics.fill(topic, [b"b%d" % number for number in range(5)], partition=1)

    frame = read(
        subscribe=topic,
        startingOffsets=json.dumps({topic: {"0": 3, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 2}}),
    )

    assert [b"a3", b"a4", b"b0", b"b1"] == values(frame)


def test_timestamps_bound_the_read(read: Any, topics: Any) -> None:
    topic = topics.create("times", partitions=2)
    stamps = [T0 + number * 1000 for number in range(5)]
    for partition, letter in enumerate((b"a", b"b")):
        sent = [letter + b"%d" % number for number in range(5)]
        topics.fill(topic, sent, partition=partition, timestamps=stamps)

    assert [b"a3", b"a4", b"b3", b"b4"] == values(read(subscribe=topic, startingTimestamp=str(T0 + 2500)))
    assert [b"a0", b"b0"] == values(read(subscribe=topic, endingTimestamp=str(T0 + 1000)))
    by_partition = read(
        subscribe=topic,
        startingOffsetsByTimestamp=json.dumps({topic: {"0": T0 + 1000, "1": T0 + 4000}}),
        endingOffsetsByTimestamp=json.dumps({topic: {"0": T0 + 2000, "1": T0 + 9000}}),
    )
    assert [b"a1", b"b4"] == values(by_partition)


def test_start_after_the_last_timestamp_fails_or_reads_nothing(read: Any, topics: Any) -> None:
    topic = topics.create("late")
    topics.fill(topic, [b"v"], timestamps=[T0])

    with pytest.raises(Exception, match="startingOffsetsByTimestampStrategy"):
        read(subscribe=topic, startingTimestamp=str(T0 + 1)).collect()
    with_strategy = read(
        subscribe=topic, startingTimestamp=str(T0 + 1), startingOffsetsByTimestampStrategy="latest"
    )
    assert [] == values(with_strategy)


def test_headers_are_read_on_request(read: Any, topics: Any) -> None:
    topic = topics.create("headers")
    topics.fill(
        topic, [b"with", b"without"], headers=[[("trace", b"1"), ("trace", b"2"), ("empty", None)], None]
    )

    frame = read(subscribe=topic, includeHeaders="true")

    assert ("headers", "array<struct<key:string,value:binary>>") == frame.dtypes[-1]
    rows = frame.orderBy("offset").collect()
    assert [("trace", b"1"), ("trace", b"2"), ("empty", None)] == [
        (header.key, _bytes(header.value)) for header in rows[0].headers
    ]
    assert rows[1].headers is None


def test_min_partitions_splits_a_long_partition(read: Any, topics: Any) -> None:
    topic = topics.create("split", partitions=2)
    topics.fill(topic, [b"%05d" % number for number in range(1000)], partition=0)
    topics.fill(topic, [b"%05d" % number for number in range(1000, 1010)], partition=1)

    frame = read(subscribe=topic, minPartitions="5")

    assert 5 == frame.rdd.getNumPartitions()
    assert [b"%05d" % number for number in range(1010)] == values(frame)


def test_lost_records_fail_the_query_unless_told_otherwise(read: Any, topics: Any) -> None:
    topic = topics.create("loss")
    topics.fill(topic, [b"v%d" % number for number in range(10)])
    topics.trim(topic, 0, 4)
    start = json.dumps({topic: {"0": 1}})

    with pytest.raises(Exception, match=f"offsets 1 to 3 of {topic}-0 cannot be read: the log starts at 4"):
        read(subscribe=topic, startingOffsets=start).collect()
    tolerant = read(subscribe=topic, startingOffsets=start, failOnDataLoss="false")
    assert [b"v%d" % number for number in range(4, 10)] == values(tolerant)
    # Without an explicit start, the beginning is where the log begins: nothing is lost.
    assert [b"v%d" % number for number in range(4, 10)] == values(read(subscribe=topic))


def test_a_choice_of_columns_is_read_alone(spark: "SparkSession", options: Any, topics: Any) -> None:
    topic = topics.create("pruned")
    topics.fill(topic, [b"v0", b"v1"])

    reader = spark.read.format("kalda").options(**options(subscribe=topic))

    rows: list[Row] = reader.schema("offset bigint, value binary").load().orderBy("offset").collect()
    assert [(0, b"v0"), (1, b"v1")] == [(row.offset, bytes(row.value)) for row in rows]
    with pytest.raises(Exception, match="asks for value string"):
        reader.schema("value string").load().collect()


def test_topics_are_tables_in_sql(spark: "SparkSession", bootstrap: str, topics: Any) -> None:
    topic = topics.create("sql")
    topics.fill(topic, [b"1", b"2", b"3"])

    spark.sql(
        f"CREATE TEMPORARY VIEW numbers USING kalda OPTIONS (subscribe '{topic}', "
        f"`kafka.bootstrap.servers` '{bootstrap}')"
    )

    rows = spark.sql("SELECT CAST(sum(CAST(value AS STRING)) AS INT) AS total FROM numbers").collect()
    assert [6] == [row.total for row in rows]


def test_empty_topic_has_no_rows(read: Any, topics: Any) -> None:
    assert [] == values(read(subscribe=topics.create("empty", partitions=3)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "exactly one of subscribe, subscribePattern, assign"),
        ({"subscribe": "a", "assign": '{"a":[0]}'}, "found subscribe and assign"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "set `startingOffsets`"),
        ({"subscribe": "a", "kafka.sasl.login.class": "X"}, "sasl.login.class"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot be latest"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "cannot be earliest"),
        ({"subscribe": "no-such-topic-here"}, "topic no-such-topic-here: UNKNOWN_TOPIC_OR_PARTITION"),
    ],
)
def test_refusals_say_what_to_do(read: Any, given: dict[str, str], message: str) -> None:
    with pytest.raises(Exception, match=message):
        read(**given).collect()

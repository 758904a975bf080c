"""What a statement reads of a topic, by DuckDB on a cluster that the test makes up."""

from collections.abc import Iterator, Mapping

import duckdb
import pyarrow as pa
import pytest

from kalda.clients.consumer.arrow_rows import ARROW_SCHEMA
from kalda.common.types import TopicPartition
from kalda.formats import FormatSpec, open_decoder
from kalda.topic_queries.columns import Columns
from kalda.topic_queries.topic_table import TopicTable

P0, P1 = TopicPartition("flights", 0), TopicPartition("flights", 1)
FETCH = 10
"""Records of a fetch."""


class Topic:
    """A topic with two partitions of 100 records; the record at offset n is of second n and has key n % 2."""

    def __init__(self, value: bytes = b'{"n": %d}') -> None:
        self.value = value
        self.reads: list[dict[TopicPartition, range]] = []
        self.fetched = 0
        self.ended = 0
        self.error: Exception | None = None

    def ranges(self, topic: str) -> Mapping[TopicPartition, range]:
        return {TopicPartition(topic, number): range(100) for number in (0, 1)}

    def offsets_for_times(
        self, times_ms: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, int | None]:
        found = {each: -(-at_ms // 1000) for each, at_ms in times_ms.items()}
        return {each: offset if offset < 100 else None for each, offset in found.items()}

    def read(self, ranges: Mapping[TopicPartition, range]) -> Iterator[pa.RecordBatch]:
        self.reads.append(dict(ranges))
        try:
            for partition, offsets in ranges.items():
                for start in range(offsets.start, offsets.stop, FETCH):
                    if self.error is not None:
                        raise self.error
                    yield self.batch(partition, range(start, min(start + FETCH, offsets.stop)))
        finally:
            self.ended += 1

    def batch(self, partition: TopicPartition, offsets: range) -> pa.RecordBatch:
        self.fetched += len(offsets)
        rows = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "offset": each,
                "timestamp": each * 1000,
                "timestamp_type": 0,
                "key": b"%d" % (each % 2),
                "value": self.value % each if b"%d" in self.value else self.value,
                "headers": [],
            }
            for each in offsets
        ]
        return pa.RecordBatch.from_pylist(rows, schema=ARROW_SCHEMA)


class Database:
    """DuckDB with the topic ``flights``."""

    def __init__(self, topic: Topic, columns: Columns | None = None) -> None:
        self.table = TopicTable("flights", topic, columns or Columns())
        self.connection = duckdb.connect(config={"python_enable_replacements": "false", "threads": "1"})
        self.connection.execute("SET TimeZone = 'UTC'")
        self.connection.register("flights", self.table)

    def rows(self, statement: str) -> list[tuple[object, ...]]:
        found: list[tuple[object, ...]] = self.connection.sql(statement).fetchall()
        return found


@pytest.fixture
def topic() -> Topic:
    return Topic()


@pytest.fixture
def database(topic: Topic) -> Iterator[Database]:
    database = Database(topic)
    yield database
    database.connection.close()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("true", {P0: range(100), P1: range(100)}),
        ("partition = 1", {P1: range(100)}),
        ("t.offset >= 90", {P0: range(90, 100), P1: range(90, 100)}),
        ("partition = 0 AND t.offset BETWEEN 5 AND 7", {P0: range(5, 8)}),
        ("partition IN (0, 7) AND t.offset = 3", {P0: range(3, 4)}),
        ("timestamp >= '1970-01-01 00:01:30'", {P0: range(90, 100), P1: range(90, 100)}),
        (
            "timestamp >= TIMESTAMPTZ '1970-01-01 00:01:30+00' - INTERVAL 5 SECOND",
            dict.fromkeys((P0, P1), range(85, 100)),
        ),
        ("timestamp < '1970-01-01 00:00:10'", {P0: range(100), P1: range(100)}),
        ("timestamp >= '2020-01-01'", {}),
        (
            "partition = 0 AND t.offset >= 95 OR partition = 1 AND t.offset < 3",
            {P0: range(95, 100), P1: range(3)},
        ),
        ("topic = 'another'", {}),
        ("key = '1' AND t.offset < 20", {P0: range(20), P1: range(20)}),
        ("t.offset % 2 = 0", {P0: range(100), P1: range(100)}),
    ],
)
def test_a_condition_limits_what_is_read(
    topic: Topic, database: Database, condition: str, expected: dict[TopicPartition, range]
) -> None:
    everything = [(p, n) for p in (0, 1) for n in range(100)]
    found = database.rows(f"SELECT partition, t.offset FROM flights t WHERE {condition} ORDER BY ALL")

    assert [expected] == topic.reads
    assert sum(map(len, expected.values())) == topic.fetched
    plain = database.rows(
        "SELECT partition, t.offset FROM (SELECT p AS partition, n AS \"offset\", 'flights' AS topic, "
        "make_timestamptz(n * 1000000) AS timestamp, (n % 2)::VARCHAR AS key "
        f"FROM range(2) a(p), range(100) b(n)) t WHERE {condition} ORDER BY ALL"
    )
    assert [row for row in everything if row in plain] == found


def test_a_condition_of_a_join_limits_both_sides(topic: Topic, database: Database) -> None:
    found = database.rows(
        'SELECT count(*) FROM flights a JOIN flights b USING (partition, "offset") WHERE a.offset < 5'
    )

    assert [(10,)] == found
    assert [{P0: range(5), P1: range(5)}] * 2 == topic.reads


def test_a_query_that_has_its_rows_reads_no_further(topic: Topic, database: Database) -> None:
    reader = database.connection.sql("SELECT * FROM flights LIMIT 5").to_arrow_reader(100)

    assert 5 == reader.read_all().num_rows
    assert 1 == topic.ended
    assert topic.fetched < 200


def test_rows_come_while_the_topic_is_read(topic: Topic, database: Database) -> None:
    """Memory is bounded only if the first rows do not wait for the last ones."""
    topic.ranges = lambda topic: {P0: range(1_000_000)}  # type: ignore[method-assign]  # a longer topic
    reader = database.connection.sql("SELECT t.offset FROM flights t").to_arrow_reader(1000)

    assert 0 < reader.read_next_batch().num_rows
    assert topic.fetched < 1_000_000
    reader.close()


def test_only_the_columns_of_the_query_are_made(topic: Topic, database: Database) -> None:
    """Keys of the filter are made too, and left out again."""
    assert [(50,)] == database.rows("SELECT count(*) FROM flights WHERE key = '1' AND partition = 0")
    assert [("0",)] == database.rows("SELECT key FROM flights WHERE value->>'$.n' = '4' AND partition = 0")


def test_an_error_of_a_read_is_kept_for_the_caller(topic: Topic, database: Database) -> None:
    topic.error = ConnectionError("the broker is gone")

    with pytest.raises(duckdb.Error):
        database.rows("SELECT * FROM flights")
    assert topic.error is database.table.failure


def test_values_of_a_schema_are_a_struct(topic: Topic) -> None:
    columns = Columns(decoder=open_decoder(FormatSpec("json", "n bigint")))
    database = Database(topic, columns)

    assert [(97,), (98,), (99,)] == database.rows(
        "SELECT value.n FROM flights WHERE value.n > 96 AND partition = 0 ORDER BY 1"
    )
    database.connection.close()

"""A Delta table that is published in a topic of a real broker."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import confluent_kafka
import confluent_kafka.admin
import pyarrow as pa
import pytest

from kalda.formats import FormatSpec, open_encoder
from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.publish import table_publisher
from kalda.pipelines.publish.position import PositionError
from kalda.pipelines.publish.table_publisher import PublishedTable, PublishOptions, TablePublisher
from kalda.pipelines.spec.model import TableFormat, TableSpec
from kalda.pipelines.tables import CompactPolicy, TaskId
from kalda.pipelines.tables.opening import open_table
from kalda.pipelines.tables.upsert import HIDDEN
from kalda.pipelines.topic_rows import TopicRows

deltalake = pytest.importorskip("deltalake")
start_threads = pytest.importorskip("tests.iceberg_threads").start_threads


@pytest.fixture(scope="module", autouse=True)
def runtime(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start the libraries' runtimes: they keep sockets, which the first test would seem to leave behind."""
    start_threads()
    directory = str(tmp_path_factory.mktemp("runtime") / "table")
    deltalake.write_deltalake(directory, rows(0, 1))
    deltalake.DeltaTable(directory).delete("id = 0")


class StoppedError(Exception):
    """Stands for a crash of the process."""


class Interrupted:
    """A table whose reading breaks off behind some batches."""

    def __init__(self, table: PublishedTable, batches: int) -> None:
        self._table = table
        self._left = batches

    def version(self) -> int | None:
        return self._table.version()

    def read(self, *, version: int | None = None) -> Iterator[pa.RecordBatch]:
        for rows in self._table.read(version=version):
            for start in range(0, rows.num_rows, 100):
                if not self._left:
                    raise StoppedError
                self._left -= 1
                yield rows.slice(start, 100)

    def read_changes(self, since: int | None, until: int | None = None) -> Iterator[table_publisher.Changes]:
        return self._table.read_changes(since, until)


def rows(start: int, end: int, text: str = "v") -> pa.Table:
    numbers = list(range(start, end))
    return pa.table({"id": pa.array(numbers, pa.int64()), "value": [f"{text}{number}" for number in numbers]})


def committed(bootstrap: str, topic: str) -> list[tuple[bytes, bytes | None]]:
    """The records that a reader of committed transactions sees."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "rows", "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break
        found.append((message.key(), message.value()))
    consumer.close()
    return found


@pytest.fixture
def topic(bootstrap: str, topic_name: Callable[[str], str]) -> str:
    name = topic_name("published")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(name, 1, 1)])[name].result(30)
    return name


def options(bootstrap: str, topic: str, table: str) -> PublishOptions:
    return PublishOptions(
        pipeline=topic,
        group=f"kalda-pipeline-{topic}",
        table=table,
        topic=topic,
        rows=TopicRows(("id",)),
        producer={"bootstrap.servers": bootstrap},
        tombstones=True,
    )


def test_rows_and_then_changes_are_published_once(
    bootstrap: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash in the first reading and a run for each state leave every key with its last value."""
    monkeypatch.setattr(table_publisher, "TRANSACTION_ROWS_MAX", 200)
    directory = tmp_path / "dim"
    uri = directory.as_uri()
    with_changes = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(str(directory), rows(0, 1000), configuration=with_changes)
    table = open_table(TableSpec(table="dim", path=uri, format=TableFormat.DELTA))
    given = options(bootstrap, topic, uri)

    with TablePublisher(given, Interrupted(table, 5)) as publisher, pytest.raises(StoppedError):
        publisher.run_once()
    assert 400 == len(committed(bootstrap, topic))
    with TablePublisher(given, table) as publisher:
        assert 600 == publisher.run_once().records
    expected = [(b"%d" % number, b"v%d" % number) for number in range(1000)]
    assert expected == committed(bootstrap, topic)

    # A later version of the same process and of another one.
    deltalake.write_deltalake(str(directory), rows(1000, 1100), mode="append")
    deltalake.DeltaTable(str(directory)).delete("id < 10")
    with TablePublisher(given, table) as publisher:
        result = publisher.run_once()
        assert (110, 10) == (result.records, result.tombstones)
        assert 0 == publisher.run_once().records
    final = dict(committed(bootstrap, topic))
    assert {b"%d" % number: b"v%d" % number for number in range(10, 1100)} == {
        key: value for key, value in final.items() if value is not None
    }
    assert {b"%d" % number for number in range(10)} == {key for key, value in final.items() if value is None}


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.ICEBERG])
def test_formats_with_versions_can_be_published(
    bootstrap: str, topic: str, tmp_path: Path, kind: TableFormat
) -> None:
    """Files that an upsert or a compaction writes again publish no row that stayed the same."""
    path = (tmp_path / "dim").as_uri()
    spec = TableSpec(table="lake.dim", path=path, format=kind, keys=("id",))
    if kind is TableFormat.ICEBERG:
        spec = replace(spec, catalog={"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db"})
    table = open_table(spec)

    def commit(batch_id: int, part: pa.Table) -> None:
        (batch,) = part.to_batches()
        size, start = batch.num_rows, 1000 * batch_id
        ranges = (RangeAccount("t", 0, start, start + size, size, size),)
        account, task = BatchAccount("query", batch_id, ranges), TaskId("query", batch_id, 0)
        table.prepare_schema(batch.schema)
        hidden = (pa.array([0] * size), pa.array(range(size)), pa.array([False] * size))
        for field, values in zip(HIDDEN, hidden, strict=True):
            batch = batch.append_column(field, values.cast(field.type))
        table.upsert(account, table.upsert_writer(batch.schema).write([batch], task))

    commit(0, rows(0, 10))
    given = options(bootstrap, topic, spec.path)
    with TablePublisher(given, table) as publisher:
        assert 10 == publisher.run_once().records
        commit(1, rows(5, 15, "w"))
        assert 10 == publisher.run_once().records
        table.compact(CompactPolicy(newest_kept_s=0))
        assert 0 == publisher.run_once().records
        assert publisher.position is not None
        assert table.version() == publisher.position.version
    expected = {b"%d" % number: b"%c%d" % (b"v" if number < 5 else b"w", number) for number in range(15)}
    assert expected == dict(committed(bootstrap, topic))


def test_times_of_far_years_are_published(bootstrap: str, topic: str, tmp_path: Path) -> None:
    """A table has no dead letters: a row that could not be written would stop the pipeline for good."""
    directory = tmp_path / "far"
    columns = {
        "id": pa.array([1, 2], pa.int64()),
        "at": pa.array([253_402_300_800_000_000, -100_000_000_000_000_000], pa.timestamp("us", "UTC")),
        "day": pa.array([2_932_897, -1_000_000], pa.date32()),
    }
    deltalake.write_deltalake(str(directory), pa.table(columns))
    table = open_table(TableSpec(table="far", path=directory.as_uri(), format=TableFormat.DELTA))
    schema = table.schema()
    assert schema is not None
    encoder = open_encoder(FormatSpec("json"), schema)
    given = replace(options(bootstrap, topic, directory.as_uri()), rows=TopicRows(("id", "at"), encoder))

    with TablePublisher(given, table) as publisher:
        assert 2 == publisher.run_once().records

    key, value = committed(bootstrap, topic)[0]
    assert b'{"id":1,"at":"+10000-01-01 00:00:00+00:00"}' == key
    assert b'{"id":1,"at":"+10000-01-01T00:00:00Z","day":"+10000-01-01"}' == value


def test_a_pipeline_does_not_go_on_with_another_table(bootstrap: str, topic: str, tmp_path: Path) -> None:
    directory = tmp_path / "dim"
    deltalake.write_deltalake(str(directory), rows(0, 10))
    table = open_table(TableSpec(table="dim", path=directory.as_uri(), format=TableFormat.DELTA))
    with TablePublisher(options(bootstrap, topic, directory.as_uri()), table) as publisher:
        publisher.run_once()

    with (
        pytest.raises(PositionError, match=f"has published {directory.as_uri()} in {topic}, not file:///o"),
        TablePublisher(options(bootstrap, topic, "file:///other"), table),
    ):
        pass


def test_a_table_that_is_not_there_yet_publishes_nothing(bootstrap: str, topic: str, tmp_path: Path) -> None:
    uri = (tmp_path / "later").as_uri()
    table = open_table(TableSpec(table="later", path=uri, format=TableFormat.DELTA))
    with TablePublisher(options(bootstrap, topic, uri), table) as publisher:
        assert publisher.run_once().version is None


def test_a_table_without_rows_is_published_to_a_topic_that_does_not_exist(
    bootstrap: str, topic_name: Callable[[str], str], tmp_path: Path
) -> None:
    """A pipeline creates its table before the first rows: only the progress is there to commit."""
    topic = topic_name("later")
    directory = tmp_path / "empty"
    deltalake.write_deltalake(str(directory), rows(0, 1).slice(0, 0))
    table = open_table(TableSpec(table="empty", path=directory.as_uri(), format=TableFormat.DELTA))
    given = options(bootstrap, topic, directory.as_uri())
    given = replace(given, producer={**given.producer, "max.block.ms": "5000"})

    with TablePublisher(given, table) as publisher:
        assert (0, 0) == (publisher.run_once().records, publisher.run_once().records)
        deltalake.write_deltalake(str(directory), rows(0, 3), mode="append")
        assert 3 == publisher.run_once().records

    assert [(b"%d" % number, b"v%d" % number) for number in range(3)] == committed(bootstrap, topic)

"""The sink in a real session: rows of batch and streaming queries become records."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kalda import Admin
from kalda.spark.sink.foreach_batch import topic_writer
from tests.spark.conftest import Options, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_a_batch_write_has_all_columns(spark: "SparkSession", topics: Topics, options: Options) -> None:
    """Key, headers, partition and timestamp arrive as the query has them."""
    name = topics.create("write-batch", partitions=2)
    rows = spark.range(100).selectExpr(
        "CAST(id AS STRING) AS key",
        "CAST(concat('v', id) AS BINARY) AS value",
        "CAST(id % 2 AS INT) AS partition",
        "timestamp_millis(1000 + id) AS timestamp",
        "array(named_struct('key', 'h', 'value', CAST(CAST(id AS STRING) AS BINARY))) AS headers",
        f"'{name}' AS topic",
    )
    rows.write.format("kalda").options(**options()).mode("append").save()
    read = spark.read.format("kalda").options(**options(subscribe=name, includeHeaders="true")).load()
    columns = ["key", "value", "partition", "timestamp", "headers", "topic"]
    written = rows.selectExpr("CAST(key AS BINARY) AS key", *columns[1:])
    assert 0 == read.select(columns).exceptAll(written).count()
    assert 100 == read.count()


def test_a_stream_writes_to_a_topic(
    spark: "SparkSession", topics: Topics, options: Options, tmp_path: Path
) -> None:
    """From topic to topic, with the source's own columns."""
    source, target = topics.create("write-from", partitions=2), topics.create("write-to")
    for partition in (0, 1):
        topics.fill(source, [b"%d" % number for number in range(50)], partition=partition)
    stream = spark.readStream.format("kalda").options(**options(subscribe=source, startingOffsets="earliest"))
    _run(stream.load().select("key", "value"), options(topic=target), tmp_path / "checkpoint")
    read = spark.read.format("kalda").options(**options(subscribe=target)).load()
    assert sorted(2 * [str(number) for number in range(50)]) == sorted(
        row.value for row in read.selectExpr("CAST(value AS STRING) AS value").collect()
    )


@pytest.mark.parametrize("delivery", ["exactly-once", "exactly-once-batch"])
def test_a_repeated_batch_changes_nothing(
    delivery: str, spark: "SparkSession", topics: Topics, options: Options, tmp_path: Path
) -> None:
    """The driver died behind the sink's commit and before Spark's: Spark runs the batch again."""
    source, target = topics.create("write-from", partitions=2), topics.create("write-to", partitions=2)
    for partition in (0, 1):
        topics.fill(source, [b"%d-%d" % (partition, number) for number in range(50)], partition=partition)
    stream = spark.readStream.format("kalda").options(**options(subscribe=source, startingOffsets="earliest"))
    frame, checkpoint = stream.load().select("value", "partition"), tmp_path / "checkpoint"
    _run(frame, options(topic=target, delivery=delivery), checkpoint)
    committed = {"kafka.isolation.level": "read_committed"}
    read = spark.read.format("kalda").options(**options(subscribe=target, **committed)).load()
    assert 100 == read.count()
    last = max(int(each.name) for each in (checkpoint / "commits").iterdir() if each.name.isdigit())
    for name in (f"{last}", f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)
    _run(frame, options(topic=target, delivery=delivery), checkpoint)
    assert (100, 100) == (read.count(), read.select("value").distinct().count())


def test_a_batch_whose_tasks_fail_hides_nothing(
    spark: "SparkSession", topics: Topics, options: Options, tmp_path: Path
) -> None:
    """The rows of its first topic were behind a barrier; the query is down, and readers go on."""
    source, target = topics.create("write-from"), topics.create("write-to")
    topics.fill(source, [b"a", b"b"])
    stream = spark.readStream.format("kalda").options(**options(subscribe=source, startingOffsets="earliest"))
    frame = stream.load().selectExpr("value", f"IF(offset = 0, '{target}', 'no topic!') AS topic")
    with pytest.raises(Exception, match="no topic!"):
        _run(frame, options(delivery="exactly-once-batch"), tmp_path / "checkpoint")

    query_id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    with Admin(bootstrap_servers=topics.bootstrap) as admin:
        listed = {each.transactional_id: each.state for each in admin.list_transactions().all()}
    ours = {name: state for name, state in listed.items() if query_id in name}
    assert f"kalda-{query_id}-sink-barrier" in ours
    assert "Ongoing" not in {str(state) for state in ours.values()}


def test_update_mode_writes_each_change_once(
    spark: "SparkSession", topics: Topics, options: Options, tmp_path: Path
) -> None:
    """Spark refuses the mode for Python sinks; `topic_writer` brings it through foreachBatch."""
    source, target = topics.create("write-from"), topics.create("write-to")
    topics.fill(source, [b"a", b"b", b"a"])
    stream = spark.readStream.format("kalda").options(**options(subscribe=source, startingOffsets="earliest"))
    counts = (
        stream.load().groupBy("value").count().selectExpr("value AS key", "CAST(count AS STRING) AS value")
    )
    query = (
        counts.writeStream.outputMode("update")
        .foreachBatch(topic_writer(options(topic=target)))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    committed = {"kafka.isolation.level": "read_committed"}
    read = spark.read.format("kalda").options(**options(subscribe=target, **committed)).load()
    rows = read.selectExpr("CAST(key AS STRING) AS key", "CAST(value AS STRING) AS value").collect()
    assert [("a", "2"), ("b", "1")] == sorted((row.key, row.value) for row in rows)


def _run(frame: "DataFrame", sink: dict[str, str], checkpoint: Path) -> None:
    query = (
        frame.writeStream.format("kalda")
        .options(**sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)

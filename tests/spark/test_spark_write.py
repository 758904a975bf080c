"""The sink in a real session: rows of batch and streaming queries become records."""

from pathlib import Path
from typing import TYPE_CHECKING

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


def _run(frame: "DataFrame", sink: dict[str, str], checkpoint: Path) -> None:
    query = (
        frame.writeStream.format("kalda")
        .options(**sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)

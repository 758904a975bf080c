"""A query's progress as a consumer group, a lost checkpoint, and what users see of their mistakes."""

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from tests import forked_commands

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GROUP = "spark-progress"


def committed(bootstrap: str, group: str, topic: str, partitions: int) -> list[int]:
    """What an ordinary client sees of the group."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": group})
    try:
        asked = [confluent_kafka.TopicPartition(topic, number) for number in range(partitions)]
        return [each.offset for each in consumer.committed(asked, timeout=60)]
    finally:
        consumer.close()


def repair(bootstrap: str, directory: Path, *options: str) -> str:
    """Run `kalda pipeline repair` and return what it prints."""
    checkpoint = ["--checkpoint", str(directory / "checkpoint"), "--group", GROUP]
    command = [sys.executable, "-m", "kalda", "pipeline", "repair", *checkpoint, *options]
    done = forked_commands.run(
        [*command, "--bootstrap-server", bootstrap], capture_output=True, text=True, timeout=60, check=False
    )
    return f"{done.stdout}{done.stderr}"


@pytest.fixture
def run(spark: "SparkSession", options: Any, tmp_path: Path) -> Callable[..., list[bytes]]:
    """Runs a query over what there is, on one checkpoint, and returns the values of all runs together."""
    values: list[bytes] = []

    def collect(frame: "DataFrame", batch_id: int) -> None:
        values.extend(bytes(row.value) for row in frame.select("value").collect())

    def run_query(**given: str) -> list[bytes]:
        frame = spark.readStream.format("kalda").options(**options(**given)).load()
        writer = frame.writeStream.foreachBatch(collect).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        assert query.awaitTermination(60)
        return sorted(values)

    return run_query


def test_a_lost_checkpoint_is_rebuilt_from_the_group(
    run: Callable[..., list[bytes]], topics: Any, bootstrap: str, tmp_path: Path
) -> None:
    """The group shows the progress of each run, its end included; nothing is lost or read twice after it."""
    topic = topics.create("progress", partitions=2)
    topics.fill(topic, [b"a%d" % number for number in range(9)], partition=0)
    given = {"subscribe": topic, "startingOffsets": "earliest", "kafka.group.id": GROUP}

    run(**given)
    assert [9, 0] == committed(bootstrap, GROUP, topic, 2)

    topics.fill(topic, [b"b%d" % number for number in range(9)], partition=1)
    shutil.rmtree(tmp_path / "checkpoint")
    assert f"{topic}-0" in repair(bootstrap, tmp_path)
    assert not (tmp_path / "checkpoint").exists()
    assert f"{topic}-0" in repair(bootstrap, tmp_path, "--execute")

    expected = sorted([b"a%d" % number for number in range(9)] + [b"b%d" % number for number in range(9)])
    assert expected == run(**given)
    assert [9, 9] == committed(bootstrap, GROUP, topic, 2)

    assert "is not lost" in repair(bootstrap, tmp_path, "--execute")


def test_a_topic_created_again_is_an_error_at_the_restart(
    run: Callable[..., list[bytes]], topics: Any, bootstrap: str
) -> None:
    """The new topic has every offset of the checkpoint; its records would be skipped in silence."""
    topic = topics.create("reborn")
    topics.fill(topic, [b"old"] * 5)
    run(subscribe=topic, startingOffsets="earliest")

    topics.delete(topic)
    topics.create_named(topic)
    topics.fill(topic, [b"new"] * 9)

    with pytest.raises(Exception, match="was deleted and created again") as raised:
        run(subscribe=topic, startingOffsets="earliest")
    assert "Traceback" not in str(raised.value)


def test_filters_narrow_what_is_read(spark: "SparkSession", options: Any, topics: Any) -> None:
    """The records are out of order in time; the rows are those of the query without push-down."""
    topic = topics.create("pushed", partitions=2)
    base = 1_790_000_000_000
    for partition in range(2):
        times = [base + (number * 7919) % 1000 * 1000 for number in range(200)]
        topics.fill(topic, [b"%d" % number for number in range(200)], partition=partition, timestamps=times)
    where = f"timestamp >= timestamp_millis({base + 900_000}) AND partition = 1 AND offset < 150"

    def rows(**given: str) -> list[tuple[int, bytes]]:
        frame = spark.read.format("kalda").options(**options(subscribe=topic, **given)).load().where(where)
        return sorted((row.offset, bytes(row.value)) for row in frame.select("offset", "value").collect())

    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        pushed = rows(pushdown="per-frame")
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert pushed
    assert rows() == pushed


def test_a_wrong_option_is_one_line(spark: "SparkSession", options: Any, tmp_path: Path) -> None:
    """In a batch, in SQL and in a stream: no traceback of a Python worker."""
    with pytest.raises(Exception, match="`minPartitions`='x'") as batch:
        spark.read.format("kalda").options(**options(subscribe="t", minPartitions="x")).load()
    with pytest.raises(Exception, match="exactly one of") as sql:
        spark.sql("CREATE TEMPORARY VIEW wrong USING kalda OPTIONS (`kafka.bootstrap.servers` 'b:1')")
    frame = spark.readStream.format("kalda").options(**options(subscribe="t", endingOffsets="latest")).load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(Exception, match="`endingOffsets` is not valid") as stream:
        query.awaitTermination(60)

    for raised in (batch, sql, stream):
        shown = str(raised.value).split("=== Streaming Query")[0]
        assert "Traceback" not in shown
        assert len(shown.strip().splitlines()) <= 2

"""Streaming queries on the source `kalda`, through a real session and a real broker."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

WAIT_SECONDS = 60


class Sink:
    """Collects the values of each batch; can be told to fail before it takes one."""

    def __init__(self) -> None:
        self.batches: dict[int, list[bytes]] = {}
        self.fails_at: int | None = None

    def __call__(self, frame: "DataFrame", batch_id: int) -> None:
        if batch_id == self.fails_at:
            raise RuntimeError("the sink fails on purpose")
        self.batches[batch_id] = sorted(bytes(row.value) for row in frame.select("value").collect())

    @property
    def values(self) -> list[bytes]:
        return sorted(value for batch in self.batches.values() for value in batch)


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
def stream(spark: "SparkSession", options: Any, sink: Sink, tmp_path: Path) -> Any:
    def writer(**given: str) -> "DataStreamWriter":
        frame = spark.readStream.format("kalda").options(**options(**given)).load()
        return frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(tmp_path / "checkpoint"))

    return writer


def run_available_now(writer: "DataStreamWriter") -> "StreamingQuery":
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(WAIT_SECONDS)
    return query


def wait_until(condition: Callable[[], bool], query: "StreamingQuery") -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert query.exception() is None
        assert time.monotonic() < deadline, f"not reached; last progress: {query.lastProgress}"
        time.sleep(0.1)


def logged_offsets(checkpoint: Path, batch_id: int) -> Any:
    logged = json.loads((checkpoint / "offsets" / str(batch_id)).read_text().splitlines()[-1])
    return {topic: offsets for topic, offsets in logged.items() if "@" not in topic}


def test_available_now_reads_what_is_there_and_resumes(
    stream: Any, sink: Sink, topics: Any, tmp_path: Path
) -> None:
    topic = topics.create("resume", partitions=2)
    topics.fill(topic, [b"a%d" % number for number in range(10)], partition=0)
    topics.fill(topic, [b"b%d" % number for number in range(5)], partition=1)

    run_available_now(stream(subscribe=topic, startingOffsets="earliest"))
    assert 15 == len(sink.values)
    # Batch 0 logs where the query starts, in the form of Spark's own connector.
    assert {topic: {"0": 0, "1": 0}} == logged_offsets(tmp_path / "checkpoint", 0)
    assert {topic: {"0": 10, "1": 5}} == logged_offsets(tmp_path / "checkpoint", 1)
    assert [] == sink.batches[0]

    sink.batches.clear()
    topics.fill(topic, [b"c0", b"c1"], partition=1)
    run_available_now(stream(subscribe=topic, startingOffsets="earliest"))
    assert [b"c0", b"c1"] == sink.values

    sink.batches.clear()
    run_available_now(stream(subscribe=topic, startingOffsets="earliest"))
    assert [] == sink.values


@pytest.mark.parametrize("fails_at", [0, 1])
def test_a_batch_that_was_planned_but_not_committed_loses_nothing(
    stream: Any, sink: Sink, topics: Any, fails_at: int
) -> None:
    """With `startingOffsets=latest`, a start that is looked up again after a crash skips records.

    The query must begin where it was first started, whichever batch it crashed in.
    """
    topic = topics.create("trap")
    topics.fill(topic, [b"old"] * 5)
    sink.fails_at = fails_at
    query = stream(subscribe=topic).trigger(processingTime="100 milliseconds").start()
    if fails_at == 1:
        wait_until(lambda: 0 in sink.batches, query)
        topics.fill(topic, [b"during-%d" % number for number in range(5)])
    with pytest.raises(Exception, match="on purpose"):
        query.awaitTermination(WAIT_SECONDS)

    topics.fill(topic, [b"after-%d" % number for number in range(5)])
    sink.fails_at = None
    run_available_now(stream(subscribe=topic))

    during = [b"during-%d" % number for number in range(5)] if fails_at == 1 else []
    after = [b"after-%d" % number for number in range(5)]
    assert sorted(during + after) == sink.values


def test_max_offsets_per_trigger_is_shared_by_backlog(stream: Any, sink: Sink, topics: Any) -> None:
    topic = topics.create("limited", partitions=2)
    topics.fill(topic, [b"a%03d" % number for number in range(90)], partition=0)
    topics.fill(topic, [b"b%03d" % number for number in range(10)], partition=1)

    run_available_now(stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="50"))

    assert [45, 5] == [sum(value[:1] == letter for value in sink.batches[1]) for letter in (b"a", b"b")]
    assert [0, 50, 50] == [len(sink.batches[batch_id]) for batch_id in sorted(sink.batches)]
    assert 100 == len(set(sink.values))


def test_a_running_query_finds_new_partitions_and_reports_progress(
    stream: Any, sink: Sink, topics: Any
) -> None:
    topic = topics.create("grows")
    query = (
        stream(subscribe=topic, **{"kafka.fetch.max.wait.ms": "50"})
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        wait_until(lambda: 0 in sink.batches, query)
        topics.fill(topic, [b"first"])
        wait_until(lambda: sink.values == [b"first"], query)
        topics.grow(topic, 2)
        topics.fill(topic, [b"second"], partition=1)
        wait_until(lambda: sink.values == [b"first", b"second"], query)
        wait_until(lambda: _reported_end(query, topic) == {"0": 1, "1": 1}, query)
    finally:
        query.stop()


def _reported_end(query: "StreamingQuery", topic: str) -> Any:
    progress = query.lastProgress
    offset = None if progress is None else progress["sources"][0]["latestOffset"]
    if isinstance(offset, str):
        offset = json.loads(offset)
    return None if offset is None else offset.get(topic)


def test_lost_records_stop_the_stream_unless_told_otherwise(stream: Any, sink: Sink, topics: Any) -> None:
    topic = topics.create("stream-loss")
    topics.fill(topic, [b"v0", b"v1"])
    run_available_now(stream(subscribe=topic, startingOffsets="earliest"))
    topics.fill(topic, [b"v2", b"v3", b"v4"])
    topics.trim(topic, 0, 4)
    sink.batches.clear()

    with pytest.raises(Exception, match=r"offsets 2 to 3 of .* cannot be read"):
        run_available_now(stream(subscribe=topic, startingOffsets="earliest"))
    run_available_now(stream(subscribe=topic, startingOffsets="earliest", failOnDataLoss="false"))
    assert [b"v4"] == sink.values


def test_a_deleted_topic_stops_the_stream_unless_told_otherwise(stream: Any, sink: Sink, topics: Any) -> None:
    kept, deleted = topics.create("kept"), topics.create("deleted")
    topics.fill(kept, [b"k0"])
    topics.fill(deleted, [b"d0"])
    both = f"{kept},{deleted}"
    run_available_now(stream(subscribe=both, startingOffsets="earliest"))
    topics.delete(deleted)
    topics.fill(kept, [b"k1"])
    sink.batches.clear()

    with pytest.raises(Exception, match=f"topic {deleted} is gone"):
        run_available_now(stream(subscribe=both, startingOffsets="earliest"))
    run_available_now(stream(subscribe=both, startingOffsets="earliest", failOnDataLoss="false"))
    assert [b"k1"] == sink.values


def test_a_stream_has_no_end_to_set(stream: Any) -> None:
    with pytest.raises(Exception, match="not valid in a streaming query"):
        run_available_now(stream(subscribe="any", endingOffsets="latest"))

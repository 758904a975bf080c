"""The stream reader's decisions, driven in the order in which Spark calls it."""

import json
import pickle

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.discovery import Discovery
from kalda.spark.source.offsets import SparkOffset
from kalda.spark.source.options import parse_stream_options
from kalda.spark.source.reader import KaldaStreamReader, RangePartition
from kalda.spark.source.schema import source_schema
from tests.unit.spark.source.cluster_fakes import FakeCluster

ALL = ReadAllAvailable()


@pytest.fixture
def cluster() -> FakeCluster:
    fake = FakeCluster()
    fake.add("t", 0, range(10))
    return fake


def reader(cluster: FakeCluster, **given: str) -> KaldaStreamReader:
    options = parse_stream_options({"kafka.bootstrap.servers": "b:1", "subscribe": "t"} | given)
    made = KaldaStreamReader(options, source_schema(include_headers=False))
    made._discovery = Discovery(options, client=cluster, sleep=lambda _: None)
    return made


def spans(partitions: object) -> list[tuple[str, int, int]]:
    assert isinstance(partitions, list)
    ranges = [one for each in partitions if isinstance(each, RangePartition) for one in each.ranges]
    return [(str(each.topic_partition), each.start, each.end) for each in ranges]


def test_first_batch_logs_the_start_and_reads_nothing(cluster: FakeCluster) -> None:
    stream = reader(cluster)

    first = stream.initialOffset()
    start = stream.latestOffset(first, ALL)

    assert first == stream.initialOffset()
    assert {"t": {"0": 10}} == start
    assert [] == stream.partitions(first, start)


def test_a_replayed_first_batch_keeps_the_logged_start(cluster: FakeCluster) -> None:
    """The start is asked for anew after a crash, and the log has grown; what was logged must win."""
    logged = reader(cluster).latestOffset(reader(cluster).initialOffset(), ALL)
    cluster.logs[next(iter(cluster.logs))] += [11, 12]

    restarted = reader(cluster)

    assert [] == restarted.partitions(restarted.initialOffset(), logged)
    end = restarted.latestOffset(logged, ALL)
    assert [("t-0", 10, 12)] == spans(restarted.partitions(logged, end))


def test_no_new_data_gives_the_same_text(cluster: FakeCluster) -> None:
    stream = reader(cluster)
    start: SparkOffset = {"t": {"0": 10}}

    assert json.dumps(start) == json.dumps(stream.latestOffset(start, ALL))
    assert {"t": {"0": 10}} == stream.reportLatestOffset()


def test_the_limit_is_spread_and_can_be_lifted_by_the_trigger(cluster: FakeCluster) -> None:
    cluster.add("t", 1, range(90))
    stream = reader(cluster, maxOffsetsPerTrigger="10")
    start: SparkOffset = {"t": {"0": 0, "1": 0}}

    assert ReadMaxRows(10) == stream.getDefaultReadLimit()
    assert {"t": {"0": 1, "1": 9}} == stream.latestOffset(start, ReadMaxRows(10))
    assert {"t": {"0": 10, "1": 90}} == stream.latestOffset(start, ALL)
    assert ReadAllAvailable() == reader(cluster).getDefaultReadLimit()


def test_new_partitions_are_read_from_their_beginning(cluster: FakeCluster) -> None:
    stream = reader(cluster)
    cluster.add("t", 1, range(4))
    start: SparkOffset = {"t": {"0": 10}}

    end = stream.latestOffset(start, ReadMaxRows(3))

    assert {"t": {"0": 10, "1": 3}} == end
    assert [("t-1", 0, 3)] == spans(stream.partitions(start, end))


def test_available_now_ends_under_a_live_producer(cluster: FakeCluster) -> None:
    stream = reader(cluster, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()
    cluster.logs[next(iter(cluster.logs))] += [11, 12]
    cluster.add("t", 1, range(5))

    start = stream.latestOffset(stream.initialOffset(), ALL)
    end = stream.latestOffset(start, ALL)

    assert {"t": {"0": 0}} == start
    assert {"t": {"0": 10}} == end == stream.latestOffset(end, ALL)


def test_a_start_behind_the_freeze_is_no_loss(cluster: FakeCluster) -> None:
    stream = reader(cluster, startingTimestamp="50")
    stream.prepareForTriggerAvailableNow()
    cluster.logs[next(iter(cluster.logs))] += [40, 60]

    start = stream.latestOffset(stream.initialOffset(), ALL)

    assert {"t": {"0": 11}} == start == stream.latestOffset(start, ALL)


@pytest.mark.parametrize("trigger", ["processing time", "available now"])
def test_a_log_that_went_back_is_a_loss(cluster: FakeCluster, trigger: str) -> None:
    start: SparkOffset = {"t": {"0": 15}}
    strict, tolerant = reader(cluster), reader(cluster, failOnDataLoss="false")
    if trigger == "available now":
        strict.prepareForTriggerAvailableNow()
        tolerant.prepareForTriggerAvailableNow()

    with pytest.raises(DataLossError, match="the end of t-0 went back from 15 to 10"):
        strict.partitions(start, strict.latestOffset(start, ALL))
    assert [] == tolerant.partitions(start, tolerant.latestOffset(start, ALL))


def test_a_new_partition_without_its_first_records_is_a_loss(cluster: FakeCluster) -> None:
    cluster.add("t", 1, range(4), first=6)
    start: SparkOffset = {"t": {"0": 10}}
    strict, tolerant = reader(cluster), reader(cluster, failOnDataLoss="false")

    with pytest.raises(DataLossError, match="new partition t-1 begins at 6 instead of 0"):
        strict.partitions(start, strict.latestOffset(start, ALL))
    assert [("t-1", 6, 10)] == spans(tolerant.partitions(start, tolerant.latestOffset(start, ALL)))


def test_a_topic_that_is_gone_is_a_loss(cluster: FakeCluster) -> None:
    cluster.add("u", 0, range(3))
    start: SparkOffset = {"t": {"0": 10}, "u": {"0": 3}}
    strict = reader(cluster, subscribe="t,u")
    tolerant = reader(cluster, subscribe="t,u", failOnDataLoss="false")
    cluster.remove("u")

    with pytest.raises(DataLossError, match="topic u is gone"):
        strict.latestOffset(start, ALL)
    end = tolerant.latestOffset(start, ALL)
    assert {"t": {"0": 10}} == end
    assert [] == tolerant.partitions(start, end)
    # The next batch starts without the topic and must not fail either.
    assert end == tolerant.latestOffset(end, ALL)


def test_only_values_travel_to_the_executors(cluster: FakeCluster) -> None:
    stream = reader(cluster)

    copy = pickle.loads(pickle.dumps(stream))

    assert copy._discovery is None
    assert [] == list(copy.read(InputPartition(None)))

"""The stream reader's decisions, driven in the order in which Spark calls it."""

import json
import pickle
from uuid import UUID

import pytest
from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from kalda.clients.errors import RequestTimedOutError
from kalda.common.types import TopicPartition
from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.discovery import Discovery
from kalda.spark.source.group_offsets import Committed
from kalda.spark.source.offsets import SparkOffset
from kalda.spark.source.option_values import OptionError
from kalda.spark.source.options import parse_stream_options
from kalda.spark.source.reader import KaldaStreamReader, RangePartition
from kalda.spark.source.refused_stream import RefusedStreamReader
from kalda.spark.source.schema import source_schema
from kalda.spark.source.stream_progress import StreamProgress
from tests.unit.spark.source.cluster_fakes import FakeCluster, FakeGroup

ALL = ReadAllAvailable()


@pytest.fixture
def cluster() -> FakeCluster:
    fake = FakeCluster()
    fake.add("t", 0, range(10))
    return fake


def reader(cluster: FakeCluster, group: FakeGroup | None = None, **given: str) -> KaldaStreamReader:
    """A reader; it commits only where a group is given."""
    lag_commit = {} if group is not None else {"lagCommit": "false"}
    selection = {} if "subscribePattern" in given else {"subscribe": "t"}
    options = parse_stream_options({"kafka.bootstrap.servers": "b:1"} | selection | lag_commit | given)
    made = KaldaStreamReader(options, source_schema(include_headers=False))
    made._discovery = Discovery(options, client=cluster, group=group or FakeGroup(), sleep=lambda _: None)
    made._progress = StreamProgress(options, made._discovery, group)
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


T0 = TopicPartition("t", 0)
OLD, NEW = UUID(int=1), UUID(int=2)


def test_the_start_of_each_trigger_is_committed(cluster: FakeCluster) -> None:
    """It is what the sink has committed; the source's `commit` does not come for the last batch."""
    cluster.topic_ids["t"] = OLD
    group = FakeGroup()
    stream = reader(cluster, group, startingOffsets="earliest")
    stream.prepareForTriggerAvailableNow()

    start = stream.latestOffset(stream.initialOffset(), ALL)
    assert {} == group.offsets
    end = stream.latestOffset(start, ALL)
    assert end == stream.latestOffset(end, ALL)

    # The call that ends the run has waited for the commit.
    assert {T0: Committed(10, OLD, 0)} == group.offsets
    stream.stop()
    assert group.is_closed


def test_a_topic_created_again_fails_a_running_query(cluster: FakeCluster) -> None:
    cluster.topic_ids["t"] = OLD
    stream = reader(cluster)
    stream.latestOffset({"t": {"0": 5}}, ALL)

    cluster.topic_ids["t"] = NEW
    with pytest.raises(DataLossError, match="created again"):
        stream.latestOffset({"t": {"0": 10}}, ALL)


@pytest.mark.parametrize("call", ["latestOffset", "partitions"])
@pytest.mark.parametrize("memory", ["checkpoint", "group"])
def test_a_topic_created_again_fails_a_restart(cluster: FakeCluster, call: str, memory: str) -> None:
    """The new topic has all the offsets of the checkpoint: only the id shows that it is another one.

    Spark plans an unfinished batch again before it asks for the latest offsets. Brokers delete a group's
    offsets with the topic; one that did not is as good as a checkpoint.
    """
    cluster.topic_ids["t"] = NEW
    group = FakeGroup()
    known: SparkOffset = {"t": {"0": 5}}
    if memory == "group":
        group.offsets = {T0: Committed(3, OLD)}
    else:
        known |= {f"t@{OLD}": {}}
    stream = reader(cluster, group)

    second = {"partitions": {"t": {"0": 10}}, "latestOffset": ALL}[call]

    with pytest.raises(DataLossError, match="created again"):
        getattr(stream, call)(known, second)


def test_the_checkpoint_has_the_ids_from_its_first_entry_on(cluster: FakeCluster) -> None:
    """A query that is killed before its first batch is done has a checkpoint already."""
    cluster.topic_ids |= {"t": OLD, "u": NEW}
    stream = reader(cluster, subscribePattern="[tu]", failOnDataLoss="false")

    start = stream.latestOffset(stream.initialOffset(), ALL)
    assert {"t": {"0": 10}, f"t@{OLD}": {}} == start
    cluster.add("u", 0, range(3))
    end = stream.latestOffset(start, ALL)
    assert {"t": {"0": 10}, "u": {"0": 3}, f"t@{OLD}": {}, f"u@{NEW}": {}} == end
    cluster.remove("t")
    assert {"u": {"0": 3}, f"u@{NEW}": {}} == stream.latestOffset(end, ALL)


def test_offsets_without_ids_get_them_with_the_next_records(cluster: FakeCluster) -> None:
    """Spark's own connector wrote them. To Spark, another text is another batch."""
    cluster.topic_ids["t"] = OLD
    stream = reader(cluster)
    start: SparkOffset = {"t": {"0": 10}}

    assert start == stream.latestOffset(start, ALL)
    cluster.logs[T0] += [11]
    assert {"t": {"0": 11}, f"t@{OLD}": {}} == stream.latestOffset(start, ALL)


def test_without_fail_on_data_loss_a_topic_created_again_is_a_warning(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.topic_ids["t"] = NEW
    group = FakeGroup()
    stream = reader(cluster, group, failOnDataLoss="false")
    expected: SparkOffset = {"t": {"0": 10}, f"t@{NEW}": {}}

    # The new id is logged even if no record is new, so that the warning comes once.
    assert expected == stream.latestOffset({"t": {"0": 10}, f"t@{OLD}": {}}, ALL)
    assert expected == stream.latestOffset(expected, ALL)
    stream.stop()

    assert 1 == caplog.text.count("created again")
    assert {T0: Committed(10, NEW, 0)} == group.offsets


def test_tasks_know_the_topic_by_its_id(cluster: FakeCluster) -> None:
    cluster.topic_ids["t"] = OLD
    stream = reader(cluster)

    end = stream.latestOffset({"t": {"0": 5}}, ALL)
    (task,) = stream.partitions({"t": {"0": 5}}, end)

    assert isinstance(task, RangePartition)
    assert [OLD] == [each.topic_id for each in task.ranges]


def test_a_new_query_ignores_what_its_group_once_read(cluster: FakeCluster) -> None:
    cluster.topic_ids["t"] = NEW
    group = FakeGroup()
    group.offsets = {T0: Committed(3, OLD)}
    stream = reader(cluster, group, startingOffsets="earliest")

    start = stream.latestOffset(stream.initialOffset(), ALL)
    assert [] == stream.partitions(stream.initialOffset(), start)
    assert {"t": {"0": 10}, f"t@{NEW}": {}} == stream.latestOffset(start, ALL)
    stream.stop()


def test_a_group_that_cannot_be_read_is_no_failure(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    group = FakeGroup()
    group.failure = RequestTimedOutError("offsets of group")
    stream = reader(cluster, group)

    assert {"t": {"0": 10}} == stream.latestOffset({"t": {"0": 5}}, ALL)
    stream.stop()
    assert "cannot be read" in caplog.text


def test_a_log_that_lost_its_end_and_grew_again_fails_a_query(cluster: FakeCluster) -> None:
    """The end is beyond what was read, so that the offsets alone show nothing."""
    stream = reader(cluster)
    stream.latestOffset({"t": {"0": 5}}, ALL)
    cluster.leader_epoch = 1
    cluster.logs[T0] += range(10)
    cluster.epoch_ends_now[T0] = 8

    with pytest.raises(DataLossError, match="truncated to 8 after this query had read up to 10"):
        stream.latestOffset({"t": {"0": 10}}, ALL)
    assert [{T0: 0}] == cluster.asked_epochs


def test_start_at_what_the_group_committed(cluster: FakeCluster) -> None:
    cluster.add("t", 1, range(3), first=1)
    group = FakeGroup()
    group.offsets = {T0: Committed(4)}
    stream = reader(cluster, group, startingOffsets="group")

    assert {"t": {"0": 4, "1": 1}} == stream.latestOffset(stream.initialOffset(), ALL)


def test_a_group_of_a_former_topic_is_no_start(cluster: FakeCluster) -> None:
    cluster.topic_ids["t"] = NEW
    group = FakeGroup()
    group.offsets = {T0: Committed(4, OLD)}
    stream = reader(cluster, group, startingOffsets="group")

    with pytest.raises(DataLossError, match="created again"):
        stream.latestOffset(stream.initialOffset(), ALL)


def test_an_unfinished_first_batch_of_sparks_connector_is_read(cluster: FakeCluster) -> None:
    """Spark's own connector logs the end of batch 0 there; this source logs where the query begins."""
    stream = reader(cluster, startingOffsets="earliest")
    assert [("t-0", 0, 7)] == spans(stream.partitions(stream.initialOffset(), {"t": {"0": 7}}))

    cluster.first[T0] = 9
    trimmed = reader(cluster, startingOffsets="earliest")
    assert [] == trimmed.partitions(trimmed.initialOffset(), {"t": {"0": 7}})

    exact = reader(cluster, startingOffsets='{"t":{"0":7}}')
    assert [] == exact.partitions(exact.initialOffset(), {"t": {"0": 7}})


def test_triggers_without_enough_offsets_are_left_out(cluster: FakeCluster) -> None:
    stream = reader(cluster, minOffsetsPerTrigger="100", maxOffsetsPerTrigger="100")
    limit = stream.getDefaultReadLimit()
    start: SparkOffset = {"t": {"0": 5}}

    # The first trigger of a run reads what there is.
    assert {"t": {"0": 10}} == stream.latestOffset(start, limit)
    assert start == stream.latestOffset(start, limit)
    assert {"t": {"0": 10}} == stream.latestOffset(start, ALL)
    assert {"t": {"0": 10}} == stream.reportLatestOffset()


def test_limits_that_a_python_source_can_return(cluster: FakeCluster) -> None:
    assert ReadMinRows(5) == reader(cluster, minOffsetsPerTrigger="5").getDefaultReadLimit()
    assert ReadMaxBytes(9) == reader(cluster, maxBytesPerTrigger="9").getDefaultReadLimit()
    assert (
        ReadMaxRows(7)
        == reader(
            cluster, maxOffsetsPerTrigger="7", minOffsetsPerTrigger="5", maxBytesPerTrigger="9"
        ).getDefaultReadLimit()
    )


def test_a_refused_stream_raises_from_its_first_call() -> None:
    refused = RefusedStreamReader(OptionError("`x` is wrong"))

    for call in (refused.initialOffset, refused.getDefaultReadLimit, refused.prepareForTriggerAvailableNow):
        with pytest.raises(OptionError, match="`x` is wrong"):
            call()
    refused.stop()

import pytest

from kalda.clients.errors import RequestTimedOutError, UnknownTopicOrPartitionError
from kalda.common.types import TopicPartition
from kalda.spark.source.data_loss import DataLossError
from kalda.spark.source.discovery import Discovery
from kalda.spark.source.option_values import OptionError
from kalda.spark.source.options import parse_batch_options, parse_stream_options
from tests.unit.spark.source.cluster_fakes import FakeCluster


@pytest.fixture
def cluster() -> FakeCluster:
    fake = FakeCluster()
    fake.add("orders", 0, [100, 200, 300])
    fake.add("orders", 1, [150], first=10)
    fake.add("orders.eu", 0)
    fake.add("__internal", 0)
    fake.internal.add("__internal")
    return fake


def discovery(cluster: FakeCluster, **given: str) -> Discovery:
    options = parse_stream_options({"kafka.bootstrap.servers": "b:1", "subscribe": "orders"} | given)
    return Discovery(options, client=cluster, sleep=lambda _: None)


def by_selection(cluster: FakeCluster, **given: str) -> Discovery:
    options = parse_stream_options({"kafka.bootstrap.servers": "b:1"} | given)
    return Discovery(options, client=cluster, sleep=lambda _: None)


O0, O1, EU = TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("orders.eu", 0)


def test_patterns_are_found_in_names_of_topics_that_are_not_internal(cluster: FakeCluster) -> None:
    """Spark's own connector looks a pattern up anywhere in the name, unless it is anchored."""
    assert (O0, O1, EU) == by_selection(cluster, subscribePattern="rders").find_partitions().partitions
    assert (O0, O1) == by_selection(cluster, subscribePattern="^orders$").find_partitions().partitions
    assert (O0, O1, EU) == by_selection(cluster, subscribePattern=".*").find_partitions().partitions


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|aa)+$", "(a*)*b"])
def test_a_pattern_that_backtracks_comes_to_an_end(cluster: FakeCluster, pattern: str) -> None:
    """The driver would wait for ever for a name that almost matches."""
    cluster.add("a" * 60 + "_", 0)

    assert () == by_selection(cluster, subscribePattern=pattern).find_partitions().partitions


@pytest.mark.parametrize("pattern", [r"(o)rder(?=s)", r"(?<x>o)(?!\k<x>)", r"orde++r"])
def test_patterns_that_need_backtracking_are_found_too(cluster: FakeCluster, pattern: str) -> None:
    assert (O0, O1, EU) == by_selection(cluster, subscribePattern=pattern).find_partitions().partitions


def test_a_missing_topic_does_not_hide_the_others(cluster: FakeCluster) -> None:
    finder = by_selection(cluster, subscribe="gone,orders")

    assert (O0, O1) == finder.find_partitions().partitions
    assert ("gone",) == finder.find_partitions().missing_topics
    # The client waits for a topic that may be new; doing so at every trigger would stall the query.
    assert 1 == cluster.unknown_lookups
    with pytest.raises(UnknownTopicOrPartitionError, match="topic gone"):
        finder.require_partitions()


def test_a_command_does_not_wait_for_a_missing_topic(cluster: FakeCluster) -> None:
    """Most pipelines lack a topic before they run for the first time: that of replayed dead letters."""
    options = parse_stream_options({"kafka.bootstrap.servers": "b:1", "subscribe": "gone,orders"})
    finder = Discovery(options, client=cluster, is_patient=False)

    assert (O0, O1) == finder.find_partitions().partitions
    assert ("gone",) == finder.find_partitions().missing_topics
    assert 0 == cluster.unknown_lookups


@pytest.mark.parametrize(
    ("is_patient", "has_answered", "attempts"), [(True, True, 3), (True, False, 1), (False, True, 1)]
)
def test_a_look_up_that_no_broker_answers_is_repeated(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, is_patient: bool, has_answered: bool, attempts: int
) -> None:
    """By `fetchOffset.numRetries`; a query of servers that never answered would fail after three minutes."""
    asked = []

    def metadata(topics: object = None) -> None:
        asked.append(topics)
        raise RequestTimedOutError("no broker")

    options = parse_stream_options({"kafka.bootstrap.servers": "b:1", "subscribe": "orders"})
    finder = Discovery(options, client=cluster, sleep=lambda _: None, is_patient=is_patient)
    if has_answered:
        finder.find_partitions()
    monkeypatch.setattr(cluster, "metadata", metadata)

    with pytest.raises(RequestTimedOutError):
        finder.find_partitions()
    assert attempts == len(asked)


def test_a_topic_that_comes_back_is_found_again(cluster: FakeCluster) -> None:
    finder = by_selection(cluster, subscribe="orders")
    cluster.remove("orders")
    assert ("orders",) == finder.find_partitions().missing_topics

    cluster.add("orders", 0)

    assert (O0,) == finder.find_partitions().partitions


def test_assigned_partitions_must_exist(cluster: FakeCluster) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="`assign` names orders-7"):
        by_selection(cluster, assign='{"orders":[0,7]}').find_partitions()


@pytest.mark.parametrize(
    ("given", "starts"),
    [
        ({"startingOffsets": "earliest"}, {O0: 0, O1: 10}),
        ({"startingOffsets": "latest"}, {O0: 3, O1: 11}),
        ({"startingOffsets": '{"orders":{"0":-2,"1":-1}}'}, {O0: 0, O1: 11}),
        ({"startingOffsets": '{"orders":{"0":2,"1":10}}'}, {O0: 2, O1: 10}),
        ({"startingTimestamp": "150"}, {O0: 1, O1: 10}),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":300,"1":1}}'}, {O0: 2, O1: 10}),
        ({"startingTimestamp": "200", "startingOffsetsByTimestampStrategy": "latest"}, {O0: 1, O1: 11}),
    ],
)
def test_where_a_query_starts(
    cluster: FakeCluster, given: dict[str, str], starts: dict[TopicPartition, int]
) -> None:
    assert starts == discovery(cluster, **given).starting_offsets([O0, O1])


def test_a_start_by_time_without_a_record_is_an_error(cluster: FakeCluster) -> None:
    with pytest.raises(OptionError, match="no record of orders-1 has a timestamp of 200 or later"):
        discovery(cluster, startingTimestamp="200").starting_offsets([O0, O1])


@pytest.mark.parametrize("name", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_explicit_starts_must_list_every_partition(cluster: FakeCluster, name: str) -> None:
    json = '{"orders":{"0":1},"other":{"0":1}}'

    with pytest.raises(OptionError, match=f"`{name}` must list every.*not listed: orders-1;.*other-0"):
        discovery(cluster, **{name: json}).starting_offsets([O0, O1])


def test_latest_means_the_frozen_ends_where_there_are_some(cluster: FakeCluster) -> None:
    assert {O0: 1, O1: 10} == discovery(cluster).starting_offsets([O0, O1], {O0: 1, O1: 10})


def test_an_end_before_what_was_read_is_asked_for_again(cluster: FakeCluster) -> None:
    """A new leader's high watermark lags for a moment; that is no data loss."""
    waits = []

    def leader_catches_up(seconds: float) -> None:
        waits.append(seconds)
        cluster.logs[O0].append(400)

    options = parse_stream_options({"kafka.bootstrap.servers": "b:1", "subscribe": "orders"})
    finder = Discovery(options, client=cluster, sleep=leader_catches_up)

    assert {O0: 4} == finder.end_offsets([O0], {O0: 4})
    assert 1 == len(waits)
    assert {O0: 4 + options.fetch_offset_tries - 1} == finder.end_offsets([O0], {O0: 99})


def ending(cluster: FakeCluster, offset: int, **given: str) -> dict[TopicPartition, int]:
    base = {"kafka.bootstrap.servers": "b:1", "subscribe": "orders"}
    options = parse_batch_options(base | given | {"endingOffsets": f'{{"orders":{{"0":{offset},"1":-1}}}}'})
    return Discovery(options, client=cluster, sleep=lambda _: None).ending_offsets([O0, O1])


def test_an_end_that_the_log_does_not_reach_is_found_when_the_query_is_planned(cluster: FakeCluster) -> None:
    """Tasks would wait for the records for two minutes."""
    assert {O0: 3, O1: 11} == ending(cluster, 3)
    with pytest.raises(DataLossError, match="`endingOffsets` of orders-0 is 4, and the log ends at 3"):
        ending(cluster, 4)
    assert {O0: 3, O1: 11} == ending(cluster, 4, failOnDataLoss="false")


def test_an_end_behind_an_open_transaction_is_waited_for(cluster: FakeCluster) -> None:
    """The last stable offset moves on when the transaction ends."""
    assert {O0: 4, O1: 11} == ending(cluster, 4, **{"kafka.isolation.level": "read_committed"})

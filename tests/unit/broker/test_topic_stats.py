"""Counters by topic, and their sums."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.broker.replicas.topic_stats import BrokerTopicStats
from kalda.common.types import TopicPartition
from kalda.controller.effects import StopReplica
from kalda.records.message_set_builder import MessageSetBuilder
from tests.unit.broker.data_path_fakes import TOPIC, DataPath, batch, leadership


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    path.host(leadership(0), leadership(1))
    yield path
    path.close()


def test_sums_of_all_topics_do_not_fall_when_a_topic_leaves() -> None:
    """Prometheus takes a counter that falls for a restart, and draws a spike."""
    stats = BrokerTopicStats()
    stats.of("a").bytes_in += 10
    stats.of("b").bytes_in += 5
    stats.remove("a")
    stats.remove("never there")
    assert ["b"] == list(stats.by_topic)
    assert 15 == stats.total().bytes_in
    stats.of("a").bytes_in += 1
    assert 1 == stats.by_topic["a"].bytes_in
    assert 16 == stats.total().bytes_in


def test_what_goes_in_and_out_is_counted_for_the_topic(broker: DataPath) -> None:
    records = batch(b"a", b"b")
    broker.produce({0: records})
    broker.produce({1: records})
    assert 0 != broker.produce(records[:-1] + b"\xff").error_code
    broker.fetch({0: 0, 1: 0})
    counted = broker.replicas.topic_stats.by_topic[TOPIC]
    assert (4, 2 * len(records)) == (counted.messages_in, counted.bytes_in)
    assert (3, 1) == (counted.produces, counted.failed_produces)
    assert (2, 0, 2 * len(records)) == (counted.fetches, counted.failed_fetches, counted.bytes_out)


def test_records_that_are_converted_for_old_clients_are_counted(broker: DataPath) -> None:
    """Where they are converted only; record batches to clients that know them are not."""
    messages = MessageSetBuilder(1)
    for value in (b"a", b"b", b"c"):
        messages.append(None, value, 1_700_000_000_000)
    broker.produce({0: bytes(messages.build())}, version=2)
    broker.produce({1: batch(b"d", b"e")})
    counted = broker.replicas.topic_stats.by_topic[TOPIC]
    assert (3, 0) == (counted.produce_conversions, counted.fetch_conversions)
    broker.fetch({0: 0, 1: 0})
    assert 0 == counted.fetch_conversions
    broker.fetch({1: 0}, version=3)
    assert (3, 2) == (counted.produce_conversions, counted.fetch_conversions)
    assert 2 == len(broker.errors.conversions)
    assert all(each > 0 for each in broker.errors.conversions)


def test_what_followers_fetch_is_not_counted_as_consumed(broker: DataPath) -> None:
    broker.host(leadership(0, leader_epoch=4, replicas=(1, 2)))
    broker.produce({0: batch(b"a")})
    broker.fetch({0: 0}, replica_id=2)
    assert 0 == broker.replicas.topic_stats.total().bytes_out
    assert 0 < broker.replicas.topic_stats.replication_bytes_out


def test_a_topic_goes_with_its_last_partition(broker: DataPath) -> None:
    broker.produce({0: batch(b"a")})
    for index, expected in ((0, [TOPIC]), (1, [])):
        broker.replicas.roles.apply_stop_replica(StopReplica(1, 1, [TopicPartition(TOPIC, index)], True, {}))
        assert expected == list(broker.replicas.topic_stats.by_topic)
    assert 1 == broker.replicas.topic_stats.total().messages_in

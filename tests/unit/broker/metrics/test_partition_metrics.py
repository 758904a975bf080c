"""Tables of partitions: each is published by its leader only."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kalda.broker.metrics.partitions import register_directory_metrics, register_partition_metrics
from kalda.common.metrics import Metrics
from kalda.net.metrics_text import render
from tests.unit.broker.data_path_fakes import BROKER_ID, DataPath, batch, leadership


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[DataPath]:
    path = DataPath(tmp_path)
    yield path
    path.close()


def published(broker: DataPath, name: str) -> dict[str, str]:
    """Return the values of one metric by its labels."""
    metrics = Metrics()
    register_partition_metrics(metrics, BROKER_ID, broker.replicas, broker.cache)
    register_directory_metrics(metrics, broker.logs)
    lines = render(metrics).decode().splitlines()
    series = (line.rpartition(" ") for line in lines if line.startswith((f"{name}{{", f"{name} ")))
    return {labels.removeprefix(name): value for labels, _, value in series}


def test_a_leader_publishes_its_partitions_and_a_follower_does_not(broker: DataPath) -> None:
    broker.host(leadership(0, replicas=(1, 2), isr=(1,)), leadership(1, leader=2, replicas=(2, 1)))
    broker.produce({0: batch(b"a", b"b")})
    led = '{topic="orders",partition="0"}'
    for name, value in (
        ("kafka_topic_partition_current_offset", "2"),
        ("kafka_topic_partition_oldest_offset", "0"),
        ("kafka_topic_partition_leader", "1"),
        ("kafka_topic_partition_leader_is_preferred", "1"),
        ("kafka_topic_partition_replicas", "2"),
        ("kafka_topic_partition_in_sync_replica", "1"),
        ("kafka_topic_partition_under_replicated_partition", "1"),
        ("kafka_cluster_partition_replicascount", "2"),
        ("kafka_cluster_partition_underminisr", "0"),
        ("kafka_cluster_partition_atminisr", "1"),
        ("kafka_cluster_partition_laststableoffsetlag", "0"),
    ):
        assert {led: value} == published(broker, name), name


def test_each_replica_has_a_size(broker: DataPath) -> None:
    records = batch(b"a")
    broker.host(leadership(0, replicas=(1,)), leadership(1, leader=2, replicas=(2, 1)))
    broker.produce({0: records})
    sizes = published(broker, "kafka_log_log_size")
    assert {
        '{topic="orders",partition="0"}': str(len(records)),
        '{topic="orders",partition="1"}': "0",
    } == sizes
    assert [str(len(records))] == list(published(broker, "kalda_log_directory_used_bytes").values())


def test_a_topic_is_published_by_the_leader_of_its_first_partition_that_has_one(broker: DataPath) -> None:
    """Every broker knows how many partitions there are; a sum over brokers must count them once."""
    broker.host(leadership(0, leader=2, replicas=(2, 1)), leadership(1))
    assert {} == published(broker, "kafka_topic_partitions")
    broker.host(leadership(0, leader=-1, leader_epoch=4, replicas=(2, 1)))
    assert {'{topic="orders"}': "2"} == published(broker, "kafka_topic_partitions")


def test_topics_and_their_sum_are_counted(broker: DataPath) -> None:
    broker.host(leadership(0))
    broker.produce({0: batch(b"a", b"b")})
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert {"": "2", '{topic="orders"}': "2"} == published(broker, name)

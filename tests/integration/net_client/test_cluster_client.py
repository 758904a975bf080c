"""The blocking client of a cluster against a real broker."""

from collections.abc import Callable, Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.net.client.bootstrap_servers import parse_bootstrap_servers
from kalda.net.client.client_config import ClientConfig
from kalda.net.client.client_errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kalda.net.client.cluster_client import ClusterClient
from kalda.net.client.fetch import PartitionFetcher
from kalda.records.batch import iter_headers
from kalda.records.record import iter_records

T0 = 1_700_000_000_000


@pytest.fixture
def client(bootstrap: str) -> Iterator[ClusterClient]:
    config = ClientConfig(parse_bootstrap_servers(bootstrap), fetch_max_wait_ms=100)
    with ClusterClient(config) as made:
        yield made


@pytest.fixture
def topic(bootstrap: str, topic_name: Callable[[str], str]) -> str:
    """Two partitions; the first has 1,000 records, one a second."""
    name = topic_name("cluster-client")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(name, 2, 1)])[name].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 100})
    for number in range(1000):
        producer.produce(name, b"value-%d" % number, partition=0, timestamp=T0 + number * 1000)
    assert 0 == producer.flush(30)
    return name


def test_metadata_tells_topics_leaders_and_what_is_missing(client: ClusterClient, topic: str) -> None:
    metadata = client.metadata([topic, "no-such-topic"])

    assert [TopicPartition(topic, 0), TopicPartition(topic, 1)] == metadata.topics[topic].topic_partitions
    assert metadata.leader(TopicPartition(topic, 0)) in metadata.brokers.values()
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION is metadata.topics["no-such-topic"].error
    assert topic in client.metadata().topics
    # Asking must not have created it.
    assert "no-such-topic" not in client.metadata().topics


def test_offsets_by_edge_and_by_time(client: ClusterClient, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    assert {first: 0, second: 0} == client.beginning_offsets([first, second])
    assert {first: 1000, second: 0} == client.end_offsets([first, second])
    found = client.list_offsets({first: T0 + 499_001, second: T0})
    assert (500, T0 + 500_000) == (found[first].offset, found[first].timestamp)
    assert -1 == found[second].offset
    assert {} == client.list_offsets({})


def test_unknown_partitions_are_told_by_name(client: ClusterClient, topic: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=f"partition {topic}-7"):
        client.end_offsets([TopicPartition(topic, 7)])


def test_a_partition_is_fetched_from_any_offset(client: ClusterClient, topic: str) -> None:
    values: list[bytes] = []
    with PartitionFetcher(client, TopicPartition(topic, 0), start=250, end=1000) as fetcher:
        while fetcher.position < 1000:
            position = fetcher.position
            fetched = fetcher.next()
            assert 1000 == fetched.high_watermark
            for at, _ in iter_headers(fetched.records):
                records = iter_records(fetched.records, at)
                values += [record.value or b"" for record in records if record.offset >= position]

    assert [b"value-%d" % number for number in range(250, 1000)] == values


def test_fetching_beyond_the_end_says_so(client: ClusterClient, topic: str) -> None:
    with (
        PartitionFetcher(client, TopicPartition(topic, 0), start=2000, end=3000) as fetcher,
        pytest.raises(OffsetOutOfRangeError, match="at offset 2000"),
    ):
        fetcher.next()


def test_waiting_at_the_end_returns_empty_handed(client: ClusterClient, topic: str) -> None:
    with PartitionFetcher(client, TopicPartition(topic, 0), start=1000, end=1001) as fetcher:
        fetched = fetcher.next()

    assert (b"", 1000) == (fetched.records, fetched.next_offset)

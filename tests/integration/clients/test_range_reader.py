"""The log reader against a real broker."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest

from kalda.clients.errors import OffsetOutOfRangeError, RequestTimedOutError, UnknownTopicOrPartitionError
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.records.batch import iter_headers
from kalda.records.record import iter_records

T0 = 1_700_000_000_000


@pytest.fixture
def reader(bootstrap: str) -> Iterator[LogReader]:
    config = LogReaderConfig.from_options({"bootstrap_servers": bootstrap, "fetch_max_wait_ms": 100})
    with LogReader(config) as made:
        yield made
    assert not [each.name for each in threading.enumerate() if each.name == "kalda-log-reader"]


@pytest.fixture
def topic(bootstrap: str, topic_name: Callable[[str], str]) -> str:
    """Two partitions; the first has 1,000 records, one a second."""
    name = topic_name("log-reader")
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(name, 2, 1)])[name].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "batch.num.messages": 100})
    for number in range(1000):
        producer.produce(name, b"value-%d" % number, partition=0, timestamp=T0 + number * 1000)
    assert 0 == producer.flush(30)
    return name


def test_metadata_names_topics_leaders_and_what_is_missing(reader: LogReader, topic: str) -> None:
    metadata = reader.metadata([topic, "no-such-topic"])

    assert [TopicPartition(topic, 0), TopicPartition(topic, 1)] == metadata.topics[topic].topic_partitions
    assert metadata.leader(TopicPartition(topic, 0)) in metadata.brokers.values()
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION is metadata.topics["no-such-topic"].error
    assert topic in reader.metadata().topics
    # Asking must not have created it.
    assert "no-such-topic" not in reader.metadata().topics


def test_offsets_by_edge_and_by_time(reader: LogReader, topic: str) -> None:
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)

    assert {first: 0, second: 0} == reader.beginning_offsets([first, second])
    assert {first: 1000, second: 0} == reader.end_offsets([first, second])
    found = reader.list_offsets({first: T0 + 499_001, second: T0})
    answer = found[first]
    assert answer is not None
    assert (500, T0 + 500_000) == (answer.offset, answer.timestamp_ms)
    assert found[second] is None
    assert {} == reader.list_offsets({})


def test_unknown_partitions_are_named(reader: LogReader, topic: str) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match=f"partition {topic}-7"):
        reader.end_offsets([TopicPartition(topic, 7)])


def test_a_partition_is_fetched_from_any_offset(reader: LogReader, topic: str) -> None:
    values: list[bytes] = []
    with reader.fetcher(TopicPartition(topic, 0), start=250, end=1000) as fetcher:
        while fetcher.position < 1000:
            position = fetcher.position
            fetched = fetcher.next()
            assert 1000 == fetched.high_watermark
            for at, _ in iter_headers(fetched.records):
                records = iter_records(fetched.records, at)
                values += [record.value or b"" for record in records if record.offset >= position]

    assert [b"value-%d" % number for number in range(250, 1000)] == values


def test_fetching_beyond_the_end_is_an_error(reader: LogReader, topic: str) -> None:
    with (
        reader.fetcher(TopicPartition(topic, 0), start=2000, end=3000) as fetcher,
        pytest.raises(OffsetOutOfRangeError, match="at offset 2000"),
    ):
        fetcher.next()


def test_waiting_at_the_end_returns_empty_handed(reader: LogReader, topic: str) -> None:
    with reader.fetcher(TopicPartition(topic, 0), start=1000, end=1001) as fetcher:
        fetched = fetcher.next()

    assert (b"", 1000) == (fetched.records, fetched.next_offset)


FORK = """
import os, sys
from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig
from kalda.common.types import TopicPartition

reader = LogReader(LogReaderConfig.from_options({"bootstrap_servers": sys.argv[1]}))
partition = TopicPartition(sys.argv[2], 0)
print(reader.end_offsets([partition])[partition], flush=True)
reader.close()
child = os.fork()
if child:
    assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(reader.end_offsets([partition])[partition], flush=True)
"""


def test_a_reader_can_be_used_again_after_close_and_in_a_fork(bootstrap: str, topic: str) -> None:
    """Spark creates objects on the driver and in daemons that fork; the thread starts with the first call."""
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", FORK, bootstrap, topic],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ("1000\n" * 3, 0) == (done.stdout, done.returncode), done.stderr


def test_servers_that_refuse_are_named() -> None:
    config = LogReaderConfig.from_options(
        {"bootstrap_servers": "127.0.0.1:1", "default_api_timeout_ms": 400, "retry_backoff_ms": 20}
    )

    with (
        LogReader(config) as unreachable,
        pytest.raises(RequestTimedOutError, match=r"no connection to 127.0.0.1:1: Connection refused"),
    ):
        unreachable.metadata()

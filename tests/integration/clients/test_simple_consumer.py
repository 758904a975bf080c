"""The low-level consumer of the documents of 0.7, against a broker."""

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest
from confluent_kafka import Producer

from kalda.clients.errors import (
    BrokerConnectionError,
    ClientError,
    IllegalStateError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
)
from kalda.clients.legacy import FetchRequest, OffsetRequest, SimpleConsumer

T = TypeVar("T")


def available(call: Callable[[], T]) -> T:
    """Call again while the offset manager is elected, and while it loads the offsets."""
    deadline = time.monotonic() + 60
    while True:
        try:
            return call()
        except ClientError as error:
            if not error.is_retriable or time.monotonic() > deadline:
                raise
        time.sleep(0.05)


@pytest.mark.parametrize("storage", ["zookeeper", "kafka"])
def test_offsets_of_a_group_are_kept_by_hand(consumer: SimpleConsumer, topic: str, storage: str) -> None:
    """The program looks its offset manager up, and commits there: "if you wish to manage your offsets"."""
    group, at = f"by-hand-{storage}", [(topic, 0), (topic, 1)]
    host, port = available(lambda: consumer.find_offset_manager(group))
    with SimpleConsumer(host, port) as manager:
        assert {} == available(lambda: manager.fetch_offsets(group, at, storage))
        manager.commitOffsets(group, {(topic, 0): 7}, storage)
        assert {(topic, 0): 7} == manager.fetchOffsets(group, at, storage)
        manager.sendOffsets(group, {(topic, 0): 3}, storage)
        assert {(topic, 0): 3} == manager.fetch_offsets(group, at, storage)
    with pytest.raises(ValueError, match="storage='disk'"):
        consumer.commit_offsets("by-hand", {(topic, 0): 7}, "disk")


@pytest.fixture
def consumer(bootstrap: str) -> Iterator[SimpleConsumer]:
    host, _, port = bootstrap.rpartition(":")
    with SimpleConsumer(host, int(port), 10_000, 1_024_000, "legacy") as consumer:
        yield consumer


@pytest.fixture
def topic(bootstrap: str, topic_name: Callable[[str], str]) -> str:
    topic = topic_name("simple")
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    for number in range(10):
        producer.produce(topic, b"%d" % number, partition=0)
        assert 0 == producer.flush(20)
    return topic


def test_program_of_the_document_reads_a_partition(consumer: SimpleConsumer, topic: str) -> None:
    """Fetch, remember the next offset, fetch again: until nothing comes."""
    offset, found = 0, []
    while True:
        messages = consumer.fetch(FetchRequest(topic, 0, offset, 300))
        for each in messages:
            found.append(each.message.payload)
            offset = each.next_offset
        if not messages.size_in_bytes:
            break
    assert [b"%d" % number for number in range(10)] == found
    assert 10 == offset


def test_several_requests_are_answered_in_their_order(consumer: SimpleConsumer, topic: str) -> None:
    with pytest.raises(ValueError, match="another partition"):
        consumer.multifetch([FetchRequest(topic, 0, 3, 1_000), FetchRequest(topic, 0, 4, 1_000)])
    (messages,) = consumer.multifetch([FetchRequest(topic, 0, 8, 100_000)])
    assert [b"8", b"9"] == [each.message.payload for each in messages]


def test_sizes_of_requests_may_add_up_to_more_than_a_request_can_carry(
    consumer: SimpleConsumer, topic: str
) -> None:
    requests = [FetchRequest(topic, partition, 0, 2**31 - 1) for partition in (0, 1)]
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-1"):
        consumer.multifetch(requests)


def test_offsets_before_a_time_are_descending_and_bounded(consumer: SimpleConsumer, topic: str) -> None:
    assert [10] == consumer.getOffsetsBefore(topic, 0, OffsetRequest.LATEST_TIME, 1)
    assert [10, 0] == consumer.get_offsets_before(topic, 0, OffsetRequest.LATEST_TIME, 5)
    assert [0] == consumer.get_offsets_before(topic, 0, OffsetRequest.EARLIEST_TIME, 5)
    assert [] == consumer.get_offsets_before(topic, 0, 1_000, 5)


def test_errors_name_topic_and_offset(consumer: SimpleConsumer, topic: str) -> None:
    with pytest.raises(OffsetOutOfRangeError, match=f"{topic}-0 from offset 11"):
        consumer.fetch(FetchRequest(topic, 0, 11, 1_000))
    with pytest.raises(UnknownTopicOrPartitionError, match=f"{topic}-7"):
        consumer.fetch(FetchRequest(topic, 7, 0, 1_000))
    with pytest.raises(ClientError, match=f"{topic}-7"):
        consumer.get_offsets_before(topic, 7, OffsetRequest.LATEST_TIME, 1)


def test_closed_consumer_and_broker_that_is_not_there() -> None:
    consumer = SimpleConsumer("127.0.0.1", 1, 2_000)
    with pytest.raises(BrokerConnectionError):
        consumer.fetch(FetchRequest("t", 0, 0, 1_000))
    consumer.close()
    consumer.close()
    with pytest.raises(IllegalStateError):
        consumer.fetch(FetchRequest("t", 0, 0, 1_000))

"""Arrow record batches through the producers, read by another client."""

import asyncio
import datetime
from collections.abc import Callable

import confluent_kafka
import pyarrow as pa
import pytest

from kalda import Admin, AsyncProducer, NewTopic, Producer
from kalda.clients.errors import RecordTooLargeError
from kalda.clients.producer.producer_config import CompressionType
from kalda.common.murmur2 import partition_for_key

TopicName = Callable[[str], str]
Read = Callable[..., list[confluent_kafka.Message]]

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def create(bootstrap: str, topic: str, partitions: int) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, partitions=partitions, replication_factor=1)])


def test_rows_arrive_with_all_their_fields(bootstrap: str, topic_name: TopicName, read: Read) -> None:
    topic = topic_name("arrow")
    moment = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
    batch = pa.RecordBatch.from_pydict(
        {
            "value": pa.array(["one", None, "three"]),
            "key": pa.array([b"a", b"b", None]),
            "headers": pa.array([[{"key": "h", "value": b"1"}], None, []], HEADERS),
            "timestamp": pa.array([moment, moment, None], pa.timestamp("us", "UTC")),
        }
    )
    with Producer(bootstrap_servers=bootstrap) as producer:
        metadata = producer.send_arrow(topic, batch).result(60)
    assert (topic, 3) == (metadata.topic, metadata.record_count)
    assert {0, 1, 2} == {
        each.base_offset + row for each in metadata.ranges for row in range(each.record_count)
    }
    one, two, three = read(bootstrap, topic, 3)
    assert (b"one", b"a", [("h", b"1")]) == (one.value(), one.key(), one.headers())
    assert (None, b"b", None) == (two.value(), two.key(), two.headers())
    assert (b"three", None, None) == (three.value(), three.key(), three.headers())
    assert int(moment.timestamp() * 1000) == one.timestamp()[1]
    assert three.timestamp()[1] > one.timestamp()[1]


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_rows_go_where_single_records_go(
    bootstrap: str, topic_name: TopicName, read: Read, codec: CompressionType
) -> None:
    topic = topic_name("partitioned")
    create(bootstrap, topic, 5)
    count = 5_000
    keys = [b"key %d" % (number % 100) for number in range(count)]
    batch = pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(count)], "key": keys})
    with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        assert count == sum(each.record_count for each in producer.send_arrow(topic, batch).result(60).ranges)
    messages = read(bootstrap, topic, count, 5)
    for partition in range(5):
        expected = [number for number in range(count) if partition_for_key(keys[number], 5) == partition]
        assert expected == [int(each.value()) for each in messages if each.partition() == partition]


def test_explicit_partitions_and_keyless_rows(bootstrap: str, topic_name: TopicName, read: Read) -> None:
    topic = topic_name("explicit")
    create(bootstrap, topic, 3)
    batch = pa.RecordBatch.from_pydict(
        {"value": [b"a", b"b", b"c"], "partition": pa.array([2, None, 1], pa.int32())}
    )
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send_arrow(topic, batch).result(60)
    where = {each.value(): each.partition() for each in read(bootstrap, topic, 3, 3)}
    assert (2, 1) == (where[b"a"], where[b"c"])


def test_many_rows_go_through_little_memory_in_order(
    bootstrap: str, topic_name: TopicName, read: Read
) -> None:
    topic = topic_name("memory")
    batch = pa.RecordBatch.from_pydict({"value": [b"%06d" % number * 10 for number in range(20_000)]})
    with Producer(bootstrap_servers=bootstrap, buffer_memory=200_000) as producer:
        producer.send(topic, b"before")
        futures = [producer.send_arrow(topic, batch) for _ in range(2)]
        producer.send(topic, b"after")
        producer.flush(60)
        assert all(future.done() for future in futures)
        assert 200_000 == producer._core.accumulator.pool.available
    messages = read(bootstrap, topic, 40_002)
    expected = [b"before", *batch["value"].to_pylist(), *batch["value"].to_pylist(), b"after"]
    assert expected == [each.value() for each in messages]


def test_rows_that_the_topic_refuses_are_split(bootstrap: str, topic_name: TopicName, read: Read) -> None:
    topic = topic_name("split")
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(
            [NewTopic(topic, partitions=1, replication_factor=1, config={"max.message.bytes": "20000"})]
        )
    batch = pa.RecordBatch.from_pydict({"value": [b"%06d" % number * 10 for number in range(3_000)]})
    with Producer(bootstrap_servers=bootstrap) as producer:
        metadata = producer.send_arrow(topic, batch).result(30)
    assert 3_000 == sum(each.record_count for each in metadata.ranges)
    assert len(metadata.ranges) > 5
    assert batch["value"].to_pylist() == [each.value() for each in read(bootstrap, topic, 3_000)]


def test_a_transaction_holds_its_rows(bootstrap: str, topic_name: TopicName, read: Read) -> None:
    topic = topic_name("transaction")
    batch = pa.RecordBatch.from_pydict({"value": [b"1", b"2"]})
    with Producer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send_arrow(topic, batch)
        producer.abort_transaction()
        with producer.transaction():
            future = producer.send_arrow(topic, batch)
        assert 2 == future.result(0).record_count
    assert [b"1", b"2"] == [each.value() for each in read(bootstrap, topic, 2)]


def test_all_rows_are_checked_before_any_is_sent(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("checked")
    with Producer(bootstrap_servers=bootstrap, max_request_size=1_000) as producer:
        for columns, message in (
            ({"key": [b"k"]}, "no column 'value'"),
            ({"value": [b"v"], "vlaue": [b"v"]}, "column 'vlaue' is not one of"),
            ({"value": [1]}, "column 'value' is int64"),
            ({"value": [b"v"], "timestamp": [-5]}, "has -5, which is negative"),
            ({"value": [b"v"], "timestamp": ["today"]}, "column 'timestamp' is string"),
            ({"value": [b"v"], "partition": [-1]}, "has -1, which is negative"),
            ({"value": [b"v"], "partition": [0.5]}, "column 'partition' is double"),
        ):
            with pytest.raises(ValueError, match=message):
                producer.send_arrow(topic, pa.RecordBatch.from_pydict(columns))
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
            producer.send_arrow(topic, pa.RecordBatch.from_pydict({"value": [b"v", b"x" * 1_000]}))
        assert 0 == producer.send(topic, b"first").result(60).offset


def test_an_empty_batch_is_done_at_once(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("empty")
    with Producer(bootstrap_servers=bootstrap) as producer:
        future = producer.send_arrow(topic, pa.RecordBatch.from_pydict({"value": pa.array([], pa.binary())}))
        assert (topic, 0, ()) == future.result(0)


async def test_the_asyncio_producer_sends_rows(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("asyncio")
    batch = pa.RecordBatch.from_pydict({"value": [b"%d" % number for number in range(1_000)]})
    async with AsyncProducer(bootstrap_servers=bootstrap) as producer:
        future = await producer.send_arrow(topic, batch)
        assert ((0, 0, 1_000),) == (await future).ranges
        assert 1_000 == (await future).record_count
    await asyncio.get_running_loop().shutdown_default_executor()

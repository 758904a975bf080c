"""How the producer behaves, the same on every cluster."""

import asyncio
import threading
import time

import pytest

from kalda import AsyncProducer, Consumer, Producer, TopicPartition
from kalda.clients.consumer.consumer_config import GroupProtocol
from kalda.clients.errors import ClientError, RecordTooLargeError
from kalda.clients.producer.producer_config import Acks, CompressionType
from tests.behaviour.conftest import Topics, fill, read_all
from tests.behaviour.targets import Target

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(target: Target, topics: Topics, codec: CompressionType) -> None:
    topic = topics()
    # Not long ago: retention deletes records of last week.
    start_ms = int(time.time() * 1000) - 60_000
    with Producer(bootstrap_servers=target.bootstrap, compression_type=codec, linger_ms=20) as producer:
        futures = [
            producer.send(
                topic,
                value=None if number % 7 == 0 else b"v%d" % number * 20,
                key=None if number % 5 == 0 else b"k%d" % number,
                headers=[("n", b"%d" % number), ("none", None)] if number % 3 == 0 else None,
                timestamp_ms=start_ms + number,
            )
            for number in range(500)
        ]
        offsets = [future.result(30).offset for future in futures]
    assert list(range(500)) == offsets

    records = read_all(target, topic, 500)

    assert list(range(500)) == [record.offset for record in records]
    for number, record in enumerate(records):
        assert (None if number % 7 == 0 else b"v%d" % number * 20) == record.value
        assert (None if number % 5 == 0 else b"k%d" % number) == record.key
        assert start_ms + number == record.timestamp_ms
        assert ([("n", b"%d" % number), ("none", None)] if number % 3 == 0 else []) == list(record.headers)


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_level_of_acks_delivers(target: Target, topics: Topics, acks: Acks) -> None:
    topic = topics()
    if acks == 0:
        # A broker that is not the leader yet can refuse a record, and with acks=0 nobody hears of it.
        fill(target, topic, 1)
    with Producer(
        bootstrap_servers=target.bootstrap, acks=acks, enable_idempotence=acks == "all"
    ) as producer:
        offsets = [producer.send(topic, value=b"%d" % number).result(30).offset for number in range(20)]
    if acks != 0:  # without a response nobody knows the offset
        assert list(range(20)) == offsets

    found = [each.value for each in read_all(target, topic, 21 if acks == 0 else 20)]
    assert [b"%d" % number for number in range(20)] == found[-20:]


def test_a_key_always_goes_to_the_same_partition(target: Target, topics: Topics) -> None:
    topic = topics(partitions=6)
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        found = [
            producer.send(topic, value=b"v", key=b"key-%d" % (number % 10)).result(30).partition
            for number in range(40)
        ]

    assert found[:10] * 4 == found
    assert len(set(found)) > 1


def test_callbacks_run_once_each_and_in_order(target: Target, topics: Topics) -> None:
    topic = topics()
    seen: list[int] = []
    with Producer(bootstrap_servers=target.bootstrap, linger_ms=5) as producer:
        for _ in range(1000):
            producer.send(
                topic,
                value=b"x",
                on_delivery=lambda metadata, error: seen.append(metadata.offset if error is None else -1),
            )
        producer.flush(timeout_s=30)

        assert list(range(1000)) == seen


def test_a_record_that_can_never_fit_is_refused_at_once(target: Target, topics: Topics) -> None:
    topic = topics()
    with Producer(bootstrap_servers=target.bootstrap, max_request_size=10_000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"max\.request\.size"):
            producer.send(topic, value=bytes(20_000)).result(30)
        assert 0 == producer.send(topic, value=b"small").result(30).offset


def test_a_batch_above_the_topics_limit_is_split(target: Target, topics: Topics) -> None:
    """The producer's batch is larger than `max.message.bytes`; each record by itself is not."""
    topic = topics(max_message_bytes="20000")
    with Producer(bootstrap_servers=target.bootstrap, batch_size=100_000, linger_ms=200) as producer:
        futures = [producer.send(topic, value=bytes(3_000)) for _ in range(20)]
        assert list(range(20)) == [future.result(30).offset for future in futures]
        with pytest.raises(ClientError, match="MESSAGE_TOO_LARGE"):
            producer.send(topic, value=bytes(40_000)).result(30)


def test_an_unknown_partition_is_refused(target: Target, topics: Topics) -> None:
    topic = topics(partitions=2)
    with (
        Producer(bootstrap_servers=target.bootstrap, max_block_ms=2_000) as producer,
        pytest.raises(ClientError, match=topic),
    ):
        producer.send(topic, value=b"v", partition=7).result(30)


def test_threads_share_a_producer(target: Target, topics: Topics) -> None:
    topic = topics(partitions=3)
    with Producer(bootstrap_servers=target.bootstrap) as producer:

        def send(thread: int) -> None:
            for number in range(300):
                producer.send(topic, value=b"%d-%d" % (thread, number), partition=thread)

        threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush(timeout_s=30)

    records = read_all(target, topic, 900)
    for thread_number in range(3):
        mine = [each.value for each in records if each.partition == thread_number]
        assert [b"%d-%d" % (thread_number, number) for number in range(300)] == mine


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_transaction_is_read_whole_or_not_at_all(
    target: Target, topics: Topics, codec: CompressionType
) -> None:
    topic = topics(partitions=2)
    with Producer(
        bootstrap_servers=target.bootstrap, transactional_id=f"id-{topic}", compression_type=codec
    ) as producer:
        producer.init_transactions()
        for number in range(6):
            try:
                with producer.transaction():
                    for partition in range(2):
                        producer.send(topic, value=b"%d" % number, partition=partition)
                    producer.flush(timeout_s=30)
                    if number % 2:
                        raise _Abort
            except _Abort:
                pass

    records = read_all(target, topic, 6, isolation_level="read_committed")
    for partition in range(2):
        assert [b"0", b"2", b"4"] == [each.value for each in records if each.partition == partition]


def test_a_second_producer_of_the_id_fences_the_first(target: Target, topics: Topics) -> None:
    topic = topics()
    with (
        Producer(bootstrap_servers=target.bootstrap, transactional_id=f"id-{topic}") as old,
        Producer(bootstrap_servers=target.bootstrap, transactional_id=f"id-{topic}") as new,
    ):
        old.init_transactions()
        old.begin_transaction()
        old.send(topic, value=b"old").result(30)
        new.init_transactions()
        with new.transaction():
            new.send(topic, value=b"new")
        with pytest.raises(ClientError):
            _commit_late(old, topic)

    assert [b"new"] == [each.value for each in read_all(target, topic, 1, isolation_level="read_committed")]


def test_offsets_go_with_the_transaction(
    target: Target, topics: Topics, group: str, group_protocol: GroupProtocol
) -> None:
    """Consume, transform, produce: the group's offset moves only where the output is committed."""
    source, sink = topics(), topics()
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        for number in range(10):
            producer.send(source, value=b"%d" % number)
    with (
        Consumer(
            source,
            bootstrap_servers=target.bootstrap,
            group_id=group,
            group_protocol=group_protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer,
        Producer(bootstrap_servers=target.bootstrap, transactional_id=f"id-{group}") as producer,
    ):
        producer.init_transactions()
        seen = 0
        deadline = time.monotonic() + 60
        while seen < 10:
            assert time.monotonic() < deadline, f"{seen} of 10 records within 60 s"
            records = consumer.poll(timeout_s=1.0, max_records=4)
            if not records:
                continue
            with producer.transaction():
                for record in records:
                    producer.send(sink, value=record.value)
                producer.send_offsets_to_transaction(
                    {TopicPartition(source, 0): records[-1].offset + 1}, consumer.group_metadata()
                )
            seen += len(records)
        committed = consumer.committed([TopicPartition(source, 0)])[TopicPartition(source, 0)]
        assert committed is not None
        assert 10 == committed.offset

    values = [each.value for each in read_all(target, sink, 10, isolation_level="read_committed")]
    assert [b"%d" % number for number in range(10)] == values


async def test_the_asynchronous_producer_delivers_in_order(target: Target, topics: Topics) -> None:
    topic = await asyncio.to_thread(topics)
    async with AsyncProducer(bootstrap_servers=target.bootstrap) as producer:
        futures = [await producer.send(topic, value=b"%d" % number) for number in range(200)]
        metadata = [await future for future in futures]

    assert list(range(200)) == [each.offset for each in metadata]
    values = [each.value for each in await asyncio.to_thread(read_all, target, topic, 200)]
    assert [b"%d" % number for number in range(200)] == values


class _Abort(Exception):
    pass


def _commit_late(producer: Producer, topic: str) -> None:
    producer.send(topic, value=b"late").result(30)
    producer.commit_transaction()

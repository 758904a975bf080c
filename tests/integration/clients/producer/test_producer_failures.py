"""The producer when brokers die, records are too large, buffers are full, and time runs out."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import confluent_kafka
import pytest

from kalda import Admin, Cluster, NewTopic, Producer, RecordFuture
from kalda.clients.errors import (
    BufferExhaustedError,
    ClientError,
    IllegalStateError,
    RecordTooLargeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from kalda.runtime.system.loop_logger import drain_log

TopicName = Callable[[str], str]
Read = Callable[..., list[confluent_kafka.Message]]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three brokers of which each test may stop one."""
    with Cluster(brokers=3, settings={"min.insync.replicas": "2"}) as cluster:
        yield cluster


def create(
    bootstrap: str,
    topic: str,
    partitions: int = 1,
    replicas: int = 1,
    config: Mapping[str, str] = MappingProxyType({}),
) -> None:
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics(
            [NewTopic(topic, partitions=partitions, replication_factor=replicas, config=config)]
        )


def test_nothing_is_lost_doubled_or_reordered_when_leaders_die(cluster: Cluster, read: Read) -> None:
    """Five requests are in flight, as is the default."""
    create(cluster.bootstrap, "t", partitions=3, replicas=3)
    with Producer(bootstrap_servers=cluster.bootstrap, batch_size=2_000, linger_ms=1) as producer:
        futures: list[RecordFuture] = []
        sent = 0

        def send_for(seconds: float) -> None:
            nonlocal sent
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                futures.append(producer.send("t", b"%d" % sent, partition=sent % 3))
                sent += 1
                if sent % 50 == 0:
                    time.sleep(0.005)

        send_for(0.5)
        for broker_id in (0, 1):
            cluster.kill(broker_id)
            send_for(1.0)
            cluster.start(broker_id)
            send_for(0.5)
        producer.flush(60)
        offsets = [future.result(0).offset for future in futures]
    messages = read(cluster.bootstrap, "t", sent, 3)
    for partition in range(3):
        values = [int(each.value()) for each in messages if each.partition() == partition]
        assert list(range(partition, sent, 3)) == values
        assert list(range(len(values))) == offsets[partition::3]


def test_records_wait_for_a_broker_that_comes_back(read: Read) -> None:
    with Cluster(brokers=1) as cluster, Producer(bootstrap_servers=cluster.bootstrap) as producer:
        producer.send("t", b"before").result(60)
        cluster.stop(0)
        futures = [producer.send("t", b"%d" % number) for number in range(1_000)]
        time.sleep(0.5)
        assert not futures[0].done()
        cluster.start(0)
        producer.flush(60)
        assert list(range(1, 1_001)) == [future.result(0).offset for future in futures]


def test_records_expire_when_the_broker_stays_away() -> None:
    with (
        Cluster(brokers=1) as cluster,
        Producer(
            bootstrap_servers=cluster.bootstrap,
            # The records before and behind must not expire on a busy machine.
            delivery_timeout_ms=6_000,
            request_timeout_ms=3_000,
            linger_ms=0,
        ) as producer,
    ):
        producer.partitions_for("t")
        producer.send("t", b"before").result(60)
        cluster.stop(0)
        errors: list[Exception | None] = []
        future = producer.send("t", b"v", on_delivery=lambda _, error: errors.append(error))
        with pytest.raises(RequestTimedOutError, match=r"1 records for t-0 were not delivered within"):
            future.result(60)
        assert [RequestTimedOutError] == [type(error) for error in errors]
        cluster.start(0)
        assert future.done()
        assert 1 == producer.send("t", b"after").result(60).offset


def test_a_record_above_the_request_size_is_refused_at_once(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("large")
    with Producer(bootstrap_servers=bootstrap, max_request_size=10_000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"`max\.request\.size`=10000"):
            producer.send(topic, b"x" * 10_000)
        assert 0 == producer.send(topic, b"x" * 9_000).result(60).offset


def test_a_record_above_the_memory_is_refused_at_once(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("memory")
    with (
        Producer(bootstrap_servers=bootstrap, buffer_memory=5_000) as producer,
        pytest.raises(RecordTooLargeError, match=r"`buffer\.memory`=5000"),
    ):
        producer.send(topic, b"x" * 5_000)


def test_a_batch_that_the_topic_refuses_is_split(
    bootstrap: str, topic_name: TopicName, read: Read, caplog: pytest.LogCaptureFixture
) -> None:
    """`batch.size` is above the topic's `max.message.bytes`; each record fits."""
    topic = topic_name("split")
    create(bootstrap, topic, config={"max.message.bytes": "3000"})
    with Producer(bootstrap_servers=bootstrap, batch_size=50_000, linger_ms=50) as producer:
        futures = [producer.send(topic, b"%03d" % number * 50) for number in range(300)]
        too_large = producer.send(topic, b"x" * 4_000)
        futures += [producer.send(topic, b"%03d" % number * 50) for number in range(300, 320)]
        producer.flush(60)
        assert list(range(320)) == [future.result(0).offset for future in futures]
        assert isinstance(too_large.exception(0), RecordTooLargeError)
    assert [b"%03d" % number * 50 for number in range(320)] == [
        each.value() for each in read(bootstrap, topic, 320)
    ]
    # `close` waits a second for the thread that hands on what the client logs.
    assert drain_log(30)
    assert "refused a batch of" in caplog.text


def test_a_full_buffer_blocks_and_then_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        Cluster(brokers=1) as cluster,
        Producer(
            bootstrap_servers=cluster.bootstrap, buffer_memory=100_000, max_block_ms=300, linger_ms=0
        ) as producer,
    ):
        with monkeypatch.context() as patch:
            # The first record waits for metadata, too.
            patch.setattr(producer._core, "max_block_s", 60.0)
            producer.send("t", b"v").result(60)
        cluster.pause(0)
        begun = time.monotonic()
        with pytest.raises(BufferExhaustedError, match=r"`max\.block\.ms`=300"):
            deque((producer.send("t", b"x" * 1_000) for _ in range(1_000)), maxlen=0)
        assert time.monotonic() - begun >= 0.3
        cluster.resume(0)
        producer.flush(30)
        assert 100_000 == producer._core.accumulator.pool.available


def test_a_full_buffer_lets_all_threads_through_in_the_end(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("threads")
    with Producer(bootstrap_servers=bootstrap, buffer_memory=20_000, batch_size=2_000) as producer:
        futures: list[RecordFuture] = []

        def send() -> None:
            futures.extend(producer.send(topic, b"x" * 500) for _ in range(200))

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        producer.flush(30)
        assert set(range(1_600)) == {future.result(0).offset for future in futures}


def test_a_topic_that_cannot_be_is_an_error(bootstrap: str) -> None:
    with Producer(bootstrap_servers=bootstrap, max_block_ms=60_000) as producer:
        with pytest.raises(ClientError, match="INVALID_TOPIC_EXCEPTION"):
            producer.send("no/such/name", b"v")
        with pytest.raises(ValueError, match="partition=-1 is negative"):
            producer.send("t", b"v", partition=-1)
        with pytest.raises(ValueError, match="timestamp_ms=-5 is negative"):
            producer.send("t", b"v", timestamp_ms=-5)


def test_a_partition_that_does_not_exist_is_named_with_the_count(
    bootstrap: str, topic_name: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_name("partitions")
    with Producer(bootstrap_servers=bootstrap, max_block_ms=300) as producer:
        with monkeypatch.context() as patch:
            patch.setattr(producer._core, "max_block_s", 60.0)
            producer.send(topic, b"v").result(60)
        with pytest.raises(
            UnknownTopicOrPartitionError, match=rf"partition 7 of topic {topic}: .*has 1 partition"
        ):
            producer.send(topic, b"v", partition=7)


def test_close_is_bounded_when_brokers_are_gone() -> None:
    with Cluster(brokers=1) as cluster:
        producer = Producer(bootstrap_servers=cluster.bootstrap, linger_ms=0)
        producer.send("t", b"v").result(60)
        cluster.stop(0)
        future = producer.send("t", b"w")
        begun = time.monotonic()
        producer.close(timeout_s=0.5)
        assert time.monotonic() - begun < 30
        with pytest.raises(IllegalStateError, match="closed before the record was sent"):
            future.result(0)


def test_callbacks_may_send_but_not_block(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("callbacks")
    answers: list[RecordFuture] = []
    errors: list[Exception] = []
    with Producer(bootstrap_servers=bootstrap) as producer:

        def on_delivery(_metadata: object, _error: object) -> None:
            answers.append(producer.send(topic, b"answer"))
            for blocking in (producer.flush, producer.close):
                try:
                    blocking()
                except IllegalStateError as error:
                    errors.append(error)

        producer.send(topic, b"question", on_delivery=on_delivery).result(60)
        producer.flush(20)
    assert 1 == answers[0].result(0).offset
    assert 2 == len(errors)

"""The synchronous producer against a real broker, read by another client."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import confluent_kafka
import pytest

from kalda import Producer, ProducerRecord, RecordMetadata
from kalda.clients.errors import IllegalStateError, RecordTooLargeError, SerializationError
from kalda.clients.producer.producer_config import Acks, CompressionType

TopicName = Callable[[str], str]
Read = Callable[..., list[confluent_kafka.Message]]


def test_a_record_arrives_with_all_its_fields(bootstrap: str, topic_name: TopicName, read: Read) -> None:
    topic = topic_name("fields")
    headers = [("trace", b"1"), ("trace", b"2"), ("none", None)]
    with Producer(bootstrap_servers=bootstrap) as producer:
        future = producer.send(topic, value=b"v", key=b"k", headers=headers, timestamp_ms=1_234_567)
        metadata = future.result(60)
    assert RecordMetadata(topic, 0, 0, 1_234_567, 1, 1) == metadata
    (message,) = read(bootstrap, topic, 1)
    assert (b"v", b"k") == (message.value(), message.key())
    assert headers == message.headers()
    assert (confluent_kafka.TIMESTAMP_CREATE_TIME, 1_234_567) == message.timestamp()


def test_arguments_of_other_types_are_refused_and_leave_the_batch_whole(
    bootstrap: str, topic_name: TopicName, read: Read
) -> None:
    """Also beside an open batch, where a record takes a shorter path."""
    topic = topic_name("arguments")
    wrong: list[dict[str, Any]] = [
        {"partition": False},
        {"partition": 0.0},
        {"timestamp_ms": True},
        {"timestamp_ms": 1.5},
        {"headers": {"a": b"b"}},
        {"headers": [(b"a", b"b")]},
        {"headers": [("a", "b")]},
        {"on_delivery": 5},
    ]
    with Producer(bootstrap_servers=bootstrap, linger_ms=200) as producer:
        for arguments in wrong:
            (name,) = arguments
            futures = []
            for is_batch_open in (False, True):
                with pytest.raises(ValueError, match=name.removesuffix("s")):
                    producer.send(topic, b"wrong", **arguments)
                futures.append(producer.send(topic, b"right %d" % is_batch_open, partition=0))
            assert [0, 0] == [future.result(60).partition for future in futures]
            assert not any(isinstance(future.result(0).partition, bool) for future in futures)
        with pytest.raises(ValueError, match="record=5"):
            producer.send_record(cast(ProducerRecord, 5))
    found = [message.value() for message in read(bootstrap, topic, 2 * len(wrong))]
    assert [b"right 0", b"right 1"] * len(wrong) == found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_each_codec_is_read_by_another_client(
    bootstrap: str, topic_name: TopicName, read: Read, codec: CompressionType
) -> None:
    topic = topic_name(codec)
    values = [b"%d " % number * 50 for number in range(2_000)]
    with Producer(bootstrap_servers=bootstrap, compression_type=codec) as producer:
        futures = [producer.send(topic, value) for value in values]
        producer.flush(30)
        assert list(range(2_000)) == [future.result(0).offset for future in futures]
    assert values == [message.value() for message in read(bootstrap, topic, 2_000)]


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_each_kind_of_acknowledgement(bootstrap: str, topic_name: TopicName, read: Read, acks: Acks) -> None:
    topic = topic_name("acks")
    delivered: list[int] = []
    with Producer(bootstrap_servers=bootstrap, acks=acks) as producer:

        def on_delivery(metadata: RecordMetadata, error: Exception | None) -> None:
            assert error is None
            delivered.append(metadata.offset)

        for number in range(100):
            producer.send(topic, b"%d" % number, on_delivery=on_delivery)
        producer.flush(30)
    assert ([-1] * 100 if acks == 0 else list(range(100))) == delivered
    assert [b"%d" % number for number in range(100)] == [each.value() for each in read(bootstrap, topic, 100)]


def test_close_sends_what_lingers(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("close")
    with Producer(bootstrap_servers=bootstrap, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        future = producer.send(topic, b"v")
    assert 0 == future.result(0).offset
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send(topic, b"late")
    producer.close()


def test_text_without_a_serializer_is_refused_with_the_fix(
    bootstrap: str, topic_name: TopicName, read: Read
) -> None:
    topic = topic_name("text")
    with (
        Producer(bootstrap_servers=bootstrap) as producer,
        pytest.raises(SerializationError, match="`value_serializer`"),
    ):
        producer.send(topic, "text")  # type: ignore[arg-type]  # a type checker finds it, too
    with Producer(bootstrap_servers=bootstrap, value_serializer=str.encode) as producer:
        producer.send(topic, "text").result(60)
    assert b"text" == read(bootstrap, topic, 1)[0].value()


def test_interceptors_change_records_and_see_results(
    bootstrap: str, topic_name: TopicName, read: Read
) -> None:
    topic = topic_name("interceptors")
    events: list[tuple[str, object]] = []

    class Upper:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return replace(record, value=str(record.value).upper(), key="k")

        def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
            events.append(("interceptor", metadata.offset if error is None else type(error)))

        def close(self) -> None:
            events.append(("close", None))

    with Producer(
        bootstrap_servers=bootstrap,
        interceptors=[Upper()],
        value_serializer=str.encode,
        key_serializer=str.encode,
        max_request_size=1_000,
    ) as producer:
        producer.send(
            topic, "v", on_delivery=lambda metadata, _: events.append(("delivery", metadata.offset))
        )
        producer.flush(20)
        with pytest.raises(RecordTooLargeError):
            producer.send(topic, "v" * 2_000)
    (message,) = read(bootstrap, topic, 1)
    assert (b"V", b"k") == (message.value(), message.key())
    expected = [("interceptor", 0), ("delivery", 0), ("interceptor", RecordTooLargeError), ("close", None)]
    assert expected == events

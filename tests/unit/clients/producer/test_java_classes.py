"""Serializers, interceptors and the Java class names that stand for them in a properties file."""

import struct
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

import pytest

from kalda.clients.errors import ClientConfigError, SerializationError
from kalda.clients.producer.java_classes import split_properties
from kalda.clients.producer.partitioner import RoundRobinPartitioner
from kalda.clients.producer.producer_core import ProducerObjects
from kalda.clients.producer.producer_interceptor import ProducerInterceptors
from kalda.clients.producer.producer_record import ProducerRecord
from kalda.clients.producer.record_metadata import RecordMetadata
from kalda.clients.producer.serializers import as_serialize, serializer_of_java_class
from kalda.records.record import Header

JAVA = "org.apache.kafka.common.serialization."


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("StringSerializer", "é", "é".encode()),
        ("IntegerSerializer", -2, b"\xff\xff\xff\xfe"),
        ("LongSerializer", 1, b"\0\0\0\0\0\0\0\1"),
        ("ShortSerializer", 258, b"\1\2"),
        ("DoubleSerializer", 0.5, struct.pack(">d", 0.5)),
        ("FloatSerializer", 0.5, struct.pack(">f", 0.5)),
        ("UUIDSerializer", UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
        ("VoidSerializer", None, None),
        ("StringSerializer", None, None),
        ("LongSerializer", None, None),
    ],
)
def test_the_serializers_of_java_write_its_bytes(name: str, data: object, expected: bytes | None) -> None:
    serialize = as_serialize(serializer_of_java_class("value.serializer", JAVA + name), "value")
    assert serialize is not None
    assert expected == serialize("t", (), data)


@pytest.mark.parametrize("name", ["StringSerializer", "LongSerializer", "UUIDSerializer", "VoidSerializer"])
def test_a_value_of_another_type_is_refused(name: str) -> None:
    serialize = as_serialize(serializer_of_java_class("value.serializer", name), "value")
    assert serialize is not None
    with pytest.raises(SerializationError, match="the value serializer cannot serialise a list for topic t"):
        serialize("t", (), [])


def test_a_serializer_may_look_at_topic_and_headers() -> None:
    class Serializer:
        def serialize(self, topic: str, headers: Sequence[Header], data: object) -> bytes:
            return f"{topic} {len(headers)} {data}".encode()

    serialize = as_serialize(Serializer(), "key")
    assert serialize is not None
    assert b"t 1 5" == serialize("t", [("a", None)], 5)


def test_a_serializer_that_returns_text_is_refused() -> None:
    serialize = as_serialize(lambda data: str(data), "key")  # type: ignore[arg-type,return-value]  # the mistake under test
    assert serialize is not None
    with pytest.raises(SerializationError, match="the key of a record for topic t is a str, not bytes"):
        serialize("t", (), 5)


def test_what_is_no_serializer_is_refused() -> None:
    with pytest.raises(ClientConfigError, match="`key_serializer` is 5"):
        as_serialize(5, "key")  # type: ignore[arg-type]  # the mistake under test


def test_a_properties_file_of_a_java_program_works() -> None:
    settings, objects = split_properties(
        {
            "bootstrap.servers": "a:1",
            "key.serializer": JAVA + "ByteArraySerializer",
            "value.serializer": JAVA + "StringSerializer",
            "partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner",
            "interceptor.classes": "",
            "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter",
        },
        ProducerObjects(),
    )
    assert {"bootstrap.servers": "a:1"} == settings
    assert objects.key_serializer is None
    assert callable(objects.value_serializer)
    assert isinstance(objects.partitioner, RoundRobinPartitioner)


def test_an_argument_wins_over_a_class_name() -> None:
    _, objects = split_properties(
        {"value.serializer": JAVA + "LongSerializer"}, ProducerObjects(value_serializer=bytes)
    )
    assert bytes is objects.value_serializer


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("value.serializer", "com.example.Mine"),
        ("partitioner.class", "com.example.Mine"),
        ("interceptor.classes", "com.example.Mine"),
    ],
)
def test_a_java_class_without_a_counterpart_is_refused(setting: str, value: str) -> None:
    with pytest.raises(ClientConfigError, match=f"`{setting}`=com.example.Mine"):
        split_properties({setting: value}, ProducerObjects())


class Adding:
    """An interceptor that changes values and remembers results."""

    def __init__(self, suffix: str) -> None:
        self.suffix = suffix
        self.seen: list[tuple[int, Exception | None]] = []
        self.is_closed = False

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return replace(record, value=f"{record.value}{self.suffix}")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        self.seen.append((metadata.offset, error))

    def close(self) -> None:
        self.is_closed = True


class Failing:
    """An interceptor with faults."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("mine")

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        raise RuntimeError("mine")

    def close(self) -> None:
        raise RuntimeError("mine")


def test_interceptors_run_in_order_and_faults_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    first, last = Adding("1"), Adding("2")
    interceptors = ProducerInterceptors([first, Failing(), last])
    assert "v12" == interceptors.on_send(ProducerRecord(topic="t", value="v")).value
    metadata = RecordMetadata("t", 0, 7, 1, -1, -1)
    interceptors.on_acknowledgement(metadata, None)
    interceptors.close()
    assert [(7, None)] == first.seen == last.seen
    assert first.is_closed
    assert last.is_closed
    assert 3 == caplog.text.count("Failing.")

"""What a deserializer may be, and what Java's class names stand for."""

import struct
import uuid
from collections.abc import Sequence

import pytest

from kalda.clients.consumer.deserializers import needs_headers, resolve
from kalda.clients.errors import ClientConfigError
from kalda.records.record import Header


class WithTopic:
    def deserialize(self, topic: str, data: bytes, headers: Sequence[Header]) -> str:
        return f"{topic}:{data.decode()}:{len(headers)}"


@pytest.mark.parametrize(
    ("name", "data", "value"),
    [
        ("StringDeserializer", "Jäger".encode(), "Jäger"),
        ("org.apache.kafka.common.serialization.LongDeserializer", struct.pack(">q", -5), -5),
        ("IntegerDeserializer", struct.pack(">i", 7), 7),
        ("ShortDeserializer", struct.pack(">h", 7), 7),
        ("DoubleDeserializer", struct.pack(">d", 0.5), 0.5),
        ("FloatDeserializer", struct.pack(">f", 0.5), 0.5),
        ("BooleanDeserializer", b"\x01", True),
        ("UUIDDeserializer", str(uuid.UUID(int=5)).encode(), uuid.UUID(int=5)),
    ],
)
def test_java_names_read_what_java_wrote(name: str, data: bytes, value: object) -> None:
    deserialize = resolve("value.deserializer", name)
    assert deserialize is not None
    assert value == deserialize(data)


def test_byte_arrays_stay_as_they_are() -> None:
    assert resolve("value.deserializer", "ByteArrayDeserializer") is None
    assert resolve("value.deserializer", None) is None
    assert resolve("value.deserializer", "") is None


@pytest.mark.parametrize("name", ["LongDeserializer", "IntegerDeserializer", "VoidDeserializer"])
def test_a_wrong_size_is_an_error(name: str) -> None:
    deserialize = resolve("value.deserializer", name)
    assert deserialize is not None
    with pytest.raises(ValueError, match="3 bytes"):
        deserialize(b"abc")


def test_an_object_gets_topic_and_headers() -> None:
    assert needs_headers(WithTopic())
    assert not needs_headers(str)
    deserialize = resolve("key.deserializer", WithTopic())
    assert deserialize is not None
    assert "t:k:1" == deserialize("t", b"k", [("h", None)])


@pytest.mark.parametrize("option", ["com.example.AvroDeserializer", 5])
def test_other_options_are_refused_with_what_works(option: object) -> None:
    with pytest.raises(ClientConfigError, match="function"):
        resolve("value.deserializer", option)  # type: ignore[arg-type]  # that is the point

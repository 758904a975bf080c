"""Encoders are Kafka's, or a program's: objects, classes and functions."""

import pytest

from kalda.clients.errors import ClientConfigError, SerializationError
from kalda.clients.legacy import Message, ProducerData
from kalda.clients.legacy.producer.encoder import encoder_of


class Upper:
    def toMessage(self, data: str) -> Message:
        return Message(data.upper().encode())


class Pair:
    def to_message(self, data: tuple[bytes, bytes]) -> Message:
        return Message(data[1], data[0])


@pytest.mark.parametrize(
    ("value", "data", "expected"),
    [
        ("kafka.serializer.DefaultEncoder", b"a", Message(b"a")),
        ("kafka.serializer.DefaultEncoder", bytearray(b"a"), Message(b"a")),
        ("kafka.serializer.DefaultEncoder", Message(b"a", b"k", 5), Message(b"a", b"k", 5)),
        ("kafka.serializer.DefaultEncoder", None, Message(None)),
        ("kafka.serializer.StringEncoder", "ä", Message("ä".encode("latin-1"))),
        ("kafka.serializer.StringEncoder", None, Message(None)),
        ("kafka.serializer.NullEncoder", 5, Message(None)),
        (Upper, "a", Message(b"A")),
        (Pair(), (b"k", b"v"), Message(b"v", b"k")),
        (lambda number: b"%d" % number, 5, Message(b"5")),
    ],
)
def test_encoders_make_messages(value: object, data: object, expected: Message) -> None:
    assert expected == encoder_of("serializer.class", value, "latin-1")(data)


@pytest.mark.parametrize(
    ("value", "data", "message"),
    [
        ("kafka.serializer.DefaultEncoder", "text", "cannot encode a str.*StringEncoder"),
        ("kafka.serializer.StringEncoder", 5, "cannot encode a int.*takes a str"),
        (lambda data: 5, b"", "returned a int"),
    ],
)
def test_what_cannot_be_encoded_names_the_setting(value: object, data: object, message: str) -> None:
    with pytest.raises(SerializationError, match=f"`serializer.class`.*{message}"):
        encoder_of("serializer.class", value, "UTF8")(data)


class Demanding:
    def __init__(self, properties: dict[str, str]) -> None:
        raise AssertionError(properties)


@pytest.mark.parametrize("value", [5, object(), "com.example.Encoder", Demanding])
def test_what_is_no_encoder_is_refused(value: object) -> None:
    with pytest.raises(ClientConfigError, match=r"serializer\.class"):
        encoder_of("serializer.class", value, "UTF8")


def test_producer_data_holds_one_message_or_a_list() -> None:
    assert ("t", None, ["m"]) == _parts(ProducerData("t", "m"))
    assert ("t", "k", ["m"]) == _parts(ProducerData("t", "k", "m"))
    assert ("t", None, ["m", "n"]) == _parts(ProducerData("t", ["m", "n"]))
    assert ("t", None, [Message(b"m")]) == _parts(ProducerData("t", Message(b"m")))
    with pytest.raises(TypeError, match="takes"):
        ProducerData("t", "k", "m", "more")


def _parts(data: ProducerData) -> tuple[str, object, list[object]]:
    return data.topic, data.key, data.data

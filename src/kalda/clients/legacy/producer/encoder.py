"""Makes messages of a program's data: the `Encoder` interface of the documents, and Kafka's own encoders."""

from collections.abc import Callable
from typing import Final, Protocol

from kalda.clients.errors import ClientConfigError, SerializationError
from kalda.clients.legacy.class_names import object_of
from kalda.clients.legacy.message_set import Message
from kalda.common.public import public_in


@public_in("kalda.clients.legacy")
class Encoder(Protocol):
    """Makes the message of one datum; a class may also spell the method ``toMessage``, as in Java."""

    def to_message(self, data: object, /) -> Message:
        """Return the message. A key in it wins over that of the `ProducerData`."""
        ...


Encode = Callable[[object], Message]


@public_in("kalda.clients.legacy")
class DefaultEncoder:
    """Takes messages as they are, and bytes as payloads."""

    def to_message(self, data: object) -> Message:
        """Return `data` if it is a message, else a message with it as the payload; None deletes a key."""
        if isinstance(data, Message):
            return data
        if data is None or isinstance(data, bytes):
            return Message(data)
        if isinstance(data, bytearray | memoryview):
            return Message(bytes(data))
        raise TypeError("it takes bytes or a Message; for texts set `serializer.class` to StringEncoder")


@public_in("kalda.clients.legacy")
class StringEncoder:
    """Encodes texts.

    Args:
        encoding: A name that `str.encode` knows; the setting `serializer.encoding`.
    """

    def __init__(self, encoding: str = "UTF8") -> None:
        self._encoding: Final = encoding

    def to_message(self, data: object) -> Message:
        """Return a message with the encoded text."""
        if data is None:
            return Message(None)
        if not isinstance(data, str):
            raise TypeError("it takes a str")
        return Message(data.encode(self._encoding))


@public_in("kalda.clients.legacy")
class NullEncoder:
    """Drops what it is given: as `key.serializer.class` it lets keys choose partitions only."""

    def to_message(self, data: object) -> Message:
        """Return a message without a payload."""
        return Message(None)


def encoder_of(setting: str, value: object, encoding: str) -> Encode:
    """Return the function that the setting `serializer.class` or `key.serializer.class` stands for.

    It takes what `class_names.object_of` makes an encoder of, or a function that returns bytes or a message.

    Raises:
        ClientConfigError: the value is neither.
    """
    known: dict[str, Callable[[], object]] = {
        "kafka.serializer.DefaultEncoder": DefaultEncoder,
        "kafka.serializer.StringEncoder": lambda: StringEncoder(encoding),
        "kafka.serializer.NullEncoder": NullEncoder,
    }
    if isinstance(value, str) and value in known:
        made = known[value]()
    else:
        made = object_of(setting, value, known)
    for name in ("to_message", "toMessage"):
        method = getattr(made, name, None)
        if callable(method):
            return _checked(setting, method)
    if callable(made):
        return _checked(setting, made)
    raise ClientConfigError(
        f"`{setting}`={value!r} is no encoder; it takes an object with to_message(data), or a function"
    )


def _checked(setting: str, encode: Callable[[object], object]) -> Encode:
    def checked(data: object) -> Message:
        try:
            made = encode(data)
        except Exception as error:
            raise SerializationError(
                f"the encoder of `{setting}` cannot encode a {type(data).__name__}: {error}"
            ) from error
        if isinstance(made, Message):
            return made
        if made is None or isinstance(made, bytes):
            return Message(made)
        raise SerializationError(
            f"the encoder of `{setting}` returned a {type(made).__name__}; it returns a Message or bytes"
        )

    return checked

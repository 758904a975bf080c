"""Turns bytes into keys and values: what a deserializer is, and those that Java's class names stand for.

A deserializer sees only bytes: a record without a key has the key None, and a tombstone the value None,
without a call.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from kalda.clients.argument_checks import a_type
from kalda.clients.errors import ClientConfigError
from kalda.clients.serde import Serde
from kalda.common.public import public
from kalda.common.types import UUID
from kalda.records.record import Header

T_co = TypeVar("T_co", covariant=True)


@public
@runtime_checkable
class Deserializer(Protocol[T_co]):
    """A deserializer that needs to know the topic or the headers; others are plain functions of the bytes."""

    def deserialize(self, topic: str, data: bytes, headers: Sequence[Header]) -> T_co:
        """Return the key or value; what this raises reaches the user as a `RecordDeserializationError`."""
        ...


Deserialize = Callable[[bytes], Any]
DeserializerOption = Deserializer[Any] | Callable[[bytes], Any] | str | None
"""A deserializer: an object, a function, the name of one of Java's deserializers, or None."""


def _fixed(name: str, layout: str) -> Deserialize:
    """Return a function that reads one big-endian number, and refuses other sizes as Java does."""
    number = struct.Struct(layout)

    def deserialize(data: bytes) -> object:
        if len(data) != number.size:
            raise ValueError(f"{len(data)} bytes are not a {name}, which has {number.size}")
        value: object = number.unpack(data)[0]
        return value

    return deserialize


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def _uuid(data: bytes) -> UUID:
    return UUID(data.decode("utf-8"))


def _void(data: bytes) -> None:
    raise ValueError(f"a value of {len(data)} bytes where none is expected")


_JAVA_DESERIALIZERS: Final[dict[str, Deserialize | None]] = {
    "ByteArrayDeserializer": None,
    "BytesDeserializer": None,
    "ByteBufferDeserializer": None,
    "StringDeserializer": _text,
    "ShortDeserializer": _fixed("short", ">h"),
    "IntegerDeserializer": _fixed("int", ">i"),
    "LongDeserializer": _fixed("long", ">q"),
    "FloatDeserializer": _fixed("float", ">f"),
    "DoubleDeserializer": _fixed("double", ">d"),
    "BooleanDeserializer": _fixed("boolean", ">?"),
    "UUIDDeserializer": _uuid,
    "VoidDeserializer": _void,
}
"""None leaves the bytes as they are."""

_JAVA_PACKAGE: Final = "org.apache.kafka.common.serialization."


def resolve(name: str, option: DeserializerOption) -> Callable[..., Any] | None:
    """Return the function of a deserializer; None to leave bytes as they are.

    A `Deserializer` object gives a function of topic, data and headers; `needs_headers` distinguishes them.

    Raises:
        ClientConfigError: the option is neither of the accepted types nor a name that is known.
    """
    if option is None or option == "":
        return None
    if isinstance(option, str):
        short = option.strip().removeprefix(_JAVA_PACKAGE)
        if short not in _JAVA_DESERIALIZERS:
            raise ClientConfigError(
                f"`{name}`={option} is not known here; pass a function, or a deserializer such as "
                f"`kalda.serializers.json()`, as the keyword argument {name.replace('.', '_')}, or one of "
                f"{', '.join(_JAVA_DESERIALIZERS)}"
            )
        return _JAVA_DESERIALIZERS[short]
    if isinstance(option, Serde):
        # Compiled code calls functions of the bytes only.
        decode: Deserialize = option.decode
        return decode
    if isinstance(option, Deserializer):
        # One that asks another server has a method that leaves it to the consumer when.
        without_waiting: Callable[..., Any] | None = getattr(option, "deserialize_nowait", None)
        return without_waiting or option.deserialize
    if callable(option):
        return option
    raise ClientConfigError(
        f"`{name}` is {a_type(option)}; it takes a function of the bytes, a Deserializer, or a name"
    )


def needs_headers(option: DeserializerOption) -> bool:
    """Whether the function that `resolve` returns takes topic, data and headers."""
    return not isinstance(option, str | Serde) and isinstance(option, Deserializer)

"""Makes bytes of keys and values: the port for serializers, and those that Java's client has.

Java's byte orders and text forms count: its deserializers read what these write.
"""

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol, TypeVar

from kalda.clients.argument_checks import a_type
from kalda.clients.errors import ClientConfigError, SerializationError
from kalda.clients.serde import LoadRequiredError, T_contra
from kalda.common.public import public
from kalda.common.types import UUID
from kalda.records.record import Header

T = TypeVar("T")

SerializerFunction = Callable[..., bytes | None]
"""A serializer that looks only at the key or value, e.g. ``lambda value: json.dumps(value).encode()``."""


@public
class Serializer(Protocol[T_contra]):
    """A serializer that also looks at the topic and the headers."""

    def serialize(self, topic: str, headers: Sequence[Header], data: T_contra) -> bytes | None:
        """Return the bytes of a key or value; None for none."""
        ...


Serialize = Callable[[str, Sequence[Header], object], bytes | None]
"""Both forms of serializers in one."""


def as_serialize(choice: Serializer[Any] | SerializerFunction | None, what: str) -> Serialize | None:
    """Return a function for the option `what` (``key`` or ``value``), None where bytes are expected."""
    if choice is None:
        return None
    given: object = choice
    if isinstance(given, str) and given.removeprefix(_JAVA_PACKAGE) in SERIALIZERS:
        # The consumer takes such names, so both sides can be written alike.
        return as_serialize(serializer_of_java_class(f"{what}.serializer", given), what)
    if not callable(choice) and not hasattr(choice, "serialize"):
        raise ClientConfigError(
            f"`{what}_serializer` is {choice!r}; it takes a function of the {what}, a serializer such as "
            "`kalda.serializers.json()` or `string()`, or an object with serialize(topic, headers, data)"
        )
    serialize: Serialize | None = getattr(given, "serialize_nowait", None) or getattr(
        given, "serialize", None
    )
    if serialize is None:
        assert callable(given)
        serialize = _ignoring_context(given)

    def checked(topic: str, headers: Sequence[Header], data: object) -> bytes | None:
        try:
            result = serialize(topic, headers, data)
        except (SerializationError, LoadRequiredError):
            raise
        except Exception as error:
            raise SerializationError(
                f"the {what} serializer cannot serialise {a_type(data)} for topic {topic}: {error}"
            ) from error
        return plain_bytes(result, what, topic)

    return checked


def plain_bytes(data: object, what: str, topic: str) -> bytes | None:
    """Return a key or value that is bytes already, or None.

    Raises:
        SerializationError: it is of another type.
    """
    if data is None or isinstance(data, bytes):
        return data
    if isinstance(data, bytearray | memoryview):
        return bytes(data)
    raise SerializationError(
        f"the {what} of a record for topic {topic} is {a_type(data)}, not bytes; encode it, or "
        f"give the producer a `{what}_serializer`"
    )


def _ignoring_context(function: SerializerFunction) -> Serialize:
    return lambda _topic, _headers, data: function(data)


def serialize_string(data: object) -> bytes | None:
    """Write a text in UTF-8, as Java's `StringSerializer`."""
    return None if data is None else _checked(data, str).encode()


def serialize_uuid(data: object) -> bytes | None:
    """Write a UUID's text, as Java's `UUIDSerializer`."""
    return None if data is None else str(_checked(data, UUID)).encode()


def serialize_nothing(data: object) -> bytes | None:
    """Write None only, as Java's `VoidSerializer`."""
    if data is not None:
        raise ValueError("only None is allowed")
    return None


def _packed(layout: str, expected: type[int] | type[float]) -> SerializerFunction:
    pack = struct.Struct(layout).pack

    def serialize(data: object) -> bytes | None:
        return None if data is None else pack(_checked(data, expected))

    return serialize


def _checked(data: object, expected: type[T]) -> T:
    if not isinstance(data, expected):
        raise TypeError(f"it takes a {expected.__name__}")
    return data


SERIALIZERS: Final[dict[str, SerializerFunction | None]] = {
    "ByteArraySerializer": None,
    "BytesSerializer": None,
    "ByteBufferSerializer": None,
    "StringSerializer": serialize_string,
    "UUIDSerializer": serialize_uuid,
    "VoidSerializer": serialize_nothing,
    "ShortSerializer": _packed(">h", int),
    "IntegerSerializer": _packed(">i", int),
    "LongSerializer": _packed(">q", int),
    "FloatSerializer": _packed(">f", float),
    "DoubleSerializer": _packed(">d", float),
}
"""Java's serializers by class name, for ``key.serializer`` in a properties file."""
_JAVA_PACKAGE: Final = "org.apache.kafka.common.serialization."


def serializer_of_java_class(setting: str, name: str) -> SerializerFunction | None:
    """Return the counterpart of a Java class that a properties file names.

    Raises:
        ClientConfigError: there is none.
    """
    simple = name.strip().removeprefix(_JAVA_PACKAGE)
    if simple not in SERIALIZERS:
        raise ClientConfigError(
            f"`{setting}`={name} is a Java class without a counterpart here; give "
            f"{setting.replace('.', '_')}= a function, or name one of {', '.join(sorted(SERIALIZERS))}"
        )
    return SERIALIZERS[simple]

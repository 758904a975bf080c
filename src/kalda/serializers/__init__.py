"""Serializers that a producer and a consumer share: the same object goes to both.

    from kalda import Consumer, Producer, serializers

    orders = serializers.json(Order)
    Producer(bootstrap_servers="localhost:9092", value_serializer=orders)
    Consumer("orders", bootstrap_servers="localhost:9092", value_deserializer=orders)

None passes unchanged: it is the key of a record without one, and the value of a tombstone. `send`
raises `kalda.SerializationError` for what cannot be written, and `poll` raises
`kalda.RecordDeserializationError` for what cannot be read; both name the topic, the field and the value
found.
"""

import re
from collections.abc import Callable
from importlib import import_module
from reprlib import repr as short_repr
from typing import Any, Literal, TypeVar, overload

from kalda.clients.errors import ClientConfigError
from kalda.clients.json_values import parse, reader, write
from kalda.clients.serde import Serde
from kalda.common.public import public_in
from kalda.serializers.avro import AvroDeserializer, AvroSerializer
from kalda.serializers.json_schema import JsonSchemaDeserializer, JsonSchemaSerializer
from kalda.serializers.protobuf import ProtobufDeserializer, ProtobufSerializer
from kalda.serializers.registry_access import SchemaRegistryError

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "JsonSchemaDeserializer",
    "JsonSchemaSerializer",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "SchemaRegistryError",
    "Serde",
    "integer",
    "json",
    "string",
]

T = TypeVar("T")

_public = public_in("kalda.serializers")


@overload
def json() -> Serde[Any]: ...
@overload
def json(kind: type[T]) -> Serde[T]: ...
@_public
def json(kind: type[Any] | None = None) -> Serde[Any]:
    """Return a serializer and deserializer of JSON text in UTF-8.

    Without a type, it writes what the `json` module can, dataclasses, enums, sets, dates, UUIDs and decimals,
    and reads dicts, lists, strings and numbers. With a type, it writes and reads objects of the type.

    Args:
        kind: A dataclass, a pydantic model or a msgspec Struct. A field of a dataclass may be such a type of
            JSON or of the list above, a list, tuple, set or dict of them, a union, or another dataclass. JSON
            may have fields that the dataclass does not have, and lack those with a default.

    Raises:
        ClientConfigError: objects of the type cannot be read from JSON.
    """
    if kind is None:
        return Serde(write, parse)
    if hasattr(kind, "model_validate_json"):
        return _pydantic(kind)
    if hasattr(kind, "__struct_fields__"):
        return _msgspec(kind)
    read = reader(kind)
    return Serde(_checked(kind, write), lambda data: read(parse(data)))


@_public
def string() -> Serde[str]:
    """Return a serializer and deserializer of text in UTF-8, as Java's StringSerializer writes it."""

    def decode(data: bytes) -> str:
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{short_repr(data)} is not UTF-8: {error}") from error

    return Serde(_checked(str, str.encode), decode)


@_public
def integer(bytes: Literal[4, 8] = 4) -> Serde[int]:
    """Return a serializer and deserializer of big-endian numbers, as Java's IntegerSerializer writes them.

    Args:
        bytes: The size of a number; 8 is the layout of Java's LongSerializer.

    Raises:
        ClientConfigError: the size is another one.
    """
    size = bytes
    if size not in (4, 8):
        raise ClientConfigError(f"integer(bytes={size!r}) is not possible; numbers have 4 or 8 bytes")

    def encode(number: int) -> Any:
        if isinstance(number, bool):
            raise TypeError(f"it is {number}, not an int")
        try:
            return number.to_bytes(size, "big", signed=True)
        except OverflowError as error:
            raise ValueError(f"{number} does not fit into {size} bytes") from error

    def decode(data: Any) -> int:
        if len(data) != size:
            raise ValueError(f"{short_repr(data)} has {len(data)} bytes; a number has {size}")
        return int.from_bytes(data, "big", signed=True)

    return Serde(_checked(int, encode), decode)


def _checked(kind: type[T], encode: Callable[[T], bytes]) -> Callable[[T], bytes]:
    def checked(value: T) -> bytes:
        if not isinstance(value, kind):
            raise TypeError(f"it is {short_repr(value)}, not a {kind.__name__}")
        return encode(value)

    return checked


def _pydantic(kind: type[Any]) -> Serde[Any]:
    def decode(data: bytes) -> Any:
        try:
            return kind.model_validate_json(data)
        except ValueError as error:
            errors: Any = getattr(error, "errors", None)
            if errors is None:
                raise
            texts = [
                f"field `{'.'.join(map(str, each['loc']))}` is {short_repr(each['input'])}: {each['msg']}"
                for each in errors(include_url=False)
            ]
            raise ValueError("; ".join(texts)) from error

    return Serde(_checked(kind, lambda value: value.model_dump_json().encode()), decode)


def _msgspec(kind: type[Any]) -> Serde[Any]:
    # A class of it exists, so the package is there.
    codec: Any = import_module("msgspec.json")
    decoder = codec.Decoder(kind)

    def decode(data: bytes) -> Any:
        try:
            return decoder.decode(data)
        except ValueError as error:
            raise ValueError(_with_value(str(error), data)) from error

    return Serde(_checked(kind, codec.Encoder().encode), decode)


def _with_value(text: str, data: bytes) -> str:
    """Return msgspec's message, such as "Expected `int`, got `str` - at `$.price`", with the value there."""
    found = parse(data)
    at = re.search(r" - at `\$((?:\.\w+|\[\d+\])+)`$", text)
    if at is None:
        return f"the JSON is {short_repr(found)}: {text}"
    for name, index in re.findall(r"\.(\w+)|\[(\d+)\]", at[1]):
        found = found[name or int(index)]
    return f"field `{at[1].removeprefix('.')}` is {short_repr(found)}: {text}"

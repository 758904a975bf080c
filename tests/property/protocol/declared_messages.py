"""Every declared message and version, with ways to fill one: shared by the tests of the codecs."""

import uuid
from functools import cache
from itertools import count
from typing import Any

from hypothesis import strategies as st

from kalda.protocol import registry
from kalda.protocol.messages import consumer_group_records, consumer_protocol, group_records, transaction_log
from kalda.protocol.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    RECORDS,
    STRING,
    UUID_KIND,
    ArrayKind,
    Field,
    FixedKind,
    Kind,
    Message,
    Struct,
)

_RECORD_MODULES = (group_records, consumer_group_records, transaction_log, consumer_protocol)
"""Messages without an API key: they lie in logs, or inside the bytes of others."""

MESSAGE_CLASSES: tuple[type[Message], ...] = tuple(
    message_class
    for key in registry.declared_keys()
    for message_class in (registry.spec(key).request_class, registry.spec(key).response_class)
) + tuple(
    value
    for module in _RECORD_MODULES
    for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Message) and value is not Message
)

MESSAGE_VERSIONS: tuple[tuple[type[Message], int], ...] = tuple(
    (message_class, version)
    for message_class in MESSAGE_CLASSES
    for version in range(message_class.SCHEMA.versions.lowest, message_class.SCHEMA.versions.highest + 1)
)

MESSAGE_VERSION_IDS = tuple(
    f"{message_class.__name__}-v{version}" for message_class, version in MESSAGE_VERSIONS
)

INTEGER_BITS = {"b": 8, "h": 16, "H": 17, "i": 32, "I": 33, "q": 64}
"""By struct code; an unsigned type has one more, so that half its range is the range to draw from."""


@cache
def structs(struct_class: type[Struct], version: int) -> st.SearchStrategy[Any]:
    """Values of a struct that the version can carry in full."""
    fields = {
        field.name: _values(field, version)
        for field in struct_class.FIELDS
        if field.versions.includes(version)
    }
    return st.builds(struct_class, **fields)


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _kind_values(field.kind, version)
    if field.nullable.includes(version):
        values = st.none() | values
    if field.tagged.includes(version):
        values = st.just(field.default()) | values
    return values


def _kind_values(kind: Kind[Any] | type[Struct], version: int) -> st.SearchStrategy[Any]:
    if not isinstance(kind, Kind):
        return structs(kind, version)
    if isinstance(kind, ArrayKind):
        # 20 is above the count up to which arrays of numbers take the short way, 130 above one varint byte.
        sizes = (0, 1, 2, 3, 20, 130) if isinstance(kind.element, FixedKind) else (0, 1, 2)
        element = _kind_values(kind.element, version)
        return st.sampled_from(sizes).flatmap(lambda size: st.lists(element, min_size=size, max_size=size))
    if kind is STRING:
        return st.text(max_size=8) | st.sampled_from(("", "x" * 126, "x" * 127, "x" * 128, "é" * 200))
    if kind is BYTES or kind is RECORDS:
        return st.binary(max_size=8) | st.sampled_from((b"x" * 126, b"x" * 127, b"x" * 128))
    if kind is UUID_KIND:
        return st.uuids()
    if kind is BOOL:
        return st.booleans()
    if kind is FLOAT64:
        return st.floats(allow_nan=False)
    assert isinstance(kind, FixedKind)
    bits = INTEGER_BITS[kind.code]
    lowest = 0 if kind.code in "HI" else -(2 ** (bits - 1))
    return st.sampled_from((0, lowest, 2 ** (bits - 1) - 1)) | st.integers(lowest, 2 ** (bits - 1) - 1)


def filled(message_class: type[Message], version: int) -> Message:
    """One message in which every field that the version carries is set, none to its default."""
    message: Message = _filled_struct(message_class, version, count(1))
    return message


def _filled_struct(struct_class: type[Struct], version: int, numbers: Any) -> Any:
    value = struct_class()
    for field in struct_class.FIELDS:
        if field.versions.includes(version):
            setattr(value, field.name, sample_value(field, version, numbers))
    return value


def sample_value(field: Field, version: int, numbers: Any) -> Any:
    """A value that is not the default of the field."""
    if field.kind is BOOL:
        return not field.default()
    return _sample(field.kind, version, numbers)


def _sample(kind: Kind[Any] | type[Struct], version: int, numbers: Any) -> Any:
    number = next(numbers)
    if not isinstance(kind, Kind):
        return _filled_struct(kind, version, numbers)
    if isinstance(kind, ArrayKind):
        return [_sample(kind.element, version, numbers) for _ in range(2)]
    if kind is STRING:
        return f"text-{number}"
    if kind is BYTES or kind is RECORDS:
        return b"bytes-%d" % number
    if kind is UUID_KIND:
        return uuid.UUID(int=number << 64 | number)
    return number % 100 + 2

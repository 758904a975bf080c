"""Writes messages as JSON with the field names of Kafka's message files, as its JsonConverter classes do.

Bytes become base64 and ids Kafka's text form. Fields that the version does not carry are left out, and so
are tagged fields with their default value.
"""

import base64
from uuid import UUID

from kalda.common.types import uuid_to_text
from kalda.protocol.schema import Field, Message, Struct
from kalda.tools.bytes_text import JsonValue


def message_json(message: Message, version: int) -> JsonValue:
    """Return the fields that `version` of a message carries."""
    return _struct(message, version)


def camel_case(name: str) -> str:
    """Return the field's name in Kafka's message files: ``group_id`` is ``groupId``."""
    first, *others = name.split("_")
    return first + "".join(each.capitalize() for each in others)


def _struct(struct: Struct, version: int) -> dict[str, JsonValue]:
    return {
        camel_case(field.name): _value(getattr(struct, field.name), version)
        for field in struct.FIELDS
        if field.versions.includes(version) and not _is_left_out(field, struct, version)
    }


def _is_left_out(field: Field, struct: Struct, version: int) -> bool:
    return field.tagged.includes(version) and getattr(struct, field.name) == field.default()


def _value(value: object, version: int) -> JsonValue:
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes() | bytearray() | memoryview():
            return base64.b64encode(value).decode()
        case UUID():
            return uuid_to_text(value)
        case list():
            return [_value(each, version) for each in value]
        case Struct():
            return _struct(value, version)
    raise AssertionError(f"a message has a value of type {type(value).__name__}")

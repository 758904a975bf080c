"""Confluent's options ``confluent.*_meta`` in compiled descriptors: docs, parameters, tags and rules.

The extension is known by its number, so that it is read and written whether or not a program has loaded
Confluent's classes for it.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.protobuf.elements import Option

META_NUMBER: Final = 1088
_LENGTH_DELIMITED: Final = 2
_VARINT_BYTES_MAX: Final = 10
_DOC, _PARAMS, _TAGS, _RULES = 1, 2, 3, 4
_RULE_FIELDS: Final = {1: "name", 2: "doc", 3: "expr", 4: "sql"}
_RULE_NUMBERS: Final = {name: number for number, name in _RULE_FIELDS.items()}


def meta_option(options: Any, name: str) -> Option | None:
    """Return the option in a message of options; None where it has none.

    Args:
        options: A message of descriptor.proto, such as ``FieldOptions``.
        name: The full name of the extension for it, such as ``confluent.field_meta``.

    Raises:
        InvalidSchemaError: The bytes of the extension are no message.
    """
    doc = ""
    params: list[object] = []
    tags: list[object] = []
    rules: list[object] = []
    for number, data in _fields(options.SerializeToString()):
        if number != META_NUMBER:
            continue
        for inner, value in _fields(data):
            match inner:
                case 1:
                    doc = _text(value)
                case 2:
                    params.append(_param(value))
                case 3:
                    tags.append(_text(value))
                case 4:
                    rules.append(
                        {
                            _RULE_FIELDS[key]: _text(each)
                            for key, each in _fields(value)
                            if key in _RULE_FIELDS and each
                        }
                    )
    parts: dict[str, object] = {
        "doc": doc,
        "params": params,
        "tags": tags,
        "rules": [each for each in rules if each],
    }
    made = {key: each for key, each in parts.items() if each}
    return Option(name, made, is_parenthesized=True) if made else None


def meta_bytes(option: Option) -> bytes:
    """Return the extension as a field of options; empty where the option has another form."""
    value: object = option.value
    while isinstance(value, Option):
        value = {value.name: value.value}
    if not isinstance(value, dict):
        return b""
    inner = b""
    if isinstance(value.get("doc"), str):
        inner += _field(_DOC, value["doc"])
    for each in _maps(value.get("params")):
        inner += _field(_PARAMS, _field(1, _str(each.get("key"))) + _field(2, _str(each.get("value"))))
    tags = value.get("tags")
    for tag in tags if isinstance(tags, list) else [tags]:
        if isinstance(tag, str):
            inner += _field(_TAGS, tag)
    for each in _maps(value.get("rules")):
        rule = [_field(_RULE_NUMBERS[key], _str(text)) for key, text in each.items() if key in _RULE_NUMBERS]
        inner += _field(_RULES, b"".join(rule))
    return _field(META_NUMBER, inner)


def _maps(value: object) -> Sequence[dict[str, object]]:
    values = value if isinstance(value, list) else [value]
    return [each for each in values if isinstance(each, dict)]


def _str(value: object) -> str:
    return value if isinstance(value, str) else ""


def _param(data: bytes) -> dict[str, object]:
    found = {number: _text(value) for number, value in _fields(data)}
    key, value = found.get(1, ""), found.get(2, "")
    # Confluent's registry writes the value of these two first, for the sake of stored schemas.
    return {"value": value, "key": key} if key in ("precision", "scale") else {"key": key, "value": value}


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidSchemaError("the option confluent meta has a text that is not UTF-8") from None


def _field(number: int, value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _fields(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each field that has a length."""
    position = 0
    while position < len(data):
        key, position = _read_varint(data, position)
        match key & 7:
            case 0:
                _, position = _read_varint(data, position)
            case 1:
                position += 8
            case 2:
                length, position = _read_varint(data, position)
                if position + length > len(data):
                    raise InvalidSchemaError("the option confluent meta ends in the middle of a field")
                yield key >> 3, data[position : position + length]
                position += length
            case 5:
                position += 4
            case kind:
                raise InvalidSchemaError(f"the option confluent meta has a field of the wire type {kind}")


def _read_varint(data: bytes, position: int) -> tuple[int, int]:
    value = 0
    for index in range(_VARINT_BYTES_MAX):
        if position >= len(data):
            break
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return value, position
    raise InvalidSchemaError("the option confluent meta ends in the middle of a number")

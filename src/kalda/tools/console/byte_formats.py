"""The formats in which keys and values are written on a command line, to bytes and from bytes.

The numeric formats are those of Java's serializers: big-endian, 2, 4 or 8 bytes.
"""

import base64
import binascii
import struct
import uuid
from collections.abc import Mapping
from enum import StrEnum
from typing import Final


class ByteFormat(StrEnum):
    """How bytes are written as text."""

    TEXT = "text"
    HEX = "hex"
    BASE64 = "base64"
    SHORT = "short"
    INTEGER = "integer"
    LONG = "long"
    FLOAT = "float"
    DOUBLE = "double"
    UUID = "uuid"


class ByteFormatError(ValueError):
    """Text or bytes are not of the format."""


_NUMBERS: Final[Mapping[ByteFormat, struct.Struct]] = {
    ByteFormat.SHORT: struct.Struct(">h"),
    ByteFormat.INTEGER: struct.Struct(">i"),
    ByteFormat.LONG: struct.Struct(">q"),
    ByteFormat.FLOAT: struct.Struct(">f"),
    ByteFormat.DOUBLE: struct.Struct(">d"),
}

_REALS: Final = frozenset({ByteFormat.FLOAT, ByteFormat.DOUBLE})

_JAVA_PREFIX: Final = "org.apache.kafka.common.serialization."

_JAVA_NAMES: Final[Mapping[str, ByteFormat]] = {
    "String": ByteFormat.TEXT,
    "ByteArray": ByteFormat.TEXT,
    "Bytes": ByteFormat.TEXT,
    "ByteBuffer": ByteFormat.TEXT,
    "Short": ByteFormat.SHORT,
    "Integer": ByteFormat.INTEGER,
    "Long": ByteFormat.LONG,
    "Float": ByteFormat.FLOAT,
    "Double": ByteFormat.DOUBLE,
    "UUID": ByteFormat.UUID,
}


def of_java_class(name: str) -> ByteFormat:
    """Return the format that Java's serializer or deserializer of this name reads and writes.

    Raises:
        ByteFormatError: it is none of Kafka's own classes.
    """
    kind = name.removeprefix(_JAVA_PREFIX).removesuffix("Deserializer").removesuffix("Serializer")
    if kind not in _JAVA_NAMES:
        known = ", ".join(f"{each}Deserializer" for each in _JAVA_NAMES)
        raise ByteFormatError(f"{name} is not allowed: it takes {known} of {_JAVA_PREFIX}*")
    return _JAVA_NAMES[kind]


def to_bytes(text: str, form: ByteFormat) -> bytes:
    """Return the bytes that `text` stands for.

    Raises:
        ByteFormatError: the text is not of the format.
    """
    try:
        match form:
            case ByteFormat.TEXT:
                return text.encode(errors="surrogateescape")
            case ByteFormat.HEX:
                return bytes.fromhex(text)
            case ByteFormat.BASE64:
                return base64.b64decode(text, validate=True)
            case ByteFormat.UUID:
                return str(uuid.UUID(text)).encode()
        number = _NUMBERS[form]
        return number.pack(float(text) if form in _REALS else int(text))
    except (ValueError, struct.error, OverflowError, binascii.Error) as error:
        raise ByteFormatError(f"{text!r} is not {form}: {error}") from None


def to_text(data: bytes, form: ByteFormat) -> bytes:
    """Return what is shown for `data`, as bytes: in the text format they are the data itself.

    Raises:
        ByteFormatError: the data is not of the format.
    """
    match form:
        case ByteFormat.TEXT | ByteFormat.UUID:
            return data
        case ByteFormat.HEX:
            return data.hex().encode()
        case ByteFormat.BASE64:
            return base64.b64encode(data)
    number = _NUMBERS[form]
    if len(data) != number.size:
        raise ByteFormatError(f"{len(data)} bytes are not {form}, which has {number.size}")
    return str(number.unpack(data)[0]).encode()

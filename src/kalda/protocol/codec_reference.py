"""Implements the reference codec: a plain interpreter of the declarations, written to be read.

It is the specification: tests compare the compiled codec with it byte for byte. No hot path uses it. Both
codecs have the same limits, see `codec`.
"""

import struct
from typing import Any, TypeVar

from kalda.common.types import UUID
from kalda.protocol.protocol_errors import MessageError, ProtocolError
from kalda.protocol.schema import (
    BYTES,
    RECORDS,
    STRING,
    UUID_KIND,
    ArrayKind,
    Field,
    FixedKind,
    Kind,
    Message,
    Struct,
    StructType,
)
from kalda.protocol.wire_format import ELEMENTS_MAX, NULL_IN_PLACE, NULL_IN_TAG, STRING_BYTES_MAX

M = TypeVar("M", bound=Message)
S = TypeVar("S", bound=Struct)


def encode_reference(message: Message, version: int) -> bytes:
    """Write the body of a message.

    Raises:
        MessageError: the version does not exist, or cannot carry a value that is set.
    """
    schema = message.SCHEMA
    if not schema.versions.includes(version):
        raise MessageError(f"{schema.name} has versions {schema.versions}, not {version}")
    writer = _Writer(schema.name, version, schema.is_flexible(version))
    try:
        writer.write_struct(message)
    except (struct.error, TypeError, AttributeError, OverflowError, UnicodeEncodeError) as error:
        raise MessageError(f"{schema.name} v{version} cannot carry a value: {error}") from error
    return bytes(writer.out)


def decode_reference(
    message_class: type[M], version: int, buffer: bytes | bytearray | memoryview, position: int = 0
) -> M:
    """Read the body of a message, which must end where the buffer ends.

    Raises:
        ProtocolError: the bytes are not such a message.
        MessageError: the message has no such version.
    """
    schema = message_class.SCHEMA
    if not schema.versions.includes(version):
        raise MessageError(f"{schema.name} has versions {schema.versions}, not {version}")
    reader = _Reader(schema.name, version, schema.is_flexible(version), memoryview(buffer)[position:])
    message = reader.read_struct(message_class)
    if reader.position != len(reader.data):
        raise ProtocolError(f"{schema.name} v{version}: {len(reader.data) - reader.position} bytes left over")
    return message


class _Writer:
    """Walks the declaration and appends to `out`."""

    def __init__(self, name: str, version: int, flexible: bool) -> None:
        self.name = name
        self.version = version
        self.flexible = flexible
        self.out = bytearray()

    def write_struct(self, value: Struct) -> None:
        tagged: list[Field] = []
        for field in type(value).FIELDS:
            item = getattr(value, field.name)
            if not field.versions.includes(self.version):
                self._check_droppable(type(value), field, item)
            elif field.tagged.includes(self.version):
                if item != field.default():
                    tagged.append(field)
            else:
                self._write_field(type(value), field, item)
        if self.flexible:
            self._write_tagged(value, sorted(tagged, key=lambda field: field.tag or 0))

    def _check_droppable(self, owner: StructType, field: Field, item: object) -> None:
        if not field.ignorable and item != field.default():
            raise MessageError(
                f"{owner.__name__}.{field.name}={item!r} is set, "
                f"but {self.name} v{self.version} does not carry it"
            )

    def _write_tagged(self, value: Struct, tagged: list[Field]) -> None:
        self.write_uvarint(len(tagged))
        for field in tagged:
            nested = _Writer(self.name, self.version, self.flexible)
            nested._write_field(type(value), field, getattr(value, field.name))
            self.write_uvarint(field.tag or 0)
            self.write_uvarint(len(nested.out))
            self.out += nested.out

    def _write_field(self, owner: StructType, field: Field, item: object) -> None:
        nullable = field.nullable.includes(self.version)
        if item is None and not nullable:
            raise MessageError(
                f"{owner.__name__}.{field.name} is None, which {self.name} v{self.version} does not allow"
            )
        if isinstance(field.kind, Kind):
            self._write_value(field.kind, item)
            return
        if nullable:
            null = NULL_IN_TAG if field.tagged.includes(self.version) else NULL_IN_PLACE
            self.out += struct.pack(">b", null if item is None else 1)
        if item is not None:
            self._write_nested(field.kind, item)

    def _write_nested(self, struct_class: type[Struct], item: object) -> None:
        if type(item) is not struct_class:
            raise TypeError(f"expected {struct_class.__name__}, got {type(item).__name__}")
        self.write_struct(item)

    def _write_value(self, kind: Kind[Any], item: Any) -> None:
        if kind is UUID_KIND:
            self.out += item.bytes
        elif isinstance(kind, FixedKind):
            self.out += struct.pack(">" + kind.code, item)
        elif isinstance(kind, ArrayKind):
            self._write_length(">i", None if item is None else len(item))
            for element in () if item is None else item:
                if isinstance(kind.element, Kind):
                    self._write_value(kind.element, element)
                else:
                    self._write_nested(kind.element, element)
        elif kind is STRING:
            text = None if item is None else item.encode()
            if text is not None and len(text) > STRING_BYTES_MAX:
                raise MessageError(f"a string of {len(text)} bytes is above the limit of {STRING_BYTES_MAX}")
            self._write_length(">h", None if text is None else len(text))
            self.out += text or b""
        else:
            assert kind is BYTES or kind is RECORDS, f"unknown kind {kind}"
            self._write_length(">i", None if item is None else len(item))
            self.out += item or b""

    def _write_length(self, code: str, length: int | None) -> None:
        if self.flexible:
            self.write_uvarint(0 if length is None else length + 1)
        else:
            self.out += struct.pack(code, -1 if length is None else length)

    def write_uvarint(self, value: int) -> None:
        while value > 0x7F:
            self.out.append(value & 0x7F | 0x80)
            value >>= 7
        self.out.append(value)


class _Reader:
    """Walks the declaration and takes from `data`."""

    def __init__(self, name: str, version: int, flexible: bool, data: memoryview) -> None:
        self.name = name
        self.version = version
        self.flexible = flexible
        self.data = data
        self.position = 0
        self.elements = 0

    def read_struct(self, struct_class: type[S]) -> S:
        value = struct_class()
        known: dict[int, Field] = {}
        for field in struct_class.FIELDS:
            if field.tagged.includes(self.version) and field.tag is not None:
                known[field.tag] = field
            elif field.versions.includes(self.version):
                setattr(value, field.name, self._read_field(field))
        if self.flexible:
            count = self.read_uvarint()
            self._count_elements(count)
            for _ in range(count):
                self._read_tagged(value, known)
        return value

    def _count_elements(self, count: int) -> None:
        self.elements += count
        if self.elements > ELEMENTS_MAX:
            raise self._error(f"more than {ELEMENTS_MAX} elements")

    def _read_tagged(self, value: Struct, known: dict[int, Field]) -> None:
        tag = self.read_uvarint()
        size = self.read_uvarint()
        field = known.get(tag)
        if field is None:
            self._take(size)
            return
        end = self.position + size
        if end > len(self.data):
            raise self._error(f"tagged field {tag} of {size} bytes runs over the end")
        setattr(value, field.name, self._read_field(field))
        if self.position != end:
            raise self._error(f"tagged field {tag} does not fill its {size} bytes")

    def _read_field(self, field: Field) -> object:
        nullable = field.nullable.includes(self.version)
        if isinstance(field.kind, Kind):
            item = self._read_value(field.kind)
            if item is None and not nullable:
                raise self._error(f"{field.name} is null")
            return item
        if nullable:
            null = NULL_IN_TAG if field.tagged.includes(self.version) else NULL_IN_PLACE
            if struct.unpack(">b", self._take(1))[0] <= null:
                return None
        return self.read_struct(field.kind)

    def _read_value(self, kind: Kind[Any]) -> object:
        if kind is UUID_KIND:
            return UUID(bytes=bytes(self._take(16)))
        if isinstance(kind, FixedKind):
            return struct.unpack(">" + kind.code, self._take(kind.size))[0]
        if isinstance(kind, ArrayKind):
            return self._read_array(kind)
        length = self._read_length(">h" if kind is STRING else ">i")
        if length is None:
            return None
        if kind is not STRING:
            taken = self._take(length)
            return taken if kind is RECORDS else bytes(taken)
        if length > STRING_BYTES_MAX:
            raise self._error(f"a string of {length} bytes is above the limit of {STRING_BYTES_MAX}")
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise self._error(f"a string is not UTF-8: {error}") from None

    def _read_array(self, kind: ArrayKind[Any]) -> list[object] | None:
        count = self._read_length(">i")
        if count is None:
            return None
        # Every element occupies at least one byte, so a larger count is junk; nothing is allocated for it.
        if count > len(self.data) - self.position:
            raise self._error(f"an array of {count} elements does not fit in the bytes that remain")
        if not isinstance(kind.element, FixedKind):
            self._count_elements(count)
        items: list[object] = []
        for _ in range(count):
            if isinstance(kind.element, Kind):
                item = self._read_value(kind.element)
                if item is None:
                    raise self._error("an element of an array is null")
                items.append(item)
            else:
                items.append(self.read_struct(kind.element))
        return items

    def _read_length(self, code: str) -> int | None:
        if self.flexible:
            length = self.read_uvarint() - 1
        else:
            length = struct.unpack(code, self._take(struct.calcsize(code)))[0]
        if length < -1:
            raise self._error(f"length {length} is below -1")
        return None if length == -1 else length

    def read_uvarint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise self._error("a varint has more than 5 bytes")

    def _take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self.data):
            raise self._error(f"{size} bytes expected, {len(self.data) - self.position} remain")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def _error(self, text: str) -> ProtocolError:
        return ProtocolError(f"{self.name} v{self.version}, byte {self.position}: {text}")

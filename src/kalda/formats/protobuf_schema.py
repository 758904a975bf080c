"""Reads Protobuf schemas, as text or compiled, and translates messages to Arrow types.

Scalars without
presence have their default; fields with presence (``optional``, messages, members of a oneof) are null when
they are unset.
"""

from collections.abc import Sequence
from typing import Final

import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from kalda.formats.ddl import DEPTH_MAX
from kalda.formats.merging import COLUMNS_MAX
from kalda.formats.spec import FormatError
from kalda.schemas.payloads.errors import UnusableSchemaError
from kalda.schemas.payloads.proto_compiler import compile_proto as compiled

_TIMESTAMP: Final = "google.protobuf.Timestamp"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
_SCALARS: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.decimal128(20, 0),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}


def compile_proto(text: str, references: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return the descriptor set of a .proto text, or of base64 text that is one.

    Args:
        text: The schema.
        references: Name and text of each file that it imports.

    Raises:
        FormatError: The text does not compile, or the compiler is not installed.
    """
    try:
        return compiled(text, references)
    except UnusableSchemaError as error:
        raise FormatError(str(error)) from error


class ProtobufSchema:
    """The message types of a descriptor set, in a pool of their own."""

    def __init__(self, descriptors: bytes) -> None:
        found = descriptor_pb2.FileDescriptorSet()
        self._pool: Final = descriptor_pool.DescriptorPool()
        try:
            found.ParseFromString(descriptors)
            for file in found.file:
                self._pool.Add(file)
            self._main: Final = found.file[-1] if found.file else None
        except (DecodeError, TypeError, ValueError, KeyError) as error:
            raise FormatError(f"this is no descriptor set of Protobuf: {error}") from error
        if self._main is None or not self._main.message_type:
            raise FormatError("the Protobuf schema has no message")

    def message(self, name: str | None) -> Descriptor:
        """Return a message by its full name; None for the first one of the schema.

        Raises:
            FormatError: There is none.
        """
        assert self._main is not None
        package = f"{self._main.package}." if self._main.package else ""
        names = [f"{package}{message.name}" for message in self._main.message_type]
        try:
            return self._pool.FindMessageTypeByName(names[0] if name is None else name)
        except KeyError as error:
            raise FormatError(f"the schema has no message {name!r}; it has {', '.join(names)}") from error

    def message_at(self, indexes: Sequence[int]) -> Descriptor:
        """Return the message that the indexes of the registry's framing name: ``[1, 0]`` is nested.

        Raises:
            FormatError: There is none.
        """
        assert self._main is not None
        messages = self._main.message_type
        name = self._main.package
        for index in indexes:
            if not 0 <= index < len(messages):
                raise FormatError(f"the schema has no message with the indexes {list(indexes)}")
            name = f"{name}.{messages[index].name}" if name else messages[index].name
            messages = messages[index].nested_type
        return self._pool.FindMessageTypeByName(name)

    @staticmethod
    def factory(descriptor: Descriptor) -> type[Message]:
        """Return the class of a message."""
        made: type[Message] = message_factory.GetMessageClass(descriptor)
        return made


def message_type(descriptor: Descriptor, path: tuple[str, ...] = ()) -> pa.DataType:
    """Return the struct of a message.

    Raises:
        FormatError: The message contains itself, nests too deeply or has too many fields.
    """
    return _Fields().of(descriptor, path)


def field_type(field: FieldDescriptor, path: tuple[str, ...]) -> pa.DataType:
    """Return the type of a field's column; raises as `message_type`."""
    return _Fields().of_field(field, path)


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map."""
    return bool(
        field.is_repeated and field.message_type is not None and field.message_type.GetOptions().map_entry
    )


class _Fields:
    """Translates messages, and counts their fields as often as a message stands inside others."""

    def __init__(self) -> None:
        self._count = 0

    def of(self, descriptor: Descriptor, path: tuple[str, ...]) -> pa.DataType:
        if descriptor.full_name in path:
            raise FormatError(f"the message {descriptor.full_name} contains itself, so it has no columns")
        self._count += len(descriptor.fields)
        if len(path) > DEPTH_MAX or self._count > COLUMNS_MAX:
            raise FormatError(
                f"the message {descriptor.full_name} nests deeper than {DEPTH_MAX} or makes more than "
                f"{COLUMNS_MAX} columns"
            )
        inner = (*path, descriptor.full_name)
        return pa.struct([pa.field(field.name, self.of_field(field, inner)) for field in descriptor.fields])

    def of_field(self, field: FieldDescriptor, path: tuple[str, ...]) -> pa.DataType:
        if is_map(field):
            key = field.message_type.fields_by_name["key"]
            value = field.message_type.fields_by_name["value"]
            return pa.map_(self._single(key, path), self._single(value, path))
        return pa.list_(self._single(field, path)) if field.is_repeated else self._single(field, path)

    def _single(self, field: FieldDescriptor, path: tuple[str, ...]) -> pa.DataType:
        if field.message_type is not None:
            name = field.message_type.full_name
            if name == _TIMESTAMP:
                return pa.timestamp("us", tz="UTC")
            if name in WRAPPERS:
                return self._single(field.message_type.fields_by_name["value"], path)
            return self.of(field.message_type, path)
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string()
        return _SCALARS[field.cpp_type]

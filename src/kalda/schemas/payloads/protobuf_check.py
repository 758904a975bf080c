"""Checks Protobuf payloads: the message that the indexes name, wire types, lengths, UTF-8, required fields.

The library parses each payload. It keeps a known field of a wrong wire type among the unknown ones instead of
refusing it, so a payload with unknown fields is walked over, field by field; a payload that the library
refuses is walked over too, for the name of the field.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kalda.common.extras import missing_package
from kalda.schemas.payloads.errors import BadPayloadError, UnusableSchemaError
from kalda.schemas.payloads.framing import message_indexes_of
from kalda.schemas.payloads.proto_compiler import compile_proto

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

DEPTH_MAX: Final = 100
"""The limit of Protobuf's libraries."""
_VARINT, _FIXED64, _LENGTH, _GROUP, _END_GROUP, _FIXED32 = range(6)
_WIRE_NAMES: Final = (
    "varint",
    "64 bits",
    "length and bytes",
    "start of a group",
    "end of a group",
    "32 bits",
)
_VARINT_BYTES_MAX: Final = 10
_MESSAGES_KEPT_MAX: Final = 256
"""Paths of indexes whose messages are kept; clients name them."""


class ProtobufCheck:
    """Checks the payloads of one schema.

    Args:
        text: The schema.
        dependencies: The text of each file that it imports, by its path.

    Raises:
        UnusableSchemaError: The schema does not compile.
        ModuleNotFoundError: protobuf is not installed.
    """

    def __init__(self, text: str, dependencies: Mapping[str, str]) -> None:
        try:
            from google.protobuf import descriptor_pool, message_factory
        except ModuleNotFoundError as error:
            raise missing_package("a check of Protobuf payloads", "http", error) from None
        self._class_of: Final = message_factory.GetMessageClass
        self._pool: Final = descriptor_pool.DescriptorPool()
        self._file: Final = _add_files(self._pool, compile_proto(text, tuple(dependencies.items())))
        self._messages: Final[dict[tuple[int, ...], tuple[Descriptor, type[Message]]]] = {}

    def record_name_of(self, value: bytes) -> str | None:
        """Return the full name of a framed value's message.

        Raises:
            BadPayloadError: The indexes name no message of the schema.
        """
        name: str = self._message(message_indexes_of(value)[0])[0].full_name
        return name

    def check(self, values: Sequence[bytes]) -> list[tuple[int, BadPayloadError]]:
        """Return the index and the fault of each framed value that is not of the schema."""
        faults = []
        for index, value in enumerate(values):
            try:
                indexes, at = message_indexes_of(value)
                self._check(indexes, value[at:])
            except BadPayloadError as error:
                faults.append((index, error))
        return faults

    def _check(self, indexes: tuple[int, ...], payload: bytes) -> None:
        from google.protobuf.message import DecodeError

        descriptor, message_class = self._message(indexes)
        try:
            message = message_class.FromString(payload)
        except DecodeError as error:
            _walk(payload, 0, len(payload), descriptor, 0)
            raise BadPayloadError(
                f"the value is not of the message {descriptor.full_name}: {error}"
            ) from None
        # Methods of the class: fields may have the names of methods.
        if not message_class.IsInitialized(message):
            missing = ", ".join(message_class.FindInitializationErrors(message))
            raise BadPayloadError(f"the required field is not set: {missing}")
        size = message_class.ByteSize(message)
        message_class.DiscardUnknownFields(message)
        if message_class.ByteSize(message) != size:
            _walk(payload, 0, len(payload), descriptor, 0)

    def _message(self, indexes: tuple[int, ...]) -> "tuple[Descriptor, type[Message]]":
        found = self._messages.get(indexes)
        if found is None:
            messages, name = self._file.message_type, self._file.package
            for index in indexes:
                if index >= len(messages):
                    raise BadPayloadError(
                        f"the message indexes are {list(indexes)}; the schema has no such message"
                    )
                name = f"{name}.{messages[index].name}" if name else messages[index].name
                messages = messages[index].nested_type
            descriptor = self._pool.FindMessageTypeByName(name)
            found = descriptor, self._class_of(descriptor)
            if len(self._messages) < _MESSAGES_KEPT_MAX:
                self._messages[indexes] = found
        return found


def _add_files(pool: "DescriptorPool", descriptors: bytes) -> "FileDescriptorProto":
    """Add the files of a descriptor set to a pool; return the last one, which is the schema."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    found = descriptor_pb2.FileDescriptorSet()
    try:
        found.ParseFromString(descriptors)
        for file in found.file:
            pool.Add(file)
        return found.file[-1]
    except (DecodeError, TypeError, ValueError, KeyError, IndexError) as error:
        raise UnusableSchemaError(f"this is no descriptor set of Protobuf: {error}") from None


def _walk(data: bytes, at: int, end: int, descriptor: "Descriptor | None", depth: int) -> int:
    """Pass the fields of a message; return where it ends: at `end`, or behind the end of its group.

    Raises:
        BadPayloadError: A field is cut short or of a wrong wire type; names the field.
    """
    if depth > DEPTH_MAX:
        raise BadPayloadError(f"the value nests deeper than {DEPTH_MAX} levels")
    while at < end:
        tag, at = _varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if not number or wire > _FIXED32:
            raise BadPayloadError(f"the tag of a field is {tag}, which is none of Protobuf")
        if wire == _END_GROUP:
            return at
        field = None if descriptor is None else descriptor.fields_by_number.get(number)
        name = f"field {number}" if field is None else field.name
        if field is not None and wire not in _wire_types(field):
            expected = " or ".join(_WIRE_NAMES[each] for each in _wire_types(field))
            raise BadPayloadError(f"its wire type is {_WIRE_NAMES[wire]}; expected {expected}", name)
        try:
            at = _pass(data, at, end, wire, field, depth)
        except BadPayloadError as error:
            reason = str(error).removeprefix(f"{error.path}: ") if error.path else str(error)
            raise BadPayloadError(reason, f"{name}.{error.path}" if error.path else name) from None
    return at


def _pass(data: bytes, at: int, end: int, wire: int, field: "FieldDescriptor | None", depth: int) -> int:
    """Return the position behind a field's value."""
    if wire == _VARINT:
        return _varint(data, at, end)[1]
    if wire in (_FIXED32, _FIXED64):
        size = 4 if wire == _FIXED32 else 8
        if size > end - at:
            raise BadPayloadError(f"it has {size} bytes; {end - at} are left")
        return at + size
    inner = None if field is None else field.message_type
    if wire == _GROUP:
        return _walk(data, at, end, inner, depth + 1)
    size, at = _varint(data, at, end)
    if size > end - at:
        raise BadPayloadError(f"it has {size} bytes; {end - at} are left")
    if inner is not None:
        _walk(data, at, at + size, inner, depth + 1)
    elif field is not None and field.type == field.TYPE_STRING:
        try:
            data[at : at + size].decode()
        except UnicodeDecodeError as error:
            raise BadPayloadError(f"a text is not UTF-8: {error.reason} at byte {error.start}") from None
    return at + size


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES_MAX, 7):
        if at >= end:
            raise BadPayloadError("the value ends inside a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise BadPayloadError("a number is longer than 64 bits")


def _wire_types(field: "FieldDescriptor") -> tuple[int, ...]:
    """Return the wire types of a field; a list of numbers may be packed or not, whatever its schema says."""
    if field.type in (field.TYPE_STRING, field.TYPE_BYTES, field.TYPE_MESSAGE):
        return (_LENGTH,)
    if field.type == field.TYPE_GROUP:
        return (_GROUP,)
    if field.type in (field.TYPE_DOUBLE, field.TYPE_FIXED64, field.TYPE_SFIXED64):
        wire = _FIXED64
    elif field.type in (field.TYPE_FLOAT, field.TYPE_FIXED32, field.TYPE_SFIXED32):
        wire = _FIXED32
    else:
        wire = _VARINT
    return (wire, _LENGTH) if field.is_repeated else (wire,)

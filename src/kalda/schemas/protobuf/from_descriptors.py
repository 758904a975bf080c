"""Reads compiled descriptors as if they were the text of a file."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.protobuf.confluent_meta import meta_option
from kalda.schemas.protobuf.descriptor_classes import descriptor_class
from kalda.schemas.protobuf.elements import (
    EnumConstant,
    EnumElement,
    ExtendElement,
    ExtensionsElement,
    FieldElement,
    MessageElement,
    OneofElement,
    Option,
    ProtoFile,
    Range,
    ReservedElement,
    RpcElement,
    ServiceElement,
    Word,
)

NESTING_MAX: Final = 64
_LABELS: Final = {1: "optional", 2: "required", 3: "repeated"}
TYPE_NAMES: Final = {
    1: "double",
    2: "float",
    3: "int64",
    4: "uint64",
    5: "int32",
    6: "fixed64",
    7: "fixed32",
    8: "bool",
    9: "string",
    12: "bytes",
    13: "uint32",
    15: "sfixed32",
    16: "sfixed64",
    17: "sint32",
    18: "sint64",
}
_STRING: Final = 9
_FILE_OPTIONS: Final = (
    *("java_package", "java_outer_classname", "java_multiple_files", "java_generate_equals_and_hash"),
    *("java_string_check_utf8", "optimize_for", "go_package", "cc_generic_services"),
    *("java_generic_services", "py_generic_services", "deprecated", "cc_enable_arenas"),
    *("objc_class_prefix", "csharp_namespace", "swift_prefix", "php_class_prefix", "php_namespace"),
    *("php_metadata_namespace", "ruby_package"),
)
_MESSAGE_OPTIONS: Final = ("no_standard_descriptor_accessor", "deprecated", "map_entry")
_META_NAMES: Final = {
    "FileOptions": "file",
    "MessageOptions": "message",
    "FieldOptions": "field",
    "EnumOptions": "enum",
    "EnumValueOptions": "enum_value",
}
_FIELD_OPTIONS: Final = ("ctype", "packed", "jstype", "deprecated", "debug_redact", "retention")


def file_of_descriptor(data: bytes) -> ProtoFile:
    """Return the file of a serialized ``FileDescriptorProto``.

    Of the options that extensions define, only Confluent's are kept.

    Raises:
        InvalidSchemaError: The bytes are none.
        ModuleNotFoundError: The package protobuf is not installed.
    """
    from google.protobuf.message import DecodeError

    file = descriptor_class("FileDescriptorProto")()
    try:
        file.ParseFromString(data)
    except DecodeError as error:
        raise InvalidSchemaError(f"it is no FileDescriptorProto: {error}") from None
    _check_texts(file)
    if not (file.message_type or file.enum_type or file.service or file.extension or file.dependency):
        raise InvalidSchemaError("the FileDescriptorProto declares nothing")
    is_proto3 = file.syntax == "proto3"
    public, weak = set(file.public_dependency), set(file.weak_dependency)
    imports = list(enumerate(file.dependency))
    return ProtoFile(
        file.package or None,
        file.syntax if file.syntax in ("proto2", "proto3") else None,
        [path for index, path in imports if index not in public | weak],
        [path for index, path in imports if index in public],
        [path for index, path in imports if index in weak],
        [
            *(_message(each, is_proto3, 1) for each in file.message_type),
            *(_enum(each) for each in file.enum_type),
        ],
        [
            ServiceElement(
                each.name, [_rpc(method) for method in each.method], _options(each.options, ("deprecated",))
            )
            for each in file.service
        ],
        _extends(file.extension, is_proto3),
        _options(file.options, _FILE_OPTIONS),
    )


def _check_texts(message: Any) -> None:
    """Check that texts are UTF-8: protobuf takes any bytes in descriptors, and returns them as bytes."""
    for field, value in message.ListFields():
        if field.type == _STRING:
            texts = [value] if isinstance(value, str | bytes) else list(value)
            if any(isinstance(each, bytes) for each in texts):
                raise InvalidSchemaError(f"the {field.full_name} is not UTF-8: {texts!r:.100}")
        elif field.message_type is not None:
            for each in [value] if hasattr(value, "ListFields") else list(value):
                _check_texts(each)


# Messages of descriptor.proto have no types here: protobuf is an extra, and its classes are made at run time.
def _message(message: Any, is_proto3: bool, depth: int) -> MessageElement:
    if depth > NESTING_MAX:
        raise InvalidSchemaError(f"messages nest deeper than {NESTING_MAX}")
    oneofs = [OneofElement(each.name) for each in message.oneof_decl]
    fields = []
    for each in message.field:
        if each.HasField("oneof_index") and not each.proto3_optional and each.oneof_index < len(oneofs):
            field = _field(each, is_proto3)
            field.label = None
            oneofs[each.oneof_index].fields.append(field)
        else:
            fields.append(_field(each, is_proto3))
    reserveds: list[ReservedElement] = [
        ReservedElement([_range(each.start, each.end - 1)]) for each in message.reserved_range
    ]
    reserveds += [ReservedElement([each]) for each in message.reserved_name]
    return MessageElement(
        message.name,
        [
            *(_message(each, is_proto3, depth + 1) for each in message.nested_type),
            *(_enum(each) for each in message.enum_type),
        ],
        _options(message.options, _MESSAGE_OPTIONS),
        reserveds,
        fields,
        [each for each in oneofs if each.fields],
        [ExtensionsElement([_range(each.start, each.end - 1)]) for each in message.extension_range],
        [],
        _extends(message.extension, is_proto3),
    )


def _field(field: Any, is_proto3: bool) -> FieldElement:
    label: str | None = _LABELS.get(field.label)
    if field.proto3_optional:
        label = "optional"
    elif is_proto3 and label != "repeated":
        label = None
    default: str | Word | None = None
    if not is_proto3 and field.HasField("default_value"):
        default = field.default_value if field.type == _STRING else Word(field.default_value)
    return FieldElement(
        label,
        field.type_name or TYPE_NAMES.get(field.type, "group"),
        field.name,
        field.number,
        default,
        field.json_name if field.HasField("json_name") else None,
        _options(field.options, _FIELD_OPTIONS),
    )


def _enum(enum: Any) -> EnumElement:
    reserveds: list[ReservedElement] = [
        ReservedElement([_range(each.start, each.end)]) for each in enum.reserved_range
    ]
    reserveds += [ReservedElement([each]) for each in enum.reserved_name]
    return EnumElement(
        enum.name,
        [
            EnumConstant(each.name, each.number, _options(each.options, ("deprecated", "debug_redact")))
            for each in enum.value
        ],
        _options(enum.options, ("allow_alias", "deprecated")),
        reserveds,
    )


def _rpc(method: Any) -> RpcElement:
    return RpcElement(
        method.name,
        method.input_type,
        method.output_type,
        method.client_streaming,
        method.server_streaming,
        _options(method.options, ("deprecated", "idempotency_level")),
    )


def _extends(fields: Iterable[Any], is_proto3: bool) -> list[ExtendElement]:
    made: dict[str, ExtendElement] = {}
    for each in fields:
        made.setdefault(each.extendee, ExtendElement(each.extendee)).fields.append(_field(each, is_proto3))
    return list(made.values())


def _range(first: int, last: int) -> Range:
    return first, last


def _options(options: Any, names: Sequence[str]) -> list[Option]:
    made: list[Option] = []
    for name in names:
        field = options.DESCRIPTOR.fields_by_name.get(name)
        if field is None or not options.HasField(name):
            continue
        value = getattr(options, name)
        if field.enum_type is not None:
            value = Word(field.enum_type.values_by_number[value].name)
        elif not isinstance(value, str):
            value = Word(str(value).lower())
        made.append(Option(name, value))
    kind = _META_NAMES.get(options.DESCRIPTOR.name)
    meta = None if kind is None else meta_option(options, f"confluent.{kind}_meta")
    return made if meta is None else [*made, meta]

"""Makes descriptors of a parsed file, as a compiler would, without one."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.protobuf.confluent_meta import meta_bytes
from kalda.schemas.protobuf.descriptor_classes import descriptor_class
from kalda.schemas.protobuf.elements import (
    SCALARS,
    TAG_MAX,
    EnumElement,
    ExtendElement,
    FieldElement,
    GroupElement,
    MessageElement,
    OneofElement,
    Option,
    ProtoFile,
    Range,
    ServiceElement,
    Word,
)
from kalda.schemas.protobuf.from_descriptors import TYPE_NAMES
from kalda.schemas.protobuf.resolution import TypeInfo, Types

MAIN_FILE: Final = "default"
"""The path of a schema's own file, as in Confluent's registry."""
_NUMBERS: Final = {name: number for number, name in TYPE_NAMES.items()}
_LABELS: Final = {"optional": 1, "required": 2, "repeated": 3}
_META: Final = re.compile(r"\.?(?:confluent\.)?(?:file|message|field|enum|enum_value)_meta")
_GROUP, _MESSAGE, _ENUM = 10, 11, 14


def descriptor_of(
    file: ProtoFile,
    path: str,
    types: Types,
    available: Mapping[str, object],
    *,
    is_in_text_order: bool = False,
) -> Any:
    """Return the ``FileDescriptorProto`` of a file.

    Of the options that extensions define, only Confluent's are in it.

    Args:
        file: The file.
        path: Its path.
        types: What its names can mean.
        available: The paths of the files that it may import. Others are left out: what has only options may
            be missing.
        is_in_text_order: Whether fields and inner messages have the order of protoc, which message indexes
            count by. Otherwise it is that of Confluent's registry: inner messages, oneofs, fields.

    Raises:
        InvalidSchemaError: A type is not defined.
        ModuleNotFoundError: The package protobuf is not installed.
    """
    return _Maker(file, path, types, available, is_in_text_order=is_in_text_order).file()


class _Maker:
    def __init__(
        self,
        file: ProtoFile,
        path: str,
        types: Types,
        available: Mapping[str, object],
        *,
        is_in_text_order: bool,
    ) -> None:
        self._is_in_text_order: Final = is_in_text_order
        self._file: Final = file
        self._path: Final = path
        self._types: Final = types
        self._package: Final = file.package or ""
        self._imports: Final = {
            each: None
            for each in (*file.imports, *file.public_imports, *file.weak_imports)
            if each in available
        }
        self._scope: Final[list[str]] = []

    def file(self) -> Any:
        file = self._file
        made = descriptor_class("FileDescriptorProto")(name=self._path, package=self._package)
        made.syntax = file.syntax or "proto2"
        for each in file.types:
            if isinstance(each, MessageElement):
                self._message(made.message_type.add(), each)
            else:
                self._enum(made.enum_type.add(), each)
        for service in file.services:
            self._service(made.service.add(), service)
        self._extends(made.extension, made.message_type, file.extends)
        _set_options(made, file.options)
        made.dependency.extend(self._imports)
        made.public_dependency.extend(
            index for index, each in enumerate(self._imports) if each in file.public_imports
        )
        return made

    def _message(self, made: Any, message: MessageElement) -> None:
        made.name = message.name
        self._scope.append(message.name)
        for each in message.nested:
            if isinstance(each, MessageElement):
                self._message(made.nested_type.add(), each)
            else:
                self._enum(made.enum_type.add(), each)
        for index, oneof in enumerate(message.oneofs):
            made.oneof_decl.add().name = oneof.name
            for field in oneof.fields:
                self._field(made.field.add(), made.nested_type, field).oneof_index = index
            for group in oneof.groups:
                self._group(made, group).oneof_index = index
        for field in message.fields:
            added = self._field(made.field.add(), made.nested_type, field)
            if field.label == "optional" and self._file.is_proto3:
                added.proto3_optional = True
        for group in message.groups:
            self._group(made, group)
        self._extends(made.extension, made.nested_type, message.extends)
        for reserved in message.reserveds:
            for value in reserved.values:
                _add_reserved(made, value, 1)
        for extensions in message.extensions:
            for number in extensions.values:
                first, last = _range(number)
                made.extension_range.add(start=first, end=min(last, TAG_MAX) + 1)
        _set_options(made, message.options)
        if self._is_in_text_order:
            _put_in_text_order(made, message)
        _add_synthetic_oneofs(made)
        self._scope.pop()

    def _group(self, made: Any, group: GroupElement) -> Any:
        inner = MessageElement(group.name, fields=group.fields)
        self._message(made.nested_type.add(), inner)
        field = made.field.add(name=group.name.lower(), number=group.tag, type=_GROUP)
        field.label = _LABELS[group.label or "optional"]
        field.type_name = f".{'.'.join([*filter(None, [self._package]), *self._scope, group.name])}"
        return field

    def _field(self, made: Any, nested: Any, field: FieldElement) -> Any:
        made.name, made.number = field.name, field.tag
        made.label = _LABELS[field.label or "optional"]
        map_types = field.map_types
        if map_types is not None:
            made.label = _LABELS["repeated"]
            self._map(made, nested, field.name, map_types)
        else:
            self._set_type(made, field.type)
        if field.default is not None:
            made.default_value = field.default if isinstance(field.default, str) else field.default.text
        if field.json_name is not None:
            made.json_name = field.json_name
        _set_options(made, field.options)
        return made

    def _map(self, made: Any, nested: Any, name: str, types: tuple[str, str]) -> None:
        entry = nested.add(name=_entry_name(name))
        entry.options.map_entry = True
        for number, (word, kind) in enumerate(zip(("key", "value"), types, strict=True), 1):
            field = entry.field.add(name=word, number=number, label=_LABELS["optional"])
            self._set_type(field, kind)
        made.type = _MESSAGE
        made.type_name = f".{'.'.join([*filter(None, [self._package]), *self._scope, entry.name])}"

    def _set_type(self, made: Any, kind: str) -> None:
        if kind in SCALARS:
            made.type = _NUMBERS[kind]
            return
        found = self._resolved(kind)
        made.type = _MESSAGE if isinstance(found.element, MessageElement) else _ENUM
        made.type_name = f".{found.full_name}"

    def _resolved(self, name: str) -> TypeInfo:
        found = self._types.find(name, self._scope, self._package)
        if found is None:
            raise InvalidSchemaError(f"Could not resolve type: {name:.200}")
        if found.file and found.file != self._path:
            self._imports[found.file] = None
        return found

    def _enum(self, made: Any, enum: EnumElement) -> None:
        made.name = enum.name
        for constant in enum.constants:
            added = made.value.add(name=constant.name, number=constant.tag)
            _set_options(added, constant.options)
        for reserved in enum.reserveds:
            for value in reserved.values:
                _add_reserved(made, value, 0)
        _set_options(made, enum.options)

    def _service(self, made: Any, service: ServiceElement) -> None:
        made.name = service.name
        for rpc in service.rpcs:
            added = made.method.add(name=rpc.name)
            added.input_type = f".{self._resolved(rpc.request).full_name}"
            added.output_type = f".{self._resolved(rpc.response).full_name}"
            added.client_streaming, added.server_streaming = rpc.is_request_stream, rpc.is_response_stream
            _set_options(added, rpc.options)
        _set_options(made, service.options)

    def _extends(self, made: Any, nested: Any, extends: Sequence[ExtendElement]) -> None:
        for each in extends:
            extendee = f".{self._resolved(each.name).full_name}"
            for field in each.fields:
                self._field(made.add(), nested, field).extendee = extendee


def _entry_name(field: str) -> str:
    """Return the name of the message that a compiler makes for a map."""
    return f"{''.join(part[:1].upper() + part[1:] for part in field.split('_'))}Entry"


def _put_in_text_order(made: Any, message: MessageElement) -> None:
    """Order fields and inner messages as protoc does; what the text has not stays behind the others."""
    places: dict[str, int] = {}
    inner: dict[str, int] = {}
    for each in message.declared:
        holders = [each] if isinstance(each, OneofElement) else []
        groups = [group for holder in holders for group in holder.groups]
        fields = [field for holder in holders for field in holder.fields]
        if isinstance(each, GroupElement):
            groups.append(each)
        elif isinstance(each, FieldElement):
            fields.append(each)
            if each.map_types is not None:
                inner[_entry_name(each.name)] = len(inner)
        elif isinstance(each, MessageElement):
            inner[each.name] = len(inner)
        for field in fields:
            places[field.name] = len(places)
        for group in groups:
            places[group.name.lower()] = len(places)
            inner[group.name] = len(inner)
    _sort(made.field, places)
    _sort(made.nested_type, inner)


def _sort(repeated: Any, places: Mapping[str, int]) -> None:
    kept = [type(each).FromString(each.SerializeToString()) for each in repeated]
    del repeated[:]
    repeated.extend(sorted(kept, key=lambda each: places.get(each.name, len(places))))


def _add_synthetic_oneofs(made: Any) -> None:
    """Put each optional field of proto3 into a oneof of its own, behind all others."""
    names = {each.name for each in (*made.field, *made.oneof_decl)}
    for field in made.field:
        if field.proto3_optional:
            name = f"_{field.name}"
            while name in names:
                name = f"X{name}"
            names.add(name)
            field.oneof_index = len(made.oneof_decl)
            made.oneof_decl.add().name = name


def _add_reserved(made: Any, value: str | int | Range, beyond: int) -> None:
    if isinstance(value, str):
        made.reserved_name.append(value)
    else:
        first, last = _range(value)
        made.reserved_range.add(start=first, end=min(last, TAG_MAX) + beyond)


def _range(value: int | Range) -> Range:
    return (value, value) if isinstance(value, int) else value


def _set_options(made: Any, options: Sequence[Option]) -> None:
    """Set the options of descriptor.proto; others are not in the descriptor."""
    for each in options:
        if each.is_parenthesized and _META.fullmatch(each.name):
            made.options.MergeFromString(meta_bytes(each))
            continue
        field = made.options.DESCRIPTOR.fields_by_name.get(each.name)
        if each.is_parenthesized or field is None or field.message_type is not None:
            continue
        value = _option_value(field, each.value)
        if value is None:
            continue
        if isinstance(getattr(made.options, each.name), str | int | bool | float):
            setattr(made.options, each.name, value)


def _option_value(field: Any, value: object) -> object:
    """Return the value for an option's field; None where it does not fit, as Wire keeps any text."""
    if field.enum_type is not None:
        found = field.enum_type.values_by_name.get(value.text) if isinstance(value, Word) else None
        return None if found is None else found.number
    if field.type == field.TYPE_BOOL:
        return {"true": True, "false": False}.get(value.text) if isinstance(value, Word) else None
    return value if field.type == field.TYPE_STRING and isinstance(value, str) else None

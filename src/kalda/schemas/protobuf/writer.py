"""Writes a .proto file in Confluent's canonical form, or in its normal form.

The canonical form keeps the order and the names of the text; comments are dropped, and fields stand before
oneofs, messages before enums. In the normal form types have their full names, options, reserved numbers and
fields are sorted, and the messages that a compiler makes for maps are maps again.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.parsing import TEXT_CHARACTERS_MAX
from kalda.schemas.protobuf.elements import (
    SCALARS,
    TAG_MAX,
    EnumElement,
    ExtendElement,
    ExtensionsElement,
    FieldElement,
    GroupElement,
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
from kalda.schemas.protobuf.normal_options import normal_options
from kalda.schemas.protobuf.resolution import Types

_ESCAPES: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        "'": "\\'",
        '"': '\\"',
    }
)
_CONFLUENT: Final = "confluent."


def written(file: ProtoFile, *, ignores_extensions: bool = False) -> str:
    """Return the canonical form.

    Args:
        file: The file.
        ignores_extensions: Whether extensions and the options that they define are left out.
    """
    return _Writer(None, ignores_extensions).file(file)


def normal_form(file: ProtoFile, types: Types) -> str:
    """Return the normal form.

    Raises:
        InvalidSchemaError: The type of a field is not defined.
    """
    return _Writer(types, ignores_extensions=False).file(file)


class _Writer:
    def __init__(self, types: Types | None, ignores_extensions: bool) -> None:
        self._types: Final = types
        self._ignores_extensions: Final = ignores_extensions
        self._scope: Final[list[str]] = []

    def file(self, file: ProtoFile) -> str:
        head = []
        if file.syntax is not None and (self._types is None or file.is_proto3):
            head.append(f'syntax = "{file.syntax}";\n')
        if file.package is not None:
            head.append(f"package {file.package};\n")
        sections = [
            self._imports(file),
            "".join(self._declaration(each) for each in self._options(file.options)),
            self._declared(file.types),
            self._extends(file.extends),
            "".join(map(self._service, file.services)),
        ]
        return "".join([*head, *(f"\n{each}" for each in sections if each)])

    def _imports(self, file: ProtoFile) -> str:
        lines = []
        for word, imports in (("", file.imports), ("public ", file.public_imports)):
            lines += [f'import {word}"{path}";\n' for path in self._in_order(imports)]
        return "".join(lines)

    def _in_order(self, imports: Sequence[str]) -> Sequence[str]:
        return imports if self._types is None else sorted(set(imports))

    def _declared(self, types: Sequence[MessageElement | EnumElement]) -> str:
        # The order of messages matters: the indexes in front of a payload count them.
        messages = [each for each in types if isinstance(each, MessageElement)]
        if self._types is not None:
            messages = [each for each in messages if each.map_types is None]
        enums = [each for each in types if isinstance(each, EnumElement)]
        return "".join([*map(self._message, messages), *map(self._enum, enums)])

    def _message(self, message: MessageElement) -> str:
        self._scope.append(message.name)
        fields = self._by_tag(message.fields)
        sections = [
            "".join(map(self._reserved, self._ranges_in_order(message.reserveds))),
            "".join(self._declaration(each) for each in self._options(message.options)),
            "".join(map(self._field, fields)),
            "".join(map(self._oneof, self._oneofs_in_order(message.oneofs))),
            "".join(map(self._group, self._groups_in_order(message.groups))),
            self._extensions(message.extensions),
            self._extends(message.extends),
            self._declared(message.nested),
        ]
        self._scope.pop()
        body = "".join(f"\n{_indented(each)}" for each in sections if each)
        if len(body) > TEXT_CHARACTERS_MAX:
            # 600 KB of messages inside each other became 12 MB, which took half a minute.
            raise InvalidSchemaError(
                f"the message {message.name:.200}, with its lines indented, has {len(body)} characters; at "
                f"most {TEXT_CHARACTERS_MAX} are allowed"
            )
        return f"message {message.name} {{{body}}}\n"

    def _enum(self, enum: EnumElement) -> str:
        lines = [self._reserved(each) for each in self._ranges_in_order(enum.reserveds)]
        lines += [self._declaration(each) for each in self._options(enum.options)]
        constants = enum.constants
        if self._types is not None:
            constants = sorted(constants, key=lambda each: (each.tag, each.name))
        lines += [
            f"{each.name} = {each.tag}{self._bracketed(self._options(each.options))};\n" for each in constants
        ]
        start = "\n" if enum.reserveds or enum.options or enum.constants else ""
        return f"enum {enum.name} {{{start}{_indented(''.join(lines))}}}\n"

    def _oneof(self, oneof: OneofElement) -> str:
        sections = [
            "".join(self._declaration(each) for each in self._options(oneof.options)),
            "".join(map(self._field, self._by_tag(oneof.fields))),
            "".join(map(self._group, self._groups_in_order(oneof.groups))),
        ]
        body = "".join(f"\n{_indented(each)}" for each in sections if each)
        return f"oneof {oneof.name} {{{body}}}\n"

    def _group(self, group: GroupElement) -> str:
        label = f"{group.label} " if group.label else ""
        fields = "".join(map(self._field, self._by_tag(group.fields)))
        body = f"\n{_indented(fields)}" if fields else ""
        return f"{label}group {group.name} = {group.tag} {{{body}}}\n"

    def _extends(self, extends: Sequence[ExtendElement]) -> str:
        if self._ignores_extensions:
            return ""
        if self._types is not None:
            merged: dict[str, list[FieldElement]] = {}
            for each in extends:
                merged.setdefault(self._resolved(each.name), []).extend(each.fields)
            extends = [ExtendElement(name, self._by_tag(fields)) for name, fields in merged.items()]
        texts = []
        for each in extends:
            fields = "".join(map(self._field, each.fields))
            body = f"\n{_indented(fields)}" if fields else ""
            texts.append(f"extend {each.name} {{{body}}}\n")
        return "".join(texts)

    def _service(self, service: ServiceElement) -> str:
        sections = [
            "".join(self._declaration(each) for each in self._options(service.options)),
            "".join(map(self._rpc, service.rpcs)),
        ]
        body = "".join(f"\n{_indented(each)}" for each in sections if each)
        return f"service {service.name} {{{body}}}\n"

    def _rpc(self, rpc: RpcElement) -> str:
        request, response = rpc.request, rpc.response
        if self._types is not None:
            request, response = self._resolved(request), self._resolved(response)
        stream = ("stream " if rpc.is_request_stream else "", "stream " if rpc.is_response_stream else "")
        options = "".join(self._declaration(each) for each in self._options(rpc.options))
        body = f" {{\n{_indented(options)}}}" if options else ""
        return f"rpc {rpc.name} ({stream[0]}{request}) returns ({stream[1]}{response}){body};\n"

    def _field(self, field: FieldElement) -> str:
        label, kind = field.label, field.type
        if self._types is not None:
            label, kind = self._normal_type(field)
        options = list(field.options)
        if field.default is not None:
            options.append(Option("default", _default_value(kind, field.default)))
        if field.json_name is not None:
            options.append(Option("json_name", field.json_name))
        words = [label, kind] if label else [kind]
        return f"{' '.join(words)} {field.name} = {field.tag}{self._bracketed(self._options(options))};\n"

    def _normal_type(self, field: FieldElement) -> tuple[str | None, str]:
        """Return label and type with full names."""
        assert self._types is not None
        types = field.map_types
        if types is None:
            if field.type in SCALARS:
                return field.label, field.type
            found = self._types.find(field.type, self._scope)
            if found is None:
                raise InvalidSchemaError(f"Could not resolve type: {field.type:.200}")
            types = found.element.map_types if isinstance(found.element, MessageElement) else None
            if types is None:
                return field.label, f".{found.full_name}"
        key, value = types
        found = None if value in SCALARS else self._types.find(value, self._scope)
        if found is None and value not in SCALARS:
            raise InvalidSchemaError(f"Could not resolve type: {value:.200}")
        return None, f"map<{key}, {value if found is None else '.' + found.full_name}>"

    def _resolved(self, name: str) -> str:
        assert self._types is not None
        found = self._types.find(name, self._scope)
        if found is None:
            raise InvalidSchemaError(f"Could not resolve type: {name:.200}")
        return f".{found.full_name}"

    def _by_tag(self, fields: Sequence[FieldElement]) -> list[FieldElement]:
        return list(fields) if self._types is None else sorted(fields, key=lambda each: each.tag)

    def _groups_in_order(self, groups: Sequence[GroupElement]) -> Sequence[GroupElement]:
        return groups if self._types is None else sorted(groups, key=lambda each: each.tag)

    def _oneofs_in_order(self, oneofs: Sequence[OneofElement]) -> Sequence[OneofElement]:
        if self._types is None:
            return oneofs
        return sorted(
            (each for each in oneofs if each.fields), key=lambda each: min(field.tag for field in each.fields)
        )

    def _ranges_in_order(self, reserveds: Sequence[ReservedElement]) -> Sequence[ReservedElement]:
        if self._types is None:
            return reserveds
        values = sorted((value for each in reserveds for value in each.values), key=_range_key)
        return [ReservedElement([each]) for each in values]

    def _reserved(self, reserved: ReservedElement) -> str:
        return f"reserved {', '.join(map(self._range, reserved.values))};\n"

    def _extensions(self, extensions: Sequence[ExtensionsElement]) -> str:
        if self._ignores_extensions:
            return ""
        if self._types is not None:
            extensions = sorted(
                (ExtensionsElement([value], each.options) for each in extensions for value in each.values),
                key=lambda each: _range_key(each.values[0]),
            )
        return "".join(
            f"extensions {', '.join(map(self._range, each.values))}"
            f"{self._bracketed(self._options(each.options))};\n"
            for each in extensions
        )

    def _range(self, value: str | int | Range) -> str:
        if isinstance(value, str):
            return f'"{value}"'
        if isinstance(value, int):
            return str(value)
        first, last = value
        if first == last and self._types is not None:
            return str(first)
        return f"{first} to {'max' if last >= TAG_MAX else last}"

    def _options(self, options: Sequence[Option]) -> Sequence[Option]:
        if self._ignores_extensions:
            options = [
                each for each in options if not each.is_parenthesized or each.name.startswith(_CONFLUENT)
            ]
        return options if self._types is None else normal_options(options, self._types, self._scope)

    def _declaration(self, option: Option) -> str:
        return f"option {_option(option)};\n"

    def _bracketed(self, options: Sequence[Option]) -> str:
        return f" {_listed([_option(each) for each in options])}" if options else ""


def _range_key(value: str | int | Range) -> tuple[int, str]:
    """Numbers in their order, then names."""
    if isinstance(value, str):
        return (1 << 31) - 1, value
    return (value, str(value)) if isinstance(value, int) else (value[0], str(value))


def _default_value(kind: str, value: str | Word) -> str | Word:
    return value.text if kind == "string" and isinstance(value, Word) else value


def _option(option: Option) -> str:
    name = f"({option.name})" if option.is_parenthesized else option.name
    match option.value:
        case Option():
            return f"{name}.{_option(option.value)}"
        case list():
            return f"{name} = {_listed([_value(each) for each in option.value])}"
    return f"{name} = {_value(option.value)}"


def _value(value: object) -> str:
    match value:
        case str():
            return f'"{value.translate(_ESCAPES)}"'
        case Word():
            return value.text
        case Option():
            return _option(value)
        case dict():
            return f"{{\n{_indented(_lines(f'{key}: {_value(each)}' for key, each in value.items()))}}}"
        case list():
            return f"[\n{_indented(_lines(map(_value, value)))}]"
    raise AssertionError(value)


def _listed(values: Sequence[str]) -> str:
    if len(values) == 1:
        return f"[{values[0]}]"
    return f"[\n{_indented(_lines(values))}]"


def _lines(values: Iterable[str]) -> str:
    text = ",\n".join(values)
    return f"{text}\n" if text else ""


def _indented(text: str) -> str:
    indented = text.removesuffix("\n").replace("\n", "\n  ")
    return f"  {indented}\n" if text else ""

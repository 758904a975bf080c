"""Reads the text of a .proto file, with the rules of Square's Wire: what it accepts, a registry stores."""

from typing import Final

from kalda.schemas.protobuf.elements import (
    TAG_MAX,
    EnumConstant,
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
from kalda.schemas.protobuf.options import read_option, read_options
from kalda.schemas.protobuf.tokens import Tokens

NESTING_MAX: Final = 64
"""Messages inside each other; protoc allows 32."""
_MAP_KEYS_REFUSED: Final = ("bytes", "double", "float")
_LABELS: Final = ("required", "optional", "repeated")


def read_proto(text: str) -> ProtoFile:
    """Return what a file declares.

    Raises:
        InvalidSchemaError: The text is none, with line and column.
    """
    return _Reader(Tokens(text)).file()


class _Reader:
    def __init__(self, tokens: Tokens) -> None:
        self._tokens: Final = tokens
        self._file: Final = ProtoFile()
        self._service_names: Final[set[str]] = set()
        self._depth = 0

    def file(self) -> ProtoFile:
        tokens, file = self._tokens, self._file
        is_first = True
        names: set[str] = set()
        while not tokens.is_at_end:
            if not tokens.take(";"):
                start = tokens.position()
                self._file_declaration(tokens.word(), start, is_first, names)
            is_first = False
        return file

    def _file_declaration(self, word: str, start: int, is_first: bool, names: set[str]) -> None:
        tokens, file = self._tokens, self._file
        match word:
            case "syntax":
                self._syntax(start, is_first)
            case "package":
                file.package = tokens.word()
                tokens.require(";")
            case "import":
                self._import(start)
            case "option":
                file.options.append(self._option())
            case "message" | "enum":
                made = self._message() if word == "message" else self._enum()
                if made.name in names:
                    tokens.fail(f"{made.name} is already defined", start)
                names.add(made.name)
                file.types.append(made)
            case "service":
                service = self._service()
                if service.name in self._service_names:
                    tokens.fail(f"{service.name} is already defined", start)
                self._service_names.add(service.name)
                file.services.append(service)
            case "extend":
                file.extends.append(self._extend())
            case "edition":
                tokens.fail("edition is not currently supported", start)
            case _:
                tokens.fail(f"unexpected label: {word:.100}", start)

    def _syntax(self, start: int, is_first: bool) -> None:
        tokens = self._tokens
        if self._file.syntax is not None:
            tokens.fail("too many syntax definitions", start)
        tokens.require("=")
        if not is_first:
            tokens.fail("'syntax' element must be the first declaration in a file", start)
        syntax = tokens.quoted()
        if syntax not in ("proto2", "proto3"):
            tokens.fail(f"unexpected syntax: {syntax:.100}", start)
        self._file.syntax = syntax
        tokens.require(";")

    def _import(self, start: int) -> None:
        tokens, file = self._tokens, self._file
        imports = file.imports
        if not tokens.is_at_quote():
            match tokens.word():
                case "public":
                    imports = file.public_imports
                case "weak":
                    imports = file.weak_imports
                case _:
                    tokens.fail("expected quoted string", start)
        imports.append(tokens.quoted())
        tokens.require(";")

    def _message(self) -> MessageElement:
        tokens = self._tokens
        made = MessageElement(tokens.word())
        self._depth += 1
        if self._depth > NESTING_MAX:
            tokens.fail(f"messages nest deeper than {NESTING_MAX}")
        tokens.require("{")
        while not tokens.take("}"):
            if not tokens.take(";"):
                start = tokens.position()
                self._message_declaration(made, tokens.word(), start)
        self._depth -= 1
        return made

    def _message_declaration(self, made: MessageElement, word: str, start: int) -> None:
        match word:
            case "option":
                made.options.append(self._option())
            case "reserved":
                made.reserveds.append(self._reserved())
            case "message":
                nested = self._message()
                made.nested.append(nested)
                made.declared.append(nested)
            case "enum":
                made.nested.append(self._enum())
            case "extend":
                made.extends.append(self._extend())
            case "oneof":
                oneof = self._oneof()
                made.oneofs.append(oneof)
                made.declared.append(oneof)
            case "extensions":
                made.extensions.append(self._extensions())
            case _:
                field = self._labelled_field(word, start)
                made.declared.append(field)
                if isinstance(field, GroupElement):
                    made.groups.append(field)
                else:
                    made.fields.append(field)

    def _labelled_field(self, word: str, start: int) -> FieldElement | GroupElement:
        tokens = self._tokens
        label = word if word in _LABELS else None
        if label == "required" and self._file.is_proto3:
            tokens.fail("'required' label forbidden in proto3 field declarations", start)
        if label is None and not self._file.is_proto3 and not (word == "map" and tokens.peek() == "<"):
            tokens.fail(f"unexpected label: {word:.100}", start)
        kind = self._type(tokens.word() if label else word)
        if label and kind.startswith("map<"):
            tokens.fail("'map' type cannot have label", start)
        return self._group(label) if kind == "group" else self._field(label, kind)

    def _field(self, label: str | None, kind: str) -> FieldElement:
        tokens = self._tokens
        name = tokens.name()
        tokens.require("=")
        made = FieldElement(label, kind, name, tokens.integer())
        for option in read_options(tokens):
            if option.name == "default" and isinstance(option.value, str | Word):
                made.default = option.value
            elif option.name == "json_name" and isinstance(option.value, str):
                made.json_name = option.value
            else:
                made.options.append(option)
        tokens.require(";")
        return made

    def _type(self, word: str) -> str:
        tokens = self._tokens
        if word == "map" and tokens.take("<"):
            start = tokens.position()
            key = tokens.word()
            if key in _MAP_KEYS_REFUSED:
                tokens.fail(f"map key must be non-byte, non-floating point scalar: {key}", start)
            tokens.require(",")
            value = tokens.word()
            if value == "map" and tokens.peek() == "<":
                tokens.fail("the value of a map cannot be a map")
            value = self._type(value)
            tokens.require(">")
            return f"map<{key}, {value}>"
        while word.endswith(".") or (not tokens.is_at_end and tokens.peek() == "."):
            word += tokens.word()
        return word

    def _oneof(self) -> OneofElement:
        tokens = self._tokens
        made = OneofElement(tokens.word())
        tokens.require("{")
        while not tokens.take("}"):
            start = tokens.position()
            word = self._type(tokens.word())
            if word == "option":
                made.options.append(self._option())
            elif word == "group":
                made.groups.append(self._group(None))
            elif word.startswith("map<"):
                tokens.fail("map fields are not allowed in oneofs", start)
            else:
                made.fields.append(self._field(None, word))
        return made

    def _group(self, label: str | None) -> GroupElement:
        tokens = self._tokens
        made = GroupElement(label, tokens.word(), 0, [])
        tokens.require("=")
        made.tag = tokens.integer()
        tokens.require("{")
        while not tokens.take("}"):
            start = tokens.position()
            field = self._labelled_field(tokens.word(), start)
            if isinstance(field, GroupElement):
                tokens.fail(f"expected field declaration, was group {field.name:.100}", start)
            made.fields.append(field)
        return made

    def _enum(self) -> EnumElement:
        tokens = self._tokens
        made = EnumElement(tokens.word())
        tokens.require("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            word = tokens.name()
            if word == "option":
                made.options.append(self._option())
            elif word == "reserved":
                made.reserveds.append(self._reserved())
            else:
                tokens.require("=")
                made.constants.append(EnumConstant(word, tokens.integer(), read_options(tokens)))
                tokens.require(";")
        return made

    def _extend(self) -> ExtendElement:
        tokens = self._tokens
        made = ExtendElement(tokens.word())
        tokens.require("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            start = tokens.position()
            field = self._labelled_field(tokens.word(), start)
            if isinstance(field, GroupElement):
                tokens.fail("groups in extensions are not supported", start)
            made.fields.append(field)
        return made

    def _service(self) -> ServiceElement:
        tokens = self._tokens
        made = ServiceElement(tokens.word())
        tokens.require("{")
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            start = tokens.position()
            match tokens.word():
                case "rpc":
                    made.rpcs.append(self._rpc())
                case "option":
                    made.options.append(self._option())
                case word:
                    tokens.fail(f"unexpected label: {word:.100}", start)
        return made

    def _rpc(self) -> RpcElement:
        tokens = self._tokens
        name = tokens.word()
        is_request_stream, request = self._rpc_type()
        start = tokens.position()
        if tokens.word() != "returns":
            tokens.fail("expected 'returns'", start)
        is_response_stream, response = self._rpc_type()
        made = RpcElement(name, request, response, is_request_stream, is_response_stream)
        if not tokens.take("{"):
            tokens.require(";")
            return made
        while not tokens.take("}"):
            if tokens.take(";"):
                continue
            start = tokens.position()
            word = tokens.word()
            if word != "option":
                tokens.fail(f"unexpected label: {word:.100}", start)
            made.options.append(self._option())
        return made

    def _rpc_type(self) -> tuple[bool, str]:
        tokens = self._tokens
        tokens.require("(")
        word = tokens.word()
        is_stream = word == "stream" and tokens.peek() != ")"
        kind = self._type(tokens.word() if is_stream else word)
        tokens.require(")")
        return is_stream, kind

    def _reserved(self) -> ReservedElement:
        values: list[str | int | Range] = []
        tokens = self._tokens
        while True:
            values.append(tokens.quoted() if tokens.is_at_quote() else self._numbers())
            if not tokens.take(","):
                tokens.require(";")
                return ReservedElement(values)

    def _extensions(self) -> ExtensionsElement:
        values = [self._numbers()]
        while self._tokens.take(","):
            values.append(self._numbers())
        options = read_options(self._tokens)
        self._tokens.require(";")
        return ExtensionsElement(values, options)

    def _numbers(self) -> int | Range:
        """Return a number or a range."""
        tokens = self._tokens
        first = tokens.integer()
        if tokens.peek() in ",;[":
            return first
        start = tokens.position()
        if tokens.word() != "to":
            tokens.fail("expected ',', ';', or 'to'", start)
        start = tokens.position()
        if tokens.peek() == "m" and tokens.word() == "max":
            return first, TAG_MAX
        last = tokens.integer()
        if last < first:
            tokens.fail(f"the range {first} to {last} ends before it starts", start)
        return first, last

    def _option(self) -> Option:
        made = read_option(self._tokens)
        self._tokens.require(";")
        return made

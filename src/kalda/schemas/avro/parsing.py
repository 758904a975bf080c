"""Parses Avro schemas as Avro's Java library does, names of other schemas included."""

from collections.abc import Mapping
from typing import Final

from kalda.common.overriding import override
from kalda.schemas.avro.defaults import is_valid_default
from kalda.schemas.avro.names import check_full_name, check_name
from kalda.schemas.avro.normalization import normal_form
from kalda.schemas.avro.tags import tagged_entities, with_tags
from kalda.schemas.avro.text import loads_schema
from kalda.schemas.avro.types import (
    ABSENT,
    PRIMITIVES,
    ArrayType,
    AvroType,
    EnumType,
    Field,
    FixedType,
    MapType,
    Name,
    NamedType,
    RecordType,
    UnionType,
    children,
    replace_children,
)
from kalda.schemas.avro.writing import written
from kalda.schemas.errors import InvalidSchemaError
from kalda.schemas.java_json import java_json
from kalda.schemas.model import ParsedSchema, Schema
from kalda.schemas.tags import Entity, TagChange

DEPTH_MAX: Final = 100
"""Types inside each other, where the text of a type stands at its first use."""
TYPES_MAX: Final = 50_000
"""Of a schema and what it refers to. A type takes a few bytes of text and some hundred of memory."""
NAME_CHARACTERS_MAX: Final = 1_000
"""With the namespace, which all types inside a type have as well."""
_RESERVED: Final = frozenset(
    ("doc", "fields", "items", "name", "namespace", "size", "symbols", "values", "type", "aliases")
)
_ENUM_RESERVED: Final = _RESERVED | {"default"}
_FIELD_RESERVED: Final = frozenset(("default", "doc", "name", "order", "type", "aliases"))
_ORDERS: Final = ("ascending", "descending", "ignore")
_INT_MAX: Final = (1 << 31) - 1
_FIXED_BYTES_MAX: Final = _INT_MAX - 8
"""What Avro's library allows: the longest array of Java's."""


class AvroSchema(ParsedSchema):
    """A parsed Avro schema.

    Attributes:
        root: Its type, with every name in it resolved.
    """

    def __init__(self, schema: Schema, root: AvroType, known: frozenset[str]) -> None:
        super().__init__(schema)
        self.root: Final = root
        self._known: Final = known
        self._canonical: str | None = None

    @property
    @override
    def name(self) -> str | None:
        return self.root.full_name if isinstance(self.root, RecordType) else None

    @override
    def field_names(self) -> frozenset[str]:
        return frozenset(self.root.by_name) if isinstance(self.root, RecordType) else frozenset()

    @override
    def canonical(self) -> str:
        if self._canonical is None:
            self._canonical = written(self.root, self._known)
        return self._canonical

    @override
    def normalized(self) -> str:
        return normal_form(self.root, self._known)

    @override
    def formatted(self, format_name: str) -> str:
        return written(self.root) if format_name.lower() == "resolved" else self.canonical()

    @override
    def tagged_entities(self) -> dict[Entity, list[str]]:
        return tagged_entities(self.root)

    @override
    def with_tags(self, change: TagChange) -> str:
        return with_tags(self.canonical(), change)


def parse(schema: Schema, dependencies: Mapping[str, str], *, is_new: bool) -> AvroSchema:
    """Return a parsed schema; see `kalda.schemas.parsing.parse`.

    Raises:
        InvalidSchemaError: It is none.
    """
    parser = _Parser(is_new)
    known = []
    for name, text in dependencies.items():
        try:
            known.append(parser.parse(text).full_name)
        except InvalidSchemaError as error:
            raise InvalidSchemaError(f"the reference {name:.200}: {error.reason}") from None
    return AvroSchema(schema, parser.parse(schema.text), frozenset(known))


class _Parser:
    """Keeps the names of the schemas before, so that the next one can use them."""

    def __init__(self, is_new: bool) -> None:
        self._is_new: Final = is_new
        self._named: Final[dict[str, NamedType]] = {}
        self._made: list[AvroType] = []
        self._fields: list[Field] = []
        self._count = 0

    def parse(self, text: str) -> AvroType:
        self._made, self._fields = [], []
        root = self._type(loads_schema(text), None)
        root = self._with_names_resolved(root)
        for node in self._made:
            if isinstance(node, UnionType):
                _check_branches(node)
        _check_depth(root)
        if self._is_new:
            for field in self._fields:
                _check_default(field)
        return root

    def _with_names_resolved(self, root: AvroType) -> AvroType:
        for node in self._made:
            inner = children(node)
            if any(each.kind == "name" for each in inner):
                replace_children(node, [self._resolved(each) for each in inner])
        return self._resolved(root)

    def _resolved(self, node: AvroType) -> AvroType:
        """Return the type of a name: it may be defined after its first use."""
        if node.kind != "name":
            return node
        assert isinstance(node, NamedType), node
        found = self._named.get(node.full_name)
        if found is None:
            raise InvalidSchemaError(f"Undefined schema: {node.full_name:.200}")
        return found

    def _type(self, node: object, namespace: str | None) -> AvroType:
        self._count += 1
        if self._count > TYPES_MAX:
            raise InvalidSchemaError(f"the schema has more than {TYPES_MAX} types")
        match node:
            case str():
                return self._by_name(node, namespace)
            case list():
                return self._keep(UnionType(branches=[self._type(each, namespace) for each in node]))
            case dict():
                return self._complex(node, namespace)
        raise InvalidSchemaError(f"Schema not yet supported: {_shown(node)}")

    def _by_name(self, text: str, namespace: str | None) -> AvroType:
        if text in PRIMITIVES:
            return AvroType(text)
        full = f"{namespace}.{text}" if namespace is not None and "." not in text else text
        for name in (full, text):
            if name in self._named:
                return self._named[name]
        return NamedType("name", name=Name(full, None))

    def _complex(self, node: dict[str, object], namespace: str | None) -> AvroType:
        kind = node.get("type")
        match kind:
            case "record" | "error":
                return self._record(node, namespace, str(kind))
            case "enum":
                return self._enum(node, namespace)
            case "fixed":
                return self._fixed(node, namespace)
            case "array" | "map":
                word = "items" if kind == "array" else "values"
                if word not in node:
                    raise InvalidSchemaError(f"{str(kind).title()} has no {word} type: {_shown(node)}")
                inner = self._type(node[word], namespace)
                properties = _properties(node, _RESERVED)
                if kind == "array":
                    return self._keep(ArrayType(properties=properties, items=inner))
                return self._keep(MapType(properties=properties, values=inner))
            case str() if kind in PRIMITIVES:
                return AvroType(kind, _properties(node, _RESERVED))
            case str():
                found = self._by_name(kind, namespace)
                if found.kind != "name":  # older releases of Avro take it as the name alone
                    return found
                raise InvalidSchemaError(
                    f'"{kind:.100}" is not a defined name. The "type" of a schema must be a defined name, '
                    'a primitive type or one of "enum", "fixed", "record", "error", "array" or "map"'
                )
        raise InvalidSchemaError(f"No type: {_shown(node)}")

    def _record(self, node: dict[str, object], namespace: str | None, kind: str) -> AvroType:
        name = self._name(node, namespace)
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchemaError(f"Record has no fields: {_shown(node)}")
        made = RecordType(kind, _properties(node, _RESERVED), name=name, doc=_text(node, "doc"))
        by_name: dict[str, Field] = {}
        for each in fields:
            field = self._field(each, name.namespace)
            if field.name in by_name:
                raise InvalidSchemaError(f"Duplicate field {field.name} in record {name.full}")
            by_name[field.name] = field
        made.fields, made.by_name = list(by_name.values()), by_name
        made.aliases = self._aliases(node, name)
        return self._define(made)

    def _field(self, node: object, namespace: str | None) -> Field:
        if not isinstance(node, dict):
            raise InvalidSchemaError(f"No field name: {_shown(node)}")
        name = _text(node, "name")
        if name is None:
            raise InvalidSchemaError(f"No field name: {_shown(node)}")
        check_name(name, is_strict=self._is_new)
        if "type" not in node:
            raise InvalidSchemaError(f"No field type: {_shown(node)}")
        kind = self._type(node["type"], namespace)
        order = node.get("order", "ascending")
        if not isinstance(order, str) or order.lower() not in _ORDERS:
            raise InvalidSchemaError(
                f"the field {name} has the order {_shown(order)}; allowed are {', '.join(_ORDERS)}"
            )
        default = node.get("default", ABSENT)
        if isinstance(default, str) and kind.kind in ("float", "double"):
            try:
                default = float(default)
            except ValueError:
                raise InvalidSchemaError(
                    f"Invalid default for field {name}: {_shown(default)} not a {kind.kind}"
                ) from None
        field = Field(
            name,
            kind,
            _text(node, "doc"),
            default,
            order.lower(),
            tuple(_alias_texts(node)),
            _properties(node, _FIELD_RESERVED),
        )
        self._fields.append(field)
        return field

    def _enum(self, node: dict[str, object], namespace: str | None) -> AvroType:
        name = self._name(node, namespace)
        symbols = node.get("symbols")
        if not isinstance(symbols, list):
            raise InvalidSchemaError(f"Enum has no symbols: {_shown(node)}")
        seen: dict[str, None] = {}
        for each in symbols:
            if not isinstance(each, str):
                raise InvalidSchemaError(f"the enum {name.full} has the symbol {_shown(each)}, not a text")
            check_name(each, is_strict=self._is_new)
            if each in seen:
                raise InvalidSchemaError(f"Duplicate enum symbol: {each}")
            seen[each] = None
        default = _text(node, "default")
        if default is not None and default not in seen:
            raise InvalidSchemaError(
                f"The Enum Default: {default:.100} is not in the enum symbol set: {_shown(list(seen))}"
            )
        made = EnumType(
            properties=_properties(node, _ENUM_RESERVED),
            name=name,
            doc=_text(node, "doc"),
            aliases=self._aliases(node, name),
            symbols=tuple(seen),
            default=default,
        )
        return self._define(made)

    def _fixed(self, node: dict[str, object], namespace: str | None) -> AvroType:
        name = self._name(node, namespace)
        size = node.get("size")
        if type(size) is not int or not -_INT_MAX <= size <= _INT_MAX:
            raise InvalidSchemaError(f"Invalid or no size: {_shown(node)}")
        if not 0 <= size <= _FIXED_BYTES_MAX:
            raise InvalidSchemaError(
                f"the fixed {name.full} has the size {size}; allowed is 0 to {_FIXED_BYTES_MAX}"
            )
        made = FixedType(
            properties=_properties(node, _RESERVED),
            name=name,
            doc=_text(node, "doc"),
            aliases=self._aliases(node, name),
            size=size,
        )
        return self._define(made)

    def _name(self, node: dict[str, object], namespace: str | None) -> Name:
        text = _text(node, "name")
        if text is None:
            raise InvalidSchemaError(f"No name in schema: {_shown(node)}")
        found = _text(node, "namespace")
        name = self._qualified(text, namespace if found is None else found)
        if name.full in PRIMITIVES:
            raise InvalidSchemaError(f"Schemas may not be named after primitives: {name.full}")
        return name

    def _qualified(self, text: str, namespace: str | None) -> Name:
        if len(text) + len(namespace or "") > NAME_CHARACTERS_MAX:
            raise InvalidSchemaError(
                f"the name {text:.50}... has more than {NAME_CHARACTERS_MAX} characters with its namespace"
            )
        space, dot, last = text.rpartition(".")
        check_name(last, is_strict=self._is_new)
        return Name(last, (space if dot else namespace) or None)

    def _aliases(self, node: dict[str, object], name: Name) -> tuple[Name, ...]:
        return tuple(dict.fromkeys(self._qualified(each, name.namespace) for each in _alias_texts(node)))

    def _define(self, made: NamedType) -> NamedType:
        check_full_name(made.full_name, is_strict=self._is_new)
        known = self._named.setdefault(made.full_name, made)
        self._made.append(made)
        if known is not made and written(known, has_documents=False) != written(made, has_documents=False):
            raise InvalidSchemaError(f"Can't redefine: {made.full_name}")
        return made

    def _keep(self, made: AvroType) -> AvroType:
        self._made.append(made)
        return made


def _check_branches(union: UnionType) -> None:
    seen = set()
    for each in union.branches:
        if isinstance(each, UnionType):
            raise InvalidSchemaError("Nested union: a union stands directly in a union")
        if each.full_name in seen:
            raise InvalidSchemaError(f"Duplicate in union:{each.full_name}")
        seen.add(each.full_name)


def _check_depth(root: AvroType) -> None:
    """Check how deep the text of the schema would nest, where each type stands at its first use."""
    seen: set[int] = set()
    stack = [(root, 1)]
    while stack:
        node, depth = stack.pop()
        if isinstance(node, NamedType):
            if id(node) in seen:
                continue
            seen.add(id(node))
        if depth > DEPTH_MAX:
            raise InvalidSchemaError(f"the schema has more than {DEPTH_MAX} types inside each other")
        stack += [(each, depth + 1) for each in reversed(children(node))]


def _check_default(field: Field) -> None:
    if field.has_default and not is_valid_default(field.type, field.default):
        raise InvalidSchemaError(
            f"Invalid default for field {field.name}: {_shown(field.default)} not a "
            f"{written(field.type):.1000}"
        )


def _properties(node: dict[str, object], reserved: frozenset[str]) -> dict[str, object]:
    return {key: value for key, value in node.items() if key not in reserved}


def _text(node: dict[str, object], key: str) -> str | None:
    """Return a value that is text; Avro ignores one that is not."""
    value = node.get(key)
    return value if isinstance(value, str) else None


def _alias_texts(node: dict[str, object]) -> list[str]:
    found = node.get("aliases", [])
    if not isinstance(found, list):
        raise InvalidSchemaError(f"aliases not an array: {_shown(node)}")
    for each in found:
        if not isinstance(each, str):
            raise InvalidSchemaError(f"alias not a string: {_shown(each)}")
    return list(dict.fromkeys(found))


def _shown(node: object) -> str:
    text = java_json(node)
    return text if len(text) <= _SHOWN_CHARACTERS_MAX else f"{text[:_SHOWN_CHARACTERS_MAX]}..."


_SHOWN_CHARACTERS_MAX: Final = 400

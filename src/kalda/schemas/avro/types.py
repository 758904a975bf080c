"""The types of an Avro schema, with everything that its text says of them.

Named types are shared: a name that stands for a type is this type, so the types of a schema are a graph, and
it may have circles.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

Properties = dict[str, object]

PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
ABSENT: Final = object()
"""In place of a default that a field does not have: JSON's null is one."""


@dataclass(slots=True, eq=False, repr=False)
class AvroType:
    """A type; `kind` is its name in a schema, such as ``record``."""

    kind: str
    properties: Properties = field(default_factory=dict)
    """What is not part of Avro's own words, in the order of the text; ``logicalType`` is one."""

    @property
    def full_name(self) -> str:
        """The name that no other branch of a union may have."""
        return self.kind

    def __repr__(self) -> str:
        # Without what is inside: types may contain themselves.
        return f"{type(self).__name__}({self.full_name})"


@dataclass(slots=True, eq=False, repr=False)
class ArrayType(AvroType):
    """An array of `items`."""

    kind: str = "array"
    items: AvroType = field(kw_only=True)


@dataclass(slots=True, eq=False, repr=False)
class MapType(AvroType):
    """A map with keys of text to `values`."""

    kind: str = "map"
    values: AvroType = field(kw_only=True)


@dataclass(slots=True, eq=False, repr=False)
class UnionType(AvroType):
    """One of several types."""

    kind: str = "union"
    branches: list[AvroType] = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class Name:
    """The name of a type; a namespace of None is the empty one."""

    name: str
    namespace: str | None

    @property
    def full(self) -> str:
        """With the namespace."""
        return self.name if self.namespace is None else f"{self.namespace}.{self.name}"

    def seen_from(self, namespace: str | None) -> str:
        """Return the shortest text that means this name inside a namespace."""
        if self.namespace is not None and self.namespace == namespace and self.name not in _KINDS:
            return self.name
        return self.full


@dataclass(slots=True, eq=False, repr=False)
class NamedType(AvroType):
    """A record, an enum, a fixed, or a name that is not resolved yet (kind ``name``)."""

    name: Name = field(kw_only=True)
    doc: str | None = None
    aliases: tuple[Name, ...] = ()

    @property
    def full_name(self) -> str:
        """The name with its namespace."""
        return self.name.full

    @property
    def alias_names(self) -> list[str]:
        """The full names of the aliases; one without a namespace starts with a dot where the type has one."""
        return [
            f".{each.name}" if each.namespace is None and self.name.namespace is not None else each.full
            for each in self.aliases
        ]


@dataclass(slots=True, eq=False, repr=False)
class Field:
    """A field of a record."""

    name: str
    type: AvroType
    doc: str | None = None
    default: object = ABSENT
    """The JSON of the default."""
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    properties: Properties = field(default_factory=dict)

    @property
    def has_default(self) -> bool:
        """Whether a reader fills it in where the writer has none."""
        return self.default is not ABSENT


@dataclass(slots=True, eq=False, repr=False)
class RecordType(NamedType):
    """A record; the kind is ``record`` or ``error``."""

    fields: list[Field] = field(default_factory=list)
    by_name: Mapping[str, Field] = field(default_factory=dict)


@dataclass(slots=True, eq=False, repr=False)
class EnumType(NamedType):
    """One of several symbols."""

    kind: str = "enum"
    symbols: tuple[str, ...] = ()
    default: str | None = None


@dataclass(slots=True, eq=False, repr=False)
class FixedType(NamedType):
    """A number of bytes."""

    kind: str = "fixed"
    size: int = 0


_KINDS: Final = frozenset((*PRIMITIVES, "record", "enum", "array", "map", "union", "fixed"))


def children(node: AvroType) -> list[AvroType]:
    """Return the types that a type has inside."""
    match node:
        case RecordType():
            return [each.type for each in node.fields]
        case UnionType():
            return node.branches
        case ArrayType():
            return [node.items]
        case MapType():
            return [node.values]
    return []


def replace_children(node: AvroType, types: list[AvroType]) -> None:
    """Put other types in the places of `children`."""
    match node:
        case RecordType():
            for each, kind in zip(node.fields, types, strict=True):
                each.type = kind
        case UnionType():
            node.branches = types
        case ArrayType():
            (node.items,) = types
        case MapType():
            (node.values,) = types

"""Defines the syntax tree of a .proto file, before names are resolved and without comments."""

from dataclasses import dataclass, field
from typing import Final

TAG_MAX: Final = 536_870_911
"""The greatest number of a field; ``max`` in ranges."""
SCALARS: Final = frozenset(
    (
        *("bool", "bytes", "double", "float", "string"),
        *("fixed32", "fixed64", "sfixed32", "sfixed64"),
        *("int32", "int64", "sint32", "sint64", "uint32", "uint64"),
    )
)
Range = tuple[int, int]
"""The first and the last number."""


@dataclass(slots=True)
class Word:
    """A value of an option that stands without quotes: a number, an enum constant, true or false."""

    text: str

    @property
    def is_number(self) -> bool:
        """Whether it is read as a number."""
        return self.text[:1].isdigit() or self.text[:1] == "-"


@dataclass(slots=True)
class Option:
    """An option; the value of ``(a).b = 1`` is the option ``b``."""

    name: str
    value: "str | Word | list[object] | dict[str, object] | Option"
    """A text is a quoted one; lists and the values of maps have what stands here too."""
    is_parenthesized: bool = False


@dataclass(slots=True)
class FieldElement:
    """A field of a message, a oneof, a group or an extension."""

    label: str | None
    """``required``, ``optional`` or ``repeated``."""
    type: str
    """As written: a scalar, ``map<K, V>``, or a name."""
    name: str
    tag: int
    default: "str | Word | None" = None
    json_name: str | None = None
    options: list[Option] = field(default_factory=list)

    @property
    def map_types(self) -> tuple[str, str] | None:
        """The types of key and value of a map."""
        if not self.type.startswith("map<"):
            return None
        key, _, value = self.type[4:-1].partition(", ")
        return key, value


@dataclass(slots=True)
class GroupElement:
    """A group of proto2."""

    label: str | None
    name: str
    tag: int
    fields: list[FieldElement]


@dataclass(slots=True)
class OneofElement:
    """A oneof."""

    name: str
    fields: list[FieldElement] = field(default_factory=list)
    groups: list[GroupElement] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class ExtendElement:
    """Fields that are added to another message."""

    name: str
    fields: list[FieldElement] = field(default_factory=list)


@dataclass(slots=True)
class ReservedElement:
    """Names, numbers and ranges that no field may have."""

    values: list[str | int | Range]


@dataclass(slots=True)
class ExtensionsElement:
    """Numbers that extensions may have."""

    values: list[int | Range]
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class EnumConstant:
    """A constant of an enum."""

    name: str
    tag: int
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class EnumElement:
    """An enum."""

    name: str
    constants: list[EnumConstant] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserveds: list[ReservedElement] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class MessageElement:
    """A message."""

    name: str
    nested: "list[MessageElement | EnumElement]" = field(default_factory=list)
    options: list[Option] = field(default_factory=list)
    reserveds: list[ReservedElement] = field(default_factory=list)
    fields: list[FieldElement] = field(default_factory=list)
    oneofs: list[OneofElement] = field(default_factory=list)
    extensions: list[ExtensionsElement] = field(default_factory=list)
    groups: list[GroupElement] = field(default_factory=list)
    extends: list[ExtendElement] = field(default_factory=list)
    declared: "list[FieldElement | OneofElement | GroupElement | MessageElement]" = field(
        default_factory=list, compare=False, repr=False
    )
    """What stands in several of the lists above, in the order of the text; empty without a text."""

    @property
    def map_types(self) -> tuple[str, str] | None:
        """The types of key and value, if a compiler made this message for a map."""
        if not any(each.name == "map_entry" and each.value == Word("true") for each in self.options):
            return None
        types = {each.name: each.type for each in self.fields}
        return (types["key"], types["value"]) if {"key", "value"} <= types.keys() else None


@dataclass(slots=True)
class RpcElement:
    """A call of a service."""

    name: str
    request: str
    response: str
    is_request_stream: bool = False
    is_response_stream: bool = False
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class ServiceElement:
    """A service."""

    name: str
    rpcs: list[RpcElement] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)


@dataclass(slots=True)
class ProtoFile:
    """A file."""

    package: str | None = None
    syntax: str | None = None
    imports: list[str] = field(default_factory=list)
    public_imports: list[str] = field(default_factory=list)
    weak_imports: list[str] = field(default_factory=list)
    types: list[MessageElement | EnumElement] = field(default_factory=list)
    services: list[ServiceElement] = field(default_factory=list)
    extends: list[ExtendElement] = field(default_factory=list)
    options: list[Option] = field(default_factory=list)

    @property
    def is_proto3(self) -> bool:
        """Whether fields have the rules of proto3."""
        return self.syntax == "proto3"

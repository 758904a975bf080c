"""The model of a schema that comparisons work on: one node for each subschema, by what it constrains.

A subschema with keywords for several types is a `Combined` of nodes. Two equal definitions are different
nodes, so that a change deep in a recursive one is seen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import TypeAlias

Number: TypeAlias = int | Decimal


class Criterion(Enum):
    """How many of its members a value of a combined schema must match."""

    ALL = "allOf"
    ANY = "anyOf"
    ONE = "oneOf"


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Node:
    """What every subschema may have, whatever it constrains."""

    source: object = None
    """The JSON of the subschema; None for a part of one."""
    id: str | None = None
    title: str | None = None
    description: str | None = None
    default: str | None = None
    """Canonical text of the default; None if there is none."""
    is_bytes: bool = False
    """Whether Kafka Connect marked it as bytes, which it writes as a text or as a number."""


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Anything(Node):
    """``true`` or ``{}``."""


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Nothing(Node):
    """``false``."""


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Boolean(Node):
    """``{"type": "boolean"}``."""


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Null(Node):
    """``{"type": "null"}``."""


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class String(Node):
    """Keywords for texts."""

    max_length: Number | None = None
    min_length: Number | None = None
    pattern: str | None = None


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Numeric(Node):
    """Keywords for numbers."""

    maximum: Number | None = None
    minimum: Number | None = None
    exclusive_maximum: Number | None = None
    """None in draft 4, whose keyword is a flag of `maximum`."""
    exclusive_minimum: Number | None = None
    multiple_of: Number | None = None
    is_integer: bool = False


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Object(Node):
    """Keywords for objects."""

    properties: dict[str, Node] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    patterns: dict[str, Node] = field(default_factory=dict)
    allows_additional: bool = True
    """False for ``additionalProperties: false``."""
    additional: Node | None = None
    """The schema of other properties, if ``additionalProperties`` is one."""
    unevaluated: Node | None = None
    required_with: dict[str, frozenset[str]] = field(default_factory=dict)
    """Which properties must be there with one (``dependencies``, ``dependentRequired``)."""
    schema_with: dict[str, Node] = field(default_factory=dict)
    """Which schema the object must match with a property (``dependencies``, ``dependentSchemas``)."""
    max_properties: Number | None = None
    min_properties: Number | None = None


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Array(Node):
    """Keywords for arrays."""

    items: Node | None = None
    """The schema of all items, if they have one."""
    prefix: list[Node] = field(default_factory=list)
    """The schemas of the first items of a tuple."""
    allows_additional: bool = True
    additional: Node | None = None
    """The schema of the items after `prefix`."""
    unevaluated: Node | None = None
    max_items: Number | None = None
    min_items: Number | None = None
    max_contains: Number | None = None
    min_contains: Number | None = None
    is_unique: bool = False


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Enumeration(Node):
    """``enum``."""

    values: frozenset[str]
    """Canonical texts: 1 and 1.0 are different, as they are in Confluent's registry."""


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Constant(Node):
    """``const``."""

    value: str


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Not(Node):
    """``not``."""

    schema: Node


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Conditional(Node):
    """``if``, ``then`` and ``else``, which comparisons do not look into, as in Confluent's registry."""

    parts: Sequence[Node]


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Combined(Node):
    """``allOf``, ``anyOf``, ``oneOf``, or keywords for several types side by side."""

    criterion: Criterion
    members: list[Node]
    is_generated: bool = False
    """Whether it stands for keywords side by side, and not for a keyword of its own."""


@dataclass(eq=False, kw_only=True, repr=False, slots=True)
class Reference(Node):
    """``$ref``."""

    target: Node | None = None
    """What it refers to in the end, never a `Reference`; None while the schema is loaded."""

"""Computes the normal form of an Avro schema: sorted properties and aliases, no empty docs.

Properties are sorted, logical types and their parameters come first, aliases are sorted, an empty doc is
dropped, and the default of a number has the form of its type.
"""

import struct
from collections.abc import Collection
from typing import Final

from kalda.schemas.avro.types import (
    ArrayType,
    AvroType,
    EnumType,
    Field,
    FixedType,
    MapType,
    NamedType,
    Properties,
    RecordType,
    UnionType,
)
from kalda.schemas.java_json import java_json


def normal_form(schema: AvroType, known: Collection[str]) -> str:
    """Return the text of a schema's normal form.

    Args:
        schema: The type.
        known: Full names that another schema defines.
    """
    return java_json(_Normal(set(known)).node(schema, None))


class _Normal:
    def __init__(self, known: set[str]) -> None:
        self._known = known

    def node(self, node: AvroType, namespace: str | None) -> object:
        match node:
            case UnionType():
                return [self.node(each, namespace) for each in node.branches]
            case ArrayType():
                return {"type": "array", "items": self.node(node.items, namespace), **_sorted(node)}
            case MapType():
                return {"type": "map", "values": self.node(node.values, namespace), **_sorted(node)}
            case NamedType():
                return self._named(node, namespace)
        return {"type": node.kind, **_sorted(node)} if node.properties else node.kind

    def _named(self, node: NamedType, namespace: str | None) -> object:
        if node.full_name in self._known:
            return node.name.seen_from(namespace)
        self._known.add(node.full_name)
        # An error is a record here: Confluent writes the kind of the type, which does not know errors.
        made: Properties = {"type": "record" if isinstance(node, RecordType) else node.kind}
        made["name"] = node.name.name
        if node.name.namespace != namespace:
            made["namespace"] = node.name.namespace or ""
        if node.doc:
            made["doc"] = node.doc
        match node:
            case RecordType():
                made["fields"] = [self._field(each, node.name.namespace) for each in node.fields]
            case EnumType():
                made["symbols"] = list(node.symbols)
                if node.default is not None:
                    made["default"] = node.default
            case FixedType():
                made["size"] = node.size
        made.update(_sorted(node))
        if node.aliases:
            in_order = sorted(node.aliases, key=lambda each: each.full)
            made["aliases"] = [each.seen_from(node.name.namespace) for each in in_order]
        return made

    def _field(self, field: Field, namespace: str | None) -> Properties:
        made: Properties = {"name": field.name, "type": self.node(field.type, namespace)}
        if field.doc is not None:
            made["doc"] = field.doc
        if field.has_default:
            made["default"] = _default(field.type, field.default)
        if field.order != "ascending":
            made["order"] = field.order
        if field.aliases:
            made["aliases"] = sorted(field.aliases)
        made.update(sorted(field.properties.items()))
        return made


def _sorted(node: AvroType) -> Properties:
    """Return the properties in order; those of a valid logical type come first."""
    properties = dict(sorted(node.properties.items()))
    logical = properties.get("logicalType")
    if not isinstance(logical, str) or not _is_logical(node, logical):
        return properties
    first: Properties = {"logicalType": logical}
    if logical == "decimal":
        first["precision"] = properties["precision"]
        if properties.get("scale"):
            first["scale"] = properties["scale"]
    return first | properties


_BASES: Final = {
    "date": ("int",),
    "time-millis": ("int",),
    "big-decimal": ("bytes",),
    **dict.fromkeys(
        (
            "time-micros",
            "timestamp-millis",
            "timestamp-micros",
            "timestamp-nanos",
            "local-timestamp-millis",
            "local-timestamp-micros",
            "local-timestamp-nanos",
        ),
        ("long",),
    ),
}
_UUID_BYTES: Final = 16
_DURATION_BYTES: Final = 12


def _is_logical(node: AvroType, logical: str) -> bool:
    """Return whether a logical type may stand on a type; Avro ignores one that may not."""
    match logical:
        case "decimal":
            return _is_decimal(node)
        case "uuid":
            return node.kind == "string" or (isinstance(node, FixedType) and node.size == _UUID_BYTES)
        case "duration":
            return isinstance(node, FixedType) and node.size == _DURATION_BYTES
    return node.kind in _BASES.get(logical, ())


def _is_decimal(node: AvroType) -> bool:
    precision, scale = node.properties.get("precision"), node.properties.get("scale", 0)
    if node.kind not in ("bytes", "fixed") or type(precision) is not int or type(scale) is not int:
        return False
    if isinstance(node, FixedType):
        # As many digits as all values of these bytes have.
        digits = len(str((1 << max(0, 8 * min(node.size, _DECIMAL_BYTES_MAX) - 1)) - 1)) - 1
        if precision > digits and node.size <= _DECIMAL_BYTES_MAX:
            return False
    return precision > 0 and 0 <= scale <= precision


_DECIMAL_BYTES_MAX: Final = 1_000
"""Beyond it, digits are not counted: no precision is as large."""


def _default(kind: AvroType, value: object) -> object:
    """Return a default as the value of its type: the whole number 1 of a double is 1.0."""
    match kind:
        case UnionType():
            others = [each for each in kind.branches if each.kind != "null"]
            fitting = next((each for each in others if _fits(each, value)), None)
            return value if fitting is None else _default(fitting, value)
        case ArrayType() if isinstance(value, list):
            return [_default(kind.items, each) for each in value]
        case MapType() if isinstance(value, dict):
            return {key: _default(kind.values, each) for key, each in value.items()}
        case RecordType() if isinstance(value, dict):
            return {
                key: _default(kind.by_name[key].type, each) if key in kind.by_name else each
                for key, each in value.items()
            }
    if kind.kind in ("float", "double") and type(value) in (int, float):
        assert isinstance(value, int | float)
        return _number(kind.kind, value)
    return value


def _number(kind: str, value: float) -> object:
    try:
        made = float(value)
        if kind == "double":
            return made
        (single,) = struct.unpack("f", struct.pack("f", made))
        # The shortest text that gives the same float, as Java's Float.toString.
        for digits in range(1, 10):
            text = f"{single:.{digits}g}"
            if struct.pack("f", float(text)) == struct.pack("f", single):
                return float(text)
    except OverflowError:
        pass
    return value


def _fits(kind: AvroType, value: object) -> bool:
    match value:
        case bool():
            return kind.kind == "boolean"
        case int() | float():
            return kind.kind in ("int", "long", "float", "double")
        case str():
            return kind.kind in ("string", "enum", "bytes", "fixed")
        case list():
            return kind.kind == "array"
        case dict():
            return kind.kind in ("map", "record", "error")
    return False

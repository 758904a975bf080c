"""Translates Avro schemas to Arrow types, with logical types, and says which ones decode column by column.

Timestamps become microseconds, and what is finer is cut off; ``uuid`` and ``enum`` become strings; a union
with null makes its other type nullable. A decimal of more than 38 digits, such as Kafka Connect's 64, is a
decimal of 38 as long as its scale fits, and else a text. A union of several types has no column type, unless
they are numbers that widen.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from fastavro.schema import SchemaParseException, parse_schema

from kalda.formats.spec import FormatError

VALUE: Final = "value"
"""The column of a schema that is no record."""

AvroType = str | dict[Any, Any] | list[Any]

_PRIMITIVES: Final[Mapping[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
TIMESTAMP_MICROS: Final[Mapping[str, tuple[int, int]]] = {
    "timestamp-millis": (1000, 1),
    "timestamp-micros": (1, 1),
    "timestamp-nanos": (1, 1000),
    "local-timestamp-millis": (1000, 1),
    "local-timestamp-micros": (1, 1),
    "local-timestamp-nanos": (1, 1000),
}
"""By which factor and divisor a long becomes microseconds."""
DECIMAL_DIGITS_MAX: Final = 38
"""The digits of a decimal column, as in Spark, Delta and Iceberg."""
_NUMBERS: Final = ("int", "long", "float", "double")


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A parsed Avro schema with the columns of its values."""

    text: str
    parsed: AvroType
    """As fastavro writes it."""
    plain: AvroType
    """As fastavro reads it: without logical types, of which it knows some only."""
    expanded: AvroType
    """With every named type in place of its name."""
    type: pa.DataType
    """A struct; a schema that is no record has the one field ``value``."""

    @property
    def is_record(self) -> bool:
        """Whether the values are records."""
        return isinstance(self.expanded, Mapping) and self.expanded.get("type") == "record"


def parse_avro(text: str, references: tuple[str, ...] = ()) -> AvroSchema:
    """Return a parsed schema.

    Args:
        text: The schema as JSON.
        references: The schemas of named types that it uses, each after those that it uses itself.

    Raises:
        FormatError: The text is no Avro schema, is recursive, or has a type without a column type.
    """
    named: dict[str, dict[Any, Any]] = {}
    plain_named: dict[str, dict[Any, Any]] = {}
    try:
        for reference in references:
            parse_schema(_document(reference), named)
            parse_schema(_without_logical_types(_document(reference)), plain_named)
        expanded = parse_schema(_document(text), dict(named), expand=True)
        parsed = parse_schema(_document(text), named)
        plain = parse_schema(_without_logical_types(_document(text)), plain_named)
    except RecursionError as error:
        raise FormatError(f"the Avro schema is recursive, so it has no columns: {text[:200]}") from error
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"this is no Avro schema: {type(error).__name__} {error} in {text[:200]}"
        ) from error
    kind = arrow_type(expanded, "")
    if not (isinstance(expanded, Mapping) and expanded.get("type") == "record"):
        kind = pa.struct([pa.field(VALUE, kind)])
    return AvroSchema(text, parsed, plain, expanded, kind)


def _document(text: str) -> Any:
    stripped = text.strip()
    return json.loads(stripped) if stripped[:1] in '{["' else stripped


def _without_logical_types(node: Any) -> Any:
    if isinstance(node, list):
        return [_without_logical_types(branch) for branch in node]
    if not isinstance(node, dict):
        return node
    plain = {key: value for key, value in node.items() if key != "logicalType"}
    for key in ("type", "items", "values"):
        if key in plain:
            plain[key] = _without_logical_types(plain[key])
    if isinstance(plain.get("fields"), list):
        plain["fields"] = [
            {**field, "type": _without_logical_types(field["type"])} for field in plain["fields"]
        ]
    return plain


def arrow_type(node: object, path: str) -> pa.DataType:
    """Return the Arrow type of an expanded Avro type.

    Raises:
        FormatError: There is none.
    """
    if isinstance(node, list):
        return _union_type(node, path)
    if isinstance(node, str):
        if node in _PRIMITIVES:
            return _PRIMITIVES[node]
        raise FormatError(f"{path or 'the schema'} has the Avro type {node!r}: recursive or not defined")
    assert isinstance(node, Mapping), node
    logical, kind = node.get("logicalType"), node.get("type")
    match kind:
        case "record" | "error":
            fields = node["fields"]
            assert isinstance(fields, list)
            return pa.struct(
                [
                    pa.field(f["name"], arrow_type(f["type"], f"{path}.{f['name']}".lstrip(".")))
                    for f in fields
                ]
            )
        case "array":
            return pa.list_(arrow_type(node["items"], f"{path}[]"))
        case "map":
            return pa.map_(pa.string(), arrow_type(node["values"], f"{path}.*"))
        case "enum":
            return pa.string()
        case "bytes" | "fixed" if is_decimal(node):
            precision, scale = node["precision"], node.get("scale", 0)
            if scale > DECIMAL_DIGITS_MAX:
                return pa.string()
            return pa.decimal128(min(precision, DECIMAL_DIGITS_MAX), scale)
        case "fixed":
            return pa.string() if is_uuid(node) else pa.binary()
        case "int" if logical == "date":
            return pa.date32()
        case "long" if logical in TIMESTAMP_MICROS:
            return pa.timestamp("us") if str(logical).startswith("local") else pa.timestamp("us", tz="UTC")
    return arrow_type(kind, path)


def is_decimal(node: Mapping[Any, Any]) -> bool:
    """Return whether bytes are a decimal; by Avro's rules an invalid logical type is none."""
    precision, scale = node.get("precision"), node.get("scale", 0)
    return (
        node.get("logicalType") == "decimal"
        and type(precision) is int
        and type(scale) is int
        and 0 <= scale <= precision
        and precision > 0
    )


def is_uuid(node: Mapping[Any, Any]) -> bool:
    """Return whether a fixed is a UUID."""
    return node.get("logicalType") == "uuid" and node.get("size") == 16


def _union_type(branches: list[object], path: str) -> pa.DataType:
    others = [branch for branch in branches if branch != "null" and branch != {"type": "null"}]
    if len(others) == 1:
        return arrow_type(others[0], path)
    if not others:
        return pa.null()
    names = [branch if isinstance(branch, str) else None for branch in others]
    if all(name in _NUMBERS for name in names):
        return pa.int64() if set(names) <= {"int", "long"} else pa.float64()
    raise FormatError(
        f"{path or 'the schema'} is a union of several types, which is no column; declare a schema without it"
    )


def is_columnar(node: object) -> bool:
    """Return whether the columns of a type can be decoded for all values at once."""
    if isinstance(node, list):
        others = [branch for branch in node if branch != "null"]
        return len(node) == 2 and len(others) == 1 and is_columnar(others[0])
    if isinstance(node, Mapping):
        fields = node.get("fields")
        if isinstance(fields, list):
            return bool(fields) and all(is_columnar(field["type"]) for field in fields)
        if node.get("type") in ("bytes", "fixed") and is_decimal(node):
            return bool(node.get("scale", 0) <= DECIMAL_DIGITS_MAX)
        if node.get("type") in ("fixed", "enum"):
            return not is_uuid(node)
        return is_columnar(node.get("type"))
    return node in _PRIMITIVES and node != "null"

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
from fastavro.schema import parse_schema

from kalda.formats.ddl import DEPTH_MAX
from kalda.formats.json_rows import NESTING_MAX, nesting
from kalda.formats.merging import COLUMNS_MAX
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
_FIELDS_PER_BYTE_MAX: Final = 16
"""Fields of type null beside one that takes a byte, in an item of an array."""


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
    refusal: str | None = None
    """Why its values have no columns of their own; another schema may read them."""

    @property
    def is_record(self) -> bool:
        """Whether the values are records."""
        return isinstance(self.expanded, Mapping) and self.expanded.get("type") == "record"


def parse_avro(text: str, references: tuple[str, ...] = ()) -> AvroSchema:
    """Return a parsed schema whose values have columns.

    Args:
        text: The schema as JSON.
        references: The schemas of named types that it uses, each after those that it uses itself.

    Raises:
        FormatError: The text is no Avro schema, is recursive, or has a type without a column type.
    """
    schema = parse_written(text, references)
    if schema.refusal is not None:
        raise FormatError(schema.refusal)
    return schema


def parse_written(text: str, references: tuple[str, ...] = ()) -> AvroSchema:
    """Return a parsed schema that values are written with: fields that no reader takes may have any type.

    Raises:
        FormatError: The text is no Avro schema, or is recursive.
    """
    named: dict[str, dict[Any, Any]] = {}
    plain_named: dict[str, dict[Any, Any]] = {}
    try:
        for reference in references:
            parse_schema(_document(reference), named)
            parse_schema(_without_logical_types(_document(reference)), plain_named)
        parsed = parse_schema(_document(text), named)
        plain = parse_schema(_without_logical_types(_document(text)), plain_named)
        expanded = _Expansion(named).of(parsed, ())
        _check_items(expanded)
        kind, refusal = _columns_of(expanded)
        for each in (plain, *plain_named.values()):
            _read_defaults(each, plain_named)
    except FormatError:
        raise
    except Exception as error:  # a boundary: fastavro raises what it meets, and fields may be of any kind
        raise FormatError(
            f"this is no Avro schema: {type(error).__name__} {error} in {text[:200]}"
        ) from error
    if not (isinstance(expanded, Mapping) and expanded.get("type") == "record"):
        kind = pa.struct([pa.field(VALUE, kind)])
    return AvroSchema(text, parsed, plain, expanded, kind, refusal)


def _columns_of(expanded: object) -> tuple[pa.DataType, str | None]:
    """Return the type of an expanded schema, or no column and why there is none."""
    try:
        return arrow_type(expanded, ""), None
    except FormatError as error:
        return pa.struct([]), str(error)


class _Expansion:
    """Puts every named type in place of its name, as often as it is named."""

    def __init__(self, named: Mapping[str, AvroType]) -> None:
        self._named: Final = named
        self._count = 0

    def of(self, node: AvroType, path: tuple[str, ...]) -> AvroType:
        """Return a type expanded; `path` has the names and the kinds of the types around it.

        Raises:
            FormatError: It is recursive, not defined, nests too deeply or has too many fields.
        """
        self._count += 1
        if len(path) > DEPTH_MAX or self._count > COLUMNS_MAX:
            raise FormatError(
                f"the Avro schema nests deeper than {DEPTH_MAX} or has more than {COLUMNS_MAX} types"
            )
        if isinstance(node, str):
            if node in _PRIMITIVES:
                return node
            if node in path or node not in self._named:
                reason = "recursive, so it has no columns" if node in path else "not defined"
                raise FormatError(f"the Avro type {node!r} is {reason}")
            return self.of(self._named[node], path)
        if isinstance(node, list):
            return [self.of(branch, (*path, "")) for branch in node]
        made = {key: value for key, value in node.items() if not str(key).startswith("__")}
        match node["type"]:
            case "record" | "error":
                inner = (*path, str(node["name"]))
                made["fields"] = [{**each, "type": self.of(each["type"], inner)} for each in node["fields"]]
            case "array":
                made["items"] = self.of(node["items"], (*path, ""))
            case "map":
                made["values"] = self.of(node["values"], (*path, ""))
            case "enum":
                pass
            case "fixed":
                if not 0 <= int(str(node["size"])) < 1 << 31:
                    raise FormatError(f"the fixed type {node['name']!r} has the size {node['size']}")
            case other:
                made["type"] = self.of(other, (*path, ""))
        return made


def _check_items(node: object) -> None:
    """Check that the items of arrays and maps take bytes, so that their number is bounded by the value's.

    Raises:
        FormatError: A few bytes can stand for any number of items.
    """
    if isinstance(node, list):
        for branch in node:
            _check_items(branch)
    if not isinstance(node, Mapping):
        return
    for field in node.get("fields", ()):
        _check_items(field["type"])
    kind = node.get("type")
    if kind in ("array", "map"):
        item = node["items" if kind == "array" else "values"]
        _check_items(item)
        least = _bytes_min(item) + (kind == "map")
        if not least or _leaves(item) > _FIELDS_PER_BYTE_MAX * least:
            raise FormatError(
                f"the Avro schema has an {kind} whose items take hardly any bytes: {item}"[:400]
            )
    elif isinstance(kind, Mapping | list):
        _check_items(kind)


def _leaves(node: object) -> int:
    """Return how many plain values an expanded type has at most."""
    if isinstance(node, list):
        return max(map(_leaves, node), default=1)
    if not isinstance(node, Mapping):
        return 1
    match node.get("type"):
        case "record" | "error":
            return max(1, sum(_leaves(field["type"]) for field in node["fields"]))
        case "array":
            return _leaves(node["items"])
        case "map":
            return 1 + _leaves(node["values"])
        case kind:
            return _leaves(kind)


def _bytes_min(node: object) -> int:
    """Return how many bytes a value of an expanded type takes at least."""
    if isinstance(node, Mapping):
        kind = node.get("type")
        if kind in ("record", "error"):
            return sum(_bytes_min(field["type"]) for field in node["fields"])
        if kind == "fixed":
            return int(str(node["size"]))
        return 1 if kind in ("array", "map", "enum") else _bytes_min(kind)
    return {"null": 0, "float": 4, "double": 8}.get(str(node), 1) if isinstance(node, str) else 1


def _document(text: str) -> Any:
    stripped = text.strip()
    if nesting(stripped.encode(errors="replace")) > NESTING_MAX:
        raise FormatError(f"the Avro schema nests deeper than {NESTING_MAX} levels")
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


def _read_defaults(node: Any, named: Mapping[str, Any]) -> None:
    """Replace defaults by what fastavro reads for such values: it returns a default as it is."""
    if isinstance(node, list):
        for branch in node:
            _read_defaults(branch, named)
    if not isinstance(node, dict):
        return
    for field in node.get("fields", ()):
        _read_defaults(field["type"], named)
        if "default" in field:
            field["default"] = _default(field["type"], field["default"], named)
    for key in ("type", "items", "values"):
        _read_defaults(node.get(key), named)


def _default(node: Any, value: Any, named: Mapping[str, Any]) -> Any:
    """Return the value of a default in JSON: bytes are a text there, and a record may leave fields out."""
    if isinstance(node, list):
        return None if value is None else _default(_branch_of(node, value, named), value, named)
    if isinstance(node, str) and node in named:
        node = named[node]
    kind = node["type"] if isinstance(node, dict) else node
    match kind:
        case "float" | "double":
            return float(value)
        case "bytes" | "fixed" if isinstance(value, str):
            return value.encode("latin-1")
        case "record" | "error":
            return {
                field["name"]: _default(field["type"], value.get(field["name"], field.get("default")), named)
                for field in node["fields"]
            }
        case "array":
            return [_default(node["items"], item, named) for item in value]
        case "map":
            return {key: _default(node["values"], item, named) for key, item in value.items()}
        case dict() | list():
            return _default(kind, value, named)
    return value


def _branch_of(union: list[Any], value: Any, named: Mapping[str, Any]) -> Any:
    """Return the type of a union that a default has in JSON; the first one where none fits."""
    for branch in union:
        node = named.get(branch, branch) if isinstance(branch, str) else branch
        kind = node["type"] if isinstance(node, dict) else node
        if isinstance(value, _JSON_KINDS.get(str(kind), int | float)):
            return branch
    return union[0]


_JSON_KINDS: Final[Mapping[str, Any]] = {
    "null": type(None),
    "boolean": bool,
    **dict.fromkeys(("string", "bytes", "fixed", "enum"), str),
    **dict.fromkeys(("record", "error", "map"), dict),
    "array": list,
}


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

"""Converts values that fastavro has read without logical types to what their columns take.

fastavro knows only some logical types, and makes Python objects of them that no column takes. The
unit and the scale are those of the schema that a value was written with; a reader's schema with another unit
gets the same moment.
"""

from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from kalda.common.types import UUID
from kalda.formats.avro_resolution import branch_of, source_of
from kalda.formats.avro_schema import DECIMAL_DIGITS_MAX, TIMESTAMP_MICROS, arrow_type, is_decimal, is_uuid

Convert = Callable[[Any], object]
DAY_MICROS: Final = 86_400_000_000
_BYTES_MAX: Final = 256
"""Longer decimals fit no column, and their digits take quadratic time."""


def converter(wanted: object, written: object) -> Convert | None:
    """Return the function that converts values of an expanded Avro type; None for no conversion.

    Args:
        wanted: The type of the column.
        written: The type of the bytes; for a default it is the wanted one.
    """
    if isinstance(wanted, list):
        others = _plain(wanted)
        is_double = others is None and arrow_type(wanted, "") == pa.float64()
        inner = float if is_double else converter(others, written)
        return None if inner is None else lambda value: None if value is None else inner(value)
    if not isinstance(wanted, Mapping):
        return None
    written = branch_of(written, wanted)
    other: Mapping[Any, Any] = written if isinstance(written, Mapping) else {}
    kind = wanted.get("type")
    match kind:
        case "record" | "error":
            return _record(wanted, other)
        case "array":
            item = converter(wanted["items"], other.get("items"))
            return None if item is None else lambda values: [item(value) for value in values]
        case "map":
            entry = converter(wanted["values"], other.get("values"))
            if entry is None:
                return None
            return lambda values: {key: entry(value) for key, value in values.items()}
        case "long" if wanted.get("logicalType") in TIMESTAMP_MICROS:
            if other.get("logicalType") == "date":
                return lambda days: days * DAY_MICROS
            units = [
                node["logicalType"] for node in (other, wanted) if node.get("logicalType") in TIMESTAMP_MICROS
            ]
            factor, divisor = TIMESTAMP_MICROS[units[0]]
            return lambda number: number * factor // divisor
        case "long" if (
            wanted.get("logicalType") == "time-micros" and other.get("logicalType") == "time-millis"
        ):
            return lambda millis: millis * 1000
        case "bytes" | "fixed" if is_decimal(wanted):
            scale = (other if is_decimal(other) else wanted).get("scale", 0)
            is_text = wanted.get("scale", 0) > DECIMAL_DIGITS_MAX
            return lambda value: f"{_decimal(value, scale):f}" if is_text else _decimal(value, scale)
        case "fixed" if is_uuid(wanted):
            return lambda value: str(UUID(bytes=value))
        case dict() | list():
            return converter(kind, written)
    return None


def _plain(node: object) -> object:
    """Return the one type of a union with null; a union of several, which are numbers, has none."""
    if not isinstance(node, list):
        return node
    others = [branch for branch in node if branch != "null"]
    return others[0] if len(others) == 1 else None


def _record(wanted: Mapping[Any, Any], written: Mapping[Any, Any]) -> Convert | None:
    types = {field["name"]: field["type"] for field in written.get("fields", ())}
    converts: dict[str, Convert] = {}
    for field in wanted["fields"]:
        source = source_of(field, types)
        convert = converter(field["type"], field["type"] if source is None else types[source])
        if convert is not None:
            converts[field["name"]] = convert
    if not converts:
        return None

    def record(row: dict[str, object]) -> object:
        # A row may be the default of a field, which all values share.
        return row | {name: convert(row[name]) for name, convert in converts.items()}

    return record


def _decimal(value: bytes, scale: int) -> Decimal:
    if len(value) > _BYTES_MAX:
        raise ValueError(f"a decimal of {len(value)} bytes; at most {_BYTES_MAX} are read")
    return Decimal(f"{int.from_bytes(value, 'big', signed=True)}E-{scale}")

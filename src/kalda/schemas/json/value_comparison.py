"""Compares schemas of plain values: texts, numbers, enumerations, constants."""

from decimal import Context, Decimal, InvalidOperation
from typing import Final

from kalda.schemas.json.differences import Difference, Kind
from kalda.schemas.json.nodes import Constant, Enumeration, Node, Number, Numeric, String
from kalda.schemas.json.steps import limit

_EXACT: Final = Context(prec=1_000, traps=[InvalidOperation])


def compare_annotations(writer: Node, reader: Node) -> list[Difference]:
    """Return the differences in what does not constrain values."""
    found = []
    if writer.id != reader.id:
        found.append(Difference(Kind.ID_CHANGED))
    if writer.title != reader.title:
        found.append(Difference(Kind.TITLE_CHANGED))
    if writer.description != reader.description:
        found.append(Difference(Kind.DESCRIPTION_CHANGED))
    if writer.default != reader.default:
        found.append(Difference(Kind.DEFAULT_CHANGED))
    return found


def compare_values(writer: Node, reader: Node) -> list[Difference]:
    """Return the differences of two schemas of one kind without subschemas."""
    if isinstance(writer, String) and isinstance(reader, String):
        return _strings(writer, reader)
    if isinstance(writer, Numeric) and isinstance(reader, Numeric):
        return _numbers(writer, reader)
    if isinstance(writer, Enumeration) and isinstance(reader, Enumeration):
        return _enumerations(writer, reader)
    if isinstance(writer, Constant) and isinstance(reader, Constant) and writer.value != reader.value:
        return [Difference.at(Kind.ENUM_ARRAY_CHANGED, "const")]
    return []


def _strings(writer: String, reader: String) -> list[Difference]:
    found = limit("maxLength", "MAX_LENGTH", writer.max_length, reader.max_length)
    found += limit("minLength", "MIN_LENGTH", writer.min_length, reader.min_length)
    if writer.pattern != reader.pattern:
        if writer.pattern is None:
            kind = Kind.PATTERN_ADDED
        else:
            kind = Kind.PATTERN_REMOVED if reader.pattern is None else Kind.PATTERN_CHANGED
        found.append(Difference.at(kind, "pattern"))
    return found


def _numbers(writer: Numeric, reader: Numeric) -> list[Difference]:
    found = limit("maximum", "MAXIMUM", writer.maximum, reader.maximum)
    found += limit("minimum", "MINIMUM", writer.minimum, reader.minimum)
    found += limit(
        "exclusiveMaximum", "EXCLUSIVE_MAXIMUM", writer.exclusive_maximum, reader.exclusive_maximum
    )
    found += limit(
        "exclusiveMinimum", "EXCLUSIVE_MINIMUM", writer.exclusive_minimum, reader.exclusive_minimum
    )
    if writer.multiple_of != reader.multiple_of:
        kind = _multiple_of_kind(writer.multiple_of, reader.multiple_of)
        found.append(Difference.at(kind, "multipleOf"))
    if writer.is_integer != reader.is_integer:
        found.append(Difference(Kind.TYPE_EXTENDED if writer.is_integer else Kind.TYPE_NARROWED))
    return found


def _multiple_of_kind(writer: Number | None, reader: Number | None) -> Kind:
    if writer is None:
        return Kind.MULTIPLE_OF_ADDED
    if reader is None:
        return Kind.MULTIPLE_OF_REMOVED
    if _is_multiple(reader, writer):
        return Kind.MULTIPLE_OF_EXPANDED
    return Kind.MULTIPLE_OF_REDUCED if _is_multiple(writer, reader) else Kind.MULTIPLE_OF_CHANGED


def _is_multiple(number: Number, divisor: Number) -> bool:
    try:
        return bool(divisor) and not _EXACT.remainder(Decimal(number), Decimal(divisor))
    except InvalidOperation:  # the quotient has more digits than any real schema needs
        return False


def _enumerations(writer: Enumeration, reader: Enumeration) -> list[Difference]:
    if writer.values == reader.values:
        return []
    if writer.values < reader.values:
        kind = Kind.ENUM_ARRAY_EXTENDED
    else:
        kind = Kind.ENUM_ARRAY_NARROWED if writer.values > reader.values else Kind.ENUM_ARRAY_CHANGED
    return [Difference.at(kind, "enum")]

"""Converts JSON values to rows one at a time; it defines which values are valid, and their rows.

`kalda.formats.json_format` uses this for batches that Arrow's reader refuses, so a row that Arrow accepts
must have the same columns here. The rules are those of Spark's ``from_json``, except that a value which does
not fit is bad and never null in silence:

- a missing field is null, a field that is not declared is ignored, of two equal keys the last one counts;
- a ``string`` field takes any value: what is not a text becomes its JSON text;
- numbers do not become whole numbers by rounding, texts do not become numbers.
"""

import base64
import binascii
import json
import math
import re
from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from kalda.common.json_text import float_word, strict_json
from kalda.formats.ddl import DEPTH_MAX
from kalda.formats.decimals import decimal_of
from kalda.formats.decoded import (
    INVALID_TEXT,
    MALFORMED,
    MISMATCH,
    NULL_FIELD,
    TOO_LARGE,
    BadValueError,
)
from kalda.formats.merging import COLUMNS_MAX, FIELDS_MAX, leaf_count, merged
from kalda.formats.misfits import no_column
from kalda.formats.temporal import date_days, timestamp_micros

Convert = Callable[[object, str], object]
"""Converts a parsed JSON value at a path to what ``pyarrow.array`` takes, or raises `BadValueError`."""

Path = tuple[str, ...]
"""The names of the fields that lead to a part of a value; none to the value itself."""

FieldNames = dict[str, "FieldNames | None"]
"""The names of the fields of a struct, with those inside of them and of the items of arrays."""

EPOCH_MICROS: Final = {"epoch_s": 1_000_000, "epoch_ms": 1_000, "epoch_us": 1}
_TEXT_MAX: Final = 60
_INT_MAX: Final = 1 << 63
DOUBLE_DIGITS: Final = 308
"""A shorter number without an exponent fits a double."""


class NumberText(str):
    """The text of a number with a fraction or an exponent, so that decimals stay exact."""

    __slots__ = ()


class NonFinite(float):
    """One of the words NaN, Infinity and -Infinity, as a number."""

    __slots__ = ()


_WORDS: Final = {
    "NaN": math.nan,
    "Infinity": math.inf,
    "+Infinity": math.inf,
    "+INF": math.inf,
    "-Infinity": -math.inf,
    "-INF": -math.inf,
}
"""Texts that Spark reads as numbers, and writes since JSON has no such numbers."""


def _whole(text: str) -> int | NumberText:
    """Return a whole number, as its text where Python would refuse it."""
    return int(text) if len(text) <= _INT_DIGITS_MAX else NumberText(text)


_INT_DIGITS_MAX: Final = 4_000
_DECODER: Final = json.JSONDecoder(parse_float=NumberText, parse_int=_whole, parse_constant=NonFinite)
NESTING_MAX: Final = 200
"""Open brackets inside each other; parsers recurse, and the stacks of Python and C are finite."""
OBJECTS_MAX: Final = 30_000
"""Objects of a value without a declared schema: each item of an array gets the fields of all others."""
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_OPENING: Final = np.isin(np.arange(256), list(b"{["))
_CLOSING: Final = np.isin(np.arange(256), list(b"}]"))


def nesting(value: bytes) -> int:
    """Return how many brackets of a JSON text are open inside each other at most."""
    data = np.frombuffer(_TEXT.sub(b"", value), np.uint8)
    if not len(data):
        return 0
    steps = _OPENING[data].astype(np.int64) - _CLOSING[data]
    return int(np.cumsum(steps).max())


def openers(data: np.ndarray[tuple[int], np.dtype[np.uint8]]) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return where in some JSON the opening brackets are, those in texts included."""
    return np.flatnonzero(_OPENING[data])


def parse_json(value: bytes) -> object:
    """Return a parsed JSON value; numbers with a fraction stay text.

    Raises:
        BadValueError: The bytes are not UTF-8, not one JSON value, or nest deeper than `NESTING_MAX`.
    """
    if value.count(b"{") + value.count(b"[") > NESTING_MAX and nesting(value) > NESTING_MAX:
        raise BadValueError(TOO_LARGE, f"the JSON nests deeper than {NESTING_MAX} levels")
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        raise BadValueError(INVALID_TEXT, f"not UTF-8: {error.reason} at byte {error.start}") from error
    try:
        parsed: object = _DECODER.decode(text)
    except json.JSONDecodeError as error:
        raise BadValueError(MALFORMED, f"not JSON: {error.msg} at character {error.pos}") from error
    return parsed


def json_text(value: object) -> str:
    """Return the shortest JSON text of a parsed value, numbers as they were written."""
    if isinstance(value, NumberText):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{_text(key)}:{json_text(child)}" for key, child in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(json_text, value)) + "]"
    return _text(value)


def _text(value: object) -> str:
    return strict_json(value)


def converter(kind: pa.DataType, timestamps: str) -> Convert:
    """Return the function that converts parsed values to a type.

    Args:
        kind: The declared type.
        timestamps: ``iso``, or the unit of numbers: ``epoch_s``, ``epoch_ms``, ``epoch_us``.
    """
    types = pa.types
    if types.is_struct(kind):
        return _struct(kind, timestamps)
    if types.is_list(kind):
        return _list(converter(kind.value_type, timestamps))
    if types.is_map(kind):
        return _map(converter(kind.item_type, timestamps))
    if types.is_timestamp(kind):
        return _timestamp(timestamps)
    if types.is_integer(kind):
        bits = kind.bit_width - (1 if types.is_signed_integer(kind) else 0)
        return _integer(-(1 << bits) if types.is_signed_integer(kind) else 0, (1 << bits) - 1, str(kind))
    if types.is_decimal(kind):
        return _decimal(kind.precision, kind.scale)
    if types.is_float32(kind):
        return _float
    if types.is_floating(kind):
        return _double
    if types.is_date(kind):
        return _parsed(date_days, "a date like 2026-11-22")
    if types.is_binary(kind) or types.is_large_binary(kind):
        return _parsed(base64_bytes, "base64 text")
    if types.is_boolean(kind):
        return _boolean
    assert types.is_string(kind) or types.is_large_string(kind), f"a schema of JSON values has type {kind}"
    return _string


def _struct(kind: pa.DataType, timestamps: str) -> Convert:
    fields = [(f.name, converter(f.type, timestamps), f.nullable) for f in kind]

    def convert(value: object, path: str) -> object:
        if not isinstance(value, dict):
            raise mismatch(path, "an object", value)
        row: dict[str, object] = {}
        get = value.get
        for name, convert_field, optional in fields:
            found = get(name)
            if found is not None:
                row[name] = convert_field(found, f"{path}.{name}" if path else name)
            elif not optional:
                raise BadValueError(NULL_FIELD, f"{path + '.' if path else ''}{name} is null; it is NOT NULL")
        return row

    return convert


def field_names(kind: pa.DataType) -> FieldNames | None:
    """Return the names of the fields of a struct, or of the items of an array; None for another type."""
    if pa.types.is_list(kind):
        return field_names(kind.value_type)
    return {field.name: field_names(field.type) for field in kind} if pa.types.is_struct(kind) else None


def check_columns(value: object, names: FieldNames | None, path: str) -> None:
    """Refuse a value of which a field would be lost, since it is no column.

    By itself it would be one. The values beside it have too many fields together.

    Raises:
        BadValueError: there is such a field.
    """
    if names is None:
        return
    if isinstance(value, list):
        for item in value:
            check_columns(item, names, f"{path}[]")
    elif isinstance(value, dict):
        for name, child in value.items():
            field = f"{path}.{name}" if path else name
            if name in names:
                check_columns(child, names[name], field)
            elif not _is_empty(child):
                raise no_column(field)


def _is_empty(value: object) -> bool:
    """Return whether a value shows no type: null, or objects and arrays of nothing else."""
    if isinstance(value, dict):
        return all(map(_is_empty, value.values()))
    return value is None or (isinstance(value, list) and all(map(_is_empty, value)))


def _list(element: Convert) -> Convert:
    def convert(value: object, path: str) -> object:
        if not isinstance(value, list):
            raise mismatch(path, "an array", value)
        return [None if item is None else element(item, f"{path}[]") for item in value]

    return convert


def _map(item: Convert) -> Convert:
    def convert(value: object, path: str) -> object:
        if not isinstance(value, dict):
            raise mismatch(path, "an object", value)
        return [(_string(k, path), None if v is None else item(v, f"{path}.{k}")) for k, v in value.items()]

    return convert


def _timestamp(form: str) -> Convert:
    if form == "iso":
        return _parsed(timestamp_micros, "an ISO 8601 timestamp (or set timestamp_format=epoch_ms)")
    factor = EPOCH_MICROS[form]
    lowest, highest = -((1 << 63) // factor), ((1 << 63) - 1) // factor

    def convert(value: object, path: str) -> object:
        if type(value) is not int or not lowest <= value <= highest:
            raise mismatch(path, f"a whole number of {form.removeprefix('epoch_')} since 1970", value)
        return value * factor

    return convert


def _parsed(parse: Callable[[str], object | None], expected: str) -> Convert:
    def convert(value: object, path: str) -> object:
        parsed = parse(value) if type(value) is str else None
        if parsed is None:
            raise mismatch(path, expected, value)
        return parsed

    return convert


def _integer(lowest: int, highest: int, name: str) -> Convert:
    def convert(value: object, path: str) -> object:
        if type(value) is not int or not lowest <= value <= highest:
            raise mismatch(path, f"a whole number of type {name}", value)
        return value

    return convert


def _decimal(precision: int, scale: int) -> Convert:
    def convert(value: object, path: str) -> object:
        if type(value) is int or isinstance(value, str):
            fitted = decimal_of(value, precision, scale)
            if fitted is not None:
                return fitted
        raise mismatch(path, f"a number that fits decimal({precision},{scale})", value)

    return convert


def _double(value: object, path: str) -> object:
    if type(value) is NumberText:
        number = float(value)
        if math.isinf(number):
            raise mismatch(path, "a number that fits double", value)
        return number
    if type(value) is int:
        try:
            return float(value)
        except OverflowError as error:
            raise mismatch(path, "a number that fits double", value) from error
    if type(value) is NonFinite:
        return float(value)
    if type(value) is str and value in _WORDS:
        return _WORDS[value]
    raise mismatch(path, "a number", value)


def _float(value: object, path: str) -> object:
    number = _double(value, path)
    assert isinstance(number, float), f"{path} is {number!r}"
    with np.errstate(over="ignore"):
        is_large = math.isfinite(number) and math.isinf(np.float64(number).astype(np.float32))
    if is_large:
        raise mismatch(path, "a number that fits float", value)
    return number


def _boolean(value: object, path: str) -> object:
    if type(value) is not bool:
        raise mismatch(path, "true or false", value)
    return value


def _string(value: object, path: str) -> str:
    if type(value) is NonFinite:
        return str(float_word(value))
    text = value if type(value) is str else json_text(value)
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadValueError(INVALID_TEXT, f"{path or 'the value'} has half a surrogate pair") from error
    return text


def mismatch(path: str, expected: str, value: object) -> BadValueError:
    """Return the failure of a value that is not of the declared type."""
    text = json_text(value)
    if len(text) > _TEXT_MAX:
        text = text[:_TEXT_MAX] + "…"
    text = text.encode(errors="replace").decode()
    return BadValueError(MISMATCH, f"{path or 'the value'} is {text}; {expected} is expected")


def value_at(value: object, path: Path) -> object:
    """Return a part of a parsed value; None without one."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def parse_object(value: bytes, rows: Sequence[Path] = ((),)) -> dict[str, object]:
    """Return a parsed JSON object whose fields, or those of some objects in it, can be columns.

    Raises:
        BadValueError: It is none; or it has a number beyond double, half a surrogate pair, more fields than a
            table has columns, or more than `OBJECTS_MAX` objects.
    """
    if value.count(b"{") > OBJECTS_MAX:
        raise BadValueError(TOO_LARGE, f"the value has more than {OBJECTS_MAX} objects; declare a schema")
    parsed = parse_json(value)
    if not isinstance(parsed, dict):
        raise mismatch("", "an object", parsed)
    if b"\\ud" in value or b"\\uD" in value:
        try:
            json_text(parsed).encode()
        except UnicodeEncodeError as error:
            raise BadValueError(INVALID_TEXT, "the value has half a surrogate pair") from error
    if b"e" in value or b"E" in value or len(value) > DOUBLE_DIGITS:
        _check_numbers(parsed, "")
    if value.count(b":") > COLUMNS_MAX:
        count = max(_column_count(value_at(parsed, path)) for path in rows)
        if count > COLUMNS_MAX:
            raise BadValueError(
                TOO_LARGE, f"the value has {count} fields; up to {COLUMNS_MAX} can be columns"
            )
    return parsed


def _column_count(row: object) -> int:
    if isinstance(row, dict) and len(row) > COLUMNS_MAX:
        return len(row)
    return leaf_count(infer([row]))


def _check_numbers(value: object, path: str) -> None:
    if isinstance(value, dict):
        for key, child in value.items():
            _check_numbers(child, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for child in value:
            _check_numbers(child, f"{path}[]")
    elif type(value) is NumberText or (type(value) is int and not -_INT_MAX < value < _INT_MAX):
        _double(value, path)


def infer(values: list[object]) -> pa.DataType:
    """Return the type of parsed values; null, alone or inside, where no value shows one.

    A whole number and a number with a fraction are a double, as in Spark, and a whole number beyond 64 bits
    too. Texts stay texts, whatever they look like. Other kinds that differ are a union. Types of several
    calls are merged with `kalda.formats.merging.merged`.
    """
    return _infer(values, 0)


def _infer(values: list[object], depth: int) -> pa.DataType:
    kinds = {_kind(value) for value in values if value is not None}
    if depth > DEPTH_MAX:
        return pa.string() if kinds else pa.null()
    found = pa.null()
    for kind in sorted(kinds):
        found = merged(found, _type_of(kind, values, depth), depth)
    return found


def _type_of(kind: str, values: list[object], depth: int) -> pa.DataType:
    """Return the type of those values that are of a kind."""
    if kind == "object":
        children: dict[str, list[object]] = {}
        for value in values:
            if isinstance(value, dict):
                for key, child in value.items():
                    children.setdefault(key, []).append(child)
        if depth and len(children) > FIELDS_MAX:
            return pa.string()
        return pa.struct([(key, _infer(each, depth + 1)) for key, each in children.items()])
    if kind == "array":
        return pa.list_(
            _infer([item for value in values if isinstance(value, list) for item in value], depth + 1)
        )
    return _PLAIN[kind]


_PLAIN: Final = {"bool": pa.bool_(), "int": pa.int64(), "double": pa.float64(), "string": pa.string()}


def _kind(value: object) -> str:
    if isinstance(value, dict):
        return "object"
    if isinstance(value, list):
        return "array"
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int):
        return "int" if -(1 << 63) <= value < 1 << 63 else "double"
    return "double" if isinstance(value, NumberText | NonFinite) else "string"


def base64_bytes(text: str) -> bytes | None:
    """Return the bytes of a base64 text, or None when it is not one."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None

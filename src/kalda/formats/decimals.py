"""Reads decimals that are written as text, exactly or not at all, and rounds decimals to floating types.

Arrow's parser must not get a number with an exponent: it looks powers of ten up without a check of the
bounds, and gives another number or ends the process. What it reads, it scales without a check of the digits,
so that the scaled number has to have room, and is checked afterwards.
"""

import re
from decimal import Context, Decimal, InvalidOperation
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DIGITS_MAX: Final = 38
_INTEGER_DIGITS: Final = 20


def read_type(kind: pa.Decimal128Type) -> pa.Decimal256Type:
    """Return the type that Arrow's parser may read for a decimal; a cast to the decimal checks the rest.

    It has room for the digits of any number that the parser takes, also behind its scaling.
    """
    return pa.decimal256(_DIGITS_MAX, kind.scale)


def of_integers(integers: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return integers as decimals of a type.

    Arrow's own cast refuses a type that does not hold all integers of the given one, whatever the values are.

    Raises:
        pa.ArrowInvalid: A number does not fit.
    """
    return integers.cast(pa.decimal256(_INTEGER_DIGITS + kind.scale, kind.scale)).cast(kind)


def as_floats(decimals: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return decimals as the nearest numbers of a floating type, as Java does.

    Arrow's own cast multiplies by a power of ten that is rounded itself.
    """
    return decimals.cast(pa.string()).cast(kind)


def decimal_of(number: int | str, precision: int, scale: int) -> Decimal | None:
    """Return a number as a decimal of a type; None when it is no number, or digits would be lost."""
    if isinstance(number, str) and not _NUMBER.fullmatch(number):
        return None
    try:
        exact = Decimal(number)
        fitted = exact.quantize(Decimal(1).scaleb(-scale), context=Context(prec=precision))
    except InvalidOperation:
        return None
    return fitted if fitted == exact else None


def parse_decimals(texts: pa.StringArray, kind: pa.Decimal128Type) -> pa.Array | None:
    """Return texts as decimals, or None when one of them is none."""
    if pc.any(pc.match_substring_regex(texts, "[eE]")).as_py():
        found = [
            None if text is None else decimal_of(text, kind.precision, kind.scale)
            for text in texts.to_pylist()
        ]
        decimals = pa.array(found, kind)
        return decimals if decimals.null_count == texts.null_count else None
    try:
        return texts.cast(read_type(kind)).cast(kind)
    except pa.ArrowInvalid:
        return None

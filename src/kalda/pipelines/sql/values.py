"""Defines a compiled expression: its type, and the function that computes it for a batch of rows.

Spark evaluates branches of ``case``, the right sides of ``and`` and ``or``, and the arguments of ``coalesce``
only for the rows that need them, so that ``case when b <> 0 then a / b end`` does not fail. `values_where`
keeps that: an expression that may fail is computed for the chosen rows only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.ddl import type_ddl
from kalda.formats.decimals import as_floats, of_integers
from kalda.formats.spec import FormatError
from kalda.pipelines.sql.nodes import UnsupportedSqlError

INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
FLOATS: Final = (pa.float32(), pa.float64())
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_INTEGER_DIGITS: Final = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}


@dataclass(frozen=True, slots=True)
class Compiled:
    """An expression over the columns of a batch.

    Args:
        type: The type of the values.
        values: Computes one value for each row.
        may_fail: Whether `values` raises `SqlError` for some rows.
        constant: The value, when it is the same for all rows.
    """

    type: pa.DataType
    values: Callable[[pa.RecordBatch], pa.Array]
    may_fail: bool = False
    constant: pa.Scalar | None = None


def constant(value: pa.Scalar) -> Compiled:
    """Return an expression with one value for all rows."""
    return Compiled(value.type, lambda rows: pa.repeat(value, rows.num_rows), False, value)


def applied(
    kind: pa.DataType,
    function: Callable[..., pa.Array],
    *arguments: Compiled,
    fails: bool = False,
    takes_nulls: bool = False,
    is_reversed: bool = False,
) -> Compiled:
    """Return an expression that applies a function to the values of its arguments.

    Args:
        kind: The type of the values.
        function: Returns null for a row where an argument is null, unless `takes_nulls`.
        arguments: Computed in their order, or from the last one with `is_reversed`; each only for the rows in
            which those before it are not null, as Spark does it.
        fails: Whether the function raises `SqlError` for some rows.
    """
    if not fails and arguments and all(argument.constant is not None for argument in arguments):
        return constant(function(*[pa.array([a.constant], a.type) for a in arguments])[0].cast(kind))
    ordered = arguments[::-1] if is_reversed else arguments
    is_eager = takes_nulls or not any(argument.may_fail for argument in ordered[1:])

    def values(rows: pa.RecordBatch) -> pa.Array:
        if is_eager:
            return function(*[argument.values(rows) for argument in arguments])
        found: list[pa.Array] = []
        wanted = pa.repeat(pa.scalar(True), rows.num_rows)
        for argument in ordered:
            found.append(values_where(argument, rows, wanted))
            wanted = pc.and_(wanted, found[-1].is_valid())
        return function(*(found[::-1] if is_reversed else found))

    return Compiled(kind, values, fails or any(argument.may_fail for argument in arguments))


def values_where(expression: Compiled, rows: pa.RecordBatch, mask: pa.BooleanArray) -> pa.Array:
    """Return the values of the rows for which `mask` is true; the others are undefined.

    `mask` has no nulls. Only the chosen rows are computed when the expression may fail.
    """
    if not expression.may_fail:
        return expression.values(rows)
    chosen = mask.to_numpy(zero_copy_only=False)
    count = int(chosen.sum())
    if count == rows.num_rows:
        return expression.values(rows)
    if not count:
        return pa.nulls(rows.num_rows, expression.type)
    found = expression.values(rows.filter(mask))
    return found.take(pa.array(np.cumsum(chosen) - 1, pa.int64(), mask=~chosen))


def is_true(mask: pa.BooleanArray) -> pa.BooleanArray:
    """Return a mask with false for null."""
    return mask if mask.null_count == 0 else pc.fill_null(mask, False)


def type_name(kind: pa.DataType) -> str:
    """Return the name of a type in messages."""
    try:
        return type_ddl(kind)
    except FormatError:
        return str(kind)


def converted(expression: Compiled, kind: pa.DataType) -> Compiled:
    """Return an expression as a wider type; this never fails for a row."""
    if expression.type == kind:
        return expression

    def convert(values: pa.Array) -> pa.Array:
        if kind in FLOATS:
            is_decimal = pa.types.is_decimal(values.type)
            return as_floats(values, kind) if is_decimal else values.cast(kind, safe=False)
        is_integer = pa.types.is_integer(values.type)
        return of_integers(values, kind) if is_integer and pa.types.is_decimal(kind) else values.cast(kind)

    return applied(kind, convert, expression)


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    """Return the type to which Spark converts both sides of a comparison, or the branches of ``case``.

    Raises:
        UnsupportedSqlError: There is none, or Kalda does not convert to it.
    """
    if one == other or pa.types.is_null(other):
        return one
    if pa.types.is_null(one):
        return other
    numbers = (*INTEGERS, *FLOATS)
    if one in INTEGERS and other in INTEGERS:
        return max(one, other, key=INTEGERS.index)
    if pa.float64() in (one, other) and all(k in numbers or pa.types.is_decimal128(k) for k in (one, other)):
        return pa.float64()
    decimals = [_as_decimal(kind) for kind in (one, other)]
    if decimals[0] is not None and decimals[1] is not None:
        scale = max(decimals[0][1], decimals[1][1])
        precision = scale + max(p - s for p, s in (decimals[0], decimals[1]))
        if precision <= 38:
            return pa.decimal128(precision, scale)
    if {one, other} == {pa.date32(), TIMESTAMP}:
        return TIMESTAMP
    raise UnsupportedSqlError(
        f"{type_name(one)} with {type_name(other)} is not evaluated by Kalda; add a cast"
    )


def _as_decimal(kind: pa.DataType) -> tuple[int, int] | None:
    if pa.types.is_decimal128(kind):
        return kind.precision, kind.scale
    return (_INTEGER_DIGITS[kind], 0) if kind in _INTEGER_DIGITS else None

"""Converts columns to other types where every value stays the same: for tables, and for values with a schema.

Numbers become other numbers where nothing is lost, times get another unit, and nothing becomes a text.
"""

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.decimals import of_integers
from kalda.formats.decoded import EncodeError
from kalda.formats.spec import FormatError

_TEXTS: Final = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES: Final = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
    pa.types.is_binary_view,
)
_INTEGERS: Final = (pa.types.is_integer,)
_FLOATS: Final = (pa.types.is_floating,)
_DECIMALS: Final = (pa.types.is_decimal,)
_DATES: Final = (pa.types.is_date,)
_TIMES: Final = (pa.types.is_time,)
_CASTS: Final = (
    (_TEXTS, _TEXTS),
    (_BYTES, _BYTES),
    (_INTEGERS, _INTEGERS + _FLOATS + _DECIMALS),
    (_FLOATS, _INTEGERS + _FLOATS),
    (_DECIMALS, _INTEGERS + _DECIMALS),
    (_DATES, _DATES),
    (_TIMES, _TIMES),
)
"""Which kinds of types are converted to which, beside timestamps."""


def can_convert(source: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether values of a plain type may be values of another one."""
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(kind):
        return (source.tz is None) == (kind.tz is None)
    return any(_is_one(source, ours) and _is_one(kind, theirs) for ours, theirs in _CASTS)


def exactly(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as another type for which `can_convert` holds.

    Raises:
        pa.ArrowInvalid: a value does not fit.
    """
    is_time = pa.types.is_timestamp(column.type) or pa.types.is_time(column.type)
    if is_time and column.type.unit == "ns":
        return column.cast(kind, safe=False)  # tables have microseconds
    if pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
        return of_integers(column, kind)
    made = column.cast(kind)
    if pa.types.is_floating(column.type) and pa.types.is_floating(kind):
        same = pc.or_kleene(pc.equal(made.cast(column.type), column), pc.is_nan(column))
        if pc.all(same).as_py() is False:
            raise pa.ArrowInvalid("digits are lost")
    return made


def check_written(source: pa.DataType, kind: pa.DataType, path: str = "") -> None:
    """Check that rows of a type can be written as values whose schema has another one.

    Raises:
        FormatError: a column is of another kind than its field, or has none.
    """
    types = pa.types
    if source == kind or types.is_null(source):
        return
    if types.is_dictionary(source):
        check_written(source.value_type, kind, path)
    elif types.is_struct(source) and types.is_struct(kind):
        for field in source:
            if kind.get_field_index(field.name) < 0:
                raise FormatError(f"the schema has no field for {_joined(path, field.name)}")
            check_written(field.type, kind.field(field.name).type, _joined(path, field.name))
    elif _is_list(source) and _is_list(kind):
        check_written(source.value_type, kind.value_type, f"{path}[]")
    elif types.is_map(source) and types.is_map(kind):
        check_written(source.key_type, kind.key_type, path)
        check_written(source.item_type, kind.item_type, f"{path}.*")
    elif not (_is_left(source, kind) or can_convert(source, kind)):
        raise FormatError(
            f"the column {path} is {source}, and the schema has {kind}; cast it in the transform"
        )


def written(column: pa.Array, kind: pa.DataType, path: str = "") -> pa.Array:
    """Return rows as the type that their schema has; fields that the rows lack stay away.

    Raises:
        EncodeError: a value does not fit; the message names its column.
    """
    source, types = column.type, pa.types
    if source == kind or types.is_null(source):
        return column
    if types.is_dictionary(source):
        return written(column.dictionary_decode(), kind, path)
    if (column.offset or column.null_count) and types.is_nested(source):
        column = column.take(
            pa.array(range(len(column)), pa.int64())
        )  # no mask beside offsets, no hidden items
    mask = column.is_null() if column.null_count else None
    if types.is_struct(source):
        if not len(source):
            return column
        parts = [
            written(child, kind.field(field.name).type, _joined(path, field.name))
            for child, field in zip(column.flatten(), source, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, [field.name for field in source], mask=mask)
    if _is_list(source):
        items = written(column.values, kind.value_type, f"{path}[]")
        made = pa.ListArray if types.is_list(source) else pa.LargeListArray
        return made.from_arrays(column.offsets, items, mask=mask)
    if types.is_map(source):
        keys, items = (
            written(column.keys, kind.key_type, path),
            written(column.items, kind.item_type, f"{path}.*"),
        )
        return pa.MapArray.from_arrays(column.offsets, keys, items, mask=mask)
    if _is_left(source, kind):
        return column
    try:
        return exactly(column, kind)
    except pa.ArrowInvalid as error:
        raise EncodeError(f"a value of the column {path} does not fit {kind}: {error}") from error


def _is_left(source: pa.DataType, kind: pa.DataType) -> bool:
    """Return whether the encoder converts a type itself: timestamps, and times of day to integers."""
    types = pa.types
    if types.is_timestamp(source):
        return bool(types.is_timestamp(kind))
    return bool(types.is_time(source) and types.is_integer(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _is_one(kind: pa.DataType, tests: Sequence[Callable[[pa.DataType], bool]]) -> bool:
    return any(test(kind) for test in tests)

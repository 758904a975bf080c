"""Finds rows that lose a value, or change it, as rows of the columns of a batch: these become failures.

Columns keep the types of earlier batches (`kalda.formats.merging.extended`). A schema of a registry may have
a field of a type that has nothing in common with the column's, or, beside others with too many fields, one
that is no column. Only the values that have something there are bad.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pyarrow as pa

from kalda.formats.decoded import MISMATCH, NO_COLUMN, BadValueError, Decoded, DecodeFailure
from kalda.formats.decoded import merged as ordered
from kalda.formats.merging import FIELDS_MAX, converted, has_text_or_number, item_places, shows_type


def fitted(decoded: Decoded, kind: pa.StructType) -> Decoded:
    """Return decoded values as rows of a type.

    The failure of a value with a nested field that is no column names it as `DecodeFailure.lost`.

    Raises:
        ColumnsChangedError: A value has a field that is no column, and is none of a nested object.
    """
    rows = decoded.columns
    if rows.type == kind:
        return decoded
    failures: list[DecodeFailure] = []
    is_bad = np.zeros(len(rows), np.bool_)
    for found, path, reason in _misfits(rows, kind, ""):
        is_found = found.to_numpy(zero_copy_only=False)
        lost = path if reason.error_class == NO_COLUMN else None
        new = np.flatnonzero(is_found & ~is_bad).tolist()
        failures += [replace(reason.at(row), lost=lost) for row in new]
        is_bad |= is_found
    if failures:
        rows = rows.take(pa.array(np.arange(len(rows)), mask=is_bad))
    return Decoded(converted(rows, kind), ordered([*decoded.errors, *failures]))


def no_column(path: str) -> BadValueError:
    """Return the failure of a value with a field that would be lost, since it is no column."""
    return BadValueError(
        NO_COLUMN,
        f"{path} is no column: the values of a batch have more than {FIELDS_MAX} fields there; "
        "declare a schema with those that you need",
    )


def _misfits(
    array: pa.Array, kind: pa.DataType, path: str
) -> Iterator[tuple[pa.BooleanArray, str, BadValueError]]:
    """Yield which values do not fit a type, where and why, for each part of them."""
    own = array.type
    if own == kind:
        return
    if pa.types.is_struct(own) and pa.types.is_struct(kind):
        for field, child in zip(own, array.flatten(), strict=True):
            place = f"{path}.{field.name}" if path else field.name
            index = kind.get_field_index(field.name)
            if index >= 0:
                yield from _misfits(child, kind.field(index).type, place)
            elif path:  # the fields of a value are columns, however many
                yield shows_type(child), place, no_column(place)
    elif pa.types.is_list(own) and pa.types.is_list(kind):
        yield from _of_items(array, array.values, kind.value_type, f"{path}[]")
    elif pa.types.is_map(own) and pa.types.is_map(kind) and own.key_type == kind.key_type:
        yield from _of_items(array, array.items, kind.item_type, f"{path}[]")
    elif not has_text_or_number(own, kind):
        yield (
            shows_type(array),
            path,
            BadValueError(MISMATCH, f"{path} is {own}; {kind} is expected, as earlier values had it"),
        )


def _of_items(
    lists: pa.Array, items: pa.Array, kind: pa.DataType, path: str
) -> Iterator[tuple[pa.BooleanArray, str, BadValueError]]:
    """Yield which lists or maps have items that do not fit a type, where and why."""
    parents = item_places(lists, len(items))
    is_own = parents >= 0
    own = items if is_own.all() else items.filter(pa.array(is_own))
    for found, place, reason in _misfits(own, kind, path):
        bad = np.zeros(len(lists), np.bool_)
        bad[parents[is_own][found.to_numpy(zero_copy_only=False)]] = True
        yield pa.array(bad), place, reason

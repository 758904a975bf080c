"""Splits values by a schema registry's framing: a zero byte, the schema's id in four bytes, the value.

A batch is decoded once for each id. Rows go back to the places of their values, and the columns of the ids
are unified by name: a field that a schema does not have is null, numbers widen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa

from kalda.formats.decoded import (
    BAD_FRAMING,
    MISMATCH,
    UNKNOWN_SCHEMA,
    BadValueError,
    Decoded,
    DecodeFailure,
    merged,
    null_rows,
    present,
)
from kalda.formats.registry import UnknownSchemaError
from kalda.formats.spec import FormatError, cut

HEADER_BYTES: Final = 5


@dataclass(frozen=True, slots=True)
class Part:
    """Values of one schema id: their places in the batch, and the values with their framing."""

    schema_id: int
    positions: Sequence[int]
    values: pa.BinaryArray


def decode_framed(
    values: pa.BinaryArray, decode: Callable[[int, pa.BinaryArray], Decoded], kind: pa.DataType | None
) -> Decoded:
    """Decode framed values id by id.

    Args:
        values: The values, with nulls for tombstones.
        decode: Decodes the payloads of one id; raises `UnknownSchemaError` for an id without a schema, or
            `FormatError` for a schema that cannot be decoded, which makes each of its values bad.
        kind: The type of the rows, or None where it follows from the schemas.
    """
    failures: list[DecodeFailure] = []
    parts: list[tuple[Sequence[int], pa.StructArray]] = []
    for part in _parts(values, failures):
        try:
            decoded = decode(part.schema_id, part.values)
        except (UnknownSchemaError, FormatError) as error:
            bad = BadValueError(UNKNOWN_SCHEMA, str(error))
            failures += [bad.at(position, part.schema_id) for position in part.positions]
            continue
        failures += [
            DecodeFailure(part.positions[each.row], each.error_class, each.message, part.schema_id)
            for each in decoded.errors
        ]
        parts.append((part.positions, decoded.columns))
    rows = _joined(parts, len(values), kind, failures)
    return Decoded(rows, merged(failures))


def _parts(values: pa.BinaryArray, failures: list[DecodeFailure]) -> list[Part]:
    positions = present(values)
    found = values if positions is None else values.drop_null()
    places = np.arange(len(values)) if positions is None else np.array(positions, np.int64)
    if not len(found):
        return []
    data, starts, ends = value_ranges(found)
    framed = (ends - starts >= HEADER_BYTES) & (data[np.minimum(starts, len(data) - 1)] == 0)
    for index in np.flatnonzero(~framed):
        head = data[starts[index] : min(ends[index], starts[index] + HEADER_BYTES)].tobytes()
        message = (
            f"the value starts with {head.hex(' ') or 'nothing'}; "
            "the framing of a schema registry is 00 and four bytes of a schema id"
        )
        failures.append(DecodeFailure(int(places[index]), BAD_FRAMING, cut(message)))
    good = np.flatnonzero(framed)
    if not len(good):
        return []
    ids = data[starts[good][:, None] + np.arange(1, HEADER_BYTES)].astype(np.int64)
    numbers = (ids[:, 0] << 24) | (ids[:, 1] << 16) | (ids[:, 2] << 8) | ids[:, 3]
    parts: list[Part] = []
    for schema_id in np.unique(numbers):
        chosen = good[numbers == schema_id]
        own = found if len(chosen) == len(found) else found.take(pa.array(chosen))
        parts.append(Part(int(schema_id), places[chosen].tolist(), own))
    return parts


def value_ranges(
    values: pa.BinaryArray,
) -> tuple[
    np.ndarray[tuple[int], np.dtype[np.uint8]],
    np.ndarray[tuple[int], np.dtype[np.int64]],
    np.ndarray[tuple[int], np.dtype[np.int64]],
]:
    """Return the bytes of an array without nulls, and where each value starts and ends in them."""
    width = 8 if pa.types.is_large_binary(values.type) else 4
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(
        offsets_buffer, np.int64 if width == 8 else np.int32, len(values) + 1, values.offset * width
    ).astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else None
    if data is None:
        data = np.zeros(1, np.uint8)  # no value has a byte, so none of these is read as one
    return data, offsets[:-1], offsets[1:]


def _joined(
    parts: list[tuple[Sequence[int], pa.StructArray]],
    length: int,
    kind: pa.DataType | None,
    failures: list[DecodeFailure],
) -> pa.StructArray:
    """Return the rows of all parts at their places, null elsewhere."""
    if kind is None:
        parts, kind = _unified(parts, failures)
    if not parts:
        return null_rows(kind, length)
    columns = [_as_struct(rows, kind) for _, rows in parts]
    order = np.full(length, -1, np.int64)
    start = 0
    for positions, rows in parts:
        order[np.array(positions, np.int64)] = np.arange(start, start + len(rows))
        start += len(rows)
    if len(columns) == 1 and start == length:
        return columns[0]
    return pa.concat_arrays(columns).take(pa.array(order, mask=order < 0))


def _unified(
    parts: list[tuple[Sequence[int], pa.StructArray]], failures: list[DecodeFailure]
) -> tuple[list[tuple[Sequence[int], pa.StructArray]], pa.DataType]:
    """Return the parts whose columns go together, and the type with all of their columns.

    The part of the greatest id, which comes last, decides; the values of one that contradicts it are bad.
    """
    schema = pa.schema([])
    kept: list[tuple[Sequence[int], pa.StructArray]] = []
    for positions, rows in reversed(parts):
        try:
            schema = pa.unify_schemas([schema, pa.schema(list(rows.type))], promote_options="permissive")
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            known = {each.row for each in failures}
            bad = BadValueError(MISMATCH, f"its schema contradicts a later one of the batch: {error}")
            failures += [bad.at(position) for position in positions if position not in known]
        else:
            kept.append((positions, rows))
    return kept[::-1], pa.struct(list(schema))


def _as_struct(rows: pa.StructArray, kind: pa.DataType) -> pa.StructArray:
    if rows.type == kind:
        return rows
    names = {field.name: index for index, field in enumerate(rows.type)}
    columns = []
    for field in kind:
        if field.name not in names:
            columns.append(pa.nulls(len(rows), field.type))
        else:
            column = rows.field(names[field.name])
            nested = pa.types.is_struct(field.type) and pa.types.is_struct(column.type)
            columns.append(_as_struct(column, field.type) if nested else column.cast(field.type))
    mask = rows.is_null() if rows.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask)

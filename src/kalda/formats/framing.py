"""Splits values by a schema registry's framing: a zero byte, the schema's id in four bytes, the value.

A batch is decoded once for each id. Rows go back to the places of their values, with columns that the ids'
own are merged to by name (`kalda.formats.merging`): a field that a schema does not have is null.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa

from kalda.formats.decoded import (
    BAD_FRAMING,
    UNKNOWN_SCHEMA,
    BadValueError,
    Decoded,
    DecodeFailure,
    merged,
    null_rows,
    present,
)
from kalda.formats.merging import merged_all
from kalda.formats.misfits import fitted
from kalda.formats.registry import UnknownSchemaError
from kalda.formats.spec import FormatError, cut

HEADER_BYTES: Final = 5
_PROBED: Final = 64
"""Values that are decoded at once to find a good one."""


@dataclass(frozen=True, slots=True)
class Part:
    """Values of one schema id: their places in the batch, and the values with their framing."""

    schema_id: int
    positions: Sequence[int]
    values: pa.BinaryArray


def decode_framed(
    values: pa.BinaryArray, decode: Callable[[int, pa.BinaryArray], Decoded], kind: pa.DataType
) -> Decoded:
    """Decode framed values id by id.

    Args:
        values: The values, with nulls for tombstones.
        decode: Decodes the values of one id; raises `UnknownSchemaError` for an id without a schema, or
            `FormatError` for a schema that cannot be decoded, which makes each of its values bad.
        kind: The type of the rows, which those of every id become.
    """
    failures: list[DecodeFailure] = []
    parts: list[tuple[Sequence[int], pa.StructArray]] = []
    for part in _parts(values, failures):
        try:
            decoded = fitted(decode(part.schema_id, part.values), kind)
        except (UnknownSchemaError, FormatError) as error:
            bad = BadValueError(UNKNOWN_SCHEMA, str(error))
            failures += [bad.at(position, part.schema_id) for position in part.positions]
            continue
        failures += [
            replace(each, row=part.positions[each.row], schema_id=part.schema_id) for each in decoded.errors
        ]
        if len(decoded.errors) < len(decoded.columns):  # the columns of values that are all bad do not count
            parts.append((part.positions, decoded.columns))
    return Decoded(scattered(parts, len(values), kind), merged(failures))


def framed_columns(
    values: pa.BinaryArray, columns: Callable[[int, pa.BinaryArray], pa.StructType]
) -> pa.StructType:
    """Return the columns of framed values: those of all ids together, the latest id's first.

    Args:
        values: The values, with nulls for tombstones.
        columns: Returns the columns that good values of one id have; raises as that of `decode_framed`.
    """
    kinds = []
    for part in reversed(_parts(values, [])):
        with suppress(UnknownSchemaError, FormatError):
            kinds.append(columns(part.schema_id, part.values))
    return merged_all(kinds)


def columns_of_good(values: pa.BinaryArray, decode: Callable[[pa.BinaryArray], Decoded]) -> pa.StructType:
    """Return the type of the rows of values that all have the same; none when none of them is good."""
    for start in range(0, len(values), _PROBED):
        decoded = decode(values.slice(start, _PROBED))
        if len(decoded.errors) < len(decoded.columns):
            return decoded.columns.type
    return pa.struct([])


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
    """Return the bytes of an array, and where each value starts and ends in them; a null has none."""
    width = 8 if pa.types.is_large_binary(values.type) else 4
    _, offsets_buffer, data_buffer = values.buffers()
    offsets = np.frombuffer(
        offsets_buffer, np.int64 if width == 8 else np.int32, len(values) + 1, values.offset * width
    ).astype(np.int64)
    data = np.frombuffer(data_buffer, np.uint8) if data_buffer is not None and data_buffer.size else None
    if data is None:
        data = np.zeros(1, np.uint8)  # no value has a byte, so none of these is read as one
    return data, offsets[:-1], offsets[1:]


def slices_of(values: pa.BinaryArray, bytes_max: int, rows_max: int = 1 << 31) -> Iterator[pa.BinaryArray]:
    """Yield values in slices of at most so many bytes and rows; a longer value is one by itself."""
    if not len(values):
        return
    _, starts, ends = value_ranges(values)
    for start, end in slice_ranges(ends - starts, bytes_max, rows_max):
        yield values.slice(start, end - start)


def slice_ranges(
    sizes: np.ndarray[tuple[int], np.dtype[np.int64]], bytes_max: int, rows_max: int
) -> Iterator[tuple[int, int]]:
    """Yield where slices of rows of these sizes start and end; a larger row is one by itself."""
    filled = np.cumsum(sizes)
    start = done = 0
    while start < len(sizes):
        end = int(np.searchsorted(filled, done + bytes_max, "right"))
        end = max(start + 1, min(end, start + rows_max))
        yield start, end
        start, done = end, int(filled[end - 1])


def scattered(
    parts: Sequence[tuple[Sequence[int], pa.StructArray]], length: int, kind: pa.DataType
) -> pa.StructArray:
    """Return rows of a type: those of all parts at their places, null elsewhere."""
    if not parts:
        return null_rows(kind, length)
    order = np.full(length, -1, np.int64)
    start = 0
    for positions, rows in parts:
        order[np.array(positions, np.int64)] = np.arange(start, start + len(rows))
        start += len(rows)
    columns = [rows for _, rows in parts]
    if len(columns) == 1 and start == length:
        return columns[0]
    return pa.concat_arrays(columns).take(pa.array(order, mask=order < 0))

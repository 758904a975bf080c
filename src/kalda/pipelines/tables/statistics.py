"""Reads bounds of columns from a Parquet file's footer, and writes them in the form of Delta's log.

Decides alone, no I/O. Binary and nested columns get no bounds, nor do floating-point columns with a NaN or an
infinity. Do not break: a bound may be wider than the values, never narrower, or readers skip rows that match.
"""

import datetime as dt
import decimal
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kalda.formats.merging import leaf_count
from kalda.pipelines.tables.model import ColumnStats

TEXT_CHARACTERS_MAX: Final = 32
"""Longer texts are cut, as Spark does: a bound serves skipping, not display."""

_LAST_CHARACTER: Final = "\U0010ffff"
_LAST_MILLISECOND: Final = dt.datetime(9999, 12, 31, 23, 59, 59, 999_000, dt.UTC)


def column_stats(
    footer: pq.FileMetaData, schema: pa.Schema, unbounded: Collection[str] = ()
) -> dict[str, ColumnStats]:
    """Return the bounds of the top-level columns that have an order; those of `unbounded` get none."""
    found: dict[str, ColumnStats] = {}
    ordered = {field.name for field in schema if _has_order(field.type)}
    groups = [footer.row_group(index) for index in range(footer.num_row_groups)]
    position = 0
    for field in footer.schema.to_arrow_schema() if groups else ():
        # By position, for the path of a part of a structure may be the name of another column: `a.b`.
        if field.name in ordered:
            merged = _merge([group.column(position) for group in groups])
            if merged is not None:
                is_unbounded = field.name in unbounded
                found[field.name] = ColumnStats(None, None, merged.nulls) if is_unbounded else merged
        position += leaf_count(field.type)
    return found


def without_bounds(table: pa.Table) -> set[str]:
    """Return the floating-point columns with a value that bounds cannot hold: NaN or an infinity."""
    floating = (field.name for field in table.schema if pa.types.is_floating(field.type))
    return {name for name in floating if pc.any(pc.invert(pc.is_finite(table.column(name)))).as_py()}


def _has_order(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(kind)
        or pa.types.is_float32(kind)
        or pa.types.is_float64(kind)
        or pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_date(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )


def _merge(chunks: Sequence[pq.ColumnChunkMetaData]) -> ColumnStats | None:
    """Return the bounds of a column's chunks; None when a chunk does not count its nulls."""
    lows, highs, nulls, bounded = [], [], 0, True
    for chunk in chunks:
        found = chunk.statistics
        if found is None or not found.has_null_count:
            return None
        nulls += found.null_count
        if found.has_min_max:
            lows.append(found.min)
            highs.append(found.max)
        else:
            bounded = bounded and found.null_count == chunk.num_values
    if not bounded or not lows:
        return ColumnStats(None, None, nulls)
    return ColumnStats(_lower(min(lows)), _upper(max(highs)), nulls)


def _lower(value: object) -> object:
    return value[:TEXT_CHARACTERS_MAX] if isinstance(value, str) else value


def _upper(value: object) -> object:
    """Return a bound at or above a text: cut texts get the last character of Unicode, if that lies above."""
    if (
        isinstance(value, str)
        and len(value) > TEXT_CHARACTERS_MAX
        and value[TEXT_CHARACTERS_MAX] != _LAST_CHARACTER
    ):
        return value[:TEXT_CHARACTERS_MAX] + _LAST_CHARACTER
    return value


def delta_stats(rows: int, stats: Mapping[str, ColumnStats], without: frozenset[str]) -> str:
    """Return the JSON text of an add action's statistics; partition columns are not among them.

    Bounds are given for all columns with an order or for none: deltalake's `to_pyarrow_dataset` (1.6) takes a
    missing bound beside others for a null, and then finds no row by that column.
    """
    columns = {name: found for name, found in stats.items() if name not in without}
    nulls = {name: found.nulls for name, found in columns.items() if found.nulls is not None}
    parts = {"numRecords": str(rows), "nullCount": json.dumps(nulls, ensure_ascii=False)}
    if all(
        (found.min is not None or found.nulls == rows) and _is_bound(found.max) for found in columns.values()
    ):
        bounded = {name: found for name, found in columns.items() if found.min is not None}
        parts["minValues"] = _object(
            {name: _delta_text(found.min, up=False) for name, found in bounded.items()}
        )
        parts["maxValues"] = _object(
            {name: _delta_text(found.max, up=True) for name, found in bounded.items()}
        )
    return _object(parts)


def _is_bound(value: object) -> bool:
    """Return whether a bound is in the years that Delta's JSON has, also when it is rounded up."""
    return not isinstance(value, dt.datetime) or value.replace(tzinfo=dt.UTC) <= _LAST_MILLISECOND


def _object(members: Mapping[str, str]) -> str:
    """Return a JSON object of members that are JSON already."""
    return (
        "{"
        + ",".join(f"{json.dumps(name, ensure_ascii=False)}:{text}" for name, text in members.items())
        + "}"
    )


def _delta_text(value: object, up: bool) -> str:
    """Return a bound as JSON; a decimal keeps all of its digits."""
    if isinstance(value, decimal.Decimal):
        return format(value, "f")
    return json.dumps(_delta_value(value, up), ensure_ascii=False)


def _delta_value(value: object, up: bool) -> object:
    """Return a value as Delta's JSON has it; times are whole milliseconds, rounded outwards."""
    if isinstance(value, dt.datetime):
        naive = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
        millis = naive.microsecond / 1000
        whole = math.ceil(millis) if up else math.floor(millis)
        rounded = naive.replace(microsecond=0) + dt.timedelta(milliseconds=whole)
        return rounded.isoformat(timespec="milliseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, dt.date):
        return value.isoformat()
    return value

"""Schemas of tables: which Arrow types a table has, and how a schema may change when rows do not fit it.

Decides alone, no I/O. A table's types are the part of Arrow's that Delta, Iceberg, Parquet and Spark share.
Do not break: a column's type never becomes narrower, and no column becomes required.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kalda.pipelines.spec.model import Evolve, TableFormat
from kalda.pipelines.tables.errors import SchemaRefusedError

_UNSIGNED: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
}
_INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_FLOATS: Final = (pa.float32(), pa.float64())
DECIMAL_DIGITS_MAX: Final = 38


@dataclass(frozen=True, slots=True)
class Evolution:
    """A table's schema after a change; `added` and `widened` name the columns, both empty without a
    change."""

    schema: pa.Schema
    added: tuple[str, ...]
    widened: tuple[str, ...]


def table_schema(incoming: pa.Schema, kind: TableFormat, table: str) -> pa.Schema:
    """Return the schema of a table for rows of `incoming`: shared types, all columns nullable.

    A column of type null is left out: its type is not known until a row has a value.

    Raises:
        SchemaRefusedError: A column has a type without a counterpart, or two names differ by case alone.
    """
    fields, refused, seen = [], [], dict[str, str]()
    for field in incoming:
        if pa.types.is_null(field.type):
            continue
        other = seen.setdefault(field.name.lower(), field.name)
        if other != field.name or sum(name == field.name for name in incoming.names) > 1:
            refused.append((field.name, "it differs from another column by case alone or not at all"))
            continue
        mapped = table_type(field.type, kind)
        if mapped is None:
            refused.append((field.name, f"{field.type} has no counterpart in {kind.value}"))
        else:
            fields.append(pa.field(field.name, mapped))
    _raise_refused(table, refused, "Cast or rename them in the transform")
    return pa.schema(fields)


def table_type(source: pa.DataType, kind: TableFormat) -> pa.DataType | None:
    """Return the type in a table for an Arrow type; None when there is none."""
    if pa.types.is_dictionary(source):
        return table_type(source.value_type, kind)
    if pa.types.is_struct(source):
        mapped = [(field.name, table_type(field.type, kind)) for field in source]
        return None if not mapped or any(each is None for _, each in mapped) else pa.struct(mapped)
    if pa.types.is_map(source):
        key, item = table_type(source.key_type, kind), table_type(source.item_type, kind)
        return None if key is None or item is None else pa.map_(key, item)
    if pa.types.is_nested(source):  # the kinds of list
        item = table_type(source.value_type, kind) if hasattr(source, "value_type") else None
        return None if item is None else pa.list_(pa.field("element", item))
    return _plain_type(source, kind)


def _plain_type(source: pa.DataType, kind: TableFormat) -> pa.DataType | None:
    if source in _UNSIGNED:
        return _UNSIGNED[source]
    if kind is TableFormat.ICEBERG and source in (pa.int8(), pa.int16()):
        return pa.int32()
    if source in _INTEGERS or source in _FLOATS or pa.types.is_boolean(source):
        return source
    if pa.types.is_float16(source):
        return pa.float32()
    if pa.types.is_timestamp(source):
        return pa.timestamp("us", "UTC" if source.tz else None)
    if pa.types.is_date(source):
        return pa.date32()
    if pa.types.is_decimal(source):
        return (
            pa.decimal128(source.precision, source.scale) if source.precision <= DECIMAL_DIGITS_MAX else None
        )
    if pa.types.is_string(source) or pa.types.is_large_string(source) or pa.types.is_string_view(source):
        return pa.string()
    if (
        pa.types.is_binary(source)
        or pa.types.is_large_binary(source)
        or pa.types.is_fixed_size_binary(source)
        or pa.types.is_binary_view(source)
    ):
        return pa.binary()
    if pa.types.is_time(source) and kind is not TableFormat.DELTA:
        return pa.time64("us")
    return None


def evolve(current: pa.Schema, incoming: pa.Schema, policy: Evolve, table: str) -> Evolution:
    """Return the table's schema that holds its own rows and those of `incoming`, both of `table_schema`.

    Raises:
        SchemaRefusedError: The policy does not admit a change; the message names each column.
    """
    fields = list(current)
    by_name = {field.name.lower(): index for index, field in enumerate(fields)}
    added, widened, refused = [], [], []
    for field in incoming:
        index = by_name.get(field.name.lower())
        if index is None:
            if policy is Evolve.NONE:
                refused.append((field.name, "it is new"))
            else:
                fields.append(pa.field(field.name, field.type))
                added.append(field.name)
            continue
        own = fields[index]
        if own.name != field.name:
            refused.append((field.name, f"the table has {own.name!r}, which differs by case alone"))
            continue
        wider = wider_type(own.type, field.type)
        if wider is None:
            refused.append((field.name, f"{field.type} does not fit the table's {own.type}"))
        elif wider != own.type:
            if policy is not Evolve.WIDEN or pa.types.is_nested(wider):
                refused.append((field.name, f"{field.type} is wider than the table's {own.type}"))
            else:
                fields[index] = pa.field(own.name, wider)
                widened.append(field.name)
    allowed = {
        Evolve.NONE: "no change",
        Evolve.ADD: "new columns",
        Evolve.WIDEN: "new columns and wider numbers",
    }[policy]
    _raise_refused(
        table, refused, f"schema.evolve={policy.value} admits {allowed}; change it, or the transform"
    )
    return Evolution(pa.schema(fields), tuple(added), tuple(widened))


def wider_type(own: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the narrowest type that holds both without loss, None when there is none."""
    if own == other:
        return own
    for family in (_INTEGERS, _FLOATS):
        if own in family and other in family:
            return max(own, other, key=family.index)
    if pa.types.is_decimal(own) and pa.types.is_decimal(other) and own.scale == other.scale:
        return max(own, other, key=lambda each: each.precision)
    if pa.types.is_list(own) and pa.types.is_list(other):
        item = wider_type(own.value_type, other.value_type)
        return (
            None if item is None else (own if item == own.value_type else pa.list_(pa.field("element", item)))
        )
    if pa.types.is_struct(own) and pa.types.is_struct(other):
        return _wider_struct(own, other)
    return None


def _wider_struct(own: pa.StructType, other: pa.StructType) -> pa.DataType | None:
    """Return a struct's type when `other` has no further field; missing fields are null."""
    names = {field.name for field in own}
    if any(field.name not in names for field in other):
        return None
    fields, changed = [], False
    for field in own:
        index = other.get_field_index(field.name)
        wider = field.type if index < 0 else wider_type(field.type, other.field(index).type)
        if wider is None:
            return None
        changed = changed or wider != field.type
        fields.append(pa.field(field.name, wider))
    return pa.struct(fields) if changed else own


def conform(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema in its order: cast to its types, null where the rows lack them.

    Raises:
        SchemaRefusedError: The rows have a column, of another type than null, that the schema lacks.
    """
    names = set(schema.names)
    surplus = [field.name for field in batch.schema if field.name not in names and field.type != pa.null()]
    if surplus:
        raise SchemaRefusedError(
            f"rows have the column(s) {', '.join(surplus)}, and the table was prepared for "
            f"{', '.join(schema.names)}",
            tuple(surplus),
        )
    columns = []
    for field in schema:
        index = batch.schema.get_field_index(field.name)
        if index < 0:
            columns.append(pa.nulls(batch.num_rows, field.type))
            continue
        column = batch.column(index)
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _raise_refused(table: str, refused: Iterable[tuple[str, str]], advice: str) -> None:
    found = list(refused)
    if found:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in found)
        raise SchemaRefusedError(
            f"The table {table} refuses {len(found)} column(s): {reasons}. {advice}.",
            tuple(name for name, _ in found),
        )

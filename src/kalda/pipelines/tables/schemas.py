"""Maps Arrow types to types of tables, and decides how a schema may change when rows do not fit it.

Decides alone, no I/O. A table's types are the part of Arrow's that Delta, Iceberg, Parquet and Spark share.
Do not break: a column's type never becomes narrower, and no column becomes required.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from kalda.pipelines.spec.model import Evolve, TableFormat, TableSpec
from kalda.pipelines.tables.errors import SchemaRefusedError
from kalda.pipelines.tables.fitting import convert, is_untyped

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


def table_schema(incoming: pa.Schema, kind: TableFormat, table: str, *, is_strict: bool = True) -> pa.Schema:
    """Return the schema of a table for rows of `incoming`: shared types, all columns nullable.

    A column of type null is left out: its type is not known until a row has a value. So is, unless the schema
    is taken strictly, a column that is refused.

    Raises:
        SchemaRefusedError: A column has a type without a counterpart, or two names differ by case alone.
    """
    fields, refused, seen = [], [], dict[str, str]()
    for column in incoming:
        if is_untyped(column.type):
            continue
        other = seen.setdefault(column.name.lower(), column.name)
        if other != column.name or sum(name == column.name for name in incoming.names) > 1:
            refused.append((column.name, "it differs from another column by case alone or not at all"))
            continue
        mapped = table_type(column.type, kind)
        if mapped is None:
            refused.append((column.name, f"{column.type} has no counterpart in {kind.value}"))
        else:
            fields.append(pa.field(column.name, mapped))
    if is_strict:
        _raise_refused(table, refused, "Cast or rename them in the transform")
    return pa.schema(fields)


def without_clashes(rows: pa.Schema, current: pa.Schema, table: str, *, is_strict: bool) -> pa.Schema:
    """Return the columns of rows without those that are the part of another one for Iceberg.

    It finds columns by their path: `a.b` is a column of that name, or the field b of the column a.

    Raises:
        SchemaRefusedError: There is one, and the schema is taken strictly.
    """
    taken = {path: column.name for column in current for path in _paths(column.name, column.type)}
    kept, refused = [], []
    for column in rows:
        paths = _paths(column.name, column.type)
        other = next((taken[path] for path in paths if taken.get(path, column.name) != column.name), None)
        if other is None:
            kept.append(column)
            taken |= dict.fromkeys(paths, column.name)
        else:
            refused.append((column.name, f"Iceberg gives its name, or that of a part, to a part of {other}"))
    if is_strict:
        _raise_refused(table, refused, "Rename them in the transform")
    return pa.schema(kept)


def _paths(name: str, kind: pa.DataType) -> set[str]:
    """Return the names by which Iceberg knows a column and its parts."""
    found = {name}
    if pa.types.is_struct(kind):
        parts = [(each.name, each.type) for each in kind]
    elif pa.types.is_map(kind):
        parts = [("key", kind.key_type), ("value", kind.item_type)]
    else:
        parts = [("element", kind.value_type)] if pa.types.is_list(kind) else []
    for part, inner in parts:
        found |= _paths(f"{name}.{part}", inner)
        if part in ("element", "value") and pa.types.is_struct(inner) and not pa.types.is_struct(kind):
            found |= _paths(name, inner)  # the short form, without the word
    return found


def table_type(source: pa.DataType, kind: TableFormat) -> pa.DataType | None:
    """Return the type in a table for an Arrow type; None when there is none."""
    if pa.types.is_dictionary(source):
        return table_type(source.value_type, kind)
    if pa.types.is_struct(source):
        fields: dict[str, pa.Field] = {}
        for each in source:
            if not is_untyped(each.type):
                fields.setdefault(each.name.lower(), each)  # in tables the case of names has no meaning
        mapped = [(each.name, table_type(each.type, kind)) for each in fields.values()]
        return None if not mapped or any(each is None for _, each in mapped) else pa.struct(mapped)
    if pa.types.is_map(source):
        key, item = table_type(source.key_type, kind), table_type(source.item_type, kind)
        if kind is TableFormat.DELTA and any(
            each is not None and _has_local_time(each) for each in (key, item)
        ):
            return None  # deltalake (1.6) does not give the table the feature that these need in a map
        return None if key is None or item is None else pa.map_(key, item)
    if pa.types.is_nested(source):  # the kinds of list
        item = table_type(source.value_type, kind) if hasattr(source, "value_type") else None
        return None if item is None else pa.list_(pa.field("element", item))
    return _plain_type(source, kind)


def _has_local_time(kind: pa.DataType) -> bool:
    if pa.types.is_nested(kind):
        return any(_has_local_time(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) and kind.tz is None)


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


@dataclass(frozen=True, slots=True)
class EvolutionRules:
    """How a table may change.

    Attributes:
        policy: What the pipeline's file allows.
        kind: The table's format.
        fixed: Columns that cannot be widened, with the reason.
        is_strict: Whether what is not allowed is refused. Else the table stays as it is there, and each row
            shows whether it fits.
    """

    policy: Evolve
    kind: TableFormat
    fixed: Mapping[str, str] | None = None
    is_strict: bool = True


def check_columns(spec: TableSpec, current: pa.Schema | None, incoming: pa.Schema) -> None:
    """Check that a table takes columns that the file declares; `current` is None for one that is not there.

    Raises:
        SchemaRefusedError: It does not; the message names each column.
    """
    rows = table_schema(incoming, spec.format, spec.table)
    if current is not None:
        evolve(current, rows, EvolutionRules(spec.evolve, spec.format), spec.table)


def evolve(current: pa.Schema, incoming: pa.Schema, rules: EvolutionRules, table: str) -> Evolution:
    """Return the table's schema that holds its own rows and those of `incoming`, both of `table_schema`.

    A column that differs by case alone is the table's own.

    Raises:
        SchemaRefusedError: The rules do not admit a change and are strict; the message names each column.
    """
    policy = rules.policy
    fields = list(current)
    by_name = {each.name.lower(): index for index, each in enumerate(fields)}
    added, widened, refused = list[str](), list[str](), list[tuple[str, str]]()
    for each in incoming:
        index = by_name.get(each.name.lower())
        if index is None:
            if policy is Evolve.NONE:
                refused.append((each.name, "it is new"))
            else:
                by_name[each.name.lower()] = len(fields)
                fields.append(pa.field(each.name, each.type))
                added.append(each.name)
            continue
        own = fields[index]
        merge = _Merge(rules, (rules.fixed or {}).get(own.name))
        kind = merge.merged(own.type, each.type)
        refused += [(each.name, reason) for reason in merge.refused]
        if kind != own.type:
            fields[index] = pa.field(own.name, kind)
            (widened if merge.is_wider else added).append(own.name)
    allowed = {
        Evolve.NONE: "no change",
        Evolve.ADD: "new columns",
        Evolve.WIDEN: "new columns and wider numbers",
    }[policy]
    if rules.is_strict:
        _raise_refused(
            table, refused, f"schema.evolve={policy.value} admits {allowed}; change it, or the transform"
        )
    return Evolution(pa.schema(fields), tuple(added), tuple(widened))


class _Merge:
    """Merges the type of a column with that of rows."""

    def __init__(self, rules: EvolutionRules, fixed: str | None) -> None:
        self._rules: Final = rules
        self._fixed: Final = fixed
        self.refused: list[str] = []
        self.is_wider = False

    def merged(self, own: pa.DataType, other: pa.DataType) -> pa.DataType:
        """Return the type that holds both as far as the rules allow, else the table's own."""
        if own == other:
            return own
        if pa.types.is_struct(own) and pa.types.is_struct(other):
            return self._merged_struct(own, other)
        if pa.types.is_list(own) and pa.types.is_list(other):
            item = self.merged(own.value_type, other.value_type)
            return own if item == own.value_type else pa.list_(pa.field("element", item))
        if pa.types.is_map(own) and pa.types.is_map(other):
            key = self.merged(own.key_type, other.key_type)
            item = self.merged(own.item_type, other.item_type)
            return own if (key, item) == (own.key_type, own.item_type) else pa.map_(key, item)
        wider = wider_type(own, other)
        if wider is None:
            self.refused.append(f"{other} does not fit the table's {own}")
        elif wider != own:
            if self._rules.policy is not Evolve.WIDEN:
                self.refused.append(f"{other} is wider than the table's {own}")
            elif reason := self._fixed or _not_widened(self._rules.kind, own, wider):
                self.refused.append(f"the table's {own} cannot become {wider}: {reason}")
            else:
                self.is_wider = True
                return wider
        return own

    def _merged_struct(self, own: pa.StructType, other: pa.StructType) -> pa.DataType:
        fields = list(own)
        places = {each.name.lower(): index for index, each in enumerate(fields)}
        places |= {each.name: index for index, each in enumerate(fields)}
        for each in other:
            index = places.get(each.name, places.get(each.name.lower()))
            if index is not None:
                own_field = fields[index]
                fields[index] = pa.field(own_field.name, self.merged(own_field.type, each.type))
            elif self._rules.policy is Evolve.NONE:
                self.refused.append(f"its field {each.name!r} is new")
            else:
                fields.append(pa.field(each.name, each.type))
        merged = pa.struct(fields)
        return own if merged == own else merged


def _not_widened(kind: TableFormat, own: pa.DataType, wider: pa.DataType) -> str | None:
    """Return why a format does not change one type to another; None where it does."""
    if kind is not TableFormat.ICEBERG:
        return None
    if pa.types.is_decimal(own) and pa.types.is_decimal(wider) and own.scale != wider.scale:
        return "Iceberg keeps the scale of a decimal; cast the values, or add another column"
    if pa.types.is_integer(own) and pa.types.is_floating(wider):
        return "Iceberg makes no floating-point numbers of integers; cast the values, or add another column"
    return None


def wider_type(own: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """Return the narrowest type for the numbers of both, None when there is none.

    A 64-bit float does not hold each 64-bit integer: the values of rows are checked one by one, and so are
    those of a table before it changes.
    """
    if own == other:
        return own
    for family in (_INTEGERS, _FLOATS):
        if own in family and other in family:
            return max(own, other, key=family.index)
    if (own in _INTEGERS and other in _FLOATS) or (own in _FLOATS and other in _INTEGERS):
        return pa.float64()
    if pa.types.is_decimal(own) and other in _INTEGERS:
        return own
    if pa.types.is_decimal(own) and pa.types.is_decimal(other):
        scale = max(own.scale, other.scale)
        digits = max(own.precision - own.scale, other.precision - other.scale) + scale
        return pa.decimal128(digits, scale) if digits <= DECIMAL_DIGITS_MAX else None
    return None


def may_lose_digits(own: pa.DataType, wider: pa.DataType) -> bool:
    """Return whether a change makes floating-point numbers of integers, here or in a part."""
    if pa.types.is_struct(own):
        return any(may_lose_digits(each.type, wider.field(each.name).type) for each in own)
    if pa.types.is_list(own):
        return may_lose_digits(own.value_type, wider.value_type)
    if pa.types.is_map(own):
        return may_lose_digits(own.item_type, wider.item_type)
    return bool(pa.types.is_integer(own) and pa.types.is_floating(wider))


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
        columns.append(column if column.type == field.type else _exactly(column, field))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Renamed:
    """Arrow rows under the names of another schema of the same types, without a copy.

    Example: ``pa.record_batch(Renamed(rows, physical))``.
    """

    def __init__(self, rows: pa.RecordBatch, schema: pa.Schema) -> None:
        self._rows: Final = rows
        self._schema: Final = schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        """Return the schema and the columns, for Arrow's import."""
        _, columns = self._rows.__arrow_c_array__()
        return self._schema.__arrow_c_schema__(), columns


def renamed(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows under the names of another schema of the same types."""
    return pa.record_batch(Renamed(rows, schema))


def _exactly(column: pa.Array, field: pa.Field) -> pa.Array:
    made, reasons = convert(column, field.type)
    if reasons:
        row = min(reasons)
        raise pa.ArrowInvalid(f"column {field.name}, row {row}: {reasons[row]}")
    return made


def _raise_refused(table: str, refused: Iterable[tuple[str, str]], advice: str) -> None:
    found = list(refused)
    if found:
        reasons = "; ".join(f"{name!r}: {reason}" for name, reason in found)
        raise SchemaRefusedError(
            f"The table {table} refuses {len(found)} column(s): {reasons}. {advice}.",
            tuple(name for name, _ in found),
        )

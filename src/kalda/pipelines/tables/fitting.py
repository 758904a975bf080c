"""Fits rows to a table: converts their columns, and finds the rows that the table cannot take, and why.

Decides alone, no I/O; it is picklable and runs on executors. Columns and fields of structures are matched by
name, never by place. A value is written as it is or its row is named; no value is rounded, cut, turned into a
text or left out on the way.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.exact import can_convert, exactly
from kalda.pipelines.sql import calendar
from kalda.pipelines.sql.nodes import SqlError
from kalda.pipelines.sql.row_query import RowCondition
from kalda.pipelines.sql.values import TIMESTAMP
from kalda.pipelines.tables.partitions import (
    HIVE_NULL,
    NAME_BYTES_MAX,
    PartitionField,
    directory_part,
    is_too_long,
)
from kalda.pipelines.tables.upsert import DELETE, HIDDEN

VALUE_MISFIT: Final = "ValueMisfit"
"""A value does not fit the type of its column."""
UNKNOWN_COLUMN: Final = "UnknownColumn"
"""The table has no such column and may not get it."""
NULL_VALUE: Final = "NullValue"
"""A column that must have a value is null: of a key, or NOT NULL."""
CHECK_FAILED: Final = "CheckFailed"
"""A condition of the table is not true."""
PARTITION_VALUE: Final = "PartitionValue"
"""A value cannot name a partition."""

_SHOWN_CHARACTERS: Final = 100
"""A message shows so much of a value; the record has it whole."""
_MICROS: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999)
_DAYS: Final = (-719_162, 2_932_896)
_YEARS: Final = "it lies outside the years 1 to 9999"

Reasons = dict[int, str]
"""Why rows do not fit, by their index."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A row that cannot be written; it has the shape of a failure to decode."""

    row: int
    error_class: str
    message: str
    schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class Fitted:
    """Rows as the target takes them, and those that it does not take, by their index in what was given."""

    rows: pa.RecordBatch
    misfits: tuple[Misfit, ...] = ()

    def good(self, count: int) -> pa.BooleanArray:
        """Return for each of the `count` rows that were given whether it fits."""
        good = np.ones(count, dtype=np.bool_)
        good[[each.row for each in self.misfits]] = False
        return pa.array(good)


@dataclass(frozen=True, slots=True)
class RowFit:
    """What a table asks of its rows.

    Attributes:
        table: Its name, for messages.
        schema: The columns of the rows in the table's types; those that are not nullable need a value.
        keys: Columns that identify a row; they need a value, also in a row that deletes.
        checks: Conditions in SQL that must be true, by name.
        fields: The partition fields.
        has_directories: Whether values of partitions name directories, which file systems limit.
        are_merged: Whether deltalake writes the values of partitions to the log: it writes -1.5 as ``-1.-5``,
            which no reader takes.
        policy: What `schema.evolve` is, for messages.
    """

    table: str
    schema: pa.Schema
    keys: tuple[str, ...] = ()
    checks: tuple[tuple[str, RowCondition], ...] = ()
    fields: tuple[PartitionField, ...] = ()
    has_directories: bool = False
    are_merged: bool = False
    policy: str = "none"

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        """Return the rows that fit, with the columns of the table and their hidden ones."""
        run = _Fit(self, rows)
        run.match_columns()
        run.need_values()
        run.check()
        run.name_partitions()
        return run.fitted()


class _Fit:
    """The fit of one batch; the first misfit of each row is kept."""

    def __init__(self, rules: RowFit, rows: pa.RecordBatch) -> None:
        self._rules: Final = rules
        self._rows: Final = rows
        self._columns: dict[str, pa.Array] = {}
        self._bad: dict[int, Misfit] = {}
        index = rows.schema.get_field_index(DELETE)
        deletes = pc.fill_null(rows.column(index), False) if index >= 0 else None
        self._deletes: Final = deletes if deletes is not None and deletes.true_count else None

    def match_columns(self) -> None:
        """Convert each column to that of the same name, or of one that differs by case alone."""
        incoming: dict[str, list[str]] = {}
        own = {each.lower(): each for each in self._rules.schema.names}
        for name in self._rows.schema.names:
            if name in HIDDEN.names:
                continue
            matched = own.get(name.lower())
            if matched is None:
                self._refuse_unknown(name)
            else:
                incoming.setdefault(matched, []).append(name)
        for column in self._rules.schema:
            self._columns[column.name] = self._converted(column, incoming.get(column.name, []))

    def need_values(self) -> None:
        """Refuse nulls where the table needs a value."""
        for column in self._rules.schema:
            is_key = column.name in self._rules.keys
            if is_key or has_required(column):
                required = column.with_nullable(False) if is_key else column
                missing = missing_values(self._columns[column.name], required)
                reason = "it is a key" if is_key else "the column is NOT NULL"
                message = f"column {column.name}=None: {reason}"
                self._refuse(dict.fromkeys(missing, message), NULL_VALUE, is_key=is_key)

    def check(self) -> None:
        """Refuse rows that break a condition of the table; null is not true."""
        if not self._rules.checks:
            return
        rows = pa.RecordBatch.from_arrays(list(self._columns.values()), schema=nullable(self._rules.schema))
        for name, condition in self._rules.checks:
            what = f"the constraint {name} of the table {self._rules.table}, {condition.text}, is not true"
            failed = {
                row: f"{what}{why} for {_cut(str(rows.slice(row, 1).to_pylist()[0]))}"
                for row, why in _failures(condition, rows, 0).items()
            }
            self._refuse(failed, CHECK_FAILED)

    def name_partitions(self) -> None:
        """Refuse values whose directory no file system takes, and those that break Delta's log."""
        if self._rules.are_merged:
            for each in self._rules.fields:
                column = self._columns[each.source]
                if has_fraction(column.type):
                    broken = pc.indices_nonzero(pc.fill_null(pc.less(column, 0), False)).to_pylist()
                    reason = "a merge cannot write a negative decimal with a fraction to Delta's partitions"
                    misfits = {row: f"column {each.source}={column[row].as_py()}: {reason}" for row in broken}
                    self._refuse(misfits, PARTITION_VALUE)
        if not self._rules.has_directories:
            return
        for each in self._rules.fields:
            column = self._columns[each.source]
            if not pa.types.is_string(column.type):
                continue
            nulls = pc.indices_nonzero(pc.fill_null(pc.equal(column, HIVE_NULL), False)).to_pylist()
            named = f"column {each.source}={HIVE_NULL!r}: the directory of that name stands for null"
            self._refuse(dict.fromkeys(nulls, named), PARTITION_VALUE)
            lengths = pc.fill_null(pc.binary_length(column), 0)
            suspects = pc.indices_nonzero(pc.greater(lengths, NAME_BYTES_MAX // 4)).to_pylist()
            texts = {row: column[row].as_py() for row in suspects}
            reason = f"its directory has a name of more than {NAME_BYTES_MAX} bytes"
            long = {
                row: f"column {each.source}={_cut(repr(text))}: {reason}"
                for row, text in texts.items()
                if is_too_long(directory_part(each.name, text))
            }
            self._refuse(long, PARTITION_VALUE)

    def fitted(self) -> Fitted:
        """Return the outcome."""
        hidden = [each for each in self._rows.schema if each.name in HIDDEN.names]
        columns = [*self._columns.values(), *(self._rows.column(each.name) for each in hidden)]
        rows = pa.RecordBatch.from_arrays(columns, schema=pa.schema([*nullable(self._rules.schema), *hidden]))
        if not self._bad:
            return Fitted(rows)
        good = np.ones(rows.num_rows, dtype=np.bool_)
        good[list(self._bad)] = False
        return Fitted(rows.filter(pa.array(good)), tuple(self._bad[row] for row in sorted(self._bad)))

    def _converted(self, column: pa.Field, names: Sequence[str]) -> pa.Array:
        """Return the values of a column of the table from those of its name; any case will do."""
        found = pa.nulls(self._rows.num_rows, column.type)
        is_key = column.name in self._rules.keys
        for name in sorted(names, key=lambda each: each != column.name):
            values = self._rows.column(self._rows.schema.get_field_index(name))
            made, reasons = convert(values, column.type)
            misfits = {row: f"column {name}={_shown(values, row)}: {why}" for row, why in reasons.items()}
            self._refuse(misfits, VALUE_MISFIT, is_key=is_key)
            if len(names) == 1:
                return made
            both = pc.indices_nonzero(pc.and_(found.is_valid(), made.is_valid())).to_pylist()
            reason = (
                f"the row also has {column.name}, which differs by case alone, and the table "
                f"{self._rules.table} has one column for both"
            )
            self._refuse(
                {row: f"column {name}={_shown(values, row)}: {reason}" for row in both}, UNKNOWN_COLUMN
            )
            found = pc.coalesce(found, made)
        return found

    def _refuse_unknown(self, name: str) -> None:
        values = self._rows.column(self._rows.schema.get_field_index(name))
        if is_untyped(values.type):
            return
        rules = self._rules
        reason = f"the table {rules.table} has no such column, and schema.evolve={rules.policy} adds none"
        rows = pc.indices_nonzero(values.is_valid()).to_pylist()
        self._refuse({row: f"column {name}={_shown(values, row)}: {reason}" for row in rows}, UNKNOWN_COLUMN)

    def _refuse(self, reasons: Reasons, error_class: str, *, is_key: bool = False) -> None:
        """Note rows that do not fit; a row that deletes needs no more than its keys."""
        for row, message in reasons.items():
            is_exempt = not is_key and self._deletes is not None and self._deletes[row].as_py()
            if row not in self._bad and not is_exempt:
                self._bad[row] = Misfit(row, error_class, message)


def convert(column: pa.Array, kind: pa.DataType) -> tuple[pa.Array, Reasons]:
    """Return a column's values in another type, null where they do not fit, and why they do not.

    Numbers are converted where nothing is lost, times to the unit of the type, structures by the names of
    their fields. Nothing becomes a text.
    """
    source = column.type
    if source == kind and not (pa.types.is_nested(kind) and _has_times(kind)):
        return _in_years(column)
    if pa.types.is_dictionary(source):
        return convert(column.dictionary_decode(), kind)
    if pa.types.is_null(source):
        return pa.nulls(len(column), kind), {}
    if pa.types.is_struct(source) and pa.types.is_struct(kind):
        return _convert_struct(column, kind)
    if _is_list(source) and _is_list(kind):
        return _convert_list(column, kind)
    if pa.types.is_map(source) and pa.types.is_map(kind):
        return _convert_map(column, kind)
    if not can_convert(source, kind):
        rows: list[int] = pc.indices_nonzero(column.is_valid()).to_pylist()
        return pa.nulls(len(column), kind), dict.fromkeys(rows, f"{source} is no {kind}")
    reasons: Reasons = {}
    made = pa.concat_arrays(list(_casts(column, kind, 0, reasons)) or [pa.nulls(0, kind)])
    made, late = _in_years(made)
    return made, {**late, **reasons}


def has_fraction(kind: pa.DataType) -> bool:
    """Return whether a type has decimals with a fraction."""
    return bool(pa.types.is_decimal(kind) and kind.scale > 0)


def is_untyped(kind: pa.DataType) -> bool:
    """Return whether a type can hold nothing but nulls, so that a column of it says nothing."""
    if pa.types.is_struct(kind):
        return all(is_untyped(each.type) for each in kind)
    if _is_list(kind):
        return is_untyped(kind.value_type)
    return bool(pa.types.is_null(kind))


def has_required(column: pa.Field) -> bool:
    """Return whether a column, or a part of it, must have a value."""
    kind = column.type
    if not column.nullable:
        return True
    if pa.types.is_struct(kind):
        return any(has_required(each) for each in kind)
    if _is_list(kind):
        return has_required(kind.value_field)
    return pa.types.is_map(kind) and has_required(kind.item_field)


def missing_values(column: pa.Array, required: pa.Field) -> list[int]:
    """Return the rows in which a value that must be there is null; parts of a null are not looked at."""
    found: set[int] = set()
    if not required.nullable:
        found.update(pc.indices_nonzero(column.is_null()).to_pylist())
    kind = required.type
    if pa.types.is_struct(kind):
        valid = column.is_valid()
        for index, child in enumerate(kind):
            if has_required(child):
                values = column.flatten()[index]
                found.update(row for row in missing_values(values, child) if valid[row].as_py())
    elif _is_list(kind) and has_required(kind.value_field):
        parents = pc.list_parent_indices(column)
        found.update(parents[row].as_py() for row in missing_values(column.flatten(), kind.value_field))
    elif pa.types.is_map(kind) and has_required(kind.item_field):
        entries = _entries(column)
        parents = pc.list_parent_indices(entries)
        items = entries.flatten().field(1)
        found.update(parents[row].as_py() for row in missing_values(items, kind.item_field))
    return sorted(found)


def with_required(column: pa.Field, given: pa.Field) -> pa.Field:
    """Return a column that needs a value where `given`, the table's own, does."""
    return pa.field(column.name, _required_type(column.type, given.type), given.nullable)


def _required_type(kind: pa.DataType, given: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        own = {each.name: each for each in given}
        return pa.struct([with_required(each, own[each.name]) if each.name in own else each for each in kind])
    if _is_list(kind):
        return pa.list_(with_required(kind.value_field, given.value_field))
    if pa.types.is_map(kind):
        item = with_required(kind.item_field, given.item_field)
        return pa.map_(kind.key_type, item)
    return kind


def nullable(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose columns may be null, with all their parts."""
    return pa.schema([pa.field(each.name, nullable_type(each.type)) for each in schema])


def nullable_type(kind: pa.DataType) -> pa.DataType:
    """Return a type whose parts may be null, without metadata."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(each.name, nullable_type(each.type)) for each in kind])
    if _is_list(kind):
        return pa.list_(pa.field("element", nullable_type(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(nullable_type(kind.key_type), nullable_type(kind.item_type))
    return kind


def _failures(condition: RowCondition, rows: pa.RecordBatch, start: int) -> Reasons:
    """Return the rows for which a condition is not true; with the reason where it fails."""
    try:
        met = condition.met(rows)
    except SqlError as error:
        if rows.num_rows == 1:
            return {start: f" ({error})"}
        half = rows.num_rows // 2
        return _failures(condition, rows.slice(0, half), start) | _failures(
            condition, rows.slice(half), start + half
        )
    return {start + row: "" for row in pc.indices_nonzero(pc.invert(met)).to_pylist()}


def _casts(column: pa.Array, kind: pa.DataType, start: int, reasons: Reasons) -> Iterator[pa.Array]:
    """Yield the converted parts of a column; a value that does not fit is null and noted."""
    try:
        yield exactly(column, kind)
    except pa.ArrowInvalid:
        if len(column) == 1:
            reasons[start] = f"it does not fit {kind}"
            yield pa.nulls(1, kind)
            return
        half = len(column) // 2
        yield from _casts(column.slice(0, half), kind, start, reasons)
        yield from _casts(column.slice(half), kind, start + half, reasons)


def _has_times(kind: pa.DataType) -> bool:
    """Return whether a type is one of times or has one in a part."""
    if pa.types.is_nested(kind):
        return any(_has_times(kind.field(index).type) for index in range(kind.num_fields))
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _in_years(column: pa.Array) -> tuple[pa.Array, Reasons]:
    """Return a column of times, null where they lie outside the years that every reader has."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        numbers, (low, high) = column.view(pa.int64()), _MICROS
    elif pa.types.is_date32(kind):
        numbers, (low, high) = column.view(pa.int32()), _DAYS
    else:
        return column, {}
    bounds = pc.min_max(numbers)
    if not bounds["min"].is_valid or (bounds["min"].as_py() >= low and bounds["max"].as_py() <= high):
        return column, {}
    outside = pc.fill_null(pc.or_(pc.less(numbers, low), pc.greater(numbers, high)), False)
    rows: list[int] = pc.indices_nonzero(outside).to_pylist()
    return pc.if_else(outside, pa.scalar(None, kind), column), dict.fromkeys(rows, _YEARS)


def _convert_struct(column: pa.StructArray, kind: pa.StructType) -> tuple[pa.Array, Reasons]:
    """Convert each field to that of the same name, or of one that differs by case alone."""
    given = list(zip((each.name for each in column.type), column.flatten(), strict=True))
    own = {each.name.lower(): each.name for each in kind} | {each.name: each.name for each in kind}
    targets: dict[str, list[tuple[str, pa.Array]]] = {}
    reasons: Reasons = {}
    for name, values in given:
        target = own.get(name) or own.get(name.lower())
        if target is not None:
            targets.setdefault(target, []).append((name, values))
        elif not is_untyped(values.type):
            rows = pc.indices_nonzero(values.is_valid()).to_pylist()
            reasons = dict.fromkeys(rows, f"the table has no field {name} in it") | reasons
    children = []
    for each in kind:
        found = pa.nulls(len(column), each.type)
        for name, values in sorted(targets.get(each.name, []), key=lambda one: one[0] != each.name):
            made, why = convert(values, each.type)
            reasons = {row: f"{name}: {text}" for row, text in why.items()} | reasons
            both = pc.indices_nonzero(pc.and_(found.is_valid(), made.is_valid())).to_pylist()
            reason = f"it has the fields {each.name} and {name}, for which the table has one"
            reasons = dict.fromkeys(both, reason) | reasons
            found = made if found.null_count == len(found) else pc.coalesce(found, made)
        children.append(found)
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask), reasons


def _convert_list(column: pa.Array, kind: pa.ListType) -> tuple[pa.Array, Reasons]:
    values = column.flatten()
    made, why = convert(values, kind.value_type)
    parents = pc.list_parent_indices(column) if why else None
    reasons = {parents[row].as_py(): f"element: {text}" for row, text in why.items()} if parents else {}
    return pa.ListArray.from_arrays(_offsets(column), made, type=kind, mask=_null_mask(column)), reasons


def _convert_map(column: pa.MapArray, kind: pa.MapType) -> tuple[pa.Array, Reasons]:
    entries = _entries(column)
    pairs = entries.flatten()
    keys, why = convert(pairs.field(0), kind.key_type)
    items, why_items = convert(pairs.field(1), kind.item_type)
    parents = pc.list_parent_indices(entries)
    reasons = {parents[row].as_py(): f"entry: {text}" for row, text in (why | why_items).items()}
    if why:
        # A key is never null: the rows go, so any key will do.
        any_key = pa.scalar("" if pa.types.is_string(kind.key_type) else 0).cast(kind.key_type)
        keys = pc.fill_null(keys, any_key)
    offsets = _offsets(entries)
    if column.null_count:
        offsets = pc.if_else(pa.concat_arrays([column.is_null(), pa.array([False])]), None, offsets)
    return pa.MapArray.from_arrays(offsets, keys, items).cast(kind), reasons


def _entries(column: pa.MapArray) -> pa.ListArray:
    """Return a column of maps as one of lists of entries."""
    entry = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
    plain = pa.concat_arrays([column.take(pa.array(np.arange(len(column))))])
    pairs = pa.StructArray.from_arrays([plain.keys, plain.items], fields=list(entry))
    return pa.ListArray.from_arrays(plain.offsets, pairs, mask=_null_mask(plain))


def _offsets(column: pa.Array) -> pa.Int32Array:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]), pa.int32())


def _null_mask(column: pa.Array) -> pa.BooleanArray | None:
    return column.is_null() if column.null_count else None


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _shown(column: pa.Array, row: int) -> str:
    try:
        return _cut(repr(column[row].as_py()))
    except (OverflowError, ValueError):  # Python has no such date
        value = column.slice(row, 1)
        if column.type in (pa.date32(), TIMESTAMP):
            return _cut(str(calendar.text(value)[0]))
        return _cut(" ".join(value.to_string().split()))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"

"""Decodes Debezium's change events to rows: the row after a change, or before a deletion, and what it was.

The envelope may stand alone or, with Connect's schemas enabled, beside its schema as ``payload``. A row gets
the columns of the table, then ``op`` (c, r, u, d), ``ts_ms`` and ``lsn``, so that a pipeline can upsert by
``keys``, ``order_by: lsn`` and ``deletes: "op = 'd'"``. Truncations and logical messages have no row and are
bad.
"""

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.formats.avro_format import RegistryAvroDecoder
from kalda.formats.ddl import parse_schema
from kalda.formats.decoded import MALFORMED, MISMATCH, BadValueError, Decoded, merged, nullable
from kalda.formats.framing import columns_of_good, decode_framed, framed_columns, slices_of
from kalda.formats.json_format import (
    INFERRED_BYTES,
    JsonDecoder,
    infer_all,
    inferred_type,
    type_at,
)
from kalda.formats.json_rows import Path, value_at
from kalda.formats.merging import converted, merged_all, struct_array, without_unions
from kalda.formats.registry import OPTIONS as REGISTRY_OPTIONS
from kalda.formats.spec import FormatError, FormatSpec
from kalda.formats.unavailable import DEFAULT, Placeholder

_OWN_OPTIONS: Final = ("metadata", "unavailable_value")
OPTIONS: Final = (*_OWN_OPTIONS, "timestamp_format")
DEFAULT_METADATA: Final = "op,ts_ms,source.lsn"
UNSUPPORTED_OPERATION: Final = "UnsupportedOperation"
UNAVAILABLE_VALUE: Final = "UnavailableValue"
"""A column holds the placeholder for a value that the event does not have."""
_NUMBERS: Final = frozenset(("ts_ms", "ts_us", "ts_ns", "lsn", "pos", "row", "txId", "xmin", "server_id"))
_OPERATIONS: Final = ("c", "r", "u", "d")
_ROWS: Final[tuple[Path, ...]] = (
    ("after",),
    ("before",),
    ("payload", "after"),
    ("payload", "before"),
)
"""Where an envelope has rows. Whatever else it has is ignored, unless the metadata has it."""
_ADVICE: Final = "the metadata has a column of that name: change the option metadata"


class DebeziumDecoder:
    """Decodes events as JSON (``debezium-json``) or as Avro of a registry (``debezium-avro-sr``)."""

    def __init__(self, spec: FormatSpec) -> None:
        is_json = spec.name == "debezium-json"
        spec.check_options(OPTIONS if is_json else (*_OWN_OPTIONS, "subject", *REGISTRY_OPTIONS))
        unavailable = spec.options.get("unavailable_value", DEFAULT)
        self._placeholder: Final = None if unavailable == "none" else Placeholder(unavailable)
        paths = [
            path.strip() for path in spec.options.get("metadata", DEFAULT_METADATA).split(",") if path.strip()
        ]
        self._metadata: Final = [(path, _metadata_name(path, paths)) for path in paths]
        for path in paths:
            if path.startswith(("before", "after")) or path.count(".") > 1:
                raise FormatError(f"option metadata has {path!r}; op, ts_ms or a field of source is expected")
        inner = {name: value for name, value in spec.options.items() if name not in _OWN_OPTIONS}
        self._row: pa.DataType | None = None
        self._inner: JsonDecoder | RegistryAvroDecoder
        if not is_json:
            self._inner = RegistryAvroDecoder(replace(spec, name="avro-sr", options=inner))
            return
        if spec.schema is None:
            self._inner = JsonDecoder(FormatSpec("json", options=inner), _ROWS)
            return
        row = parse_schema(spec.schema)
        for name in _names(pa.struct(list(row))):
            if name in self._metadata_names():
                raise FormatError(
                    f"{name!r} is a column of the row and of the metadata; change the option metadata"
                )
        self._row = nullable(pa.struct(list(row)))
        self._inner = JsonDecoder(FormatSpec("json", self._envelope(list(row)), options=inner))

    def schema(self) -> pa.Schema | None:
        """Return the row's columns and those of the metadata; None without a declared schema."""
        return None if self._row is None else pa.schema(list(self._type(self._row)))

    def columns(self, values: pa.BinaryArray) -> pa.StructType:
        """Return the columns of the rows of good events; see `kalda.formats.Decoder`."""
        if isinstance(self._inner, RegistryAvroDecoder):
            return framed_columns(values, self._columns_of)
        found = values.drop_null()
        return merged_all(map(self._columns_in, slices_of(found, INFERRED_BYTES)))

    def with_columns(self, columns: pa.StructType) -> "DebeziumDecoder":
        """Return the decoder whose rows have these columns, beside those of the metadata."""
        decoder = copy.copy(self)
        decoder._row = columns
        if isinstance(self._inner, JsonDecoder):
            # A field that is called like one of the metadata makes its event bad, so it must be seen.
            taken = [pa.field(name, pa.string()) for name in self._metadata_names()]
            envelope = self._envelope([*columns, *taken])
            decoder._inner = self._inner.with_columns(pa.struct(list(envelope)))
        return decoder

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        row, inner = self._row, self._inner
        assert row is not None, "columns are found before values are decoded"
        if isinstance(inner, JsonDecoder):
            return self._rows_of(inner.decode(values), row)
        return decode_framed(values, self._decode_id, self._type(row))

    def _columns_in(self, values: pa.BinaryArray) -> pa.StructType:
        """Return the columns of the rows of the good ones of some JSON values."""
        assert isinstance(self._inner, JsonDecoder)
        probed = self.with_columns(pa.struct([])).decode(values)
        good = values.filter(probed.good())
        found = self._inner.read(good)
        if found is not None:
            return merged_all(map(inferred_type, _row_types(found.type)))
        events = list(self._inner.parsed(good))
        return merged_all(infer_all(value_at(event, path) for event in events) for path in _ROWS)

    def _columns_of(self, schema_id: int, framed: pa.BinaryArray) -> pa.StructType:
        """Return the columns of the rows of Avro values of one id; none when none is good."""
        found = columns_of_good(framed, lambda values: self._decode_id(schema_id, values))
        return pa.struct([field for field in found if field.name not in self._metadata_names()])

    def _decode_id(self, schema_id: int, framed: pa.BinaryArray) -> Decoded:
        assert isinstance(self._inner, RegistryAvroDecoder)
        decoded = self._inner.decode_id(schema_id, framed)
        row = without_unions(merged_all(_row_types(decoded.columns.type)))
        for name in _names(row):
            if name in self._metadata_names():
                raise FormatError(f"the row of schema {schema_id} has a field {name!r}; {_ADVICE}")
        return self._rows_of(decoded, row)

    def _rows_of(self, decoded: Decoded, row: pa.DataType) -> Decoded:
        """Return the rows of events that were decoded; those of events without a row are bad."""
        events = _Events(decoded.columns)
        failures = list(decoded.errors)
        known = {failure.row for failure in failures}
        good = decoded.columns.is_valid().to_pylist()
        operations = events.field("op", pa.string())
        before, after = (events.struct(side) for side in ("before", "after"))
        is_delete = pc.fill_null(pc.equal(operations, "d"), False)
        rows = pc.if_else(is_delete, _as(before, row), _as(after, row))
        taken = self._taken(before, after)
        columns = [rows.field(i) for i in range(len(row))] if not rows.null_count else list(rows.flatten())
        columns, missing = self._with_available(columns, row, before, is_delete)
        for index, (is_event, operation, has_row) in enumerate(
            zip(good, operations.to_pylist(), rows.is_valid().to_pylist(), strict=True)
        ):
            if not is_event or index in known:
                continue
            problem = _problem(operation, has_row)
            if problem is None and index in taken:
                problem = BadValueError(MISMATCH, f"the row has a field {taken[index]!r}; {_ADVICE}")
            if problem is None and index in missing:
                problem = BadValueError(
                    UNAVAILABLE_VALUE,
                    f"{missing[index]} is the placeholder of Debezium for a value that did not change and is "
                    "not in the event; set REPLICA IDENTITY FULL or add the ReselectColumnsPostProcessor",
                )
            if problem is not None:
                failures.append(problem.at(index))
                good[index] = False
        columns += [events.field(path, _metadata_type(path)) for path, _ in self._metadata]
        kind = self._type(row)
        mask = pa.array([not each for each in good], pa.bool_())
        if not len(kind):
            return Decoded(pa.array([{} if each else None for each in good], kind), merged(failures))
        return Decoded(pa.StructArray.from_arrays(columns, fields=list(kind), mask=mask), merged(failures))

    def _with_available(
        self,
        columns: list[pa.Array],
        kind: pa.DataType,
        before: pa.StructArray | None,
        is_delete: pa.BooleanArray,
    ) -> tuple[list[pa.Array], dict[int, str]]:
        """Return columns without placeholders, and which rows still lack a value, with the column's name.

        The value is the one before the change where the event has that. A deletion needs its keys only, so
        there it is null.
        """
        missing: dict[int, str] = {}
        if self._placeholder is None:
            return columns, missing
        made = list(columns)
        former: pa.StructArray | None = None
        for index, (field, column) in enumerate(zip(kind, columns, strict=True)):
            rows = self._placeholder.rows(column)
            if not rows:
                continue
            if former is None:
                former = pa.nulls(len(column), kind) if before is None else _as(before, kind)
            earlier = pc.struct_field(former, [index])
            lost = set(self._placeholder.rows(earlier))
            for row in rows:
                is_known = former[row].is_valid and row not in lost
                if not is_known and not is_delete[row].as_py():
                    missing.setdefault(row, field.name)
            mask = pc.is_in(pa.array(range(len(column))), pa.array(rows, pa.int64()))
            found = pc.is_in(pa.array(range(len(column))), pa.array(lost, pa.int64()))
            made[index] = _where(mask, _where(found, pa.nulls(len(column), field.type), earlier), column)
        return made, missing

    def _taken(self, *sides: pa.StructArray | None) -> dict[int, str]:
        """Return which events have a field in the row that is called like one of the metadata."""
        found: dict[int, str] = {}
        for side in sides:
            for name in self._metadata_names():
                column = None if side is None else _child(side, [name])
                if column is not None and column.null_count < len(column):
                    found |= dict.fromkeys(pc.indices_nonzero(column.is_valid()).to_pylist(), name)
        return found

    def _metadata_names(self) -> list[str]:
        return [name for _, name in self._metadata]

    def _type(self, row: pa.DataType) -> pa.DataType:
        return pa.struct([*row, *[pa.field(name, _metadata_type(path)) for path, name in self._metadata]])

    def _envelope(self, row: list[pa.Field]) -> pa.Schema:
        """Return the schema of events with and without the schema part."""
        source = [
            pa.field(path.removeprefix("source."), _metadata_type(path))
            for path, _ in self._metadata
            if path.startswith("source.")
        ]
        own = [
            pa.field(path, _metadata_type(path))
            for path, _ in self._metadata
            if "." not in path and path not in ("op",)
        ]
        fields = [
            pa.field("before", nullable(pa.struct(row))),
            pa.field("after", pa.struct(row)),
            pa.field("op", pa.string()),
            *own,
        ]
        if source:
            fields.append(pa.field("source", pa.struct(source)))
        return pa.schema([pa.field("payload", pa.struct(fields)), *fields])


class _Events:
    """The fields of envelopes, wherever each of them stands."""

    def __init__(self, rows: pa.StructArray) -> None:
        names = [field.name for field in rows.type]
        self._length = len(rows)
        self._bare = rows
        self._payload = rows.field("payload") if "payload" in names else None
        if self._payload is not None and not pa.types.is_struct(self._payload.type):
            self._payload = None

    def field(self, path: str, kind: pa.DataType) -> pa.Array:
        """Return a field as a type, null where it is missing."""
        found: pa.Array | None = None
        for holder in (self._bare, self._payload):
            column = _child(holder, path.split("."))
            if column is not None:
                own = _metadata_column(column, kind)
                found = own if found is None else pc.coalesce(own, found)
        return pa.nulls(self._length, kind) if found is None else found

    def struct(self, name: str) -> pa.StructArray | None:
        """Return ``before`` or ``after``; None where no event has it."""
        columns = [_child(holder, [name]) for holder in (self._bare, self._payload)]
        found = [column for column in columns if column is not None and pa.types.is_struct(column.type)]
        if not found:
            return None
        if len(found) == 1:
            return found[0]
        kind = without_unions(merged_all(column.type for column in found))
        bare, payload = (converted(column, kind) for column in found)
        return pc.if_else(pc.is_valid(payload), payload, bare)


def _child(holder: pa.StructArray | None, path: Sequence[str]) -> pa.Array | None:
    column: pa.Array | None = holder
    for name in path:
        if column is None or not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, name)
    return column


def _metadata_column(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a field of the metadata as its type, null where the source has another kind of it."""
    if column.type == kind or pa.types.is_string(kind):
        return converted(column, kind)
    return column.cast(kind) if pa.types.is_integer(column.type) else pa.nulls(len(column), kind)


def _names(kind: pa.DataType) -> list[str]:
    return [field.name for field in kind]


def _row_types(envelope: pa.DataType) -> list[pa.StructType]:
    """Return the types of ``after`` and ``before``, wherever an envelope has them."""
    found = (type_at(envelope, path) for path in _ROWS)
    return [kind for kind in found if kind is not None]


def _as(column: pa.StructArray | None, kind: pa.DataType) -> pa.StructArray | pa.Scalar:
    """Return a struct column with the fields of a type; a missing column is null."""
    if column is None:
        return pa.scalar(None, kind)
    names = _names(column.type)
    children = [
        converted(column.field(names.index(field.name)), field.type)
        if field.name in names
        else pa.nulls(len(column), field.type)
        for field in kind
    ]
    return struct_array(children, kind, column)


def _where(mask: pa.BooleanArray, one: pa.Array, other: pa.Array) -> pa.Array:
    """Return the values of `one` where the mask is true, of any type."""
    count = len(mask)
    places = pc.if_else(
        mask, pa.array(range(count), pa.int64()), pa.array(range(count, 2 * count), pa.int64())
    )
    return pa.concat_arrays([one, other]).take(places)


def _problem(operation: str | None, has_row: bool) -> BadValueError | None:
    if operation is None:
        return BadValueError(MALFORMED, "the value is no Debezium event: op is missing")
    if operation not in _OPERATIONS:
        names = {"t": "a truncation", "m": "a logical message"}
        return BadValueError(
            UNSUPPORTED_OPERATION,
            f"op is {operation!r}, {names.get(operation, 'which is unknown')}: it has no row",
        )
    if not has_row:
        side = "before" if operation == "d" else "after"
        advice = "; set REPLICA IDENTITY, so that deletions have it" if operation == "d" else ""
        return BadValueError(MALFORMED, f"op is {operation!r} and {side} is null{advice}")
    return None


def _metadata_name(path: str, paths: Sequence[str]) -> str:
    name = path.rpartition(".")[2]
    return name if "." not in path or name not in paths else path.replace(".", "_")


def _metadata_type(path: str) -> pa.DataType:
    return pa.int64() if path.rpartition(".")[2] in _NUMBERS else pa.string()

"""Decodes Debezium's change events to rows: the row after a change, or before a deletion, and what it was.

The envelope may stand alone or, with Connect's schemas enabled, beside its schema as ``payload``. A row gets
the columns of the table, then ``op`` (c, r, u, d), ``ts_ms`` and ``lsn``, so that a pipeline can upsert by
``keys``, ``order_by: lsn`` and ``deletes: "op = 'd'"``. Truncations and logical messages have no row and are
bad.
"""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.common.json_text import strict_json
from kalda.formats.avro_format import RegistryAvroDecoder
from kalda.formats.ddl import parse_schema
from kalda.formats.decoded import MALFORMED, BadValueError, Decoded, Decoder, merged, nullable
from kalda.formats.json_format import JsonDecoder
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
        if not is_json:
            self._inner: Decoder = RegistryAvroDecoder(replace(spec, name="avro-sr", options=inner))
            return
        envelope = None
        if spec.schema is not None:
            row = parse_schema(spec.schema)
            self._row = nullable(pa.struct(list(row)))
            envelope = self._envelope(row)
            for _, name in self._metadata:
                if name in row.names:
                    raise FormatError(
                        f"{name!r} is a column of the row and of the metadata; change the option metadata"
                    )
        self._inner = JsonDecoder(FormatSpec("json", envelope, options=inner))

    def schema(self) -> pa.Schema | None:
        """Return the row's columns and those of the metadata; None without a declared schema."""
        if self._row is None:
            return None
        return pa.schema(
            [*self._row, *[pa.field(name, _metadata_type(path)) for path, name in self._metadata]]
        )

    def decode(self, values: pa.BinaryArray) -> Decoded:
        """Decode values; see `kalda.formats.Decoder`."""
        decoded = self._inner.decode(values)
        events = _Events(decoded.columns)
        failures = list(decoded.errors)
        known = {failure.row for failure in failures}
        good = decoded.columns.is_valid().to_pylist()
        operations = events.field("op", pa.string())
        before, after = events.struct("before"), events.struct("after")
        is_delete = pc.fill_null(pc.equal(operations, "d"), False)
        kind = self._row or _row_type(before, after)
        row = pc.if_else(is_delete, _as(before, kind), _as(after, kind))
        columns = [row.field(i) for i in range(len(kind))] if not row.null_count else list(row.flatten())
        columns, missing = self._with_available(columns, kind, before, is_delete)
        for index, (is_event, operation, has_row) in enumerate(
            zip(good, operations.to_pylist(), row.is_valid().to_pylist(), strict=True)
        ):
            if not is_event or index in known:
                continue
            problem = _problem(operation, has_row)
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
        fields = [*kind, *[pa.field(name, _metadata_type(path)) for path, name in self._metadata]]
        mask = pa.array([not each for each in good], pa.bool_())
        return Decoded(pa.StructArray.from_arrays(columns, fields=fields, mask=mask), merged(failures))

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

    def _envelope(self, row: pa.Schema) -> pa.Schema:
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
            pa.field("before", nullable(pa.struct(list(row)))),
            pa.field("after", pa.struct(list(row))),
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
                own = _converted(column, kind)
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
        kind = _row_type(*found)
        bare, payload = _as(found[0], kind), _as(found[1], kind)
        return pc.if_else(pc.is_valid(payload), payload, bare)


def _child(holder: pa.StructArray | None, path: Sequence[str]) -> pa.Array | None:
    column: pa.Array | None = holder
    for name in path:
        if column is None or not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, name)
    return column


def _converted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if pa.types.is_string(kind):
            texts = [None if value is None else _text_of(value) for value in column.to_pylist()]
            return pa.array(texts, kind)
        return pa.nulls(len(column), kind)


def _text_of(value: object) -> str:
    """Return the JSON text of a value; one without a counterpart, as a date, is its own text."""
    try:
        return strict_json(value)
    except TypeError:
        return json.dumps(value, default=str)


def _row_type(*columns: pa.StructArray | None) -> pa.DataType:
    """Return the fields of all columns; one that has several types is a double or a text."""
    kinds: dict[str, pa.DataType] = {}
    for column in columns:
        for field in column.type if column is not None else ():
            kind = kinds.setdefault(field.name, field.type)
            if kind != field.type:
                numbers = all(pa.types.is_integer(k) or pa.types.is_floating(k) for k in (kind, field.type))
                kinds[field.name] = pa.float64() if numbers else pa.string()
    return nullable(pa.struct(list(kinds.items())))


def _as(column: pa.StructArray | None, kind: pa.DataType) -> pa.StructArray | pa.Scalar:
    """Return a struct column with the fields of a type; a missing column is null."""
    if column is None:
        return pa.scalar(None, kind)
    if column.type == kind:
        return column
    names = [field.name for field in column.type]
    children = [
        _converted(column.field(names.index(field.name)), field.type)
        if field.name in names
        else pa.nulls(len(column), field.type)
        for field in kind
    ]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)


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

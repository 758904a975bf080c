"""Writes the rows of a query: a table for people, JSON lines, CSV, or an Arrow stream.

Rows come and go in batches, so a result of any size takes little memory. A table has its heading again after
`TABLE_ROWS` rows: the widths of its columns need all of its rows.
"""

import io
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, BinaryIO, Final, Protocol

import pyarrow as pa
from pyarrow import csv

from kalda.command.output import Output
from kalda.command.tables import Cell, Table, plain_lines
from kalda.common.json_text import strict_json
from kalda.tools.bytes_text import json_field, readable
from kalda.tools.sql.request import RowForm

TABLE_ROWS: Final = 1000


class RowWriter(Protocol):
    """Writes batches of rows in one form."""

    def write(self, rows: pa.RecordBatch) -> None:
        """Write some rows."""
        ...

    def close(self) -> None:
        """Write what is left; a result that is cut off by an error has no end."""
        ...


def open_writer(form: RowForm, schema: pa.Schema, output: Output, file: BinaryIO | None) -> RowWriter:
    """Return what writes rows with the columns of `schema` to a file, or to stdout."""
    write = output.write_bytes if file is None else file.write
    match form:
        case RowForm.TABLE:
            return _TableWriter(schema, output, file)
        case RowForm.JSON:
            return _JsonWriter(write)
        case RowForm.CSV:
            return _CsvWriter(schema, write)
        case RowForm.ARROW:
            return _ArrowWriter(schema, write)


class _TableWriter:
    def __init__(self, schema: pa.Schema, output: Output, file: BinaryIO | None) -> None:
        self._columns: Final[Sequence[str]] = schema.names
        self._output: Final = output
        self._file: Final = file
        self._rows: list[list[Cell]] = []

    def write(self, rows: pa.RecordBatch) -> None:
        for row in _rows(rows):
            self._rows.append([_cell(each) for each in row])
            if len(self._rows) == TABLE_ROWS:
                self._flush()

    def close(self) -> None:
        if self._rows:
            self._flush()

    def _flush(self) -> None:
        table = Table(self._columns, self._rows)
        self._rows = []
        if self._file is None:
            self._output.result(None, table)
        else:
            self._file.writelines(f"{line}\n".encode() for line in plain_lines(table))


class _JsonWriter:
    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write: Final = write

    def write(self, rows: pa.RecordBatch) -> None:
        names = rows.schema.names
        lines = [
            strict_json(_json(dict(zip(names, row, strict=True))), is_spaced=True) for row in _rows(rows)
        ]
        self._write("".join(f"{line}\n" for line in lines).encode())

    def close(self) -> None:
        pass


class _CsvWriter:
    """Arrow writes the file; it knows no CSV of nested values and of bytes, which become text."""

    def __init__(self, schema: pa.Schema, write: Callable[[bytes], object]) -> None:
        self._schema: Final = pa.schema([(each.name, _csv_type(each.type)) for each in schema])
        self._file: Final = csv.CSVWriter(pa.PythonFile(_Sink(write), mode="w"), self._schema)

    def write(self, rows: pa.RecordBatch) -> None:
        columns = [
            column if column.type == kind else pa.array(map(_text, column.to_pylist()), kind)
            for column, kind in zip(rows.columns, self._schema.types, strict=True)
        ]
        self._file.write_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))

    def close(self) -> None:
        self._file.close()


def _csv_type(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    is_plain = (
        types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_string(kind)
    )
    return kind if is_plain else pa.string()


class _ArrowWriter:
    def __init__(self, schema: pa.Schema, write: Callable[[bytes], object]) -> None:
        self._stream: Final = pa.ipc.new_stream(pa.PythonFile(_Sink(write), mode="w"), schema)

    def write(self, rows: pa.RecordBatch) -> None:
        self._stream.write_batch(rows)

    def close(self) -> None:
        self._stream.close()


class _Sink(io.RawIOBase):
    """A file that Arrow writes to."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write: Final = write

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._write(bytes(data))
        return len(data)


def _rows(batch: pa.RecordBatch) -> "zip[tuple[Any, ...]]":
    return zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _cell(value: object) -> Cell:
    # A table of Kalda shows two digits of a float; a query's result has them all.
    return value if value is None or isinstance(value, bool | int) else _text(value)


def _text(value: object) -> str | None:
    """Return a value as the text of a cell; None for null."""
    if isinstance(value, bytes):
        return readable(value)
    plain = _json(value)
    if plain is None or isinstance(plain, str):
        return plain
    return strict_json(plain)


def _json(value: Any) -> Any:
    """Return a value of Arrow as one of JSON; bytes of an object are those of `json_field`."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return readable(value)
        case Mapping():
            fields: dict[str, Any] = {}
            for name, each in value.items():
                fields |= json_field(name, each) if isinstance(each, bytes) else {name: _json(each)}
            return fields
        case list() | tuple():
            return [_json(each) for each in value]
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case datetime():
            return value.isoformat().replace("+00:00", "Z")
        case date() | time():
            return value.isoformat()
    return str(value)

"""Reads a table's Parquet files as batches of the table's current schema, in bounded memory."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kalda.pipelines.tables.fitting import convert
from kalda.pipelines.tables.model import DataFile, Table
from kalda.pipelines.tables.schemas import Evolution, conform, may_lose_digits
from kalda.pipelines.tables.storage import TableStorage

BATCH_ROWS: Final = 65_536
"""Rows of one batch: large enough for Arrow's kernels, small enough for values of a kilobyte."""


def read_file(
    storage: TableStorage, path: str, schema: pa.Schema, constants: Mapping[str, object]
) -> Iterator[pa.RecordBatch]:
    """Return a file's rows with the columns of `schema`; `constants` are columns that the file lacks."""
    with storage.open_input(path) as source, pq.ParquetFile(source) as parquet:
        in_file = set(parquet.schema_arrow.names)
        wanted = [name for name in schema.names if name in in_file and name not in constants]
        for batch in parquet.iter_batches(batch_size=BATCH_ROWS, columns=wanted):
            yield with_constants(batch, schema, constants)


def with_constants(
    batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, object]
) -> pa.RecordBatch:
    """Return the columns of a schema, with one value for all rows where a column is constant."""
    rows = batch.num_rows
    for name, value in constants.items():
        index = schema.get_field_index(name)
        if index >= 0:
            batch = batch.append_column(name, pa.repeat(pa.scalar(value, schema.field(index).type), rows))
    return conform(batch.select([name for name in schema.names if name in batch.schema.names]), schema)


def read_staged(storage: TableStorage, files: Iterable[DataFile], schema: pa.Schema) -> pa.Table:
    """Return all rows of some files as one table; the driver merges a batch of bounded size with it."""
    batches = [batch for file in files for batch in read_file(storage, file.path, schema, {})]
    return pa.Table.from_batches(batches, schema)


def inexact_columns(table: Table, current: pa.Schema, evolution: Evolution) -> dict[str, str]:
    """Return the columns that an evolution makes floating-point though the table has greater integers."""
    found = {}
    for name in evolution.widened:
        wider = evolution.schema.field(name).type
        if not may_lose_digits(current.field(name).type, wider):
            continue
        if any(convert(batch.column(0), wider)[1] for batch in table.read([name])):
            found[name] = "it has integers that the wider type does not hold exactly"
    return found

"""Reads files of an Iceberg table by pyiceberg, which knows columns by field id, and deleted rows."""

from collections.abc import Iterator

import pyarrow as pa
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table


def read_task(table: Table, task: FileScanTask, projection: Schema) -> Iterator[pa.RecordBatch]:
    """Return a file's rows with the columns of a schema, without the rows that its delete files name."""
    scan = ArrowScan(table.metadata, table.io, projection, AlwaysTrue())
    yield from scan.to_record_batches([FileScanTask(task.file, task.delete_files)])

"""Reads files of an Iceberg table by pyiceberg, which knows columns by field id, and deleted rows."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyiceberg.io.pyarrow as library
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowProjectionVisitor, ArrowScan
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask, Table
from pyiceberg.types import ListType, MapType


def read_task(table: Table, task: FileScanTask, projection: Schema) -> Iterator[pa.RecordBatch]:
    """Return a file's rows with the columns of a schema, without the rows that its delete files name."""
    scan = ArrowScan(table.metadata, table.io, projection, AlwaysTrue())
    yield from scan.to_record_batches([FileScanTask(task.file, task.delete_files)])


class _Projection(ArrowProjectionVisitor):
    """Projects a file's columns as the library does; a list or map of structures that is null stays null.

    The library makes an empty one of it, which a compaction or a merge would write into the table.
    """

    def list(
        self, list_type: ListType, list_array: pa.Array | None, value_array: pa.Array | None
    ) -> pa.Array | None:
        return _with_nulls(super().list(list_type, list_array, value_array), list_array)

    def map(
        self,
        map_type: MapType,
        map_array: pa.Array | None,
        key_result: pa.Array | None,
        value_result: pa.Array | None,
    ) -> pa.Array | None:
        return _with_nulls(super().map(map_type, map_array, key_result, value_result), map_array)


library.ArrowProjectionVisitor = _Projection  # type: ignore[misc]  # the library has no place to give it


def _with_nulls(made: pa.Array | None, given: pa.Array | None) -> pa.Array | None:
    if made is None or given is None or made.null_count == given.null_count:
        return made
    mask, offsets = given.is_null(), pc.add(made.offsets, 0)  # a copy: Arrow takes no mask beside a slice
    if isinstance(made, pa.MapArray):
        return pa.MapArray.from_arrays(offsets, made.keys, made.items, type=made.type, mask=mask)
    return type(made).from_arrays(offsets, made.values, type=made.type, mask=mask)

"""Merges rows by key into an Iceberg table: files with replaced rows are written again without them.

pyiceberg's own upsert compares keys by an expression with a term for each key, which takes minutes for
thousands; here keys are joined in Arrow. Do not break: one call reads one snapshot, and the caller commits
against exactly it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import And, GreaterThanOrEqual, LessThanOrEqual, Reference
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import FileScanTask, Table

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.spec.model import TableSpec
from kalda.pipelines.tables.iceberg_reading import read_task
from kalda.pipelines.tables.model import DataFile, TaskId
from kalda.pipelines.tables.schemas import conform
from kalda.pipelines.tables.upsert import DELETE, GREATEST, REPLACES, with_order
from kalda.pipelines.tables.writer import ParquetTaskWriter

_SOURCE: Final = "__kalda_source"
_TARGET: Final = "__kalda_target"
_ORDER: Final = "__kalda_order"


@dataclass(frozen=True, slots=True)
class Merge:
    """Files that leave the table, files that come, and how many rows were inserted, updated and deleted."""

    replaced: tuple[IcebergFile, ...]
    written: tuple[DataFile, ...]
    rows: int


def merge_files(
    table: Table, writer: ParquetTaskWriter, rows: pa.Table, spec: TableSpec, batch: BatchAccount
) -> Merge:
    """Write the files of a merge of `rows`, one for each key, with the hidden columns of `upsert`."""
    keys = [*spec.keys]
    order = [spec.order_by] if spec.order_by and spec.order_by not in keys else []
    schema = writer.schema
    projection = table.schema().select(*keys, *order)
    marks = [REPLACES, GREATEST] if order else [REPLACES]
    source = rows.select([*keys, *marks]).append_column(_SOURCE, pa.array(np.arange(rows.num_rows)))
    stale = np.zeros(rows.num_rows, dtype=bool)
    matched = np.zeros(rows.num_rows, dtype=bool)
    replaced: list[IcebergFile] = []
    written: list[DataFile] = []
    for task in _tasks_with_keys(table, rows, keys) if rows.num_rows else ():
        narrow = pa.schema([schema.field(name) for name in projection.column_names])
        found = pa.Table.from_batches(
            [conform(each, narrow) for each in read_task(table, task, projection)], narrow
        )
        ours, theirs, newer = _matches(found, source, keys, order)
        matched[ours] = True
        stale[ours[newer]] = True
        gone = theirs[~newer]
        if not len(gone):
            continue
        replaced.append(task.file)
        keep = np.ones(found.num_rows, dtype=bool)
        keep[gone] = False
        if keep.any():
            part = TaskId(f"{batch.query_id}", batch.batch_id, len(replaced))
            written += writer.write(_kept(table, task, keep, schema), part)
    deleted = rows.column(DELETE).to_numpy(zero_copy_only=False).astype(bool) if rows.num_rows else stale
    put = rows.filter(pa.array(~stale & ~deleted)).select(schema.names)
    written += writer.write(put.to_batches(), TaskId(batch.query_id, batch.batch_id, 0))
    changed = int((~stale & (matched | ~deleted)).sum())
    return Merge(tuple(replaced), tuple(written), changed)


def _tasks_with_keys(table: Table, rows: pa.Table, keys: list[str]) -> Iterator[FileScanTask]:
    """Return the files whose bounds of each key overlap with those of the rows."""
    scan = table.scan()
    for name in keys:
        column = rows.column(name)
        if pa.types.is_binary(column.type) or pa.types.is_boolean(column.type):
            continue
        bounds = pc.min_max(column)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        scan = scan.filter(
            And(
                GreaterThanOrEqual(term=Reference(name), value=_literal(low)),
                LessThanOrEqual(term=Reference(name), value=_literal(high)),
            )
        )
    yield from scan.plan_files()


def _literal(value: Any) -> Any:
    """Return a value as pyiceberg's expressions take it: times and dates as text."""
    return value.isoformat() if hasattr(value, "isoformat") else value


def _matches(
    found: pa.Table, source: pa.Table, keys: list[str], order: list[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return pairs of equal keys: places in the rows and in the file, and if the file's row is newer."""
    target = found.append_column(_TARGET, pa.array(np.arange(found.num_rows)))
    if order:
        target = target.rename_columns([_ORDER if name == order[0] else name for name in target.column_names])
    joined = target.join(source, keys=keys, join_type="inner")
    ours = joined.column(_SOURCE).to_numpy()
    theirs = joined.column(_TARGET).to_numpy()
    if not order:
        return ours, theirs, np.zeros(len(ours), dtype=bool)
    # A row of the table without an order is replaced.
    own, new = with_order(joined.column(_ORDER)), joined.column(GREATEST)
    newer = pc.and_not(pc.fill_null(pc.greater(own, new), False), joined.column(REPLACES))
    return ours, theirs, newer.to_numpy().astype(bool)


def _kept(table: Table, task: FileScanTask, keep: np.ndarray, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    start = 0
    for batch in read_task(table, task, table.schema()):
        yield conform(batch, schema).filter(pa.array(keep[start : start + batch.num_rows]))
        start += batch.num_rows

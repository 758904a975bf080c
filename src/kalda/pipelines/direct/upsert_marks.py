"""Adds what an upsert must know of a row beside its columns: where its record is, and whether it deletes.

A tombstone deletes the row with its keys, which then come from the record's key. The marks depend on the
record alone, so that a replay marks the same.
"""

from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.direct.row_steps import OFFSET_COLUMN
from kalda.pipelines.sql.row_query import RowCondition
from kalda.records.columnar import ColumnarBatch

PARTITION_COLUMN: Final = "__kalda_partition"
DELETE_COLUMN: Final = "__kalda_delete"


@dataclass(frozen=True, slots=True)
class UpsertMarks:
    """How rows are marked.

    Args:
        keys: the columns that identify a row of the table.
        deletes: a row that meets it deletes the row with its keys.
    """

    keys: tuple[str, ...]
    deletes: RowCondition | None = None

    def marked(self, rows: pa.RecordBatch, records: ColumnarBatch, partition: int) -> pa.RecordBatch:
        """Return the rows with the hidden columns, without tombstones that name no row."""
        return self.marked_by(rows, records.offsets.filter(records.values.is_null()), partition)

    def marked_by(self, rows: pa.RecordBatch, tombstones: pa.Int64Array, partition: int) -> pa.RecordBatch:
        """Return the rows with the hidden columns; `tombstones` are offsets of records without a value."""
        is_tombstone = pc.is_in(rows.column(OFFSET_COLUMN), tombstones)
        if len(tombstones):
            has_keys = pa.repeat(pa.scalar(True), rows.num_rows)
            for name in self.keys:
                has_keys = pc.and_(has_keys, rows.column(name).is_valid())
            stays = pc.or_(has_keys, pc.invert(is_tombstone))
            rows, is_tombstone = rows.filter(stays), is_tombstone.filter(stays)
        deletes = is_tombstone
        if self.deletes is not None:
            deletes = pc.or_(deletes, self.deletes.met(rows))
        partitions = pa.repeat(pa.scalar(partition, pa.int32()), rows.num_rows)
        return rows.append_column(PARTITION_COLUMN, partitions).append_column(DELETE_COLUMN, deletes)

"""Writes the rows of a task into files of a table, and those that are too late where the pipeline wants them.

Nothing written here is visible before the driver's commit. The limit for late rows is fixed for the batch by
the driver, so that a replay decides the same for each row.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from kalda.pipelines.direct.rows_target import Written
from kalda.pipelines.tables.fitting import Fitted, RowFit
from kalda.pipelines.tables.model import DataFile, TableWriter, TaskId


@dataclass(frozen=True, slots=True)
class LateLimit:
    """From which event time on rows are in time."""

    column: str
    at_least_ms: int

    def is_late(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether it is late; a row without event time is not."""
        kind = pa.timestamp("us", tz=rows.schema.field(self.column).type.tz)
        times = rows.column(self.column).cast(kind, safe=False)
        return pc.fill_null(pc.less(times, pa.scalar(self.at_least_ms * 1000, kind)), False)


@dataclass(frozen=True, slots=True)
class TableFiles:
    """The files of one task."""

    files: tuple[DataFile, ...] = ()
    late_files: tuple[DataFile, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRows:
    """A target for rows; picklable."""

    writer: TableWriter
    rules: RowFit
    limit: LateLimit | None = None
    late_writer: TableWriter | None = None
    """Takes the late rows; None: they stay among the others, and are only counted."""

    def fit(self, rows: pa.RecordBatch) -> Fitted:
        """Return the rows with the table's columns."""
        return self.rules.fit(rows)

    def write(self, batches: Iterable[pa.RecordBatch], query_id: str, batch_id: int, part: int) -> Written:
        """Write all rows; `Written.files` has one `TableFiles`."""
        task = TaskId(query_id, batch_id, part)
        run = _Run(self)
        files = self.writer.write(run.in_time(batches), task)
        late_files: list[DataFile] = []
        if run.late:
            assert self.late_writer is not None, "late rows are put aside for a writer"
            late_files = self.late_writer.write(run.late, task)
        rows = sum(each.rows for each in (*files, *late_files))
        return Written(rows, (TableFiles(tuple(files), tuple(late_files)),), late_rows=run.late_rows)


@dataclass(slots=True)
class _Run:
    """Divides the rows of one task."""

    target: TableRows
    late_rows: int = 0
    late: list[pa.RecordBatch] = field(default_factory=list)

    def in_time(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the rows for the table itself."""
        limit = self.target.limit
        for rows in batches:
            if limit is None:
                yield rows
                continue
            is_late = limit.is_late(rows)
            count: int = pc.sum(is_late).as_py() or 0
            self.late_rows += count
            if not count or self.target.late_writer is None:
                yield rows
                continue
            self.late.append(rows.filter(is_late))
            in_time = rows.filter(pc.invert(is_late))
            if in_time.num_rows:
                yield in_time

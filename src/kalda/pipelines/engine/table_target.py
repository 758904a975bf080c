"""Implements a table as the target of a pipeline, with another table for late rows if there is one."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.direct.rows_target import RowsTarget, Written
from kalda.pipelines.direct.upsert_marks import UpsertMarks
from kalda.pipelines.engine.decision import DecisionFile
from kalda.pipelines.engine.table_rows import LateLimit, TableFiles, TableRows
from kalda.pipelines.spec.model import TableSource, TableSpec, WriteMode
from kalda.pipelines.sql.row_query import RowCondition
from kalda.pipelines.tables import CompactPolicy, DataFile, Table, TableError, TableSpecError, open_table
from kalda.pipelines.tables.storage import errors_that_name

logger: Final = logging.getLogger(__name__)

DELETES_FLAG: Final = "__kalda_deletes"
"""The column in which Spark leaves the value of the condition `deletes`."""
_LATE_QUERY: Final = "late"


def upsert_marks(spec: TableSpec, *, is_spark: bool) -> UpsertMarks | None:
    """Return the marks of upserted and deleted rows; None where rows are appended."""
    if spec.mode is not WriteMode.UPSERT:
        return None
    if spec.deletes is None:
        return UpsertMarks(spec.keys)
    return UpsertMarks(spec.keys, RowCondition(DELETES_FLAG if is_spark else spec.deletes))


class TableTarget:
    """A table, with another one for late rows if the pipeline has it."""

    parts = None
    """Tasks leave nothing behind but files that no commit names."""

    def __init__(
        self,
        spec: TableSpec,
        decision: DecisionFile,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        """Take the table, where a batch is decided that has no columns to create it with, and the wall
        clock in milliseconds."""
        self._spec: Final = spec
        self._decision: Final = decision
        self._table: Final[Table] = open_table(spec)
        self._late_table: Table | None = None
        self._now_ms: Final = now_ms
        self._compacted_ms = now_ms()
        if spec.late is not None and spec.late.path is not None:
            late = replace(
                spec, table=spec.late.after, path=spec.late.path, late=None, mode=WriteMode.APPEND, keys=()
            )
            self._late_table = open_table(replace(late, order_by=None, deletes=None))

    @property
    def event_time(self) -> str | None:
        """The column with the time of the event."""
        return self._spec.event_time

    def committed_batch(self, query_id: str) -> int | None:
        """Return the last batch that counts."""
        found = (self._table.committed_batch(query_id), self._decision.batch(query_id))
        return max((each for each in found if each is not None), default=None)

    def holds(self, query_id: str) -> bool:
        """Return whether the query has committed a batch to this table, not to one that it replaced."""
        return self._table.committed_batch(query_id) is not None

    def upsert_marks(self, *, is_spark: bool) -> UpsertMarks | None:
        """Return the marks of upserted and deleted rows."""
        return upsert_marks(self._spec, is_spark=is_spark)

    def rows_target(
        self, schema: pa.Schema, query_id: str, batch_id: int, *, is_inferred: bool = False
    ) -> RowsTarget:
        """Create or evolve the table and return the writer of its files.

        Raises:
            SchemaRefusedError: the policy does not admit the columns.
            TableSpecError: a column that a setting names is absent, or not of a kind that the setting takes.
        """
        with errors_that_name(self._spec.path):
            self._check_event_time(schema)
            self._table.prepare_schema(schema, is_strict=not is_inferred)
        rules = self._table.fit()
        if self._spec.mode is WriteMode.UPSERT:
            return TableRows(writer=self._table.upsert_writer(schema), rules=rules)
        late_writer = None
        if self._late_table is not None:
            self._late_table.prepare_schema(rules.schema, is_strict=not is_inferred)
            late_writer = self._late_table.writer(schema)
        return TableRows(
            writer=self._table.writer(schema),
            rules=rules,
            limit=self._limit(query_id, batch_id),
            late_writer=late_writer,
        )

    def _check_event_time(self, rows: pa.Schema) -> None:
        name, own = self._spec.event_time, self._table.schema()
        if name is None:
            return
        schema = rows if own is None or name not in own.names else own
        if name not in schema.names:
            raise TableSpecError(
                f"event_time: there is no column {name}; the rows have {', '.join(rows.names)}"
            )
        kind = schema.field(name).type
        if not pa.types.is_timestamp(kind):
            raise TableSpecError(
                f"event_time={name} is {kind}; a timestamp is expected: cast it in the transform"
            )

    def commit(self, account: BatchAccount, written: Sequence[Written]) -> None:
        """Commit the files of all tasks at once, those of late rows first.

        The table of late rows has a commit of its own; it comes first, so that the table's commit decides. A
        batch in which no value shows a column cannot create the table; its decision is a file.
        """
        files: list[DataFile] = []
        late_files: list[DataFile] = []
        for each in written:
            for part in each.files:
                assert isinstance(part, TableFiles), part
                files += part.files
                late_files += part.late_files
        if not files and not late_files and self._table.schema() is None:
            self._decision.note(account.query_id, account.batch_id)
            return
        with errors_that_name(self._spec.path):
            if self._late_table is not None:
                self._late_table.commit(
                    replace(account, query_id=f"{account.query_id}/{_LATE_QUERY}"), late_files
                )
            if self._spec.mode is WriteMode.UPSERT:
                self._table.upsert(account, files)
            else:
                self._table.commit(account, files)

    def maintain(self) -> None:
        """Merge small files if it is time; a failure concerns no batch."""
        compact, now_ms = self._spec.compact, self._now_ms()
        if compact is None or now_ms - self._compacted_ms < compact.every_ms:
            return
        self._compacted_ms = now_ms
        policy = CompactPolicy(self._spec.file_target_bytes, newest_kept_s=compact.newest_ms / 1000)
        try:
            with errors_that_name(self._spec.path):
                self._table.compact(policy)
        except (TableError, OSError) as error:
            logger.warning("%s: small files are not merged this time: %s", self._spec.table, error)

    def _limit(self, query_id: str, batch_id: int) -> LateLimit | None:
        late, column = self._spec.late, self._spec.event_time
        if late is None or column is None:
            return None
        watermark = self._table.watermark(query_id, batch_id)
        return None if watermark is None else LateLimit(column, watermark - late.allow_ms)


def source_table(source: TableSource) -> TableSpec:
    """Return the spec of a table that is read."""
    return TableSpec(
        table=source.table,
        path=source.path,
        format=source.format,
        catalog=source.catalog,
        options=source.options,
    )

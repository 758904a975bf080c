"""Plain Parquet: a directory of files as Spark and Hive lay it out, with a commit log of ours beside them.

Tasks stage files below `_kalda/staging`. A commit creates the log's next record, which is the decision, and
then renames each file to its place; `_kalda/published` says up to which version that is done, and the
next start finishes it. So a batch is in the log as a whole or not at all. A reader of the directory
alone may see part of a batch between the renames, or after a crash until the next start, but never a row
twice. Do not break: renames follow the order of versions, and only files that a record names are renamed.
"""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.spec.model import TableFormat, TableSpec
from kalda.pipelines.tables.commit_metadata import event_time_max
from kalda.pipelines.tables.compaction import BINS_PER_COMMIT, Candidate, plan_bins
from kalda.pipelines.tables.errors import CommitConflictError, TableError, TableSpecError, UpsertRefusedError
from kalda.pipelines.tables.fitting import RowFit
from kalda.pipelines.tables.model import (
    ChangeSet,
    CommitResult,
    CompactPolicy,
    CompactResult,
    DataFile,
    SchemaChange,
    TableWriter,
    TaskId,
)
from kalda.pipelines.tables.parquet_log import LogFile, LogRecord, LogState, ParquetLog, progress_of
from kalda.pipelines.tables.partitions import (
    check_fields,
    hive_directory,
    parse_fields,
    value_of_text,
    value_text,
    with_partition_columns,
)
from kalda.pipelines.tables.reading import inexact_columns, read_file
from kalda.pipelines.tables.schemas import Evolution, EvolutionRules, evolve, table_schema
from kalda.pipelines.tables.storage import TableStorage
from kalda.pipelines.tables.writer import (
    STAGED_SUFFIX,
    STAGING,
    ParquetTaskWriter,
    clean_staging,
)

logger: Final = logging.getLogger(__name__)

PUBLISHED: Final = "_kalda/published"
REMOVED: Final = "_kalda/removed"
ATTEMPTS_MAX: Final = 100
"""Each lost attempt means that another writer won one; a hundred in a row is no coincidence."""


class ParquetTable:
    """A `Table` of plain Parquet files."""

    def __init__(
        self, spec: TableSpec, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        """Open a table; `now_ms` is the wall clock in milliseconds.

        Raises:
            TableSpecError: The spec has mode upsert's keys, or a wrong `partition_by`.
        """
        if spec.keys:
            raise TableSpecError(
                f"The table {spec.table} has mode upsert, which format parquet lacks; use format delta "
                "or iceberg"
            )
        self.spec = spec
        self.storage = TableStorage(spec.path, spec.options)
        self._now_ms = now_ms
        self._log = ParquetLog(self.storage)
        self._fields = parse_fields(spec.partition_by)
        self._published: int | None = None

    def committed_batch(self, query_id: str) -> int | None:
        """Return the last committed batch of a query, after finishing publications that a crash left."""
        state = self._refresh()
        progress = state.queries.get(query_id)
        return None if progress is None else progress.batch_id

    def watermark(self, query_id: str, batch_id: int) -> int | None:
        """Return the greatest event time before a batch, in milliseconds."""
        return progress_of(self._log.refresh().queries, query_id).watermark_at(batch_id)

    def version(self) -> int | None:
        """Return the current version."""
        version = self._log.refresh().version
        return None if version < 0 else version

    def schema(self) -> pa.Schema | None:
        """Return the current schema, with the columns of the partitions."""
        return self._log.refresh().schema

    def faults(self) -> list[str]:
        """Return what keeps a pipeline from writing the table as it is."""
        state = self._log.refresh()
        return [] if state.schema is None else self._faults(state)

    def prepare_schema(self, incoming: pa.Schema, *, is_strict: bool = True) -> SchemaChange:
        """Create or evolve the table; see `Table.prepare_schema`."""
        rows = table_schema(incoming, TableFormat.PARQUET, self.spec.table, is_strict=is_strict)
        for _ in range(ATTEMPTS_MAX):
            state = self._refresh()
            if state.schema is None:
                check_fields(self._fields, rows)
                schema = with_partition_columns(rows, self._fields)
                change = SchemaChange(created=True, added=tuple(rows.names))
            else:
                found = self._faults(state)
                if found:
                    raise TableSpecError(f"The table {self.spec.table} cannot be written: {'; '.join(found)}")
                evolution = self._evolution(state.schema, rows, is_strict)
                schema, change = evolution.schema, SchemaChange(False, evolution.added, evolution.widened)
            if not change:
                return change
            record = LogRecord(
                state.version + 1,
                self._now_ms(),
                "schema",
                schema=schema,
                partition_by=self.spec.partition_by,
            )
            if self._log.append(record):
                return change
        raise self._conflict("change its schema")

    def fit(self) -> RowFit:
        """Return what the table asks of its rows."""
        return RowFit(
            self.spec.table,
            self._columns_of_rows(self._schema()),
            fields=self._fields,
            has_directories=True,
            policy=self.spec.evolve.value,
        )

    def _evolution(self, current: pa.Schema, rows: pa.Schema, is_strict: bool) -> Evolution:
        rules = EvolutionRules(self.spec.evolve, TableFormat.PARQUET, is_strict=is_strict)
        evolution = evolve(current, rows, rules, self.spec.table)
        fixed = inexact_columns(self, current, evolution)
        return evolve(current, rows, replace(rules, fixed=fixed), self.spec.table) if fixed else evolution

    def _schema(self) -> pa.Schema:
        table = self._log.refresh().schema
        if table is None:
            raise TableError(f"The table {self.spec.table} does not exist; call prepare_schema first")
        return table

    def writer(self, schema: pa.Schema) -> TableWriter:
        """Return a writer for tasks."""
        return self._writer_of(self._schema())

    def commit(self, batch: BatchAccount, files: Sequence[DataFile]) -> CommitResult:
        """Publish a batch; see `Table.commit`."""
        rows = sum(file.rows for file in files)
        for attempt in range(1, ATTEMPTS_MAX + 1):
            state = self._refresh()
            progress = progress_of(state.queries, batch.query_id)
            if progress.batch_id >= batch.batch_id:
                return CommitResult(state.version, False, attempt, 0)
            version, now = state.version + 1, self._now_ms()
            record = LogRecord(
                version,
                now,
                "append",
                tuple(self._log_file(file, version, now) for file in files),
                query=batch.query_id,
                progress=progress.advanced(batch.batch_id, event_time_max(files)),
                account=batch.without_totals().to_json(),
            )
            if self._log.append(record):
                self._publish_all()
                clean_staging(self.storage, batch.query_id, batch.batch_id)
                return CommitResult(version, True, attempt, rows)
        raise self._conflict(f"commit batch {batch.batch_id}")

    def upsert(self, batch: BatchAccount, files: Sequence[DataFile]) -> CommitResult:
        """Refuse: plain Parquet has no upsert."""
        raise UpsertRefusedError(
            f"The table {self.spec.table} is plain Parquet; use format delta or iceberg to upsert"
        )

    def upsert_writer(self, schema: pa.Schema) -> TableWriter:
        """Refuse: plain Parquet has no upsert."""
        raise UpsertRefusedError(
            f"The table {self.spec.table} is plain Parquet; use format delta or iceberg to upsert"
        )

    def read(
        self, columns: Sequence[str] | None = None, version: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of a version, from exactly the files that its log names."""
        state = self._log.refresh() if version is None else self._log.state_at(version)
        for file in list(state.files.values()):
            yield from self._read_file(file, state, columns)

    def read_changes(self, since: int | None, until: int | None = None) -> Iterator[ChangeSet]:
        """Return the rows that batches appended; compactions change no row."""
        state = self._log.refresh()
        last = state.version if until is None else until
        for version in range(0 if since is None else since + 1, last + 1):
            record = self._log.record(version)
            if record is None:
                raise TableError(
                    f"The changes of version {version} of the table {self.spec.table} are no longer in "
                    "its log; "
                    "read the whole table once and go on from its version"
                )
            for file in record.add if record.kind == "append" else ():
                for rows in self._read_file(file, state, None):
                    yield ChangeSet(version, "insert", rows)

    def compact(self, policy: CompactPolicy) -> CompactResult:
        """Join small files; see `Table.compact`. Replaced files stay below `_kalda/removed` for the
        retention."""
        live = dict(self._refresh().files)
        candidates = [
            Candidate(file.path, file.partition, file.size_bytes, file.rows, file.committed_ms)
            for file in live.values()
        ]
        bins = plan_bins(candidates, policy, self._now_ms())
        removed = added = size = 0
        for start in range(0, len(bins), BINS_PER_COMMIT):
            group = bins[start : start + BINS_PER_COMMIT]
            written = self._compact_group([[live[file.path] for file in each] for each in group])
            if written:
                removed += sum(map(len, group))
                added += written
                size += sum(file.size_bytes for each in group for file in each)
        return CompactResult(self._log.refresh().version, removed, added, size, self._vacuum(policy))

    def _compact_group(self, bins: Sequence[Sequence[LogFile]]) -> int:
        """Write and commit the joined files of some bins; return how many, 0 when another writer was
        faster."""
        state = self._log.refresh()
        assert state.schema is not None
        query = f"compact-{state.version}-{self._now_ms()}"
        inputs = {file.path for each in bins for file in each}
        writer = self._writer_of(state.schema)
        written: list[DataFile] = []
        for number, files in enumerate(bins):
            rows = (batch for file in files for batch in self._read_file(file, state, None))
            written += writer.write(rows, TaskId(query, 0, number))
        for _ in range(ATTEMPTS_MAX):
            state = self._refresh()
            if not inputs <= state.files.keys():
                logger.info(
                    "table %s: another writer replaced files; this compaction is dropped", self.spec.table
                )
                clean_staging(self.storage, query, 0)
                return 0
            version, now = state.version + 1, self._now_ms()
            added = tuple(self._log_file(file, version, now) for file in written)
            if self._log.append(LogRecord(version, now, "compact", added, tuple(sorted(inputs)))):
                # From here on the staged files are the table's: only their publication may remove them.
                self._publish_all()
                clean_staging(self.storage, query, 0)
                return len(written)
        raise self._conflict("compact it")

    def _writer_of(self, table: pa.Schema) -> ParquetTaskWriter:
        by_partition = {field.name for field in self._fields}
        in_files = pa.schema([column for column in table if column.name not in by_partition])
        return ParquetTaskWriter(
            self.storage,
            self._columns_of_rows(table),
            self._fields,
            in_files,
            staged=True,
            event_time=self.spec.event_time,
            file_bytes_target=self.spec.file_target_bytes,
            compression=self.spec.compression.value,
        )

    def _columns_of_rows(self, table: pa.Schema) -> pa.Schema:
        made = {field.name for field in self._fields if field.source != field.name}
        return pa.schema([column for column in table if column.name not in made])

    def _log_file(self, file: DataFile, version: int, now_ms: int) -> LogFile:
        name = file.path.rpartition("/")[2].removesuffix(STAGED_SUFFIX)
        directory = hive_directory(file.partition)
        partition = tuple((column, value_text(value)) for column, value in file.partition)
        path = f"{directory}/{name}" if directory else name
        return LogFile(path, file.path, file.rows, file.size_bytes, partition, version, now_ms)

    def _read_file(
        self, file: LogFile, state: LogState, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        assert state.schema is not None
        schema = (
            state.schema if columns is None else pa.schema([state.schema.field(name) for name in columns])
        )
        constants = {
            name: value_of_text(text, state.schema.field(name).type) for name, text in file.partition
        }
        path = next((each for each in self._places(file) if self.storage.exists(each)), file.path)
        yield from read_file(self.storage, path, schema, constants)

    def _places(self, file: LogFile) -> Iterator[str]:
        """Return where a file may be: published, still staged, or replaced and kept for readers of old
        versions."""
        yield file.path
        yield file.staged
        yield f"{REMOVED}/{file.path}.removed"

    def _refresh(self) -> LogState:
        state = self._log.refresh()
        self._publish_all()
        return state

    def _publish_all(self) -> None:
        """Move the files of all versions that are not published yet, in order."""
        state = self._log.refresh()
        if self._published is None:
            data = self.storage.read(PUBLISHED)
            self._published = int(data) if data else -1
        if self._published >= state.version:
            return
        for version in range(self._published + 1, state.version + 1):
            record = self._log.record(version)
            assert record is not None, version
            for path in record.remove:
                self.storage.move(path, f"{REMOVED}/{path}.removed")
            for file in record.add:
                moved = self.storage.move(file.staged, file.path)
                if not moved and file.path in state.files and not self.storage.exists(file.path):
                    raise TableError(
                        f"The file {file.path} of version {version} of the table {self.spec.table} is "
                        "neither staged nor "
                        "published: it was deleted from outside. Restore it, or replay the batches from "
                        "that version"
                    )
        self._published = state.version
        self.storage.replace(PUBLISHED, str(state.version).encode())

    def _vacuum(self, policy: CompactPolicy) -> int:
        """Delete replaced files, abandoned staged files and covered log records older than the retention."""
        before_ms = self._now_ms() - round(policy.retention_s * 1000)
        deleted = 0
        for directory in (REMOVED, STAGING):
            for found in list(self.storage.list(directory)):
                if found.changed_s * 1000 < before_ms:
                    deleted += self.storage.delete(found.path)
        self._log.delete_before(before_ms)
        return deleted

    def _faults(self, state: LogState) -> list[str]:
        if state.partition_by == self.spec.partition_by:
            return []
        found, wanted = list(state.partition_by), list(self.spec.partition_by)
        what = f"it is partitioned by {found}, but partition_by is {wanted}; plain Parquet cannot change it"
        return [f"{what}. Write to another table"]

    def _conflict(self, action: str) -> CommitConflictError:
        return CommitConflictError(
            f"Other writers changed the table {self.spec.table} at each of {ATTEMPTS_MAX} attempts to "
            f"{action}; "
            "run fewer writers"
        )

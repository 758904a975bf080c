"""Plain Parquet: a directory of Parquet files in Hive's layout, which any engine reads as a table.

The directory is the table: each file `*.parquet` belongs to it, except below names with `_` or `.` in front.
Tasks write below `_kalda/staging`. A commit first writes the batch with the names of its files to
`_kalda/batches`, which decides that the batch is in the table, and then renames the files to names that
follow from query, batch, task and number. A process that dies in between leaves the rest of the renames to
the next one, and repeating a rename changes nothing. A compaction does the same with `_kalda/compactions`.
"""

import base64
import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.spec.model import TableFormat, TableSpec
from kalda.pipelines.tables.commit_metadata import event_time_max
from kalda.pipelines.tables.compaction import Candidate, plan_bins
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
from kalda.pipelines.tables.partitions import (
    check_fields,
    hive_directory,
    hive_values,
    parse_fields,
    value_of_text,
    with_partition_columns,
)
from kalda.pipelines.tables.progress import NO_PROGRESS, QueryProgress
from kalda.pipelines.tables.reading import inexact_columns, read_file
from kalda.pipelines.tables.schemas import Evolution, EvolutionRules, evolve, table_schema
from kalda.pipelines.tables.storage import HIDDEN_PREFIXES, FoundFile, TableStorage
from kalda.pipelines.tables.writer import (
    STAGING,
    ParquetTaskWriter,
    clean_staging,
    published_name,
    query_token,
    staging_directory,
)

COMMON_METADATA: Final = "_common_metadata"
"""The name that Parquet's writers have for a file with the schema alone; Spark takes the columns from it."""
BATCHES: Final = "_kalda/batches"
"""One file for each query: its last batch."""
COMPACTIONS: Final = "_kalda/compactions"
"""One file for each compaction that is being applied."""
REMOVED: Final = "_kalda/removed"
"""Files that a compaction replaced, for readers that have listed them before."""
ATTEMPTS_MAX: Final = 100
"""Each lost attempt means that another writer won one; a hundred in a row is no coincidence."""

_EARLIER_LOG: Final = "_kalda/log"
_LOCK: Final = "_kalda/lock"
_TABLE_KEY: Final = b"kalda.table"
_RecordT = TypeVar("_RecordT")
VERSION: Final = 0
"""Of every plain Parquet table: files alone have no history."""


@dataclass(frozen=True, slots=True)
class FileMoves:
    """Renames that are decided: files that leave the table, and staged files with their names in it."""

    add: tuple[tuple[str, str], ...]
    remove: tuple[str, ...] = ()

    def apply(self, storage: TableStorage) -> None:
        """Rename what is not renamed yet. Files leave first, so that no reader sees a row twice."""
        for path in self.remove:
            storage.move(path, removed_path(path))
        for staged, path in self.add:
            storage.move(staged, path)


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch of a query that is in the table."""

    query_id: str
    progress: QueryProgress
    moves: FileMoves
    account: str | None = None

    def to_bytes(self) -> bytes:
        """Return the batch as JSON."""
        progress = self.progress
        document = {
            "query": self.query_id,
            "batch": progress.batch_id,
            "watermarks": [progress.watermark_before, progress.watermark],
            "add": self.moves.add,
            "account": json.loads(self.account) if self.account else None,
        }
        return json.dumps(document, ensure_ascii=False, indent=1).encode()

    @classmethod
    def from_document(cls, document: Any) -> "LastBatch":
        """Read what `to_bytes` returned, decoded from JSON."""
        return cls(
            str(document["query"]),
            QueryProgress(int(document["batch"]), *document["watermarks"]),
            FileMoves(_pairs(document["add"])),
        )


@dataclass(frozen=True, slots=True)
class TableColumns:
    """What `_common_metadata` keeps: all columns with those of the partitions, and `partition_by`."""

    schema: pa.Schema
    partition_by: tuple[str, ...]


class ParquetTable:
    """A `Table` of plain Parquet files."""

    def __init__(
        self, spec: TableSpec, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        """Open a table; `now_ms` is the wall clock in milliseconds.

        Raises:
            TableSpecError: The spec has mode upsert's keys, or a wrong `partition_by`, such as a column whose
                directories engines pass over.
        """
        if spec.keys:
            raise TableSpecError(
                f"The table {spec.table} has mode upsert, which format parquet lacks; use format delta "
                "or iceberg"
            )
        self.spec = spec
        self.storage = TableStorage(spec.path, spec.options)
        self._now_ms = now_ms
        self._fields = parse_fields(spec.partition_by)
        for field in self._fields:
            if field.name.startswith(HIDDEN_PREFIXES):
                raise TableSpecError(
                    f"partition_by names {field.name!r}, which names directories of the plain Parquet table "
                    f"{spec.table}, and engines pass over names that begin so; rename the column"
                )

    def committed_batch(self, query_id: str) -> int | None:
        """Return the last committed batch of a query, after finishing renames that a crash left."""
        self._finish()
        progress = self._progress(query_id)
        return None if progress is NO_PROGRESS else progress.batch_id

    def watermark(self, query_id: str, batch_id: int) -> int | None:
        """Return the greatest event time before a batch, in milliseconds."""
        return self._progress(query_id).watermark_at(batch_id)

    def version(self) -> int | None:
        """Return `VERSION`; None when the table does not exist."""
        return None if self._columns() is None else VERSION

    def schema(self) -> pa.Schema | None:
        """Return the current schema, with the columns of the partitions."""
        columns = self._columns()
        return None if columns is None else columns.schema

    def faults(self) -> list[str]:
        """Return what keeps a pipeline from writing the table as it is."""
        if self.storage.exists(_EARLIER_LOG):
            what = f"an earlier Kalda wrote it with a commit log ({_EARLIER_LOG}), which is not read any more"
            return [f"{what}. Write to another table; the files of this one stay readable as Parquet"]
        columns = self._columns()
        if columns is None:
            foreign = next(iter(self._visible()), None)
            if foreign is None:
                return []
            what = f"its directory has files of another writer ({foreign.path})"
            return [f"{what}, and no {COMMON_METADATA} of Kalda with their columns. Write to another table"]
        if columns.partition_by == self.spec.partition_by:
            return []
        found, wanted = list(columns.partition_by), list(self.spec.partition_by)
        what = f"it is partitioned by {found}, but partition_by is {wanted}; plain Parquet cannot change it"
        return [f"{what}. Write to another table"]

    def prepare_schema(self, incoming: pa.Schema, *, is_strict: bool = True) -> SchemaChange:
        """Create or evolve the table; see `Table.prepare_schema`."""
        rows = table_schema(incoming, TableFormat.PARQUET, self.spec.table, is_strict=is_strict)
        found = self.faults()
        if found:
            raise TableSpecError(f"The table {self.spec.table} cannot be written: {'; '.join(found)}")
        for _ in range(ATTEMPTS_MAX):
            current = self.schema()
            if current is None:
                check_fields(self._fields, rows, has_directories=True)
                schema = with_partition_columns(rows, self._fields)
                change = SchemaChange(created=True, added=tuple(rows.names))
            else:
                evolution = self._evolution(current, rows, is_strict)
                schema, change = evolution.schema, SchemaChange(False, evolution.added, evolution.widened)
            if not change:
                return change
            with self._locked():
                if self.schema() == current:
                    self._write_columns(schema)
                    return change
        raise CommitConflictError(
            f"Other writers changed the table {self.spec.table} at each of {ATTEMPTS_MAX} attempts to change "
            "its schema; run fewer writers"
        )

    def fit(self) -> RowFit:
        """Return what the table asks of its rows."""
        return RowFit(
            self.spec.table,
            self._columns_of_rows(self._existing()),
            fields=self._fields,
            has_directories=True,
            policy=self.spec.evolve.value,
        )

    def writer(self, schema: pa.Schema) -> TableWriter:
        """Return a writer for tasks."""
        return self._writer_of(self._existing())

    def commit(self, batch: BatchAccount, files: Sequence[DataFile]) -> CommitResult:
        """Publish a batch; see `Table.commit`."""
        self._finish()
        with self._locked():
            progress = self._progress(batch.query_id)
            if progress.batch_id >= batch.batch_id:
                return CommitResult(VERSION, False, 1, 0)
            last = LastBatch(
                batch.query_id,
                progress.advanced(batch.batch_id, event_time_max(files)),
                FileMoves(tuple((file.path, _published_path(file)) for file in files)),
                batch.without_totals().to_json(),
            )
            self.storage.replace(f"{BATCHES}/{query_token(batch.query_id)}.json", last.to_bytes())
            self._finish_batch(last)
        return CommitResult(VERSION, True, 1, sum(file.rows for file in files))

    def upsert(self, batch: BatchAccount, files: Sequence[DataFile]) -> CommitResult:
        """Refuse: plain Parquet has no upsert."""
        raise self._no_upsert()

    def upsert_writer(self, schema: pa.Schema) -> TableWriter:
        """Refuse: plain Parquet has no upsert."""
        raise self._no_upsert()

    def read(
        self, columns: Sequence[str] | None = None, version: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of the directory's files, those of a batch in full or not at all."""
        if version not in (None, VERSION):
            raise self._no_versions()
        with suppress(PermissionError):  # a reader of the directory need not be able to write there
            self._finish()
        schema = self._existing()
        with self._locked(is_shared=True):
            files = self._visible()
        for file in files:
            yield from self._read_file(file.path, schema, columns)

    def read_changes(self, since: int | None, until: int | None = None) -> Iterator[ChangeSet]:
        """Refuse: a directory does not show what changed."""
        raise self._no_versions()

    def compact(self, policy: CompactPolicy) -> CompactResult:
        """Join small files; see `Table.compact`. Replaced files stay in `_kalda/removed` for the retention,
        where engines do not look."""
        self._finish()
        schema = self._existing()
        candidates = [
            Candidate(file.path, hive_values(file.path), file.size_bytes, round(file.changed_s * 1000))
            for file in self._visible()
        ]
        removed = added = size = 0
        for files in plan_bins(candidates, policy, self._now_ms()):
            written = self._join([file.path for file in files], schema)
            if written:
                removed += len(files)
                added += written
                size += sum(file.size_bytes for file in files)
        return CompactResult(VERSION, removed, added, size, self._vacuum(policy))

    def _join(self, paths: Sequence[str], schema: pa.Schema) -> int:
        """Replace files of one partition; return by how many, 0 when another process was faster."""
        query = f"compact-{secrets.token_hex(8)}"
        rows = (batch for path in paths for batch in self._read_file(path, schema, None))
        written = self._writer_of(schema).write(rows, TaskId(query, 0, 0))
        moves = FileMoves(tuple((file.path, _published_path(file)) for file in written), tuple(paths))
        journal = f"{COMPACTIONS}/{query}.json"
        with self._locked():
            is_current = all(map(self.storage.exists, paths))
            if is_current:
                self.storage.replace(journal, json.dumps({"add": moves.add, "remove": moves.remove}).encode())
                moves.apply(self.storage)
                self.storage.delete(journal)
        clean_staging(self.storage, query, 0)
        return len(written) if is_current else 0

    def _finish(self) -> None:
        """Finish the renames that a process has left which died after its decision."""
        if not any(self._compactions()) and not any(map(self._is_staged, self._last_batches())):
            return
        with self._locked():
            for path in self._compactions():
                moves = self._record(path, _moves)
                if moves is not None:
                    moves.apply(self.storage)
                    self.storage.delete(path)
            for last in self._last_batches():
                self._finish_batch(last)

    def _finish_batch(self, last: LastBatch) -> None:
        last.moves.apply(self.storage)
        # The directory's absence says that all files have their names, so it goes last.
        clean_staging(self.storage, last.query_id, last.progress.batch_id)

    def _is_staged(self, last: LastBatch) -> bool:
        return self.storage.exists(staging_directory(last.query_id, last.progress.batch_id))

    def _compactions(self) -> list[str]:
        return [found.path for found in self.storage.list(COMPACTIONS) if found.path.endswith(".json")]

    def _last_batches(self) -> Iterator[LastBatch]:
        paths = [found.path for found in self.storage.list(BATCHES) if found.path.endswith(".json")]
        for path in paths:
            last = self._record(path, LastBatch.from_document)
            if last is not None:
                yield last

    def _progress(self, query_id: str) -> QueryProgress:
        last = self._record(f"{BATCHES}/{query_token(query_id)}.json", LastBatch.from_document)
        return NO_PROGRESS if last is None else last.progress

    def _record(self, path: str, parse: Callable[[Any], _RecordT]) -> _RecordT | None:
        data = self.storage.read(path)
        if data is None:
            return None
        try:
            return parse(json.loads(data))
        except (ValueError, KeyError, TypeError) as error:
            raise TableError(
                f"{self.storage.full_path(path)} is damaged: {error!r}. Restore it from a backup, or write "
                "to another table"
            ) from error

    def _columns(self) -> TableColumns | None:
        """Return the columns of the table; None where there is none, or another writer's."""
        data = self.storage.read(COMMON_METADATA)
        if data is None:
            return None
        try:
            text = (pq.read_schema(pa.BufferReader(data)).metadata or {}).get(_TABLE_KEY)
            if text is None:
                return None
            document = json.loads(text)
            schema = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(document["schema"])))
            return TableColumns(schema, tuple(document["partition_by"]))
        except (ValueError, KeyError, TypeError, pa.ArrowException) as error:
            raise TableError(
                f"{self.storage.full_path(COMMON_METADATA)} is damaged: {error}. Restore it from a backup, "
                "or write to another table"
            ) from error

    def _write_columns(self, schema: pa.Schema) -> None:
        document = {
            "partition_by": self.spec.partition_by,
            "schema": base64.b64encode(schema.serialize().to_pybytes()).decode(),
        }
        sink = pa.BufferOutputStream()
        pq.write_metadata(self._in_files(schema).with_metadata({_TABLE_KEY: json.dumps(document)}), sink)
        self.storage.replace(COMMON_METADATA, sink.getvalue().to_pybytes())

    def _evolution(self, current: pa.Schema, rows: pa.Schema, is_strict: bool) -> Evolution:
        rules = EvolutionRules(self.spec.evolve, TableFormat.PARQUET, is_strict=is_strict)
        evolution = evolve(current, rows, rules, self.spec.table)
        fixed = inexact_columns(self, current, evolution)
        return evolve(current, rows, replace(rules, fixed=fixed), self.spec.table) if fixed else evolution

    def _existing(self) -> pa.Schema:
        table = self.schema()
        if table is None:
            raise TableError(f"The table {self.spec.table} does not exist; call prepare_schema first")
        return table

    def _writer_of(self, table: pa.Schema) -> ParquetTaskWriter:
        return ParquetTaskWriter(
            self.storage,
            self._columns_of_rows(table),
            self._fields,
            self._in_files(table),
            staged=True,
            event_time=self.spec.event_time,
            file_bytes_target=self.spec.file_target_bytes,
            compression=self.spec.compression.value,
        )

    def _in_files(self, table: pa.Schema) -> pa.Schema:
        by_partition = {field.name for field in self._fields}
        return pa.schema([column for column in table if column.name not in by_partition])

    def _columns_of_rows(self, table: pa.Schema) -> pa.Schema:
        made = {field.name for field in self._fields if field.source != field.name}
        return pa.schema([column for column in table if column.name not in made])

    def _visible(self) -> list[FoundFile]:
        """Return the files of the table, in the order of their names."""
        found = (each for each in self.storage.list_visible() if each.path.endswith(".parquet"))
        return sorted(found, key=lambda file: file.path)

    def _read_file(
        self, path: str, schema: pa.Schema, columns: Sequence[str] | None
    ) -> Iterator[pa.RecordBatch]:
        chosen = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        constants = {
            name: value_of_text(text, schema.field(name).type)
            for name, text in hive_values(path)
            if name in schema.names
        }
        place = path if self.storage.exists(path) else removed_path(path)
        yield from read_file(self.storage, place, chosen, constants)

    def _locked(self, *, is_shared: bool = False) -> AbstractContextManager[None]:
        return self.storage.locked(_LOCK, is_shared=is_shared)

    def _vacuum(self, policy: CompactPolicy) -> int:
        """Delete replaced files and abandoned staged files older than the retention."""
        before_s = self._now_ms() / 1000 - policy.retention_s
        old = [
            found.path
            for directory in (REMOVED, STAGING)
            for found in self.storage.list(directory)
            if found.changed_s < before_s
        ]
        return sum(map(self.storage.delete, old))

    def _no_upsert(self) -> UpsertRefusedError:
        return UpsertRefusedError(
            f"The table {self.spec.table} is plain Parquet; use format delta or iceberg to upsert"
        )

    def _no_versions(self) -> TableError:
        return TableError(
            f"The table {self.spec.table} is plain Parquet, whose files do not show earlier versions; "
            "use format delta or iceberg to read versions and changes"
        )


def removed_path(path: str) -> str:
    """Return where a file of the table goes that a compaction has replaced."""
    return f"{REMOVED}/{path}.removed"


def _published_path(file: DataFile) -> str:
    directory, name = hive_directory(file.partition), published_name(file.path)
    return f"{directory}/{name}" if directory else name


def _moves(document: Any) -> FileMoves:
    return FileMoves(_pairs(document["add"]), tuple(map(str, document["remove"])))


def _pairs(rows: Any) -> tuple[tuple[str, str], ...]:
    return tuple((str(staged), str(path)) for staged, path in rows)

"""Iceberg tables through the `pyiceberg` wheel, in a SQL (SQLite) or REST catalog.

Executors write Parquet with field ids; the driver appends the files in one snapshot, whose properties carry
the query, the batch and its offset ranges. The same commit sets a table property with the query's last batch,
which stays when snapshots expire. Do not break: pyiceberg's own retry is off, for it would append a batch
that another driver has committed meanwhile; each attempt here looks first.
"""

import errno
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final
from uuid import UUID

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import schema_to_pyarrow
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import FileScanTask, Transaction
from pyiceberg.table import Table as LoadedTable
from pyiceberg.table.update.snapshot import _SnapshotProducer
from sqlalchemy.exc import ArgumentError, OperationalError

from kalda.common.backoff import jittered
from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.spec.model import TableFormat, TableSpec
from kalda.pipelines.tables.commit_metadata import commit_metadata, event_time_max
from kalda.pipelines.tables.compaction import BINS_PER_COMMIT, Candidate, plan_bins
from kalda.pipelines.tables.errors import CommitConflictError, TableError, TableSpecError
from kalda.pipelines.tables.fitting import RowFit, with_required
from kalda.pipelines.tables.iceberg_changes import snapshot_changes
from kalda.pipelines.tables.iceberg_files import (
    TRANSFORMS,
    arrow_file_schema,
    described,
    iceberg_file,
    same_fields,
    table_faults,
)
from kalda.pipelines.tables.iceberg_merge import Merge, merge_files
from kalda.pipelines.tables.iceberg_reading import read_task
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
from kalda.pipelines.tables.partitions import Transform, check_fields, parse_fields
from kalda.pipelines.tables.progress import NO_PROGRESS, QueryProgress
from kalda.pipelines.tables.reading import read_staged
from kalda.pipelines.tables.row_difference import changed_rows
from kalda.pipelines.tables.schemas import EvolutionRules, conform, evolve, table_schema, without_clashes
from kalda.pipelines.tables.storage import TableStorage
from kalda.pipelines.tables.upsert import HIDDEN, check_upsert, last_rows, without_hidden
from kalda.pipelines.tables.writer import STAGING, ParquetTaskWriter, clean_staging
from kalda.runtime.system.random import SYSTEM_RANDOM

logger: Final = logging.getLogger(__name__)

CATALOG: Final = "kalda"
"""The catalog's name unless its properties have `name`: a SQL catalog keeps the tables of each name apart."""

PROGRESS: Final = "kalda.progress."
OPERATION: Final = "kalda.operation"
ATTEMPTS_MAX: Final = 100
"""Each lost attempt means that another writer won one; a hundred in a row is no coincidence."""

WAIT_S: Final = 0.05
"""The wait after a lost attempt, times their number, so that writers of one SQLite file get their turn."""

UNCHANGED_MAX: Final = 5
"""So often in a row a commit is tried again on a table that nobody changed: a catalog may be short of a lock,
but a requirement that it names would fail for ever."""

SNAPSHOTS_MAX: Final = 200
"""Each commit writes the list of all snapshots, and pyiceberg copies it a dozen times; beyond this many the
older half is dropped from it."""

_LOST: Final = (CommitFailedException, CommitStateUnknownException, ValidationException, OperationalError)
"""Outcomes after which the table is read again: another commit came first, or the catalog did not answer.

What `_wait` finds in the table decides then if trying again can help."""


class IcebergTable:
    """A `Table` of format Iceberg."""

    def __init__(
        self, spec: TableSpec, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        """Open a table, which need not exist; `now_ms` is the wall clock in milliseconds."""
        self.spec = spec
        self._now_ms = now_ms
        self._fields = parse_fields(spec.partition_by)
        self._identifier = identifier_of(spec)
        try:
            self._catalog: Catalog = load_catalog(**catalog_properties(spec))
        except (ValueError, ImportError, ArgumentError) as error:
            raise TableSpecError(
                f"The catalog of the table {spec.table} cannot be opened: {error}"
            ) from error
        self._loaded: LoadedTable | None = None
        self._unchanged = 0
        """Attempts in a row that failed without another commit."""
        self._prepared: UUID | None = None
        """The table that the rows of a batch are written for."""

    def committed_batch(self, query_id: str) -> int | None:
        """Return the last committed batch of a query."""
        progress = self._progress(self._refresh(), query_id)
        return None if progress is NO_PROGRESS else progress.batch_id

    def watermark(self, query_id: str, batch_id: int) -> int | None:
        """Return the greatest event time before a batch, in milliseconds."""
        return self._progress(self._refresh(), query_id).watermark_at(batch_id)

    def version(self) -> int | None:
        """Return the id of the current snapshot."""
        table = self._refresh()
        snapshot = None if table is None else table.current_snapshot()
        return None if snapshot is None else int(snapshot.snapshot_id)

    def schema(self) -> pa.Schema | None:
        """Return the current schema."""
        table = self._refresh()
        return None if table is None else self._schema_of(table)

    def faults(self) -> list[str]:
        """Return what keeps a pipeline from writing the table as it is."""
        table = self._refresh()
        return [] if table is None else self._faults(table)

    def prepare_schema(self, incoming: pa.Schema, *, is_strict: bool = True) -> SchemaChange:
        """Create or evolve the table; see `Table.prepare_schema`."""
        given = table_schema(
            without_hidden(incoming), TableFormat.ICEBERG, self.spec.table, is_strict=is_strict
        )
        for attempt in range(ATTEMPTS_MAX):
            table = self._refresh()
            current = pa.schema([]) if table is None else self._schema_of(table)
            rows = without_clashes(given, current, self.spec.table, is_strict=is_strict)
            if self.spec.keys:
                check_upsert(self.spec, rows if table is None or is_strict else self._schema_of(table))
            try:
                if table is None:
                    self._create(rows)
                    return SchemaChange(created=True, added=tuple(rows.names))
                found = self._faults(table)
                if found:
                    raise TableSpecError(f"The table {self.spec.table} cannot be written: {'; '.join(found)}")
                rules = EvolutionRules(self.spec.evolve, TableFormat.ICEBERG, is_strict=is_strict)
                evolution = evolve(self._schema_of(table), rows, rules, self.spec.table)
                change = SchemaChange(False, evolution.added, evolution.widened)
                if change:
                    self._evolve(table, evolution.schema, change)
                return change
            except (*_LOST, TableAlreadyExistsError) as error:
                self._wait(attempt, error, table)
        raise self._conflict("change its schema")

    def fit(self) -> RowFit:
        """Return what the table asks of its rows."""
        table = self._existing()
        self._prepared = table.metadata.table_uuid
        given = schema_to_pyarrow(table.schema())
        return RowFit(
            self.spec.table,
            pa.schema([with_required(each, given.field(each.name)) for each in self._schema_of(table)]),
            self.spec.keys,
            fields=self._fields,
            policy=self.spec.evolve.value,
        )

    def writer(self, schema: pa.Schema) -> TableWriter:
        """Return a writer for tasks."""
        return self._writer_of(self._existing())

    def upsert_writer(self, schema: pa.Schema) -> TableWriter:
        """Return a writer of rows for `upsert`; their hidden columns are those of `upsert.HIDDEN`."""
        table = self._existing()
        staged = pa.schema([*self._schema_of(table), *HIDDEN])
        return ParquetTaskWriter(self._storage(table), staged, staged=True, event_time=self.spec.event_time)

    def commit(self, batch: BatchAccount, files: Sequence[DataFile]) -> CommitResult:
        """Publish a batch; see `Table.commit`."""

        def append(transaction: Transaction, table: LoadedTable) -> int:
            self._swap(table, transaction.update_snapshot(commit_metadata(batch)).merge_append(), (), files)
            return sum(file.rows for file in files)

        result = self._commit(batch, files, append)
        self._limit_snapshots()
        return result

    def upsert(self, batch: BatchAccount, files: Sequence[DataFile]) -> CommitResult:
        """Merge a batch by key; files with replaced rows are written again without them."""
        done: list[Merge] = []

        def merge(transaction: Transaction, table: LoadedTable) -> int:
            self._discard(table, done)
            staged = read_staged(self._storage(table), files, pa.schema([*self._schema_of(table), *HIDDEN]))
            rows = last_rows(staged, self.spec.keys, self.spec.order_by, self.spec.table)
            merged = merge_files(table, self._writer_of(table), rows, self.spec, batch)
            done.append(merged)
            snapshot = transaction.update_snapshot(commit_metadata(batch))
            self._swap(table, snapshot.overwrite(), merged.replaced, merged.written)
            return merged.rows

        result = self._commit(batch, files, merge)
        table = self._current()
        if not result.committed:
            self._discard(table, done)
        clean_staging(self._storage(table), batch.query_id, batch.batch_id)
        self._limit_snapshots()
        return result

    def read(
        self, columns: Sequence[str] | None = None, version: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of a snapshot."""
        table = self._existing()
        if version is not None and table.snapshot_by_id(version) is None:
            raise TableError(f"The table {self.spec.table} has no snapshot {version}; it may have expired")
        schema = self._schema_of(table)
        chosen = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        scan = table.scan(selected_fields=tuple(chosen.names), snapshot_id=version)
        projection = table.schema().select(*chosen.names)
        for task in scan.plan_files():
            for batch in read_task(table, task, projection):
                yield conform(batch, chosen)

    def read_changes(self, since: int | None, until: int | None = None) -> Iterator[ChangeSet]:
        """Return what snapshots changed; see `kalda.pipelines.tables.iceberg_changes`."""
        table = self._existing()
        schema = self._schema_of(table)

        def rows_of(tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
            for task in tasks:
                for batch in read_task(table, task, table.schema()):
                    yield conform(batch, schema)

        for version, removed, added in snapshot_changes(table, since, until, OPERATION):
            yield from changed_rows(version, partial(rows_of, removed), partial(rows_of, added))

    def compact(self, policy: CompactPolicy) -> CompactResult:
        """Join small files, drop old snapshots, and delete files that no snapshot names any more."""
        table = self._existing()
        committed = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.snapshots()}
        tasks = {task.file.file_path: task for task in table.scan().plan_files()}
        candidates = [
            Candidate(
                path,
                _partition_key(tasks[path]),
                tasks[path].file.file_size_in_bytes,
                committed.get(snapshot_id or 0, 0),
            )
            for path, snapshot_id in _live_files(table)
            if path in tasks
        ]
        bins = plan_bins(candidates, policy, self._now_ms())
        removed = added = size = 0
        for start in range(0, len(bins), BINS_PER_COMMIT):
            group = bins[start : start + BINS_PER_COMMIT]
            written = self._compact_group([[tasks[file.path] for file in each] for each in group])
            if written:
                removed += sum(map(len, group))
                added += written
                size += sum(file.size_bytes for each in group for file in each)
        deleted = self._vacuum(policy)
        return CompactResult(self.version() or 0, removed, added, size, deleted)

    def _compact_group(self, bins: Sequence[Sequence[FileScanTask]]) -> int:
        """Write and commit joined files; return how many, 0 when another writer was faster."""
        table = self._existing()
        writer, schema = self._writer_of(table), self._schema_of(table)
        query = f"compact-{self.version()}-{self._now_ms()}"
        written: list[DataFile] = []
        for number, tasks in enumerate(bins):
            rows = (
                conform(batch, schema) for task in tasks for batch in read_task(table, task, table.schema())
            )
            written += writer.write(rows, TaskId(query, 0, number))
        inputs = [task.file for tasks in bins for task in tasks]
        for attempt in range(ATTEMPTS_MAX):
            table = self._existing()
            if not {file.file_path for file in inputs} <= {path for path, _ in _live_files(table)}:
                logger.info(
                    "table %s: another writer replaced files; this compaction is dropped", self.spec.table
                )
                break
            try:
                with _without_retry(table).transaction() as transaction:
                    snapshot = transaction.update_snapshot({OPERATION: "compact"})
                    self._swap(table, snapshot.overwrite(), inputs, written)
                return len(written)
            except _LOST as error:
                self._wait(attempt, error, table)
        for file in written:
            self._storage(table).delete(file.path)
        return 0

    def _commit(
        self,
        batch: BatchAccount,
        files: Sequence[DataFile],
        change: Callable[[Transaction, LoadedTable], int],
    ) -> CommitResult:
        """Try until the change is committed with the batch's progress, or another driver has done it."""
        for attempt in range(1, ATTEMPTS_MAX + 1):
            table = self._existing()
            self._check_same(table, self._prepared)
            progress = self._progress(table, batch.query_id)
            if progress.batch_id >= batch.batch_id:
                return CommitResult(_snapshot_id(table), False, attempt, 0)
            after = progress.advanced(batch.batch_id, event_time_max(files))
            numbers = json.dumps([after.batch_id, after.watermark_before, after.watermark])
            try:
                with _without_retry(table).transaction() as transaction:
                    rows = change(transaction, table)
                    transaction.set_properties({f"{PROGRESS}{batch.query_id}": numbers})
            except _LOST as error:
                self._wait(attempt, error, table)
                continue
            return CommitResult(_snapshot_id(table), True, attempt, rows)
        raise self._conflict(f"commit batch {batch.batch_id}")

    def _swap(
        self,
        table: LoadedTable,
        producer: _SnapshotProducer[Any],
        old: Iterable[IcebergFile],
        new: Iterable[DataFile],
    ) -> None:
        """Make a snapshot of a transaction that removes and adds files."""
        with producer as update:
            for gone in old:
                update.delete_data_file(gone)
            for file in new:
                update.append_data_file(iceberg_file(table.location(), file, table.schema(), table.spec()))

    def _create(self, rows: pa.Schema) -> None:
        check_fields(self._fields, rows)
        times = [field.source for field in self._fields if field.transform is not Transform.IDENTITY]
        if len(set(times)) < len(times):
            raise TableSpecError(
                f"partition_by={list(self.spec.partition_by)} of the table {self.spec.table} has "
                "two parts of one time, which Iceberg refuses; the finer one is enough"
            )
        self._catalog.create_namespace_if_not_exists(self._identifier[:-1])
        location = self.spec.path or None
        properties = {
            "write.metadata.delete-after-commit.enabled": "true",
            "write.metadata.previous-versions-max": "100",
            "write.parquet.compression-codec": "zstd",
        }
        creation = self._catalog.create_table_transaction(
            self._identifier, rows, location=location, properties=properties
        )
        with creation, creation.update_spec() as update:
            for field in self._fields:
                update.add_field(field.source, TRANSFORMS[field.transform], field.name)

    def _evolve(self, table: LoadedTable, schema: pa.Schema, change: SchemaChange) -> None:
        with _without_retry(table).update_schema() as update:
            given = schema_to_pyarrow(table.schema())
            known = set(given.names)
            changed = [schema.field(name) for name in (*change.added, *change.widened)]
            # A required column stays so: a schema in which it may be null would loosen it.
            update.union_by_name(
                pa.schema(
                    [
                        with_required(each, given.field(each.name)) if each.name in known else each
                        for each in changed
                    ]
                )
            )

    def _writer_of(self, table: LoadedTable) -> ParquetTaskWriter:
        schema = arrow_file_schema(table.schema())
        return ParquetTaskWriter(
            self._storage(table),
            self._schema_of(table),
            self._fields,
            schema,
            event_time=self.spec.event_time,
            file_bytes_target=self.spec.file_target_bytes,
            compression=self.spec.compression.value,
            directory="data",
        )

    def _schema_of(self, table: LoadedTable) -> pa.Schema:
        return table_schema(schema_to_pyarrow(table.schema()), TableFormat.ICEBERG, self.spec.table)

    def _storage(self, table: LoadedTable) -> TableStorage:
        return TableStorage(table.location(), self.spec.options)

    def _discard(self, table: LoadedTable, merges: list[Merge]) -> None:
        """Delete the files of attempts whose commit lost."""
        for merge in merges:
            for file in merge.written:
                self._storage(table).delete(file.path)
        merges.clear()

    def _limit_snapshots(self) -> None:
        """Drop the older half of too many snapshots; another commit in between leaves it to the next time."""
        table = self._current()
        snapshots = sorted(table.snapshots(), key=lambda each: each.sequence_number or 0)
        if len(snapshots) > SNAPSHOTS_MAX:
            self._expire(table, [each.snapshot_id for each in snapshots[: -SNAPSHOTS_MAX // 2]])

    def _expire(self, table: LoadedTable, snapshot_ids: Sequence[int]) -> None:
        with suppress(*_LOST):
            _without_retry(table).maintenance.expire_snapshots().by_ids(list(snapshot_ids)).commit()

    def _vacuum(self, policy: CompactPolicy) -> int:
        """Drop snapshots older than the retention, and delete old files that no snapshot names."""
        table = self._existing()
        before_ms = self._now_ms() - round(policy.retention_s * 1000)
        current = table.current_snapshot()
        named = {ref.snapshot_id for ref in table.refs().values()} | {
            current.snapshot_id if current else None
        }
        old = [
            each.snapshot_id
            for each in table.snapshots()
            if each.timestamp_ms < before_ms and each.snapshot_id not in named
        ]
        if old:
            self._expire(table, old)
            table = self._existing()
        kept = _named_files(table)
        storage = self._storage(table)
        deleted = 0
        for directory in ("data", "metadata", STAGING):
            for found in list(storage.list(directory)):
                full = f"{table.location()}/{found.path}"
                ours = not found.path.endswith((".json", ".text"))
                if ours and full not in kept and found.changed_s * 1000 < before_ms:
                    deleted += storage.delete(found.path)
        return deleted

    def _faults(self, table: LoadedTable) -> list[str]:
        found = table_faults(table.metadata)
        if not same_fields(self._fields, table.schema(), table.spec()):
            found.append(
                f"it is partitioned by {described(table.schema(), table.spec())}, but partition_by is "
                f"{list(self.spec.partition_by)}; change one of the two. Other transforms than year, month, "
                "day and hour are not implemented"
            )
        return found

    def _progress(self, table: LoadedTable | None, query_id: str) -> QueryProgress:
        text = None if table is None else table.properties.get(f"{PROGRESS}{query_id}")
        return NO_PROGRESS if text is None else QueryProgress(*json.loads(text))

    def _existing(self) -> LoadedTable:
        table = self._refresh()
        if table is None:
            raise TableError(f"The table {self.spec.table} is not in the catalog; call prepare_schema first")
        return table

    def _current(self) -> LoadedTable:
        """Return the table as it was after the last call to the catalog."""
        assert self._loaded is not None
        return self._loaded

    def _refresh(self) -> LoadedTable | None:
        try:
            self._loaded = self._catalog.load_table(self._identifier)
        except NoSuchTableError:
            self._loaded = None
        return self._loaded

    def _wait(self, attempt: int, error: Exception, table: LoadedTable | None) -> None:
        """Wait before another attempt.

        Raises:
            OSError: The disk under SQLite's file is full.
            TableError: No other commit came before this one, so that trying again would not help, or the
                table is another one.
        """
        if "disk is full" in str(error):
            reason = f"{os.strerror(errno.ENOSPC)} for the catalog of the table {self.spec.table}"
            raise OSError(errno.ENOSPC, reason) from error
        fresh = self._refresh() if table is not None else None
        if table is not None and fresh is not None:
            self._check_same(fresh, table.metadata.table_uuid)
            is_unchanged = fresh.metadata_location == table.metadata_location
            self._unchanged = self._unchanged + 1 if is_unchanged else 0
            is_hopeless = isinstance(error, CommitFailedException) and self._unchanged >= UNCHANGED_MAX
            if is_unchanged and (is_hopeless or isinstance(error, ValidationException)):
                self._unchanged = 0
                message = f"The table {self.spec.table} does not take the commit: {error}"
                raise TableError(message) from error
        time.sleep(jittered(min(1.0, WAIT_S * (attempt + 1)), SYSTEM_RANDOM))

    def _check_same(self, table: LoadedTable, uuid: UUID | None) -> None:
        """Check that a table was not dropped and created again, with other field ids perhaps.

        Raises:
            TableError: It was.
        """
        if uuid is not None and table.metadata.table_uuid != uuid:
            raise TableError(
                f"The table {self.spec.table} was dropped and created again: its UUID was {uuid}, and is "
                f"{table.metadata.table_uuid}. The batch, whose files are those of the former, is tried again"
            )

    def _conflict(self, action: str) -> CommitConflictError:
        return CommitConflictError(
            f"Other writers changed the table {self.spec.table} at each of {ATTEMPTS_MAX} attempts to "
            f"{action}; run fewer writers"
        )


def identifier_of(spec: TableSpec) -> tuple[str, ...]:
    """Return a table's name in the catalog: `lake.orders`, and `default.orders` for a URI or a plain name."""
    parts = spec.table.rstrip("/").split("/")[-1].split(".")
    return ("default", parts[-1]) if len(parts) == 1 or "/" in spec.table else tuple(parts)


def catalog_properties(spec: TableSpec) -> dict[str, str]:
    """Return the catalog's properties: those of the spec, or SQLite in the warehouse, a local directory.

    Raises:
        TableSpecError: There is no catalog and the table is not in a local directory.
    """
    if spec.catalog:
        return {"name": CATALOG, **spec.options, **spec.catalog}
    suffix = "/".join(identifier_of(spec))
    warehouse = (
        spec.path.removesuffix(f"/{suffix}")
        if spec.path.endswith(f"/{suffix}")
        else spec.path.rpartition("/")[0]
    )
    storage = TableStorage(warehouse)
    if not storage.is_local:
        raise TableSpecError(
            f"The table {spec.table} at {spec.path} needs an Iceberg catalog, for example "
            "`catalog: {type: rest, uri: https://...}`; without one only local directories are possible"
        )
    directory = storage.full_path("")
    storage.filesystem.create_dir(directory, recursive=True)
    return {
        "name": CATALOG,
        "type": "sql",
        "uri": f"sqlite:///{directory}/iceberg-catalog.db",
        "warehouse": warehouse,
    }


def _without_retry(table: LoadedTable) -> LoadedTable:
    """Switch off pyiceberg's retry in the loaded copy of the properties; the catalog's stay."""
    table.metadata.properties["commit.retry.num-retries"] = "0"
    return table


def _snapshot_id(table: LoadedTable) -> int:
    snapshot = table.current_snapshot()
    return 0 if snapshot is None else int(snapshot.snapshot_id)


def _live_files(table: LoadedTable) -> Iterator[tuple[str, int | None]]:
    """Return path and snapshot of the data files of the current snapshot."""
    snapshot = table.current_snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
            yield entry.data_file.file_path, entry.snapshot_id


def _named_files(table: LoadedTable) -> set[str]:
    """Return all files that a snapshot names: manifest lists, manifests, data and delete files."""
    named: set[str] = set()
    for snapshot in table.snapshots():
        named.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path in named:
                continue
            named.add(manifest.manifest_path)
            for entry in manifest.fetch_manifest_entry(table.io, discard_deleted=True):
                named.add(entry.data_file.file_path)
    return named


def _partition_key(task: FileScanTask) -> tuple[tuple[str, str | None], ...]:
    record = task.file.partition
    values = ((str(index), record[index]) for index in range(len(record)))
    return tuple((name, None if value is None else str(value)) for name, value in values)

"""Delta tables through the `deltalake` wheel: executors write Parquet, the driver commits add actions.

Each commit carries a `txn` action with the query and the batch, by which a replay sees that it is done, and
by which Delta itself refuses a second driver that commits the same query at the same time. Do not break: the
library does not look for concurrent removals when actions come from us, so that each commit with remove
actions goes to exactly the version after the one that was read, or fails.
"""

import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.spec.model import Evolve, TableFormat, TableSpec
from kalda.pipelines.sql.row_query import RowCondition
from kalda.pipelines.tables.commit_metadata import commit_metadata, event_time_max
from kalda.pipelines.tables.compaction import BINS_PER_COMMIT, Candidate, plan_bins
from kalda.pipelines.tables.delta_changes import version_changes
from kalda.pipelines.tables.delta_features import (
    column_faults,
    condition_faults,
    constraints,
    feature_faults,
    is_append_only,
    is_mapped,
    physical_name,
    physical_schema,
)
from kalda.pipelines.tables.errors import CommitConflictError, TableError, TableSpecError
from kalda.pipelines.tables.fitting import RowFit, has_fraction, with_required
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
from kalda.pipelines.tables.object_store import delta_options
from kalda.pipelines.tables.partitions import (
    check_fields,
    parse_fields,
    text_faults,
    value_of_text,
    value_text,
    with_partition_columns,
)
from kalda.pipelines.tables.progress import NO_PROGRESS, QueryProgress
from kalda.pipelines.tables.reading import inexact_columns, read_file, read_staged
from kalda.pipelines.tables.schemas import (
    Evolution,
    EvolutionRules,
    conform,
    evolve,
    renamed,
    table_schema,
)
from kalda.pipelines.tables.statistics import delta_stats
from kalda.pipelines.tables.storage import TableStorage, errors_that_name
from kalda.pipelines.tables.upsert import (
    DELETE,
    GREATEST,
    HIDDEN,
    REPLACES,
    check_upsert,
    last_rows,
    without_hidden,
)
from kalda.pipelines.tables.writer import STAGING, ParquetTaskWriter, clean_staging

logger: Final = logging.getLogger(__name__)

ATTEMPTS_MAX: Final = 100
"""Each lost attempt means that another writer won one; a hundred in a row is no coincidence."""

LIBRARY_RETRIES: Final = 15
"""How often the library puts an append behind other commits by itself."""


class DeltaLakeTable:
    """A `Table` of format Delta."""

    def __init__(
        self, spec: TableSpec, now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    ) -> None:
        """Open a table, which need not exist; `now_ms` is the wall clock in milliseconds."""
        self.spec = spec
        self.storage = TableStorage(spec.path, spec.options)
        self._now_ms = now_ms
        self._fields = parse_fields(spec.partition_by)
        self._opened: DeltaTable | None = None

    def committed_batch(self, query_id: str) -> int | None:
        """Return the last committed batch of a query."""
        progress = self._progress(self._refresh(), query_id)
        return None if progress is NO_PROGRESS else progress.batch_id

    def watermark(self, query_id: str, batch_id: int) -> int | None:
        """Return the greatest event time before a batch, in milliseconds."""
        return self._progress(self._refresh(), query_id).watermark_at(batch_id)

    def version(self) -> int | None:
        """Return the current version."""
        opened = self._refresh()
        return None if opened is None else int(opened.version())

    def schema(self) -> pa.Schema | None:
        """Return the current schema, with the columns of the partitions."""
        opened = self._refresh()
        return None if opened is None else _schema_of(opened)

    def faults(self) -> list[str]:
        """Return what keeps a pipeline from writing the table as it is."""
        opened = self._refresh()
        return [] if opened is None else self._faults(opened)

    def prepare_schema(self, incoming: pa.Schema, *, is_strict: bool = True) -> SchemaChange:
        """Create or evolve the table; see `Table.prepare_schema`."""
        rows = table_schema(without_hidden(incoming), TableFormat.DELTA, self.spec.table, is_strict=is_strict)
        for _ in range(ATTEMPTS_MAX):
            opened = self._refresh()
            if self.spec.keys:
                check_upsert(self.spec, rows if opened is None or is_strict else _schema_of(opened))
            if opened is None:
                return self._create(rows)
            self._check_faults(opened)
            version = int(opened.version())
            evolution = self._evolution(opened, rows, is_strict)
            try:
                if evolution.widened:
                    self._rewrite(opened, evolution.schema)
                elif evolution.added:
                    added = pa.schema([evolution.schema.field(name) for name in evolution.added])
                    opened.alter.add_columns(DeltaSchema.from_arrow(added).fields)
            except (CommitFailedError, DeltaError) as error:
                self._check_conflict(error, version)
                continue  # another writer was faster, perhaps with the same change
            return SchemaChange(False, evolution.added, evolution.widened)
        raise self._conflict("change its schema")

    def fit(self) -> RowFit:
        """Return what the table asks of its rows."""
        opened = self._existing()
        named = pa.schema(opened.schema())
        rows = self._columns_of_rows(_schema_of(opened))
        texts = constraints(json.loads(opened.schema().to_json()), opened.metadata().configuration)
        return RowFit(
            self.spec.table,
            pa.schema([with_required(each, named.field(each.name)) for each in rows]),
            self.spec.keys,
            tuple((name, RowCondition(text)) for name, text in texts.items()),
            self._fields,
            policy=self.spec.evolve.value,
            are_merged=bool(self.spec.keys),
        )

    def writer(self, schema: pa.Schema) -> TableWriter:
        """Return a writer for tasks."""
        return self._writer_of(self._existing())

    def upsert_writer(self, schema: pa.Schema) -> TableWriter:
        """Return a writer of rows for `upsert`; their hidden columns are those of `upsert.HIDDEN`."""
        rows = self._columns_of_rows(_schema_of(self._existing()))
        staged = pa.schema([*rows, *HIDDEN])
        return ParquetTaskWriter(self.storage, staged, staged=True, event_time=self.spec.event_time)

    def commit(self, batch: BatchAccount, files: Sequence[DataFile]) -> CommitResult:
        """Publish a batch; see `Table.commit`."""
        now = self._now_ms()
        for attempt in range(1, ATTEMPTS_MAX + 1):
            opened = self._existing()
            version = int(opened.version())
            actions = [self._add_action(opened, file, now, data_change=True) for file in files]
            progress = self._progress(opened, batch.query_id)
            if progress.batch_id >= batch.batch_id:
                return CommitResult(int(opened.version()), False, attempt, 0)
            properties = self._properties(batch, progress.advanced(batch.batch_id, event_time_max(files)))
            try:
                self._write(opened, actions, properties)
            except CommitFailedError as error:
                self._check_conflict(error, version)
                continue  # the next look at the table finds out whether the batch is in
            return CommitResult(self._version_of(opened), True, attempt, sum(file.rows for file in files))
        raise self._conflict(f"commit batch {batch.batch_id}")

    def upsert(self, batch: BatchAccount, files: Sequence[DataFile]) -> CommitResult:
        """Merge a batch by key; see `Table.upsert`."""
        rows: pa.Table | None = None
        for attempt in range(1, ATTEMPTS_MAX + 1):
            opened = self._existing()
            progress = self._progress(opened, batch.query_id)
            if progress.batch_id >= batch.batch_id:
                clean_staging(self.storage, batch.query_id, batch.batch_id)
                return CommitResult(int(opened.version()), False, attempt, 0)
            properties = self._properties(batch, progress.advanced(batch.batch_id, event_time_max(files)))
            if rows is None:
                rows = self._rows_to_merge(_schema_of(opened), files)
            version = int(opened.version())
            try:
                changed = self._merge(opened, rows, properties)
            except (CommitFailedError, DeltaError) as error:
                self._check_conflict(error, version)
                continue
            clean_staging(self.storage, batch.query_id, batch.batch_id)
            return CommitResult(self._version_of(opened), True, attempt, changed)
        raise self._conflict(f"merge batch {batch.batch_id}")

    def read(
        self, columns: Sequence[str] | None = None, version: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of a version."""
        opened = self._existing() if version is None else self._at(version)
        schema = _schema_of(opened)
        chosen = schema if columns is None else pa.schema([schema.field(name) for name in columns])
        for batch in pa.RecordBatchReader.from_stream(opened.scan(columns=chosen.names)):
            yield conform(batch, chosen)

    def read_changes(self, since: int | None, until: int | None = None) -> Iterator[ChangeSet]:
        """Return what versions changed; see `kalda.pipelines.tables.delta_changes`."""
        opened = self._existing()
        last = int(opened.version()) if until is None else until
        for version in range(0 if since is None else since + 1, last + 1):
            yield from self._changes_of(opened, version)

    def _changes_of(self, opened: DeltaTable, version: int) -> Iterator[ChangeSet]:
        schema, files = _schema_of(opened), _schema_of_files(opened)
        for change in version_changes(self.storage, version, files, self.spec.table):
            yield ChangeSet(change.version, change.kind, renamed(change.rows, schema))

    def compact(self, policy: CompactPolicy) -> CompactResult:
        """Join small files; see `Table.compact`. Replaced files stay for the retention, for time travel."""
        result = self._compact(self._existing(), policy)
        fresh = self._open()
        assert fresh is not None
        hours = max(0, -int(-policy.retention_s // 3600))
        deleted = fresh.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        deleted_staged = self._vacuum_staging(policy)
        return CompactResult(int(fresh.version()), *result, len(deleted) + deleted_staged)

    def _compact(self, opened: DeltaTable, policy: CompactPolicy) -> tuple[int, int, int]:
        # Not by `optimize.compact`: two of those commit both, and every row is there twice (ADR 38).
        actions = _whole_files(opened)
        names = {each.name: physical_name(each) for each in pa.schema(opened.schema())}
        candidates = [
            Candidate(
                path,
                _partition_key(row, names),
                row["size_bytes"],
                row["modification_time"],
            )
            for path, row in actions.items()
        ]
        bins = plan_bins(candidates, policy, self._now_ms())
        removed = added = size = 0
        for start in range(0, len(bins), BINS_PER_COMMIT):
            group = bins[start : start + BINS_PER_COMMIT]
            written = self._compact_group(opened, group)
            if written:
                removed += sum(map(len, group))
                added += written
                size += sum(file.size_bytes for each in group for file in each)
        return removed, added, size

    def _compact_group(self, opened: DeltaTable, bins: Sequence[Sequence[Candidate]]) -> int:
        """Write and commit joined files; return how many, 0 when another writer was faster."""
        schema = _schema_of(opened)
        writer, in_files = self._writer_of(opened), _schema_of_files(opened)
        task_query = f"compact-{opened.version()}-{self._now_ms()}"
        written: list[DataFile] = []
        for number, files in enumerate(bins):
            rows = (renamed(batch, schema) for file in files for batch in self._read_file(file, in_files))
            written += writer.write(rows, TaskId(task_query, 0, number))
        inputs = [file for each in bins for file in each]
        now = self._now_ms()
        actions: list[AddAction | RemoveAction] = [
            self._add_action(opened, file, now, data_change=False) for file in written
        ]
        actions += [
            RemoveAction(file.path, False, now, file.size_bytes, dict(file.partition)) for file in inputs
        ]
        for _ in range(ATTEMPTS_MAX):
            current = self._existing()
            version = int(current.version())
            if not {file.path for file in inputs} <= _whole_files(current).keys():
                logger.info(
                    "table %s: another writer replaced files; this compaction is dropped", self.spec.table
                )
                break
            try:
                properties = CommitProperties(
                    custom_metadata={"kalda.operation": "compact"}, max_commit_retries=0
                )
                self._write(current, actions, properties)
                return len(written)
            except CommitFailedError as error:
                self._check_conflict(error, version)
        for data_file in written:
            self.storage.delete(data_file.path)
        return 0

    def _read_file(self, file: Candidate, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        constants = {name: value_of_text(text, schema.field(name).type) for name, text in file.partition}
        return read_file(self.storage, unquote(file.path), schema, constants)

    def _vacuum_staging(self, policy: CompactPolicy) -> int:
        before_s = self._now_ms() / 1000 - policy.retention_s
        old = [found.path for found in self.storage.list(STAGING) if found.changed_s < before_s]
        return sum(self.storage.delete(path) for path in old)

    def _rows_to_merge(self, table: pa.Schema, files: Sequence[DataFile]) -> pa.Table:
        rows = self._columns_of_rows(table)
        staged = read_staged(self.storage, files, pa.schema([*rows, *HIDDEN]))
        last = last_rows(staged, self.spec.keys, self.spec.order_by, self.spec.table)
        for field in self._fields:
            if field.name != field.source:
                made = [field.values(chunk) for chunk in last.column(field.source).chunks]
                last = last.append_column(
                    table.field(field.name), pa.chunked_array(made, table.field(field.name).type)
                )
        marks = [name for name in (DELETE, REPLACES, GREATEST) if name in last.schema.names]
        return last.select([*table.names, *marks])

    def _merge(self, opened: DeltaTable, rows: pa.Table, properties: CommitProperties) -> int:
        names = [name for name in rows.column_names if name not in (DELETE, REPLACES, GREATEST)]
        columns = {f"`{name}`": f"source.`{name}`" for name in names}
        same_key = " AND ".join(f"target.`{name}` = source.`{name}`" for name in self.spec.keys)
        newer = "true"
        if self.spec.order_by:
            order = f"`{self.spec.order_by}`"
            newer = f"(source.{REPLACES} OR target.{order} IS NULL OR source.{GREATEST} >= target.{order}"
            # Engines order NaN differently; a row with it is as one without an order.
            is_floating = pa.types.is_floating(rows.schema.field(self.spec.order_by).type)
            newer += f" OR isnan(target.{order}))" if is_floating else ")"
        if not rows.num_rows:
            self._write(opened, [], properties)
            return 0
        merger = opened.merge(
            rows,
            same_key,
            source_alias="source",
            target_alias="target",
            streamed_exec=False,  # statistics of the rows then select the files to look into
            commit_properties=properties,
        )
        done = (
            merger.when_matched_delete(f"source.{DELETE} AND {newer}")
            .when_matched_update(columns, f"NOT source.{DELETE} AND {newer}")
            .when_not_matched_insert(columns, f"NOT source.{DELETE}")
            .execute()
        )
        counts = ("num_target_rows_inserted", "num_target_rows_updated", "num_target_rows_deleted")
        return sum(int(done.get(name, 0)) for name in counts)

    def _create(self, rows: pa.Schema) -> SchemaChange:
        check_fields(self._fields, rows, has_directories=True)
        schema = with_partition_columns(rows, self._fields)
        # Changes of rows can be read from an upserted table, for a topic, if Delta writes them down.
        configuration = {"delta.enableChangeDataFeed": "true"} if self.spec.keys else None
        DeltaTable.create(
            self.spec.path,
            schema,
            mode="ignore",
            partition_by=[field.name for field in self._fields],
            configuration=configuration,
            storage_options=delta_options(self.spec.path, self.spec.options),
        )
        return SchemaChange(created=True, added=tuple(rows.names))

    def _rewrite(self, opened: DeltaTable, schema: pa.Schema) -> None:
        """Write the whole table again with wider types, for readers refuse files of narrower ones."""
        named = pa.schema(opened.schema())
        known = set(named.names)
        schema = pa.schema(
            [with_required(each, named.field(each.name)) if each.name in known else each for each in schema]
        )
        reader = pa.RecordBatchReader.from_stream(opened.scan())
        batches = (conform(batch, schema) for batch in reader)
        write_deltalake(
            opened,
            pa.RecordBatchReader.from_batches(schema, batches),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=[field.name for field in self._fields] or None,
            commit_properties=CommitProperties(
                custom_metadata={"kalda.operation": "widen"}, max_commit_retries=0
            ),
        )

    def _evolution(self, opened: DeltaTable, rows: pa.Schema, is_strict: bool) -> Evolution:
        """Return how the table changes for rows; nothing is changed that the table does not admit."""
        configuration = opened.metadata().configuration
        policy = self.spec.evolve
        if is_mapped(configuration):
            policy = Evolve.NONE  # deltalake adds no column to such a table
        current = _schema_of(opened)
        fixed: dict[str, str] = {}
        if is_append_only(configuration):
            fixed = dict.fromkeys(current.names, "delta.appendOnly=true forbids to write its rows again")
        elif any(has_fraction(current.field(each.name).type) for each in self._fields):
            fixed = dict.fromkeys(
                current.names, "deltalake breaks partitions by decimals when it writes again"
            )
        while True:
            rules = EvolutionRules(policy, TableFormat.DELTA, fixed=fixed, is_strict=is_strict)
            evolution = evolve(current, rows, rules, self.spec.table)
            inexact = inexact_columns(self, current, evolution)
            if not inexact:
                return evolution
            fixed |= inexact

    def _faults(self, opened: DeltaTable) -> list[str]:
        protocol, configuration = opened.protocol(), opened.metadata().configuration
        schema = json.loads(opened.schema().to_json())
        found = feature_faults(protocol.min_writer_version, protocol.writer_features or ())
        found += column_faults(schema)
        found += condition_faults(constraints(schema, configuration), _schema_of(opened))
        found += text_faults(self._fields, _schema_of(opened))
        if self.spec.keys and is_append_only(configuration):
            found.append("delta.appendOnly=true forbids the mode upsert")
        own = [field.name for field in self._fields]
        partitions = list(opened.metadata().partition_columns)
        if own != partitions:
            found.append(
                f"it is partitioned by {partitions}, but partition_by is {own}; Delta cannot change it. "
                "Write to another table"
            )
        return found

    def _check_faults(self, opened: DeltaTable) -> None:
        found = self._faults(opened)
        if found:
            raise TableSpecError(f"The table {self.spec.table} cannot be written: {'; '.join(found)}")

    def _check_conflict(self, error: Exception, version: int) -> None:
        """Raise a failure of a commit that no other commit caused: trying again would not help."""
        opened = self._existing()
        if int(opened.version()) > version:
            return
        raise TableError(f"The table {self.spec.table} does not take the commit: {error}") from error

    def _writer_of(self, opened: DeltaTable) -> ParquetTaskWriter:
        table = _schema_of(opened)
        by_partition = {field.name for field in self._fields}
        in_files = pa.schema([column for column in table if column.name not in by_partition])
        return ParquetTaskWriter(
            self.storage,
            self._columns_of_rows(table),
            self._fields,
            in_files,
            event_time=self.spec.event_time,
            file_bytes_target=self.spec.file_target_bytes,
            compression=self.spec.compression.value,
            written_schema=_schema_of_files(opened, in_files) if _is_mapped(opened) else None,
        )

    def _add_action(self, opened: DeltaTable, file: DataFile, now_ms: int, data_change: bool) -> AddAction:
        named = pa.schema(opened.schema())
        values = {physical_name(named.field(name)): value_text(value) for name, value in file.partition}
        stats = delta_stats(file.rows, file.stats, frozenset(values))
        return AddAction(file.path, file.size_bytes, values, now_ms, data_change, stats)

    def _columns_of_rows(self, table: pa.Schema) -> pa.Schema:
        made = {field.name for field in self._fields if field.source != field.name}
        return pa.schema([column for column in table if column.name not in made])

    def _write(
        self, opened: DeltaTable, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties
    ) -> None:
        opened.create_write_transaction(
            list(actions),
            mode="append",
            schema=opened.schema(),
            partition_by=[field.name for field in self._fields],
            commit_properties=properties,
        )

    def _properties(self, batch: BatchAccount, progress: QueryProgress) -> CommitProperties:
        name = app_id(batch.query_id)
        numbers = ((f"{name}/before", progress.watermark_before), (f"{name}/watermark", progress.watermark))
        return CommitProperties(
            custom_metadata=commit_metadata(batch),
            max_commit_retries=LIBRARY_RETRIES,
            app_transactions=[
                Transaction(name, batch.batch_id, self._now_ms()),
                *(Transaction(each, value) for each, value in numbers if value is not None),
            ],
        )

    def _progress(self, opened: DeltaTable | None, query_id: str) -> QueryProgress:
        name = app_id(query_id)
        batch_id = None if opened is None else opened.transaction_version(name)
        if opened is None or batch_id is None:
            return NO_PROGRESS
        before, after = (
            opened.transaction_version(f"{name}/before"),
            opened.transaction_version(f"{name}/watermark"),
        )
        return QueryProgress(int(batch_id), before, after)

    def _version_of(self, opened: DeltaTable) -> int:
        opened.update_incremental()
        return int(opened.version())

    def _at(self, version: int) -> DeltaTable:
        try:
            return DeltaTable(
                self.spec.path,
                version=version,
                storage_options=delta_options(self.spec.path, self.spec.options),
            )
        except DeltaError as error:
            raise TableError(
                f"Version {version} of the table {self.spec.table} cannot be read: {error}"
            ) from error

    def _existing(self) -> DeltaTable:
        opened = self._refresh()
        if opened is None:
            raise TableError(
                f"The table {self.spec.table} does not exist at {self.spec.path}; call prepare_schema first"
            )
        return opened

    def _refresh(self) -> DeltaTable | None:
        if self._opened is None:
            self._opened = self._open()
        else:
            self._opened.update_incremental()
        return self._opened

    def _open(self) -> DeltaTable | None:
        try:
            with errors_that_name(self.spec.path):
                return DeltaTable(
                    self.spec.path, storage_options=delta_options(self.spec.path, self.spec.options)
                )
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise TableError(f"The table {self.spec.table} cannot be opened: {error}") from error

    def _conflict(self, action: str) -> CommitConflictError:
        return CommitConflictError(
            f"Other writers changed the table {self.spec.table} at each of {ATTEMPTS_MAX} attempts to "
            f"{action}; run fewer writers"
        )


def app_id(query_id: str) -> str:
    """Return the application id of a query's `txn` actions; Delta's own sink uses the query id alone."""
    return f"kalda-{query_id}"


def _whole_files(opened: DeltaTable) -> dict[str, dict[str, Any]]:
    """Return the add actions by path, without files some of whose rows a deletion vector deletes."""
    actions = {row["path"]: row for row in pa.table(opened.get_add_actions()).to_pylist()}
    if "deletionVectors" not in (opened.protocol().reader_features or ()):
        return actions
    vectors = pa.table(opened.deletion_vectors())["filepath"].to_pylist()
    partial = {_name(uri) for uri in vectors}
    return {path: row for path, row in actions.items() if _name(path) not in partial}


def _name(path: str) -> str:
    return unquote(path).rpartition("/")[2]


def _partition_key(row: dict[str, Any], names: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    partition = row.get("partition") or {}
    return tuple((names[name], value_text(value)) for name, value in partition.items())


def _schema_of(opened: DeltaTable) -> pa.Schema:
    """Return a table's schema in the types of `schemas.table_schema`."""
    return table_schema(pa.schema(opened.schema()), TableFormat.DELTA, str(opened.table_uri))


def _is_mapped(opened: DeltaTable) -> bool:
    return is_mapped(opened.metadata().configuration)


def _schema_of_files(opened: DeltaTable, schema: pa.Schema | None = None) -> pa.Schema:
    """Return columns of the table, all by default, under the names that they have in files."""
    return physical_schema(pa.schema(opened.schema()), _schema_of(opened) if schema is None else schema)

"""Defines the interface of a table, which Delta, Iceberg and plain Parquet implement.

It holds values and protocols, no I/O. `Table` lives on the driver; `TableWriter` is pickled to executors.
Do not break: `Table.commit` of a batch that is committed already changes nothing, whatever files it gets.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import pyarrow as pa

from kalda.common.public import public_in
from kalda.pipelines.accounts import BatchAccount
from kalda.pipelines.spec.model import TableSpec
from kalda.pipelines.tables.fitting import RowFit

PartitionValue: TypeAlias = object
"""A partition's value as Python gives it: str, int, bool, float, Decimal, date, datetime, bytes or None."""


@public_in("kalda.pipelines.tables")
@dataclass(frozen=True, slots=True)
class TaskId:
    """The task that writes: query, batch, and its number in the batch. File names follow from it."""

    query_id: str
    batch_id: int
    part: int


@public_in("kalda.pipelines.tables")
@dataclass(frozen=True, slots=True)
class ColumnStats:
    """Bounds of one column in a file; None where the file does not say."""

    min: PartitionValue
    max: PartitionValue
    nulls: int | None


@public_in("kalda.pipelines.tables")
@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file that a task has written and no reader sees before the commit.

    Attributes:
        path: Relative to the table's location, separated by `/`.
        partition: Column and value of each partition field, in the table's order.
        rows: Number of rows.
        size_bytes: The file's size.
        stats: Bounds by column; columns without an order (binary, nested) are absent.
        event_time_min, event_time_max: Milliseconds since the epoch; None without an event time.
    """

    path: str
    partition: tuple[tuple[str, PartitionValue], ...]
    rows: int
    size_bytes: int
    stats: Mapping[str, ColumnStats]
    event_time_min: int | None = None
    event_time_max: int | None = None


@public_in("kalda.pipelines.tables")
@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What `prepare_schema` did: created the table, added or widened columns, or nothing."""

    created: bool = False
    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self.created or bool(self.added) or bool(self.widened)


@public_in("kalda.pipelines.tables")
@dataclass(frozen=True, slots=True)
class CommitResult:
    """The outcome of a commit.

    Attributes:
        version: The table's version (Delta) or snapshot id (Iceberg) that holds the batch; Parquet has none.
        committed: False when the batch was committed before; nothing changed then.
        attempts: How often the commit was tried, 1 without other writers.
        rows: Rows added (append), or inserted, updated and deleted (upsert).
    """

    version: int
    committed: bool
    attempts: int
    rows: int


@public_in("kalda.pipelines.tables")
@dataclass(frozen=True, slots=True)
class CompactPolicy:
    """Which files a compaction joins, and how long it keeps the files that it replaced.

    Attributes:
        file_bytes_target: The size of the joined files. Files of at least three quarters of it stay as they
        are. newest_kept_s: Files committed within this many seconds stay as they are. files_min: The least
        number of files worth joining in one partition. retention_s: Files that no reader needs are deleted
        when they left the table this long ago. bytes_max: Bounds the bytes that one run reads.
    """

    file_bytes_target: int = 128 * 1024 * 1024
    newest_kept_s: float = 600.0
    files_min: int = 2
    retention_s: float = 7 * 24 * 3600.0
    bytes_max: int = 64 * 1024 * 1024 * 1024


@public_in("kalda.pipelines.tables")
@dataclass(frozen=True, slots=True)
class CompactResult:
    """What a compaction did: files joined, files written instead, bytes rewritten, files deleted for good."""

    version: int
    files_removed: int
    files_added: int
    bytes_rewritten: int
    files_deleted: int


@public_in("kalda.pipelines.tables")
@dataclass(frozen=True, slots=True)
class ChangeSet:
    """Rows that a version added to a table, or took from it.

    Attributes:
        version: The version (Delta) or snapshot id (Iceberg).
        kind: `insert`, `delete`, `update_preimage` or `update_postimage`.
        rows: The rows with the table's current schema.
    """

    version: int
    kind: str
    rows: pa.RecordBatch


@public_in("kalda.pipelines.tables")
class TableWriter(Protocol):
    """Writes the rows of one task as Parquet files. Picklable; it holds no open file."""

    def write(self, batches: Iterable[pa.RecordBatch], task: TaskId) -> list[DataFile]:
        """Write rows and return the files. A failed call removes what it wrote and raises.

        Two calls for one task never write the same file, so that a retried or speculative task leaves the
        other's files alone; only the files whose `DataFile` is committed become visible.
        """
        ...


@public_in("kalda.pipelines.tables")
class Table(Protocol):
    """A table as the driver of a pipeline sees it. One thread at a time."""

    @property
    def spec(self) -> TableSpec:
        """What the table was opened with."""
        ...

    def committed_batch(self, query_id: str) -> int | None:
        """Return the last committed batch of a query; None before its first."""
        ...

    def watermark(self, query_id: str, batch_id: int) -> int | None:
        """Return the greatest event time that batches of a query before `batch_id` committed, in
        milliseconds.

        It is the same when the batch is replayed, even after its commit, so that a row is late each time or
        never. None before the first committed event time.
        """
        ...

    def schema(self) -> pa.Schema | None:
        """Return the current schema, None when the table does not exist."""
        ...

    def faults(self) -> list[str]:
        """Return the reasons why a pipeline cannot write the table as it is, e.g. a feature of its format."""
        ...

    def prepare_schema(self, incoming: pa.Schema, *, is_strict: bool = True) -> SchemaChange:
        """Create the table, or evolve it by the policy, so that rows of `incoming` fit.

        Args:
            is_strict: Whether columns that do not fit are refused. Else the table stays as it is there, and
                `fit` finds the rows that cannot be written.

        Raises:
            SchemaRefusedError: The policy does not admit the change; the message names the columns.
            TableSpecError: The table has faults.
        """
        ...

    def fit(self) -> RowFit:
        """Return the conditions that the table, which exists, sets for its rows."""
        ...

    def writer(self, schema: pa.Schema) -> TableWriter:
        """Return a writer for rows of `schema`, which `prepare_schema` has accepted."""
        ...

    def commit(self, batch: BatchAccount, files: Sequence[DataFile]) -> CommitResult:
        """Publish the files of a batch with its query, batch and offset ranges, in one atomic commit where
        the format has such.

        Raises:
            CommitConflictError: Other writers won each of the bounded number of attempts.
        """
        ...

    def upsert(self, batch: BatchAccount, files: Sequence[DataFile]) -> CommitResult:
        """Merge the rows of files that `upsert_writer` wrote by the keys of the spec, in one atomic
        commit."""
        ...

    def upsert_writer(self, schema: pa.Schema) -> TableWriter:
        """Return a writer of rows for `upsert`; see `kalda.pipelines.tables.upsert` for the hidden
        columns."""
        ...

    def compact(self, policy: CompactPolicy) -> CompactResult:
        """Join small files, and delete files that nothing references and that are older than the
        retention."""
        ...

    def version(self) -> int | None:
        """Return the current version or snapshot id; None when the table does not exist or is empty.

        Plain Parquet has one version, and neither earlier ones nor changes.
        """
        ...

    def read(
        self, columns: Sequence[str] | None = None, version: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Return the rows of a version, the current one by default, in batches of bounded size."""
        ...

    def read_changes(self, since: int | None, until: int | None = None) -> Iterator[ChangeSet]:
        """Return what the versions after `since` up to `until` changed, oldest first; None is the
        beginning."""
        ...

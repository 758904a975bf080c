"""Writes the rows of one task as Parquet files: per partition value, of bounded size, with their statistics.

It is picklable and runs on executors; it knows no log and no commit. File names hold the query, the batch and
the task, and a random attempt: a retried or speculative task writes files of its own, and those that the
driver does not commit stay invisible. Do not break: a failed call leaves no file, and no two calls write the
same path.
"""

import datetime as dt
import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from kalda.pipelines.tables.dictionaries import dictionary_columns
from kalda.pipelines.tables.model import DataFile, TaskId
from kalda.pipelines.tables.partitions import PartitionField, plain_directory, split
from kalda.pipelines.tables.schemas import conform, renamed
from kalda.pipelines.tables.statistics import column_stats, without_bounds
from kalda.pipelines.tables.storage import TableStorage, errors_that_name

BUFFER_BYTES_MAX: Final = 64 * 1024 * 1024
"""Arrow bytes that one task holds back; then the largest partition is written as a row group."""

OPEN_FILES_MAX: Final = 64
"""Partitions with an open file; a task that meets more closes the file that has waited longest."""

STAGED_SUFFIX: Final = ".staged"
"""Files of plain Parquet before their commit: not `.parquet`, so that a glob of readers passes them over."""

STAGING: Final = "_kalda/staging"


def query_token(query_id: str) -> str:
    """Return 12 characters that stand for a query in file names."""
    return hashlib.sha256(query_id.encode()).hexdigest()[:12]


def staging_directory(query_id: str, batch_id: int) -> str:
    """Return the directory of a batch's files that are not published yet."""
    return f"{STAGING}/{query_token(query_id)}/{batch_id:012d}"


def published_name(staged: str) -> str:
    """Return the name of a staged file in the table: it leaves out the attempt, so that it is the same for
    each attempt of a task."""
    token, batch, part, _, number = staged.rpartition("/")[2].removesuffix(STAGED_SUFFIX).split("-")
    return f"kalda-{token}-{batch}-{part}-{number}"


def clean_staging(storage: TableStorage, query_id: str, batch_id: int) -> None:
    """Delete what tasks staged for batches up to a decided one: files of attempts that lost."""
    last = staging_directory(query_id, batch_id)
    found = {file.path.rpartition("/")[0] for file in storage.list(f"{STAGING}/{query_token(query_id)}")}
    for directory in sorted(found | {last}):
        if directory <= last:
            storage.delete_directory(directory)


@dataclass(frozen=True, slots=True)
class ParquetTaskWriter:
    """A `TableWriter` for all formats.

    Attributes:
        storage: The table's directory.
        schema: The columns of the rows, in the table's types.
        fields: The partition fields.
        file_schema: The columns of the files, with what the format wants in the footer; by default those of
            `schema`. Columns that transforms make are computed when they are in it.
        staged: Whether files go to the staging directory (plain Parquet, upserts), with `.staged` at the end.
        event_time: The column whose bounds go into `DataFile`.
        file_bytes_target: A file that reaches this size is closed.
        directory: Where files that are not staged go, below the table's location.
        compression: Parquet's name of a codec.
        written_schema: The columns of the files under the names that they have there, if those differ.
    """

    storage: TableStorage
    schema: pa.Schema
    fields: tuple[PartitionField, ...] = ()
    file_schema: pa.Schema | None = None
    staged: bool = False
    event_time: str | None = None
    file_bytes_target: int = 128 * 1024 * 1024
    directory: str = ""
    compression: str = "snappy"
    written_schema: pa.Schema | None = None

    def write(self, batches: Iterable[pa.RecordBatch], task: TaskId) -> list[DataFile]:
        """Write rows and return the files, none without rows; a failed call removes what it wrote."""
        run = _Run(self, task, secrets.token_hex(4))
        try:
            for batch in batches:  # outside: what the rows come from has errors of its own
                with errors_that_name(self.storage.location):
                    run.add(batch)
            with errors_that_name(self.storage.location):
                return run.finish()
        except BaseException:
            run.abort()
            raise

    def path(self, partition: tuple[tuple[str, object], ...], task: TaskId, attempt: str, number: int) -> str:
        """Return the path of a task's file of a number."""
        place = f"{query_token(task.query_id)}-{task.batch_id:012d}-{task.part:05d}"
        name = f"{place}-{attempt}-{number:05d}.parquet"
        if self.staged:
            return f"{staging_directory(task.query_id, task.batch_id)}/{name}{STAGED_SUFFIX}"
        parts = (self.directory, plain_directory(partition), f"kalda-{name}")
        return "/".join(part for part in parts if part)


class _OpenFile:
    """A Parquet file that is being written, with the rows that wait for its next row group."""

    def __init__(
        self, writer: ParquetTaskWriter, path: str, partition: tuple[tuple[str, object], ...]
    ) -> None:
        self.path = path
        self.partition = partition
        self.waiting: list[pa.RecordBatch] = []
        self.waiting_bytes = 0
        self.rows = 0
        self._schema = writer.file_schema if writer.file_schema is not None else writer.schema
        self._written_schema = writer.written_schema
        self._event_time = writer.event_time
        if self._written_schema is not None and self._event_time in self._schema.names:
            index = self._schema.get_field_index(self._event_time)
            self._event_time = self._written_schema.field(index).name
        self._compression = writer.compression
        self._unbounded: set[str] = set()
        self._footers: list[pq.FileMetaData] = []
        self._sink = writer.storage.open_output(path)
        self._parquet: pq.ParquetWriter | None = None
        """Opened with the first row group, whose rows show which columns repeat values."""

    def add(self, batch: pa.RecordBatch) -> int:
        """Hold rows back and return their bytes."""
        size = int(batch.nbytes)
        self.waiting.append(batch)
        self.waiting_bytes += size
        return size

    def flush(self) -> int:
        """Write what waits as a row group and return the file's size so far."""
        if self.waiting:
            table = pa.Table.from_batches(self.waiting).cast(self._schema)
            if self._written_schema is not None:
                parts = (renamed(part, self._written_schema) for part in table.to_batches())
                table = pa.Table.from_batches(parts, self._written_schema)
            self._unbounded |= without_bounds(table)
            if self._parquet is None:
                self._parquet = self._writer_for(table)
            self._parquet.write_table(table)
            self.rows += table.num_rows
            self.waiting, self.waiting_bytes = [], 0
        return int(self._sink.tell())

    def close(self) -> DataFile:
        """Write the footer and return what the file holds."""
        self.flush()
        assert self._parquet is not None, "a file is opened for rows"
        self._parquet.close()
        size = int(self._sink.tell())
        self._sink.close()
        stats = column_stats(self._footers[0], self._written_schema or self._schema, self._unbounded)
        moments = stats.get(self._event_time) if self._event_time else None
        return DataFile(
            self.path,
            self.partition,
            self.rows,
            size,
            stats,
            _millis(moments.min) if moments else None,
            _millis(moments.max) if moments else None,
        )

    def abandon(self) -> None:
        """Close without care for the contents."""
        if self._parquet is not None:
            self._parquet.is_open = False  # no footer: writing it may fail as the rows did
        self._sink.close()

    def _writer_for(self, table: pa.Table) -> pq.ParquetWriter:
        return pq.ParquetWriter(
            self._sink,
            table.schema,
            compression=self._compression,
            use_dictionary=dictionary_columns(table),
            metadata_collector=self._footers,
        )


@dataclass
class _Run:
    """One call of `write`."""

    writer: ParquetTaskWriter
    task: TaskId
    attempt: str
    number: int = 0
    waiting_bytes: int = 0
    opened: dict[tuple[tuple[str, object], ...], _OpenFile] = field(default_factory=dict)
    done: list[DataFile] = field(default_factory=list)

    def add(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        rows = conform(batch, self.writer.schema)
        for partition, part in split(rows, self.writer.fields):
            opened = self._open(partition)
            self.waiting_bytes += opened.add(self._columns_of_file(part, partition))
        while self.waiting_bytes > BUFFER_BYTES_MAX:
            self._flush(max(self.opened.values(), key=lambda each: each.waiting_bytes))

    def finish(self) -> list[DataFile]:
        for partition in list(self.opened):
            self._close(partition)
        return self.done

    def abort(self) -> None:
        for opened in self.opened.values():
            # The error that ends the task is on its way; a full disk may fail the close as well.
            try:
                opened.abandon()
            except OSError:
                continue
            finally:
                self.writer.storage.delete(opened.path)
        for file in self.done:
            self.writer.storage.delete(file.path)

    def _columns_of_file(
        self, rows: pa.RecordBatch, partition: tuple[tuple[str, object], ...]
    ) -> pa.RecordBatch:
        schema = self.writer.file_schema
        if schema is None or schema.names == rows.schema.names:
            return rows
        made = dict(partition)
        columns = []
        for column in schema:
            index = rows.schema.get_field_index(column.name)
            if index >= 0:
                columns.append(rows.column(index))
            else:
                columns.append(pa.repeat(pa.scalar(made[column.name], column.type), rows.num_rows))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _open(self, partition: tuple[tuple[str, object], ...]) -> _OpenFile:
        opened = self.opened.get(partition)
        if opened is None:
            if len(self.opened) >= OPEN_FILES_MAX:
                self._close(next(iter(self.opened)))
            path = self.writer.path(partition, self.task, self.attempt, self.number)
            self.number += 1
            try:
                opened = self.opened[partition] = _OpenFile(self.writer, path, partition)
            except BaseException:
                self.writer.storage.delete(path)
                raise
        return opened

    def _flush(self, opened: _OpenFile) -> None:
        self.waiting_bytes -= opened.waiting_bytes
        if opened.flush() >= self.writer.file_bytes_target:
            self._close(opened.partition)

    def _close(self, partition: tuple[tuple[str, object], ...]) -> None:
        opened = self.opened[partition]
        self.waiting_bytes -= opened.waiting_bytes
        self.done.append(opened.close())
        del self.opened[partition]


def _millis(value: object) -> int | None:
    if isinstance(value, dt.datetime):
        moment = value if value.tzinfo else value.replace(tzinfo=dt.UTC)
        return (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(milliseconds=1)
    if isinstance(value, dt.date):
        return (value - dt.date(1970, 1, 1)).days * 86_400_000
    return None

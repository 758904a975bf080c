"""The commit log of a plain Parquet table: numbered records below `_kalda/log`, and the state that they add
up to.

A record is the decision: a batch belongs to the table once its record exists, and never before. The records
hold which files a version adds and removes; moving the files is `parquet_table`'s work and may be repeated.
Do not break: a record is created once and never replaced, so two writers cannot both make version N.
"""

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from kalda.pipelines.tables.errors import TableError
from kalda.pipelines.tables.progress import NO_PROGRESS, QueryProgress
from kalda.pipelines.tables.storage import TableStorage

LOG: Final = "_kalda/log"
CHECKPOINT_VERSIONS: Final = 100
"""A checkpoint each so many versions: opening a table reads at most this many records behind it."""

_RECORD: Final = re.compile(rf"{LOG}/(\d{{20}})\.json")
_CHECKPOINT: Final = re.compile(rf"{LOG}/(\d{{20}})\.checkpoint\.json")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of the table: its place for readers, and where the task wrote it."""

    path: str
    staged: str
    rows: int
    size_bytes: int
    partition: tuple[tuple[str, str | None], ...]
    version: int
    committed_ms: int

    def to_json(self) -> list[object]:
        """Return the fields as a list."""
        return [
            self.path,
            self.staged,
            self.rows,
            self.size_bytes,
            [list(pair) for pair in self.partition],
            self.version,
            self.committed_ms,
        ]

    @classmethod
    def from_json(cls, row: list[Any]) -> "LogFile":
        """Read what `to_json` returned."""
        path, staged, rows, size, partition, version, committed = row
        return cls(path, staged, rows, size, tuple(map(tuple, partition)), version, committed)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One version. `schema` and `query` are None where the version changes neither."""

    version: int
    time_ms: int
    kind: str
    add: tuple[LogFile, ...] = ()
    remove: tuple[str, ...] = ()
    schema: pa.Schema | None = None
    partition_by: tuple[str, ...] | None = None
    query: str | None = None
    progress: QueryProgress | None = None
    account: str | None = None

    def to_bytes(self) -> bytes:
        """Return the record as JSON."""
        document: dict[str, object] = {"version": self.version, "time_ms": self.time_ms, "kind": self.kind}
        document["add"] = [file.to_json() for file in self.add]
        document["remove"] = list(self.remove)
        if self.schema is not None:
            document["schema"] = _schema_text(self.schema)
            document["columns"] = {column.name: str(column.type) for column in self.schema}
        if self.partition_by is not None:
            document["partition_by"] = list(self.partition_by)
        if self.query is not None and self.progress is not None:
            document["query"] = self.query
            document["progress"] = _progress_list(self.progress)
            document["account"] = json.loads(self.account) if self.account else None
        return json.dumps(document, ensure_ascii=False, indent=1).encode()

    @classmethod
    def from_bytes(cls, data: bytes, path: str) -> "LogRecord":
        """Read what `to_bytes` returned.

        Raises:
            TableError: The file is something else.
        """
        try:
            document = json.loads(data)
            schema, account = document.get("schema"), document.get("account")
            progress = document.get("progress")
            partition_by = document.get("partition_by")
            return cls(
                int(document["version"]),
                int(document["time_ms"]),
                str(document["kind"]),
                tuple(LogFile.from_json(row) for row in document["add"]),
                tuple(document["remove"]),
                None if schema is None else _schema_of_text(schema),
                None if partition_by is None else tuple(partition_by),
                document.get("query"),
                None if progress is None else QueryProgress(*progress),
                None if account is None else json.dumps(account, separators=(",", ":")),
            )
        except (ValueError, KeyError, TypeError, pa.ArrowInvalid) as error:
            raise TableError(
                f"{path} is no record of a table's log: {error!r}. Restore it from a backup"
            ) from error


@dataclass(slots=True)
class LogState:
    """What the records up to `version` add up to; -1 before the first."""

    version: int = -1
    schema: pa.Schema | None = None
    partition_by: tuple[str, ...] = ()
    files: dict[str, LogFile] = field(default_factory=dict)
    queries: dict[str, QueryProgress] = field(default_factory=dict)

    def apply(self, record: LogRecord) -> None:
        """Add the next version."""
        assert record.version == self.version + 1, (record.version, self.version)
        self.version = record.version
        for path in record.remove:
            self.files.pop(path, None)
        for file in record.add:
            self.files[file.path] = file
        if record.schema is not None:
            self.schema = record.schema
        if record.partition_by is not None:
            self.partition_by = record.partition_by
        if record.query is not None and record.progress is not None:
            self.queries[record.query] = record.progress

    def to_bytes(self) -> bytes:
        """Return a checkpoint."""
        return json.dumps(
            {
                "version": self.version,
                "schema": None if self.schema is None else _schema_text(self.schema),
                "partition_by": self.partition_by,
                "files": [file.to_json() for file in self.files.values()],
                "queries": {query: _progress_list(progress) for query, progress in self.queries.items()},
            },
            ensure_ascii=False,
        ).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "LogState":
        """Read a checkpoint."""
        document = json.loads(data)
        files = [LogFile.from_json(row) for row in document["files"]]
        return cls(
            int(document["version"]),
            None if document["schema"] is None else _schema_of_text(document["schema"]),
            tuple(document["partition_by"]),
            {file.path: file for file in files},
            {query: QueryProgress(*progress) for query, progress in document["queries"].items()},
        )


class ParquetLog:
    """Reads and extends the log of one table."""

    def __init__(self, storage: TableStorage) -> None:
        self._storage = storage
        self._state = LogState()

    def refresh(self) -> LogState:
        """Return the state with all records that exist now. The caller must not change it."""
        if self._state.version < 0:
            self._load_checkpoint()
        while (record := self.record(self._state.version + 1)) is not None:
            self._state.apply(record)
        return self._state

    def state_at(self, version: int) -> LogState:
        """Return the state of an earlier version.

        Raises:
            TableError: The version does not exist, or its records are deleted.
        """
        current = self.refresh()
        if version == current.version:
            return current
        state = self._checkpoint_at_or_before(version)
        while state.version < version:
            record = self.record(state.version + 1)
            if record is None:
                raise TableError(
                    f"Version {version} of the table {self._storage.location} cannot be read: the log "
                    "has no record of "
                    f"version {state.version + 1}. The current version is {current.version}"
                )
            state.apply(record)
        return state

    def record(self, version: int) -> LogRecord | None:
        """Return a version's record, None when there is none."""
        path = record_path(version)
        data = self._storage.read(path)
        return None if data is None else LogRecord.from_bytes(data, path)

    def append(self, record: LogRecord) -> bool:
        """Create a version's record; return False when another writer has made that version."""
        if not self._storage.create(record_path(record.version), record.to_bytes()):
            return False
        if self._state.version == record.version - 1:
            self._state.apply(record)
            if record.version % CHECKPOINT_VERSIONS == CHECKPOINT_VERSIONS - 1:
                self._storage.replace(f"{LOG}/{record.version:020d}.checkpoint.json", self._state.to_bytes())
        return True

    def delete_before(self, time_ms: int) -> int:
        """Delete records and checkpoints that a newer checkpoint covers and that are older; return how
        many."""
        checkpoints = self._checkpoints()
        if not checkpoints:
            return 0
        deleted = 0
        for found in list(self._storage.list(LOG)):
            match = _RECORD.fullmatch(found.path) or _CHECKPOINT.fullmatch(found.path)
            covered = match is not None and int(match.group(1)) < checkpoints[-1]
            if covered and found.changed_s * 1000 < time_ms:
                deleted += self._storage.delete(found.path)
        return deleted

    def _checkpoints(self) -> list[int]:
        matches = (_CHECKPOINT.fullmatch(found.path) for found in self._storage.list(LOG))
        return sorted(int(match.group(1)) for match in matches if match)

    def _load_checkpoint(self) -> None:
        self._state = self._checkpoint_at_or_before(None)

    def _checkpoint_at_or_before(self, version: int | None) -> LogState:
        fitting = [each for each in self._checkpoints() if version is None or each <= version]
        if fitting:
            data = self._storage.read(f"{LOG}/{fitting[-1]:020d}.checkpoint.json")
            if data is not None:
                return LogState.from_bytes(data)
        return LogState()


def record_path(version: int) -> str:
    """Return the path of a version's record."""
    return f"{LOG}/{version:020d}.json"


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def _schema_of_text(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))


def _progress_list(progress: QueryProgress) -> list[int | None]:
    return [progress.batch_id, progress.watermark_before, progress.watermark]


def progress_of(queries: Mapping[str, QueryProgress], query_id: str) -> QueryProgress:
    """Return a query's progress, that of batch -1 before its first."""
    return queries.get(query_id, NO_PROGRESS)

"""Rows, batches and specs that the tests of tables share."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.dataset as ds

from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.spec.model import Evolve, TableFormat, TableSpec
from kalda.pipelines.tables import DataFile, Table, TaskId
from kalda.pipelines.tables.storage import TableStorage

FORMATS = tuple(TableFormat)
QUERY = "3f0c7d1e-query"


def spec_of(root: Path, kind: TableFormat, **options: object) -> TableSpec:
    """Return the spec of the table `lake.orders` below a directory."""
    chosen: dict[str, object] = {"evolve": Evolve.ADD, **options}
    return TableSpec(table="lake.orders", path=f"file://{root}/lake/orders", format=kind, **chosen)  # type: ignore[arg-type]


def account(batch_id: int, rows: int, query_id: str = QUERY) -> BatchAccount:
    """Return the account of a batch whose rows all came from one partition."""
    start = batch_id * 1_000_000
    return BatchAccount(query_id, batch_id, (RangeAccount("orders", 0, start, start + rows, rows, rows),))


def orders(first: int, count: int) -> pa.RecordBatch:
    """Return rows with ids from `first`."""
    ids = list(range(first, first + count))
    return pa.record_batch(
        {
            "id": pa.array(ids, pa.int64()),
            "name": pa.array([f"name {number}" if number % 7 else None for number in ids], pa.string()),
            "country": pa.array([("de", "fr", None)[number % 3] for number in ids], pa.string()),
        }
    )


def append(table: Table, batch_id: int, *parts: pa.RecordBatch, query_id: str = QUERY) -> list[DataFile]:
    """Prepare, write and commit a batch with one task for each part; return the files."""
    table.prepare_schema(parts[0].schema)
    writer = table.writer(parts[0].schema)
    files: list[DataFile] = []
    for number, part in enumerate(parts):
        files += writer.write([part], TaskId(query_id, batch_id, number))
    table.commit(account(batch_id, sum(part.num_rows for part in parts), query_id), files)
    return files


def rows_of(table: Table, columns: Sequence[str] | None = None) -> list[dict[str, object]]:
    """Return all rows of a table, ordered by id."""
    rows = [row for batch in table.read(columns) for row in batch.to_pylist()]
    return sorted(rows, key=lambda row: row["id"])


def ids_of(table: Table) -> list[int]:
    """Return the ids of all rows, in order."""
    return sorted(number for batch in table.read(["id"]) for number in batch.column(0).to_pylist())


def directory_ids(root: Path) -> list[int]:
    """Return the ids that another engine finds in the directory of a plain Parquet table."""
    found = ds.dataset(root / "lake/orders", partitioning="hive")
    return sorted(found.to_table(columns=["id"]).column(0).to_pylist()) if found.files else []


class CrashError(BaseException):
    """Stands for the end of the process: nothing catches it."""


def crashing(step: str, number: int, after: bool) -> Any:
    """Return a patch by which the n-th call of a step ends the process, before or after its effect."""
    original: Callable[..., Any] = getattr(TableStorage, step)
    calls = 0

    def wrapped(storage: TableStorage, *args: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < number:
            return original(storage, *args)
        if after and calls == number:
            original(storage, *args)
        raise CrashError

    return mock.patch.object(TableStorage, step, wrapped)

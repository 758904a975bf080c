"""Plain Parquet tables: the log decides, and the directory follows."""

import pickle
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from kalda.pipelines.spec.model import TableFormat
from kalda.pipelines.tables import TaskId, parquet_table
from kalda.pipelines.tables.errors import TableError, TableSpecError, UpsertRefusedError
from kalda.pipelines.tables.model import CompactPolicy
from kalda.pipelines.tables.parquet_log import ParquetLog
from kalda.pipelines.tables.parquet_table import ParquetTable
from tests.unit.pipelines.tables.table_cases import QUERY, account, append, ids_of, orders, spec_of


def visible_files(root: Path) -> list[Path]:
    return sorted((root / "lake/orders").glob("**/*.parquet"))


def directory_ids(root: Path) -> list[int]:
    found = ds.dataset(root / "lake/orders", partitioning="hive").to_table(columns=["id"])
    return sorted(found.column(0).to_pylist())


def test_a_batch_is_visible_to_readers_of_the_directory_after_its_commit_alone(tmp_path: Path) -> None:
    """A glob for Parquet files must pass over what tasks have staged."""
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET, partition_by=("country",)))
    table.prepare_schema(orders(0, 1).schema)
    writer = pickle.loads(pickle.dumps(table.writer(orders(0, 1).schema)))
    files = writer.write([orders(0, 10), orders(10, 10)], TaskId(QUERY, 0, 0))

    assert [] == visible_files(tmp_path)
    assert 20 == sum(file.rows for file in files)

    table.commit(account(0, 20), files)
    assert list(range(20)) == directory_ids(tmp_path)
    assert ["country=__HIVE_DEFAULT_PARTITION__", "country=de", "country=fr"] == [
        path.parent.name for path in visible_files(tmp_path)
    ]
    assert "country" not in pq.read_schema(visible_files(tmp_path)[0]).names


def test_files_of_attempts_that_were_not_committed_never_show(tmp_path: Path) -> None:
    """A speculative task writes the same rows again; the driver takes one of the two."""
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    table.prepare_schema(orders(0, 1).schema)
    writer = table.writer(orders(0, 1).schema)
    writer.write([orders(0, 10)], TaskId(QUERY, 0, 0))
    table.commit(account(0, 10), writer.write([orders(0, 10)], TaskId(QUERY, 0, 0)))

    assert list(range(10)) == directory_ids(tmp_path)
    assert [] == list((tmp_path / "lake/orders/_kalda/staging").glob("**/*.staged"))


def test_a_replay_changes_nothing(tmp_path: Path) -> None:
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    append(table, 0, orders(0, 10))
    writer = ParquetTable(table.spec).writer(orders(0, 1).schema)
    result = ParquetTable(table.spec).commit(
        account(0, 10), writer.write([orders(0, 10)], TaskId(QUERY, 0, 0))
    )

    assert not result.committed
    assert list(range(10)) == ids_of(ParquetTable(table.spec)) == directory_ids(tmp_path)
    assert 0 == ParquetTable(table.spec).committed_batch(QUERY)


def test_renames_that_a_crash_left_are_finished_by_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record is the decision: from there on the batch is in the table, whatever happens."""
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    with monkeypatch.context() as patch:
        patch.setattr(ParquetTable, "_publish_all", lambda self: None)
        patch.setattr(parquet_table, "clean_staging", lambda *names: None)
        append(table, 0, orders(0, 5), orders(5, 5))
        reader = ParquetTable(table.spec)
        assert list(range(10)) == ids_of(reader)
    assert 0 == ParquetTable(table.spec).committed_batch(QUERY)
    assert list(range(10)) == directory_ids(tmp_path) == ids_of(reader)


def test_compaction_joins_files_of_a_partition_and_keeps_the_rows(tmp_path: Path) -> None:
    now = [1_000_000_000]
    spec = spec_of(tmp_path, TableFormat.PARQUET, partition_by=("country",))
    table = ParquetTable(spec, lambda: now[0])
    for batch_id in range(5):
        append(table, batch_id, orders(batch_id * 10, 10))
    now[0] += 700_000
    append(table, 5, orders(50, 10))

    result = table.compact(CompactPolicy(newest_kept_s=600))

    assert (15, 3) == (result.files_removed, result.files_added)
    assert 6 == len(visible_files(tmp_path))
    assert list(range(60)) == ids_of(table) == directory_ids(tmp_path)
    assert list(range(60)) == ids_of(ParquetTable(spec))
    assert 5 == ParquetTable(spec).committed_batch(QUERY)


def test_a_compaction_gives_way_to_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a file that two compactions joined would be there twice."""
    now = 5_000_000_000
    spec = spec_of(tmp_path, TableFormat.PARQUET)
    table = ParquetTable(spec, lambda: now)
    for batch_id in range(3):
        append(table, batch_id, orders(batch_id * 10, 10))
    policy = CompactPolicy(newest_kept_s=0)
    refresh = ParquetLog.refresh
    calls = 0

    def other_first(log: ParquetLog) -> object:
        nonlocal calls
        calls += 1
        if calls == 3:
            assert 3 == ParquetTable(spec, lambda: now).compact(policy).files_removed
        return refresh(log)

    monkeypatch.setattr(ParquetLog, "refresh", other_first)
    assert 0 == table.compact(policy).files_removed
    assert list(range(30)) == ids_of(table) == directory_ids(tmp_path)


def test_changes_are_the_appended_rows(tmp_path: Path) -> None:
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    append(table, 0, orders(0, 3))
    since = table.version()
    append(table, 1, orders(3, 2))
    table.compact(CompactPolicy(newest_kept_s=0))

    changes = list(table.read_changes(since))
    assert [(2, "insert", [3, 4])] == [
        (change.version, change.kind, change.rows.column(0).to_pylist()) for change in changes
    ]
    assert [0, 1, 2] == sorted(
        row for batch in table.read(["id"], since) for row in batch.column(0).to_pylist()
    )


def test_wrong_uses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableSpecError, match="mode upsert, which format parquet lacks; use format delta"):
        ParquetTable(spec_of(tmp_path, TableFormat.PARQUET, keys=("id",)))
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    with pytest.raises(UpsertRefusedError):
        table.upsert_writer(orders(0, 1).schema)
    with pytest.raises(TableError, match="does not exist; call prepare_schema"):
        table.writer(orders(0, 1).schema)
    append(table, 0, orders(0, 1))
    other = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET, partition_by=("country",)))
    with pytest.raises(TableSpecError, match=r"is partitioned by \[\], but partition_by is \['country'\]"):
        other.prepare_schema(orders(0, 1).schema)


def test_added_and_widened_columns_are_read_in_old_files(tmp_path: Path) -> None:
    from kalda.pipelines.spec.model import Evolve

    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET, evolve=Evolve.WIDEN))
    append(table, 0, pa.record_batch({"id": pa.array([1], pa.int32())}))
    append(table, 1, pa.record_batch({"id": pa.array([2**40]), "more": pa.array(["x"])}))

    rows = [row for batch in table.read() for row in batch.to_pylist()]
    assert [{"id": 1, "more": None}, {"id": 2**40, "more": "x"}] == sorted(rows, key=lambda row: row["id"])

"""Plain Parquet tables: the record of a batch decides, and the directory follows."""

import os
import pickle
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kalda.pipelines.spec.model import TableFormat
from kalda.pipelines.tables import TaskId, parquet_table
from kalda.pipelines.tables.compaction import Candidate, plan_bins
from kalda.pipelines.tables.errors import TableError, TableSpecError, UpsertRefusedError
from kalda.pipelines.tables.model import CompactPolicy
from kalda.pipelines.tables.parquet_table import ParquetTable
from kalda.pipelines.tables.storage import TableStorage
from kalda.pipelines.tables.writer import query_token
from tests.unit.pipelines.tables.table_cases import (
    QUERY,
    CrashError,
    account,
    append,
    crashing,
    directory_ids,
    ids_of,
    orders,
    spec_of,
)


def visible_files(root: Path) -> list[Path]:
    return sorted((root / "lake/orders").glob("**/*.parquet"))


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


STEPS = ("replace", "move", "delete", "delete_directory", "open_output")
PLACES = [(step, number, after) for step in STEPS for number in range(1, 5) for after in (False, True)]


@pytest.mark.parametrize("action", ["commit", "compact"])
@pytest.mark.parametrize(("step", "number", "after"), PLACES)
def test_an_end_at_any_step_loses_and_doubles_nothing(
    tmp_path: Path, action: str, step: str, number: int, after: bool
) -> None:
    """What the directory shows between the end and the next start is at most short of some rows."""
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET, partition_by=("country",)))
    append(table, 0, orders(0, 6))
    append(table, 1, orders(6, 6))

    def run() -> None:
        again = ParquetTable(table.spec)
        if action == "commit":
            append(again, 2, orders(12, 6), orders(18, 6))
        else:
            again.compact(CompactPolicy(newest_kept_s=0, retention_s=0))

    with crashing(step, number, after):
        try:
            run()
        except CrashError:
            shown = directory_ids(tmp_path)
            assert len(shown) == len(set(shown))
            assert set(shown) <= set(range(24 if action == "commit" else 12))
            is_decided = 2 == ParquetTable(table.spec)._progress(QUERY).batch_id
            assert is_decided or set(shown) <= set(range(12))

    committed = ParquetTable(table.spec).committed_batch(QUERY)
    assert list(range(24 if committed == 2 else 12)) == directory_ids(tmp_path) == ids_of(table)
    run()
    rows = list(range(24 if action == "commit" else 12))
    assert rows == directory_ids(tmp_path) == ids_of(ParquetTable(table.spec))


def test_attempts_of_a_batch_have_the_same_names(tmp_path: Path) -> None:
    """So that a file of a batch can be there once only, whoever puts it there."""
    names = []
    for root in (tmp_path / "one", tmp_path / "other"):
        table = ParquetTable(spec_of(root, TableFormat.PARQUET, partition_by=("country",)))
        append(table, 3, orders(0, 6), orders(6, 6))
        names.append([str(path.relative_to(root)) for path in visible_files(root)])
    assert names[0] == names[1]
    assert 6 == len(names[0])
    token = query_token(QUERY)
    assert f"lake/orders/country=fr/kalda-{token}-000000000003-00001-00001.parquet" in names[0]


def test_a_reader_between_the_renames_sees_a_part_and_no_row_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The documented limit of a directory, which Delta and Iceberg do not have."""
    shown: list[list[int]] = []
    move = TableStorage.move

    def watched(storage: TableStorage, source: str, target: str) -> bool:
        shown.append(directory_ids(tmp_path))
        return move(storage, source, target)

    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    table.prepare_schema(orders(0, 1).schema)
    monkeypatch.setattr(TableStorage, "move", watched)
    append(table, 0, orders(0, 2), orders(2, 2))
    assert [[], [0, 1]] == shown
    shown.clear()
    table.compact(CompactPolicy(newest_kept_s=0))
    assert [[0, 1, 2, 3], [2, 3], []] == shown
    assert [0, 1, 2, 3] == directory_ids(tmp_path)


def test_a_table_with_the_commit_log_of_earlier_versions_is_refused(tmp_path: Path) -> None:
    """Its log may have batches whose files are not renamed; to go on without it would lose them."""
    (tmp_path / "lake/orders/_kalda/log").mkdir(parents=True)
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    (fault,) = table.faults()
    assert "an earlier Kalda wrote it with a commit log (_kalda/log), which is not read any more" in fault
    with pytest.raises(TableSpecError, match="Write to another table; the files of this one stay readable"):
        table.prepare_schema(orders(0, 1).schema)


@pytest.mark.parametrize("column", ["_country", ".country"])
def test_a_partition_whose_directory_would_be_hidden_is_refused(tmp_path: Path, column: str) -> None:
    """Engines pass over the names, and over all rows in such a directory with them."""
    with pytest.raises(TableSpecError, match=f"partition_by names '{column}'.*engines pass over"):
        ParquetTable(spec_of(tmp_path, TableFormat.PARQUET, partition_by=(column,)))


def test_a_directory_with_files_of_another_writer_is_refused(tmp_path: Path) -> None:
    """Nobody knows their columns, so that the pipeline's might not fit them."""
    directory = tmp_path / "lake/orders/day=1"
    directory.mkdir(parents=True)
    pq.write_table(pa.table({"x": [1]}), directory / "part-0.parquet")
    pq.write_metadata(pa.schema([("x", pa.int64())]), tmp_path / "lake/orders/_common_metadata")
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    assert table.schema() is None
    with pytest.raises(TableSpecError, match=r"files of another writer \(day=1/part-0.parquet\)"):
        table.prepare_schema(orders(0, 1).schema)


@pytest.mark.parametrize("name", ["_common_metadata", "_kalda/batches/{token}.json"])
def test_damaged_files_of_the_table_are_named(tmp_path: Path, name: str) -> None:
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    append(table, 0, orders(0, 2))
    path = tmp_path / "lake/orders" / name.format(token=query_token(QUERY))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(TableError, match=f"{path} is damaged"):
        append(ParquetTable(table.spec), 1, orders(2, 2))


def test_a_reader_without_the_right_to_write_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An audit may run as another user, also while a batch is being renamed."""
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    append(table, 0, orders(0, 2))

    def refused(self: ParquetTable) -> None:
        raise PermissionError(13, "Permission denied", "lock")

    monkeypatch.setattr(ParquetTable, "_finish", refused)
    assert [0, 1] == ids_of(table)


def test_compaction_joins_files_of_a_partition_and_keeps_the_rows(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, TableFormat.PARQUET, partition_by=("country",))
    table = ParquetTable(spec)
    for batch_id in range(5):
        append(table, batch_id, orders(batch_id * 10, 10))
    for path in visible_files(tmp_path):
        os.utime(path, (path.stat().st_atime, path.stat().st_mtime - 700))
    append(table, 5, orders(50, 10))

    result = table.compact(CompactPolicy(newest_kept_s=600))

    assert (15, 3) == (result.files_removed, result.files_added)
    assert 6 == len(visible_files(tmp_path))
    assert list(range(60)) == ids_of(table) == directory_ids(tmp_path)
    assert list(range(60)) == ids_of(ParquetTable(spec))
    assert 5 == ParquetTable(spec).committed_batch(QUERY)


def test_a_compaction_gives_way_to_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a file that two compactions joined would be there twice."""
    spec = spec_of(tmp_path, TableFormat.PARQUET)
    table = ParquetTable(spec)
    for batch_id in range(3):
        append(table, batch_id, orders(batch_id * 10, 10))
    policy = CompactPolicy(newest_kept_s=0)

    def other_first(files: Iterable[Candidate], chosen: CompactPolicy, now_ms: int) -> object:
        monkeypatch.undo()
        assert 3 == ParquetTable(spec).compact(policy).files_removed
        return plan_bins(files, chosen, now_ms)

    monkeypatch.setattr(parquet_table, "plan_bins", other_first)
    assert 0 == table.compact(policy).files_removed
    assert list(range(30)) == ids_of(table) == directory_ids(tmp_path)


def test_a_reader_that_has_listed_the_files_reads_on_while_they_are_joined(tmp_path: Path) -> None:
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    for batch_id in range(3):
        append(table, batch_id, orders(batch_id * 10, 10))
    reading = table.read(["id"])
    found = next(reading).column(0).to_pylist()
    assert 3 == ParquetTable(table.spec).compact(CompactPolicy(newest_kept_s=0)).files_removed
    for batch in reading:
        found += batch.column(0).to_pylist()
    assert list(range(30)) == found


def test_wrong_uses_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableSpecError, match="mode upsert, which format parquet lacks; use format delta"):
        ParquetTable(spec_of(tmp_path, TableFormat.PARQUET, keys=("id",)))
    table = ParquetTable(spec_of(tmp_path, TableFormat.PARQUET))
    with pytest.raises(UpsertRefusedError):
        table.upsert_writer(orders(0, 1).schema)
    with pytest.raises(TableError, match="does not exist; call prepare_schema"):
        table.writer(orders(0, 1).schema)
    append(table, 0, orders(0, 1))
    with pytest.raises(TableError, match="whose files do not show earlier versions; use format delta"):
        list(table.read_changes(None))
    with pytest.raises(TableError, match="do not show earlier versions"):
        list(table.read(version=3))
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

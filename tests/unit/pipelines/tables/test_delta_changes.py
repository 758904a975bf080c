"""What one version of a Delta table changed, from the actions of its commit."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kalda.pipelines.tables.delta_changes import version_changes
from kalda.pipelines.tables.errors import TableError
from kalda.pipelines.tables.storage import TableStorage

SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.string())])
Row = tuple[int, str]


def write_rows(root: Path, name: str, *ids: int, **columns: list[str]) -> str:
    """Write a file without the column of the partition; return its path."""
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), **columns}), path)
    return name


def commit(root: Path, version: int, *actions: dict[str, object]) -> None:
    log = root / "_delta_log"
    log.mkdir(exist_ok=True)
    text = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{version:020d}.json").write_text(text + "\n")


def add(path: str, key: str = "a", **more: object) -> dict[str, object]:
    return {"add": {"path": path, "partitionValues": {"k": key}, "dataChange": True, **more}}


def remove(path: str, key: str = "a", **more: object) -> dict[str, object]:
    return {"remove": {"path": path, "partitionValues": {"k": key}, "dataChange": True, **more}}


def changes(root: Path, version: int) -> list[tuple[str, Row]]:
    found = version_changes(TableStorage(f"file://{root}"), version, SCHEMA, "lake.t")
    return [(each.kind, (row["id"], row["k"])) for each in found for row in each.rows.to_pylist()]


def test_appended_rows_are_inserted_with_their_partition(tmp_path: Path) -> None:
    """The path of a file in the log is a URI: `%20` is a space."""
    write_rows(tmp_path, "k=a b/x.parquet", 1, 2)
    commit(tmp_path, 0, add("k=a%20b/x.parquet", "a b"), {"commitInfo": {}})
    assert [("insert", (1, "a b")), ("insert", (2, "a b"))] == changes(tmp_path, 0)


def test_rows_that_a_rewritten_file_keeps_are_no_change(tmp_path: Path) -> None:
    """And a deletion precedes the insertion of its key."""
    old, new = write_rows(tmp_path, "old.parquet", 1, 2, 3), write_rows(tmp_path, "new.parquet", 2, 3, 4)
    commit(tmp_path, 1, add(new), remove(old))
    assert [("delete", (1, "a")), ("insert", (4, "a"))] == changes(tmp_path, 1)


def test_a_compaction_changes_nothing(tmp_path: Path) -> None:
    old, new = write_rows(tmp_path, "old.parquet", 1), write_rows(tmp_path, "new.parquet", 1)
    commit(tmp_path, 2, add(new, dataChange=False), remove(old, dataChange=False))
    assert [] == changes(tmp_path, 2)


def test_change_files_say_it_themselves(tmp_path: Path) -> None:
    """The files beside them hold the same rows and are not looked at."""
    kinds = ["update_postimage", "delete", "update_preimage", "insert"]
    path = write_rows(tmp_path, "_change_data/c.parquet", 1, 2, 1, 3, _change_type=kinds)
    commit(
        tmp_path,
        3,
        {"cdc": {"path": path, "partitionValues": {"k": None}}},
        add("not-there.parquet"),
        remove("gone.parquet"),
    )
    found = version_changes(TableStorage(f"file://{tmp_path}"), 3, SCHEMA, "lake.t")
    assert [("delete", [2]), ("insert", [3]), ("update_postimage", [1]), ("update_preimage", [1])] == [
        (each.kind, each.rows.column("id").to_pylist()) for each in found
    ]


def test_versions_that_cannot_be_told_are_refused(tmp_path: Path) -> None:
    commit(tmp_path, 4, add("x.parquet", deletionVector={"storageType": "u"}))
    with pytest.raises(TableError, match=r"Version 4 of the table lake\.t has deletion vectors; set delta"):
        changes(tmp_path, 4)
    with pytest.raises(TableError, match="is no longer in its log; read the whole table once"):
        changes(tmp_path, 5)

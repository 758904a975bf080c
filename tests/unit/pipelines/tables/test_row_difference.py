"""The rows that a version changed, by the files that it replaced."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from kalda.pipelines.spec.model import TableFormat
from kalda.pipelines.tables import open_table
from kalda.pipelines.tables.row_difference import Rows, changed_rows
from tests.unit.pipelines.tables.table_cases import orders, spec_of

SCHEMA = pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))])


def given(*batches: list[tuple[int | None, Any]]) -> Rows:
    def read() -> Iterator[pa.RecordBatch]:
        for rows in batches:
            yield pa.RecordBatch.from_pylist([{"id": id_, "tags": tags} for id_, tags in rows], SCHEMA)

    return read


def changes(removed: Rows, added: Rows, **options: int) -> list[tuple[str, list[tuple[Any, ...]]]]:
    found = changed_rows(7, removed, added, **options)
    return [(each.kind, [tuple(row.values()) for row in each.rows.to_pylist()]) for each in found]


def test_rows_on_both_sides_are_no_change() -> None:
    """Rows are equal by all columns, nulls and lists included, and count as often as they are there."""
    removed = given([(1, ["a"]), (None, None), (2, None)], [(3, []), (3, []), (4, ["x", None])])
    added = given([(4, ["x", None]), (3, []), (None, None)], [(2, []), (1, ["a"]), (1, ["a"])])

    assert [("delete", [(2, None), (3, [])]), ("insert", [(1, ["a"]), (2, [])])] == changes(removed, added)


def test_a_version_that_only_adds_inserted_all_rows() -> None:
    assert [("insert", [(1, None), (1, None)])] == changes(given(), given([(1, None), (1, None)]))


def test_too_many_rows_are_given_as_they_are() -> None:
    """The driver's memory is bounded; the result of all changes is the same."""
    rows = given([(1, None)], [(2, None)])
    assert [("delete", [(1, None)]), ("delete", [(2, None)]), ("insert", [(3, None)])] == changes(
        rows, given([(3, None)]), bytes_max=1
    )


def test_a_delta_table_without_a_change_feed(tmp_path: Path) -> None:
    """Another program updates one row, which writes its file again; a compaction changes nothing."""
    spec = spec_of(tmp_path, TableFormat.DELTA)
    deltalake.write_deltalake(spec.path, pa.Table.from_batches([orders(0, 5)]))
    deltalake.write_deltalake(spec.path, pa.Table.from_batches([orders(5, 5)]), mode="append")
    table = deltalake.DeltaTable(spec.path)
    table.update({"name": "'other'"}, predicate="id = 3")
    since = table.version() - 1
    table.optimize.compact()

    found = list(open_table(spec).read_changes(since))

    assert [("delete", [3], ["name 3"]), ("insert", [3], ["other"])] == [
        (each.kind, *(each.rows.column(name).to_pylist() for name in ("id", "name"))) for each in found
    ]

"""A table as a target: decisions without a table, late rows, and compactions between batches."""

import datetime as dt
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("sqlglot")

from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.direct.rows_target import Written
from kalda.pipelines.engine.decision import DecisionFile
from kalda.pipelines.engine.table_target import DELETES_FLAG, TableTarget, upsert_marks
from kalda.pipelines.spec.model import Compact, Evolve, Late, TableFormat, TableSpec, WriteMode
from kalda.pipelines.tables import SchemaRefusedError, TableSpecError, open_table

QUERY = "query-1"
ROWS = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def spec_of(root: Path, **options: Any) -> TableSpec:
    path = f"file://{root}/lake/orders"
    chosen = {"evolve": Evolve.ADD, "event_time": "ts", **options}
    return TableSpec(table="lake.orders", path=path, format=TableFormat.PARQUET, **chosen)


def target_of(spec: TableSpec, root: Path, now_ms: list[int] | None = None) -> TableTarget:
    clock = now_ms or [1_000_000_000]
    return TableTarget(spec, DecisionFile(f"file://{root}/state", "orders"), lambda: clock[0])


def account(batch_id: int, rows: int) -> BatchAccount:
    return BatchAccount(QUERY, batch_id, (RangeAccount("orders", 0, 0, rows, rows, rows),))


def rows_of(*days: int) -> pa.RecordBatch:
    moments = [dt.datetime(2026, 1, day, tzinfo=dt.UTC) for day in days]
    return pa.RecordBatch.from_pydict({"id": list(days), "ts": moments}, ROWS)


def batch(target: TableTarget, batch_id: int, *days: int) -> Written:
    """Write and commit a batch of one task; return what the task wrote."""
    rows = rows_of(*days)
    written = target.rows_target(rows.schema, QUERY, batch_id).write([rows], QUERY, batch_id, 0)
    target.commit(account(batch_id, len(days)), [written])
    return written


def ids(spec: TableSpec, path: str | None = None) -> list[int]:
    table = open_table(replace(spec, path=path or spec.path, late=None))
    return sorted(row["id"] for found in table.read() for row in found.to_pylist())


def test_a_batch_without_columns_is_decided_beside_the_table(tmp_path: Path) -> None:
    """No table can hold the decision, and the batch must not run again."""
    spec = spec_of(tmp_path)
    target = target_of(spec, tmp_path)
    target.commit(account(0, 0), [Written(0)])
    assert open_table(spec).schema() is None
    assert 0 == target_of(spec, tmp_path).committed_batch(QUERY)
    assert not target.holds(QUERY), "the table has no row of the query"

    batch(target, 1, 5)
    target.commit(account(2, 0), [Written(0)])
    again = target_of(spec, tmp_path)
    assert (2, True) == (again.committed_batch(QUERY), again.holds(QUERY))
    assert again.committed_batch("another") is None


def test_late_rows_stay_or_go_to_their_table(tmp_path: Path) -> None:
    day_ms = 24 * 3600 * 1000
    late_path = f"file://{tmp_path}/lake/late"
    for late, kept, apart in (
        (Late(allow_ms=2 * day_ms, after="keep", path=None), [4, 7, 10, 11], []),
        (Late(allow_ms=2 * day_ms, after="lake.late", path=late_path), [10, 11], [4, 7]),
    ):
        root = tmp_path / late.after
        spec = spec_of(root, late=late)
        target = target_of(spec, root)
        assert 0 == batch(target, 0, 10).late_rows, "nothing is late before the first event time"
        written = batch(target, 1, 7, 11, 4)
        assert (3, 2) == (written.rows, written.late_rows)
        assert kept == ids(spec)
        assert apart == (ids(spec, late_path) if late.path else [])
        # The limit is that of the batches before, also for a repetition after the commit.
        rows = rows_of(7, 11, 4)
        again = target_of(spec, root).rows_target(ROWS, QUERY, 1).write([rows], QUERY, 1, 0)
        assert 2 == again.late_rows


def test_small_files_are_joined_when_it_is_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_ms = [1_000_000_000]
    spec = spec_of(tmp_path, compact=Compact(every_ms=60_000, newest_ms=0))
    target = target_of(spec, tmp_path, now_ms)
    for batch_id in range(3):
        batch(target, batch_id, batch_id + 1)

    def files() -> int:
        return len(list((tmp_path / "lake/orders").glob("*.parquet")))

    now_ms[0] += 59_999
    target.maintain()
    assert 3 == files()
    now_ms[0] += 1
    target.maintain()
    assert 1 == files()
    assert [1, 2, 3] == ids(spec)

    def refused(self: object, policy: object) -> object:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(open_table(spec)), "compact", refused)
    now_ms[0] += 60_000
    target.maintain()
    assert "lake.orders: small files are not merged this time" in caplog.text
    assert "No space left on device" in caplog.text


def test_without_compact_nothing_is_joined(tmp_path: Path) -> None:
    now_ms = [1_000_000_000]
    target = target_of(spec_of(tmp_path), tmp_path, now_ms)
    batch(target, 0, 1)
    batch(target, 1, 2)
    now_ms[0] += 10**9
    target.maintain()
    assert 2 == len(list((tmp_path / "lake/orders").glob("*.parquet")))


def test_columns_that_the_policy_does_not_admit(tmp_path: Path) -> None:
    """Declared columns are a matter of the pipeline, those that values show of their records."""
    target = target_of(spec_of(tmp_path, evolve=Evolve.NONE), tmp_path)
    batch(target, 0, 1)
    wider = ROWS.append(pa.field("new", pa.string()))
    with pytest.raises(SchemaRefusedError, match="new"):
        target.rows_target(wider, QUERY, 1)
    fitted = target.rows_target(wider, QUERY, 1, is_inferred=True).fit(
        pa.RecordBatch.from_pylist([{"id": 1, "new": "x"}, {"id": 2}], wider)
    )
    assert [2] == fitted.rows.column(0).to_pylist()
    assert 1 == len(fitted.misfits)


def test_marks_of_an_upsert(tmp_path: Path) -> None:
    """Spark evaluates the condition by itself and leaves its value in a column."""
    append = spec_of(tmp_path)
    upsert = replace(append, mode=WriteMode.UPSERT, keys=("id",))
    deleting = replace(upsert, deletes="op = 'd'")
    assert upsert_marks(append, is_spark=False) is None
    assert target_of(append, tmp_path).upsert_marks(is_spark=True) is None
    keys_only = upsert_marks(upsert, is_spark=False)
    assert keys_only is not None
    assert (("id",), None) == (keys_only.keys, keys_only.deletes)
    texts = [
        marks.deletes.text
        for is_spark in (False, True)
        if (marks := upsert_marks(deleting, is_spark=is_spark)) is not None and marks.deletes is not None
    ]
    assert ["op = 'd'", DELETES_FLAG] == texts


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (pa.list_(pa.int64()), "event_time=ts is list<item: int64>; a timestamp is expected: cast it"),
        (None, "event_time: there is no column ts; the rows have id"),
    ],
)
def test_columns_of_the_data_without_an_event_time_are_refused_before_the_table_is_made(
    tmp_path: Path, kind: pa.DataType | None, message: str
) -> None:
    """Without a declared schema the first batch shows them; the table would keep the wrong column."""
    spec = spec_of(tmp_path)
    rows = pa.schema([("id", pa.int64()), *([] if kind is None else [("ts", kind)])])

    with pytest.raises(TableSpecError, match=re.escape(message)):
        target_of(spec, tmp_path).rows_target(rows, QUERY, 0, is_inferred=True)

    assert open_table(spec).schema() is None


def test_a_batch_without_the_event_time_of_its_table_goes_on(tmp_path: Path) -> None:
    spec = spec_of(tmp_path)
    target = target_of(spec, tmp_path)
    batch(target, 0, 1)

    target.rows_target(pa.schema([("id", pa.int64())]), QUERY, 1, is_inferred=True)

    assert [1] == ids(spec)

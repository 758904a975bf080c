"""Rows that replace each other by key, in Delta and in Iceberg."""

import itertools
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kalda.pipelines.spec.model import TableFormat, WriteMode
from kalda.pipelines.tables import CommitResult, Table, TableSpecError, TaskId, UpsertRefusedError, open_table
from kalda.pipelines.tables.upsert import DELETE, GREATEST, HIDDEN, OFFSET, PARTITION, REPLACES, last_rows
from tests.unit.pipelines.tables.table_cases import QUERY, account, rows_of, spec_of

COLUMNS = pa.schema(
    [("id", pa.int64()), ("tenant", pa.string()), ("lsn", pa.int64()), ("value", pa.string()), *HIDDEN]
)
Opener = Callable[[], Table]
Row = tuple[int, int | None, str, bool]


@pytest.fixture(params=[TableFormat.DELTA, TableFormat.ICEBERG], ids=lambda kind: kind.value)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    spec = spec_of(
        tmp_path,
        request.param,
        mode=WriteMode.UPSERT,
        keys=("id", "tenant"),
        order_by="lsn",
        partition_by=("tenant",),
    )
    return lambda: open_table(spec)


def changes(rows: Iterable[Row], first_offset: int = 0, tenant: str = "a") -> pa.RecordBatch:
    """Return rows (id, lsn, value, whether it deletes) with rising offsets."""
    return pa.RecordBatch.from_pylist(
        [
            {
                "id": number,
                "tenant": tenant,
                "lsn": lsn,
                "value": value,
                PARTITION: 0,
                OFFSET: first_offset + place,
                DELETE: deletes or None,
            }
            for place, (number, lsn, value, deletes) in enumerate(rows)
        ],
        COLUMNS,
    )


def merge(table: Table, batch_id: int, *parts: pa.RecordBatch) -> CommitResult:
    table.prepare_schema(COLUMNS)
    writer = table.upsert_writer(COLUMNS)
    files = [
        file
        for number, part in enumerate(parts)
        for file in writer.write([part], TaskId(QUERY, batch_id, number))
    ]
    return table.upsert(account(batch_id, sum(part.num_rows for part in parts)), files)


def values_of(table: Table) -> dict[tuple[object, object], object]:
    return {(row["id"], row["tenant"]): row["value"] for row in rows_of(table)}


def test_the_last_row_of_a_key_stays(opened: Opener, tmp_path: Path) -> None:
    """By order first, then by offset; a smaller order never wins, in the batch or over the table."""
    table = opened()
    result = merge(
        table,
        0,
        changes([(1, 5, "new", False), (1, 3, "old", False), (2, 1, "x", False), (2, 1, "y", False)]),
    )
    assert (True, 2) == (result.committed, result.rows)
    assert {(1, "a"): "new", (2, "a"): "y"} == values_of(opened())

    merge(
        table,
        1,
        changes([(1, 4, "too old", False), (2, 2, "z", False)]),
        changes([(1, 9, "other", False)], 5, "b"),
    )
    assert {(1, "a"): "new", (2, "a"): "z", (1, "b"): "other"} == values_of(opened())
    assert [] == list(tmp_path.rglob("*.staged"))
    assert {"id", "tenant", "lsn", "value"} == set(opened().schema().names)  # type: ignore[union-attr]


def test_a_row_can_delete_its_key(opened: Opener) -> None:
    table = opened()
    merge(table, 0, changes([(number, 1, "v", False) for number in range(5)]))
    merge(
        table,
        1,
        changes(
            [
                (0, 2, "", True),
                (1, 0, "old", True),
                (2, 2, "", True),
                (2, 3, "again", False),
                (9, 1, "", True),
            ]
        ),
    )

    assert {(1, "a"): "v", (2, "a"): "again", (3, "a"): "v", (4, "a"): "v"} == values_of(opened())


def test_a_merge_is_done_once(opened: Opener) -> None:
    """A replay would bring back a row that a later batch has deleted."""
    merge(opened(), 0, changes([(1, 1, "v", False)]))
    merge(opened(), 1, changes([(1, 2, "", True)]))
    assert not merge(opened(), 0, changes([(1, 1, "v", False)])).committed
    assert merge(opened(), 2).committed
    assert {} == values_of(opened())
    assert 2 == opened().committed_batch(QUERY)


def test_a_row_without_order_counts_by_its_position(opened: Opener) -> None:
    """A tombstone has no column of the value; ignoring it would keep a deleted row for ever."""
    table = opened()
    merge(table, 0, changes([(1, 7, "ordered", False), (2, None, "first", False), (3, 9, "deleted", False)]))
    merge(table, 1, changes([(1, None, "replaced", False), (2, 1, "second", False), (3, None, "", True)]))
    assert {(1, "a"): "replaced", (2, "a"): "second"} == values_of(opened())


def test_a_batch_has_the_effect_of_its_rows_one_by_one(opened: Opener) -> None:
    table = opened()
    merge(table, 0, changes([(number, 9, "old", False) for number in range(5)]))
    merge(
        table,
        1,
        changes(
            [
                (0, 10, "before", False),
                (0, None, "", True),
                (1, None, "", True),
                (1, 3, "again", False),
                (1, 2, "too old", False),
                (2, 3, "too old", False),
                (3, None, "no order", False),
                (4, 10, "greater", False),
                (4, None, "later", False),
            ]
        ),
    )
    expected = {(1, "a"): "again", (2, "a"): "old", (3, "a"): "no order", (4, "a"): "later"}
    assert expected == values_of(opened())


@pytest.mark.parametrize("kind", [TableFormat.DELTA, TableFormat.ICEBERG], ids=lambda kind: kind.value)
def test_an_order_that_is_no_number_is_none(kind: TableFormat, tmp_path: Path) -> None:
    """Delta's merge takes NaN for the greatest number, Arrow's comparison for none."""
    columns = pa.schema([("id", pa.int64()), ("score", pa.float64()), ("value", pa.string()), *HIDDEN])
    spec = spec_of(tmp_path, kind, mode=WriteMode.UPSERT, keys=("id",), order_by="score")
    for batch_id, scores in enumerate([(float("nan"), 5.0), (1.0, float("nan"))]):
        table = open_table(spec)
        table.prepare_schema(columns)
        rows = [
            {"id": number, "score": score, "value": str(batch_id), PARTITION: 0, OFFSET: number}
            for number, score in enumerate(scores)
        ]
        batch = pa.RecordBatch.from_pylist(rows, columns)
        table.upsert(
            account(batch_id, 2), table.upsert_writer(columns).write([batch], TaskId(QUERY, batch_id, 0))
        )
    assert ["1", "1"] == [row["value"] for row in rows_of(open_table(spec))]


def test_rows_without_a_key_are_refused(opened: Opener) -> None:
    rows = pa.RecordBatch.from_pylist([{"id": None, "tenant": "a", PARTITION: 0, OFFSET: 1}], COLUMNS)
    with pytest.raises(UpsertRefusedError, match=r"1 of 1 rows .* have no 'id', .* `id is not null`"):
        merge(opened(), 0, rows)


def test_wrong_keys_are_refused(opened: Opener) -> None:
    with pytest.raises(
        TableSpecError, match=r"keys of the table lake.orders names the column 'tenant', which"
    ):
        opened().prepare_schema(pa.schema([("id", pa.int64()), ("lsn", pa.int64())]))


def test_changes_of_a_merge_lead_to_the_same_rows(opened: Opener) -> None:
    """A topic that follows the table ends with its rows; what a rewritten file keeps is no change."""
    table = opened()
    merge(table, 0, changes([(number, 1, "v", False) for number in range(4)]))
    since = table.version()
    merge(table, 1, changes([(0, 2, "w", False), (1, 2, "", True), (7, 1, "n", False)]))

    state = dict.fromkeys(range(4), "v")
    changed = list(opened().read_changes(since))
    assert {0, 1, 7} == {number for change in changed for number in change.rows.column("id").to_pylist()}
    for change in changed:
        for row in change.rows.to_pylist():
            if change.kind == "delete":
                state.pop(row["id"])
            elif change.kind != "update_preimage":
                state[row["id"]] = row["value"]
    assert {0: "w", 2: "v", 3: "v", 7: "n"} == state


def test_a_merge_takes_no_negative_decimal_of_a_partition(tmp_path: Path) -> None:
    """deltalake writes -0.10 to the log as 0.-10; from then on nothing reads the table."""
    spec = spec_of(
        tmp_path, TableFormat.DELTA, mode=WriteMode.UPSERT, keys=("id", "price"), partition_by=("price",)
    )
    table = open_table(spec)
    columns = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2)), *HIDDEN])
    table.prepare_schema(columns)
    rows = pa.RecordBatch.from_pylist(
        [
            {"id": number, "price": Decimal(price), PARTITION: 0, OFFSET: number}
            for number, price in enumerate(("1.50", "-0.10", "0.00"))
        ],
        columns,
    )
    fitted = table.fit().fit(rows)
    (misfit,) = fitted.misfits
    assert (1, "column price=-0.10: a merge cannot write a negative decimal") == (
        misfit.row,
        misfit.message.partition(" with")[0],
    )

    files = table.upsert_writer(columns).write([fitted.rows], TaskId(QUERY, 0, 0))
    table.upsert(account(0, 2), files)
    assert [Decimal("1.50"), Decimal("0.00")] == [row["price"] for row in rows_of(open_table(spec))]


def test_a_row_behind_a_deletion_is_inserted_whatever_its_order(opened: Opener) -> None:
    """In one batch as in two: a deleted key is not remembered."""
    merge(opened(), 0, changes([(1, 4, "a", False), (2, 9, "b", False), (3, 2, "c", False)]))

    merge(
        opened(),
        1,
        changes([(number, 5, "", True) for number in (1, 2, 3, 4)], 10),
        changes([(number, 3, "late", False) for number in (1, 2, 4)], 20),
        changes([(3, 3, "", True), (3, 2, "again", False), (3, 1, "older", False)], 30),
    )

    assert {(1, "a"): "late", (2, "a"): "b", (3, "a"): "again", (4, "a"): "late"} == values_of(opened())
    merge(opened(), 2, changes([(1, 2, "older", False), (4, 3, "equal", False)], 40))
    assert ("late", "equal") == tuple(values_of(opened())[number, "a"] for number in (1, 4))


orders_of_rows = st.none() | st.sampled_from([1.0, 2.0, 3.0, 4.0, math.nan])


@given(
    st.lists(st.tuples(st.integers(0, 1), orders_of_rows, st.booleans()), max_size=9),
    st.sets(st.integers(0, 9)),
)
def test_it_does_not_matter_where_batches_are_cut(
    rows: list[tuple[int, float | None, bool]], cuts: set[int]
) -> None:
    """A batch has the effect that its rows would have one by one."""

    def is_newer(order: float | None, own: float | None) -> bool:
        return order is None or own is None or math.isnan(order) or math.isnan(own) or order >= own

    one_by_one: dict[int, tuple[float | None, int]] = {}
    for place, (number, order, deletes) in enumerate(rows):
        if number in one_by_one and not is_newer(order, one_by_one[number][0]):
            continue
        one_by_one.pop(number, None)
        if not deletes:
            one_by_one[number] = order, place

    schema = pa.schema([("id", pa.int64()), ("lsn", pa.float64()), *HIDDEN])
    merged: dict[int, tuple[float | None, int]] = {}
    bounds = sorted({0, len(rows), *(each for each in cuts if each < len(rows))})
    for start, end in itertools.pairwise(bounds):
        given_rows = [
            {"id": number, "lsn": order, PARTITION: 0, OFFSET: start + index, DELETE: deletes}
            for index, (number, order, deletes) in enumerate(rows[start:end])
        ]
        for row in last_rows(pa.Table.from_pylist(given_rows, schema), ("id",), "lsn", "t").to_pylist():
            own = merged.get(row["id"])
            if own is not None and not row[REPLACES] and not is_newer(row[GREATEST], own[0]):
                continue
            merged.pop(row["id"], None)
            if not row[DELETE]:
                merged[row["id"]] = row["lsn"], row[OFFSET]

    assert repr(sorted(one_by_one.items())) == repr(sorted(merged.items()))

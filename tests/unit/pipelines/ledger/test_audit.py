"""What an audit finds wrong."""

from collections.abc import Sequence

import pyarrow as pa

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import RangeAccount
from kalda.pipelines.ledger.audit import LogBounds, audit
from kalda.pipelines.ledger.audit_record import LedgerRecord
from kalda.pipelines.value_totals import totals_of

ORDERS = TopicPartition("orders", 0)
OTHER = TopicPartition("orders", 1)


def record(batch_id: int, start: int, end: int) -> LedgerRecord:
    account = RangeAccount("orders", 0, start, end, records=end - start, rows_out=end - start - 1, dlq=1)
    return LedgerRecord("bronze", "lake.orders", "q", batch_id, account, batch_id)


RECORDS = [record(0, 0, 10), record(1, 10, 25)]


def test_all_agrees() -> None:
    report = audit("bronze", "lake.orders", RECORDS, bounds={ORDERS: LogBounds(5, 30)}, table_rows=23)

    assert report.is_good
    assert (25, 23, 2) == (report.total("records"), report.total("rows_out"), report.total("dlq"))
    (partition,) = report.partitions
    assert (0, 25, 2, 5) == (partition.start, partition.end, partition.batch_count, partition.lag)


def test_rows_that_the_table_lacks_or_has_twice_are_found() -> None:
    report = audit("bronze", "lake.orders", RECORDS, bounds={ORDERS: LogBounds(0, 25)}, table_rows=24)

    assert ("lake.orders has 24 rows, but the ledger accounts for 23",) == report.findings


def test_a_log_that_ends_before_the_ledger_is_found() -> None:
    """The topic was re-created, or an unclean election lost what the table has."""
    report = audit("bronze", "t", RECORDS, bounds={ORDERS: LogBounds(0, 20)}, table_rows=None)

    (finding,) = report.findings
    assert "orders-0: the ledger accounts for offsets up to 24, but the log ends at 20; was" in finding


def test_a_partition_that_no_batch_has_read_shows_its_lag() -> None:
    """It is no finding: a query that starts at the latest offset has not read an idle partition."""
    bounds = {ORDERS: LogBounds(0, 25), OTHER: LogBounds(3, 10)}
    report = audit("bronze", "t", RECORDS, bounds=bounds, table_rows=None)

    assert report.is_good
    assert [(ORDERS, 2, 0), (OTHER, 0, 7)] == [
        (each.topic_partition, each.batch_count, each.lag) for each in report.partitions
    ]


def test_gaps_and_damaged_records_are_found() -> None:
    report = audit(
        "bronze",
        "t",
        [record(0, 0, 10), record(1, 12, 25)],
        bounds={ORDERS: LogBounds(0, 25)},
        table_rows=None,
        faults=["q/3/orders-0: this is no record"],
    )
    assert (
        "q/3/orders-0: this is no record",
        "orders-0: offsets 10 to 11 are in no batch (seen at batch 1)",
    ) == report.findings


def test_a_pipeline_that_has_not_run_has_nothing_to_find() -> None:
    report = audit("bronze", "t", [], bounds={ORDERS: LogBounds(0, 25)}, table_rows=0)

    assert report.is_good
    assert [25] == [each.lag for each in report.partitions]


def valued(batch_id: int, rows: pa.RecordBatch, decoded: pa.RecordBatch | None = None) -> LedgerRecord:
    """Return the record of a batch that wrote these rows, of records with these values."""
    count, start = rows.num_rows, batch_id * 100
    account = RangeAccount(
        "orders",
        0,
        start,
        start + count,
        count,
        count,
        decoded=totals_of(rows if decoded is None else decoded),
        written=totals_of(rows),
    )
    return LedgerRecord.from_json(LedgerRecord("bronze", "t", "q", batch_id, account, batch_id).to_json())


FULL = pa.record_batch({"id": pa.array([1, 2]), "email": pa.array(["a@x", "b@x"])})


def test_values_that_are_lost_between_decoding_and_the_table_are_found() -> None:
    narrow = pa.record_batch({"id": pa.array([1, 2])})
    swapped = pa.record_batch({"id": pa.array([2, 9]), "email": pa.array(["a@x", "b@x"])})
    found = [
        audit("bronze", "t", [record], bounds={}, table_rows=2, is_plain=True).findings
        for record in (valued(0, FULL), valued(0, narrow, FULL), valued(0, swapped, FULL))
    ]
    assert [
        (),
        ("the column email has values that were decoded, and is not handed to t",),
        ("the values of the column id decoded are not those handed to t",),
    ] == found


def test_the_values_of_the_table_are_compared_with_those_of_all_batches() -> None:
    """Column mapping that a writer ignored showed null to each reader, and as many rows as before."""
    records = [valued(0, FULL), valued(1, pa.record_batch({"id": pa.array([3])}))]
    table = pa.record_batch({"ID": pa.array([3, 1, 2]), "email": pa.array([None, "b@x", "a@x"])})
    null = pa.record_batch({"id": pa.nulls(3, pa.int64()), "email": pa.nulls(3, pa.string())})
    old = LedgerRecord("bronze", "t", "q", 2, RangeAccount("orders", 0, 200, 201, 1, 1), 2)

    def findings(rows: pa.RecordBatch, records: Sequence[LedgerRecord] = records) -> tuple[str, ...]:
        bounds = {ORDERS: LogBounds(0, 300)}
        report = audit("bronze", "t", records, bounds=bounds, table_rows=None, table_values=totals_of(rows))
        return tuple(each for each in report.findings if "column" in each)

    assert () == findings(table)
    assert (
        "the column email has 1 nulls accounted for by the ledger, and 3 in t",
        "the column id has 0 nulls accounted for by the ledger, and 3 in t",
    ) == findings(null)
    # A ledger of an earlier version says nothing of values.
    assert () == findings(null, [*records, old])

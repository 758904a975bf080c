"""What an audit finds wrong."""

from kalda.common.types import TopicPartition
from kalda.pipelines.batch import RangeAccount
from kalda.pipelines.ledger.audit import LogBounds, audit
from kalda.pipelines.ledger.record import LedgerRecord

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

"""The estimate until when a table is complete."""

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import RangeAccount
from kalda.pipelines.ledger.audit_record import LedgerRecord
from kalda.pipelines.ledger.completeness import estimate


def record(
    batch_id: int, least: int | None, greatest: int | None, *, rows: int = 1000, partition: int = 0
) -> LedgerRecord:
    account = RangeAccount(
        "orders",
        partition,
        batch_id * rows,
        (batch_id + 1) * rows,
        records=rows,
        rows_out=rows,
        event_time_min=least,
        event_time_max=greatest,
    )
    return LedgerRecord("bronze", "lake.orders", "q", batch_id, account, batch_id)


def test_rows_in_order_are_complete_until_the_last() -> None:
    found = estimate([record(0, 0, 100), record(1, 100, 200)])

    assert found is not None
    assert (200, 0) == (found.until_ms, found.delay_ms)


def test_the_slowest_partition_holds_the_time_back() -> None:
    found = estimate([record(0, 0, 100), record(0, 0, 60, partition=1), record(1, 100, 200)])

    assert found is not None
    assert (60, TopicPartition("orders", 1)) == (found.until_ms, found.slowest)


def test_late_rows_move_the_time_back_by_the_delay_that_their_share_exceeds() -> None:
    """Of 4,000 rows, four may be later; the late range has 1,000 from 0 to 1,000, so four of them below 4."""
    records = [record(0, 0, 500), record(1, 500, 1000), record(2, 0, 1000), record(3, 1000, 2000)]
    found = estimate(records)

    assert found is not None
    assert 996 == found.delay_ms
    assert 2000 - 996 == found.until_ms


def test_a_few_late_rows_below_the_share_cost_nothing() -> None:
    found = estimate([record(0, 0, 1000, rows=100_000), record(1, 999, 1000, rows=10)])

    assert found is not None
    assert 0 == found.delay_ms


def test_there_is_no_estimate_without_event_times() -> None:
    assert estimate([]) is None
    assert estimate([record(0, None, None)]) is None

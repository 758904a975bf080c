"""Gaps and overlaps between batches."""

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import BatchAccount, RangeAccount
from kalda.pipelines.ledger.audit_record import LedgerRecord
from kalda.pipelines.ledger.continuity import (
    Break,
    BreakKind,
    Continuity,
    Uncovered,
    find_breaks,
    find_uncovered,
    of_newest_topics,
)

ORDERS = TopicPartition("orders", 0)


def record(
    batch_id: int,
    start: int,
    end: int,
    *,
    query: str = "q",
    committed_ms: int = 0,
    topic_id: str | None = None,
) -> LedgerRecord:
    account = RangeAccount(
        "orders", 0, start, end, records=end - start, rows_out=end - start, topic_id=topic_id
    )
    return LedgerRecord("bronze", "lake.orders", query, batch_id, account, committed_ms)


def test_batches_that_join_have_no_break() -> None:
    assert [] == find_breaks([record(2, 30, 40), record(0, 0, 10), record(1, 10, 30)])


def test_offsets_in_no_batch_are_a_gap() -> None:
    """An alert must name the offsets, so that they can be replayed."""
    found = find_breaks([record(0, 0, 10), record(1, 15, 30)])

    assert [Break(BreakKind.GAP, ORDERS, 10, 15, 1)] == found
    assert "orders-0: offsets 10 to 14 are in no batch (seen at batch 1)" == str(found[0])


def test_offsets_in_two_batches_are_an_overlap() -> None:
    found = find_breaks([record(0, 0, 10), record(1, 5, 30), record(2, 30, 31)])

    assert [Break(BreakKind.OVERLAP, ORDERS, 5, 10, 1)] == found
    assert "orders-0: offsets 5 to 9 are in more than one batch (seen at batch 1)" == str(found[0])


def test_a_query_with_a_rebuilt_checkpoint_goes_on_where_the_former_ended() -> None:
    records = [
        record(1, 20, 30, query="new", committed_ms=400),
        record(0, 10, 20, query="new", committed_ms=300),
        record(0, 0, 10, query="old", committed_ms=100),
    ]
    assert [] == find_breaks(records)


def test_a_running_pipeline_sees_a_gap_with_the_batch_behind_it() -> None:
    continuity = Continuity()
    first = BatchAccount("q", 0, (RangeAccount("orders", 0, 5, 10, records=5, rows_out=5),))
    second = BatchAccount("q", 1, (RangeAccount("orders", 0, 11, 12, records=1, rows_out=1),))

    assert [] == continuity.follow(first)
    assert [Break(BreakKind.GAP, ORDERS, 10, 11, 1)] == continuity.follow(second)
    assert {ORDERS: 12} == continuity.ends


def test_a_topic_that_was_created_again_has_offsets_of_its_own() -> None:
    """Its offsets begin at 0 again; the records of the deleted topic account for none of them."""
    deleted = [record(0, 0, 10), record(1, 10, 30, topic_id="a")]
    created = [record(2, 0, 5, topic_id="b"), record(3, 8, 12, topic_id="b")]
    assert [] == find_breaks(deleted)
    assert [Break(BreakKind.GAP, ORDERS, 5, 8, 3)] == find_breaks([*deleted, *created])
    assert created == of_newest_topics([*deleted, *created])
    assert [Uncovered(ORDERS, 5, 8), Uncovered(ORDERS, 12, 30)] == find_uncovered(
        {ORDERS: (0, 30)}, [*deleted, *created]
    )


def test_a_running_pipeline_begins_anew_with_a_topic_that_was_created_again() -> None:
    continuity = Continuity()
    for batch_id, start, end, topic_id in (
        (0, 0, 10, None),
        (1, 10, 20, "a"),
        (2, 0, 5, "b"),
        (3, 5, 6, "b"),
    ):
        account = record(batch_id, start, end, topic_id=topic_id).account
        assert [] == continuity.follow(BatchAccount("q", batch_id, (account,)))
    assert {ORDERS: 6} == continuity.ends

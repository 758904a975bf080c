"""Which offsets a replay or a backfill processes."""

import pytest

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import RangeAccount
from kalda.pipelines.backfill.bounds import (
    AtOffset,
    AtPartitionOffsets,
    AtTime,
    BoundError,
    parse_bound,
    plan_refill,
    resolve,
)
from kalda.pipelines.ledger.audit_record import LedgerRecord
from kalda.spark.source.plan import OffsetRange

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)


def record(start: int, end: int) -> LedgerRecord:
    account = RangeAccount("orders", 0, start, end, records=end - start, rows_out=end - start)
    return LedgerRecord("bronze", "lake.orders", "q", 0, account, 0)


def test_bounds_are_offsets_or_times() -> None:
    assert AtOffset(1500) == parse_bound(" 1500 ")
    assert AtPartitionOffsets({A: 7}) == parse_bound('{"orders":{"0":7}}')
    assert AtTime(1_700_000_000_000) == parse_bound("2023-11-14T22:13:20")
    assert AtTime(1_700_000_000_000) == parse_bound("2023-11-14T23:13:20+01:00")


@pytest.mark.parametrize("text", ["", "yesterday", "-5", '{"orders":1}', "{", "1e3"])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(BoundError):
        parse_bound(text)


def test_a_bound_stays_within_the_log() -> None:
    starts, ends = {A: 10, B: 0}, {A: 100, B: 50}

    def at_time(timestamp_ms: int) -> dict[TopicPartition, int]:
        return {A: 40}

    assert {A: 10, B: 5} == resolve(AtOffset(5), starts, starts, ends, at_time)
    assert {A: 100, B: 50} == resolve(AtOffset(500), starts, starts, ends, at_time)
    assert {A: 60} == resolve(
        AtPartitionOffsets({A: 60, TopicPartition("x", 0): 1}), starts, starts, ends, at_time
    )
    assert {A: 40, B: 50} == resolve(AtTime(7), starts, starts, ends, at_time)
    assert starts == resolve(None, starts, starts, ends, at_time)


def test_accounted_offsets_are_not_processed_again() -> None:
    """Rows that are appended twice could not be told from each other."""
    plan = plan_refill({A: 0, B: 0}, {A: 100, B: 5}, [record(10, 30), record(30, 90)], may_repeat=False)

    assert (
        (OffsetRange(A, 0, 10),),
        (OffsetRange(A, 90, 100), OffsetRange(B, 0, 5)),
    ) == plan.batches
    assert (25, 80) == (plan.offsets, plan.skipped_offsets)


def test_rows_that_replace_each_other_may_be_processed_again() -> None:
    plan = plan_refill({A: 0}, {A: 100}, [record(10, 30)], may_repeat=True)

    assert ((OffsetRange(A, 0, 100),),) == plan.batches
    assert 0 == plan.skipped_offsets


def test_batches_are_bounded_and_have_one_range_of_a_partition() -> None:
    plan = plan_refill({A: 0, B: 0}, {A: 25, B: 3}, [], may_repeat=False, batch_offsets_max=10)

    assert (
        (OffsetRange(A, 0, 10),),
        (OffsetRange(A, 10, 20),),
        (OffsetRange(A, 20, 25), OffsetRange(B, 0, 3)),
    ) == plan.batches


def test_nothing_is_left_of_an_empty_range() -> None:
    assert () == plan_refill({A: 100}, {A: 100}, [], may_repeat=False).batches
    assert () == plan_refill({A: 100}, {B: 100}, [], may_repeat=True).batches


def test_an_interrupted_batch_comes_first_as_it_was() -> None:
    """Its tasks may have committed what they read; no other batch may have their offsets."""
    pending = (OffsetRange(A, 10, 40), OffsetRange(B, 0, 5))
    plan = plan_refill({A: 0, B: 0}, {A: 100, B: 5}, [record(0, 10)], pending, may_repeat=False)

    assert ((OffsetRange(A, 10, 40), OffsetRange(B, 0, 5)), (OffsetRange(A, 40, 100),)) == plan.batches
    assert (95, 10) == (plan.offsets, plan.skipped_offsets)
    plan = plan_refill({A: 0}, {A: 30}, [], pending, may_repeat=False)
    assert (pending, (OffsetRange(A, 0, 10),)) == plan.batches

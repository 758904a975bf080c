"""Accounts of micro-batches."""

import pytest

from kalda.common.types import TopicPartition
from kalda.pipelines.accounts import AccountError, BatchAccount, RangeAccount


def _range(start: int = 0, end: int = 10, *, partition: int = 0, **counts: int) -> RangeAccount:
    counts = {"records": end - start, "rows_out": end - start} | counts
    return RangeAccount("orders", partition, start, end, **counts)  # type: ignore[arg-type]  # counts only


def test_the_offsets_of_a_range_are_records_or_gaps() -> None:
    """A lost record must not go unnoticed."""
    assert 3 == _range(records=7, rows_out=7, gaps=3).gaps
    with pytest.raises(AccountError, match=r"orders-0 \[0, 10\) has 10 offsets, but 7 records and 2 gaps"):
        _range(records=7, rows_out=7, gaps=2)


def test_a_record_goes_out_or_to_the_queue_or_is_filtered() -> None:
    """So a record that no task accounted for stops the batch."""
    assert 10 == _range(rows_out=5, dlq=3, filtered=2).records
    with pytest.raises(AccountError, match="10 records, but 5 rows out, 3 in the dead-letter queue and 1"):
        _range(rows_out=5, dlq=3, filtered=1)


@pytest.mark.parametrize("counts", [{"gaps": -1, "records": 11, "rows_out": 11}, {"late": 11}])
def test_impossible_counts_are_refused(counts: dict[str, int]) -> None:
    """Negative counts and more late rows than rows are faults of a task."""
    with pytest.raises(AccountError):
        _range(**counts)


def test_parts_of_a_partition_become_one_range() -> None:
    """Tasks may split a partition; the ledger has one row for each."""
    parts = [
        RangeAccount("orders", 0, 5, 10, 5, 4, dlq=1, event_time_min=7, event_time_max=9),
        _range(0, 4, partition=1),
        RangeAccount("orders", 0, 0, 5, 4, 3, filtered=1, gaps=1, late=1, event_time_min=3, event_time_max=8),
    ]
    account = BatchAccount.of_parts("q", 3, parts)
    whole = RangeAccount("orders", 0, 0, 10, 9, 7, 1, 1, 1, 1, event_time_min=3, event_time_max=9)
    assert (whole, _range(0, 4, partition=1)) == account.ranges
    assert 11 == account.total("rows_out")
    assert {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 4} == account.ends()
    assert {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0} == account.starts()


def test_parts_must_meet() -> None:
    """A hole is a task whose result was lost; an overlap, one that was counted twice."""
    for second in (_range(6, 10), _range(4, 10)):
        with pytest.raises(AccountError, match="does not follow"):
            BatchAccount.of_parts("q", 3, [_range(0, 5), second])


def test_partitions_are_distinct_and_sorted() -> None:
    """Equal batches have equal JSON."""
    with pytest.raises(AccountError, match="sorted"):
        BatchAccount("q", 1, (_range(partition=1), _range(partition=0)))


def test_json_keeps_an_account() -> None:
    """The commit of a table carries it."""
    account = BatchAccount("q", 3, (_range(rows_out=9, dlq=1), _range(partition=2, rows_out=8, filtered=2)))
    assert account == BatchAccount.from_json(account.to_json())


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"query_id":"q","batch_id":1,"ranges":[{"topic":"t"}]}', "7"]
)
def test_other_json_is_refused(text: str) -> None:
    """Commits of other programs have other metadata."""
    with pytest.raises(AccountError):
        BatchAccount.from_json(text)

"""Which open transactions hang."""

from kalda.common.types import TopicPartition
from kalda.inspection.hanging_transactions import OpenTransaction, candidates, hanging

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def transaction(partition: TopicPartition, producer_id: int, last_timestamp_ms: int = 0) -> OpenTransaction:
    return OpenTransaction(partition, producer_id, 0, 0, 10, last_timestamp_ms)


def test_only_transactions_older_than_the_time_out_are_candidates() -> None:
    """A younger one may still get its marker."""
    old, young = transaction(A, 1, 99), transaction(A, 2, 100)

    assert [old] == candidates([old, young], now_ms=1000, timeout_ms=900)


def test_a_transaction_hangs_if_no_coordinator_counts_the_partition_to_it() -> None:
    orphan, forgotten, elsewhere, fine = (transaction(A, number) for number in (1, 2, 3, 4))
    ids = {2: "forgotten", 3: "elsewhere", 4: "fine"}
    partitions = {"elsewhere": [B], "fine": [A, B]}

    assert [orphan, forgotten, elsewhere] == hanging([fine, orphan, forgotten, elsewhere], ids, partitions)


def test_hanging_transactions_are_sorted_by_partition() -> None:
    assert [transaction(A, 1), transaction(B, 1)] == hanging([transaction(B, 1), transaction(A, 1)], {}, {})

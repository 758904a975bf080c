"""The sequences of open transactions."""

from kalda.nats.jetstream.open_transactions import OpenTransactions


def test_batches_that_follow_each_other_are_one_range() -> None:
    transactions = OpenTransactions()
    transactions.add(7, 3, 5)
    transactions.add(7, 6, 6)
    transactions.add(7, 9, 10)
    assert [(3, 6), (9, 10)] == list(transactions.ranges(7))


def test_without_open_transactions_there_is_no_first_sequence() -> None:
    assert OpenTransactions().first is None


def test_the_first_sequence_is_that_of_the_oldest_open_transaction() -> None:
    transactions = OpenTransactions()
    transactions.add(7, 3, 5)
    transactions.add(8, 6, 6)
    transactions.add(7, 8, 8)
    assert 3 == transactions.first
    transactions.end(7)
    assert 6 == transactions.first
    assert [] == list(transactions.ranges(7))
    transactions.end(7)
    transactions.end(8)
    assert transactions.first is None

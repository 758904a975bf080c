"""Repeats a request to the transaction coordinator while the producer's previous transaction ends.

The coordinator answers EndTxn before the markers are written, and until then it answers the producer's
next requests with CONCURRENT_TRANSACTIONS. Clients repeat them only after a pause of their own. In librdkafka
(up to 2.16, issue 4849) an abort during that pause is fatal: EndTxn finds the previous transaction, and a
committed transaction cannot be aborted (INVALID_TXN_STATE).
"""

import asyncio
from collections.abc import Callable, Collection, Iterator
from functools import partial
from operator import attrgetter
from typing import Final, TypeVar

from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.net.connection import Connection

PRODUCE_SECONDS: Final = 0.1
"""How long a Produce or TxnOffsetCommit request of transactions V2 waits; Kafka's
``add.partitions.to.txn.retry.backoff.max.ms``."""
ADD_SECONDS: Final = 1.0
"""How long a client's AddPartitionsToTxn or AddOffsetsToTxn request waits: its producer has nothing to send
before the answer."""
RETRY_SECONDS: Final = 0.002
RETRY_SECONDS_MAX: Final = 0.02
"""The first and the longest pause between two questions; each pause doubles the previous one. A transaction
completes within milliseconds unless a partition has no leader."""

T = TypeVar("T")
Later = Callable[[float, Callable[[], None]], object]
"""Schedules a call after some seconds."""


def loop_later(seconds: float, call: Callable[[], None]) -> object:
    """Schedule a call on the running event loop."""
    return asyncio.get_running_loop().call_later(seconds, call)


def pauses(seconds: float) -> Iterator[float]:
    """Yield the pause before each further question, until `seconds` have passed."""
    pause, left = RETRY_SECONDS, seconds
    while left > 0:
        yield min(pause, left)
        left -= pause
        pause = min(2 * pause, RETRY_SECONDS_MAX)


def ask_while_ending(
    ask: Callable[[], Pending[T]],
    code_of: Callable[[T], ErrorCode],
    seconds: float,
    later: Later = loop_later,
) -> Pending[T]:
    """Return the first answer by which the previous transaction has ended, or the last one within `seconds`.

    The answer completes in the turn of the event loop in which the coordinator's does.
    """
    answer: Pending[T] = Pending()
    left = pauses(seconds)

    def again() -> None:
        ask().add_done(answered)

    def answered(done: Pending[T]) -> None:
        if done.error is not None:
            answer.fail(done.error)
            return
        is_ending = code_of(done.value) is ErrorCode.CONCURRENT_TRANSACTIONS
        if is_ending and (pause := next(left, None)) is not None:
            later(pause, again)
        else:
            answer.complete(done.value)

    again()
    return answer


def add_for_client(
    coordinator: TransactionCoordinator,
    connection: Connection,
    transactional_id: str,
    producer: Identity,
    partitions: Collection[TopicPartition],
    later: Later = loop_later,
) -> Pending[Decision]:
    """Add partitions for AddPartitionsToTxn and AddOffsetsToTxn, once the previous transaction has ended.

    The connection's next request waits meanwhile, as it does in Kafka: an EndTxn that overtook this request
    would end nothing, and the partitions would be added to a transaction that the producer takes for ended.
    """
    ask = partial(coordinator.add_partitions, transactional_id, producer, partitions)
    answer = ask_while_ending(ask, attrgetter("code"), ADD_SECONDS, later)
    if not answer.is_done:
        connection.hold_frames()
    return answer

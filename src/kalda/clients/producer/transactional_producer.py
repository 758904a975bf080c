"""Defines the methods of transactions that `Producer` and `AsyncProducer` offer; see `TransactionCalls`.

The semantics are those of Java's producer: commit sends all records first, abort drops those that were not
sent, and an error state refuses records with its exception until the transaction is aborted.
"""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from kalda.clients.producer.producer_identity import PreparedTxnState
from kalda.clients.producer.transaction_calls import Offsets, TransactionCalls
from kalda.clients.values import ConsumerGroupMetadata

T = TypeVar("T")


class TransactionalProducer:
    """The methods of transactions of `Producer`. All block up to `max.block.ms`.

    All raise `IllegalStateError` out of turn or without `transactional_id`, and `RequestTimedOutError` after
    `max.block.ms`; the call goes on then, and calling it again waits for its end.
    """

    def _call_transactions(
        self, operation: str, call: Callable[[TransactionCalls], Coroutine[Any, Any, T]]
    ) -> T:
        """Run a call on the producer's loop and wait for it."""
        raise NotImplementedError

    def init_transactions(self, *, keep_prepared: bool = False) -> PreparedTxnState:
        """Get a producer id, fence producers with the same `transactional_id`, abort what they left open.

        Called once, before the first transaction. With `keep_prepared`, a transaction that an earlier process
        prepared is not aborted: its token is returned, and `complete_transaction` ends it (KIP-939).

        Raises:
            ProducerFencedError: another producer with the same id was created meanwhile.
            FatalTransactionError: the coordinator refuses, e.g. `transaction.timeout.ms`.
            BrokerResponseError: the client may not use the id.
        """
        return self._call_transactions(
            "init_transactions", lambda calls: calls.initialize(keep_prepared=keep_prepared)
        )

    def begin_transaction(self) -> None:
        """Begin a transaction; the records that follow belong to it.

        Raises:
            FatalTransactionError: the producer has failed.
        """
        self._call_transactions("begin_transaction", lambda calls: calls.begin())

    def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Commit a consumer group's positions if, and only if, the transaction is committed (KIP-447).

        Args:
            offsets: For each partition the offset of the next record to process.
            group_metadata: `Consumer.group_metadata()`, which fences members of earlier generations, or only
                the group's name.

        Raises:
            TransactionAbortableError: the group refuses the member; abort the transaction.
            FatalTransactionError: the producer has failed.
        """
        self._call_transactions(
            "send_offsets_to_transaction", lambda calls: calls.send_offsets(offsets, group_metadata)
        )

    def commit_transaction(self) -> None:
        """Send the records that are left, then commit.

        Raises:
            TransactionAbortableError: a record or an offset could not be written; abort the transaction.
            FatalTransactionError: the producer has failed; `ProducerFencedError` if another replaced it.
        """
        self._call_transactions("commit_transaction", lambda calls: calls.commit())

    def abort_transaction(self) -> None:
        """Drop the records that were not sent, then abort.

        Raises:
            FatalTransactionError: the producer has failed; `ProducerFencedError` if another replaced it.
        """
        self._call_transactions("abort_transaction", lambda calls: calls.abort())

    def prepare_transaction(self) -> PreparedTxnState:
        """End the first phase of a two-phase commit: all records are written, only the end is left (KIP-939).

        Store ``str(token)`` with the other resource's decision. No time-out aborts the transaction.

        Raises:
            TransactionAbortableError: a record could not be written; abort the transaction.
            FatalTransactionError: the producer has failed.
        """
        return self._call_transactions("prepare_transaction", lambda calls: calls.prepare())

    def complete_transaction(self, prepared_state: PreparedTxnState | str) -> None:
        """Commit the prepared transaction if `prepared_state` is its token, else abort it (KIP-939).

        After a restart, call ``init_transactions(keep_prepared=True)`` first.

        Raises:
            ValueError: the text is no token.
            FatalTransactionError: the producer has failed.
        """
        self._call_transactions("complete_transaction", lambda calls: calls.complete(prepared_state))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Begin a transaction for a ``with`` block and commit at its end; abort after an exception.

        A transaction that the block prepares stays prepared. After a `RequestTimedOutError` of the commit the
        outcome is open: call `commit_transaction` again.
        """
        self.begin_transaction()
        try:
            yield
        except BaseException as error:
            failure = error
            self._call_transactions("transaction", lambda calls: calls.leave_block(failure))
            raise
        self._call_transactions("transaction", lambda calls: calls.leave_block(None))


class AsyncTransactionalProducer:
    """The methods of transactions of `AsyncProducer`; see `TransactionalProducer` for each."""

    def _transaction_calls(self) -> TransactionCalls:
        """Start the producer where needed; return its calls."""
        raise NotImplementedError

    async def init_transactions(self, *, keep_prepared: bool = False) -> PreparedTxnState:
        """Get a producer id; see `Producer.init_transactions`."""
        return await self._transaction_calls().initialize(keep_prepared=keep_prepared)

    async def begin_transaction(self) -> None:
        """Begin a transaction; see `Producer.begin_transaction`."""
        await self._transaction_calls().begin()

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: ConsumerGroupMetadata | str
    ) -> None:
        """Commit positions with the transaction; see `Producer.send_offsets_to_transaction`."""
        await self._transaction_calls().send_offsets(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Commit; see `Producer.commit_transaction`."""
        await self._transaction_calls().commit()

    async def abort_transaction(self) -> None:
        """Abort; see `Producer.abort_transaction`."""
        await self._transaction_calls().abort()

    async def prepare_transaction(self) -> PreparedTxnState:
        """End the first phase of a two-phase commit; see `Producer.prepare_transaction`."""
        return await self._transaction_calls().prepare()

    async def complete_transaction(self, prepared_state: PreparedTxnState | str) -> None:
        """Commit or abort the prepared transaction; see `Producer.complete_transaction`."""
        await self._transaction_calls().complete(prepared_state)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction for an ``async with`` block; see `Producer.transaction`."""
        calls = self._transaction_calls()
        await calls.begin()
        try:
            yield
        except BaseException as error:
            await calls.leave_block(error)
            raise
        await calls.leave_block(None)

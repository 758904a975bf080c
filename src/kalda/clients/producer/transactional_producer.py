"""Implements the transactions of `Producer` and `AsyncProducer`, on the producer's loop.

The semantics are those of Java's producer: commit sends all records first, abort drops those that were not
sent, and an error state refuses records with its exception until the transaction is aborted. Each method asks
the transaction manager and waits for the result up to `max.block.ms`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from kalda.clients.errors import ClientError, IllegalStateError, RequestTimedOutError, TransactionError
from kalda.clients.facade import BlockingClient, blocking
from kalda.clients.loop_thread import LoopThread
from kalda.clients.producer.flush import await_results
from kalda.clients.producer.producer_core import ProducerCore
from kalda.clients.producer.producer_identity import PreparedTxnState
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.clients.producer.transaction_requests import TransactionResult
from kalda.clients.producer.transaction_state import TransactionState
from kalda.clients.values import ConsumerGroupMetadata, OffsetAndMetadata
from kalda.common.types import TopicPartition

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
"""The position of each partition: the offset of the next record to process, alone or with metadata."""


class AsyncTransactionalProducer:
    """The methods of transactions of `AsyncProducer`, from which those of `Producer` are derived.

    All raise `IllegalStateError` out of turn or without `transactional_id`, and `RequestTimedOutError` after
    `max.block.ms`; the call goes on then, and calling it again waits for its end.
    """

    _core: ProducerCore

    def _begin(self) -> object:
        """Start the producer where that is needed."""
        raise NotImplementedError

    async def init_transactions(self, *, keep_prepared: bool = False) -> PreparedTxnState:
        """Get a producer id, fence producers with the same `transactional_id`, abort what they left open.

        Called once, before the first transaction. With `keep_prepared`, a transaction that an earlier process
        prepared is not aborted: its token is returned, and `complete_transaction` ends it (KIP-939).

        Raises:
            ProducerFencedError: another producer with the same id was created meanwhile.
            FatalTransactionError: the coordinator refuses, e.g. `transaction.timeout.ms`.
            BrokerResponseError: the client may not use the id.
        """
        manager = self._started("init_transactions")
        with self._core.producer_metrics.timing("txn-init"):
            await self._wait(manager.initialize_transactions(keep_prepared=keep_prepared))
        return manager.prepared_state

    async def begin_transaction(self) -> None:
        """Begin a transaction; the records that follow belong to it.

        Raises:
            FatalTransactionError: the producer has failed.
        """
        manager = self._started("begin_transaction")
        with self._core.producer_metrics.timing("txn-begin"):
            manager.begin_transaction()

    async def send_offsets_to_transaction(
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
        manager = self._started("send_offsets_to_transaction")
        positions = {
            TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        for partition, position in positions.items():
            if position.offset < 0:
                raise ValueError(f"offset {position.offset} of {partition} is negative; offsets begin at 0")
        member = ConsumerGroupMetadata(group_metadata) if isinstance(group_metadata, str) else group_metadata
        with self._core.producer_metrics.timing("txn-send-offsets"):
            await self._wait(manager.send_offsets_to_transaction(positions, member))

    async def commit_transaction(self) -> None:
        """Send the records that are left, then commit.

        Raises:
            TransactionAbortableError: a record or an offset could not be written; abort the transaction.
            FatalTransactionError: the producer has failed; `ProducerFencedError` if another replaced it.
        """
        manager = self._started("commit_transaction")
        with self._core.producer_metrics.timing("txn-commit"):
            await self._wait(manager.begin_commit())

    async def abort_transaction(self) -> None:
        """Drop the records that were not sent, then abort.

        Raises:
            FatalTransactionError: the producer has failed; `ProducerFencedError` if another replaced it.
        """
        manager = self._started("abort_transaction")
        with self._core.producer_metrics.timing("txn-abort"):
            await self._wait(manager.begin_abort())

    async def prepare_transaction(self) -> PreparedTxnState:
        """End the first phase of a two-phase commit: all records are written, only the end is left (KIP-939).

        Store ``str(token)`` with the other resource's decision. No time-out aborts the transaction.

        Raises:
            TransactionAbortableError: a record could not be written; abort the transaction.
            FatalTransactionError: the producer has failed.
        """
        manager = self._started("prepare_transaction")
        core = self._core
        results = core.accumulator.begin_flush()
        core.sender.wakeup()
        try:
            with core.producer_metrics.timing("txn-prepare"):
                async with asyncio.timeout(core.max_block_s):
                    await await_results(results)
        except TimeoutError:
            raise self._timed_out("prepare_transaction") from None
        finally:
            core.accumulator.end_flush()
        return manager.prepare_transaction()

    async def complete_transaction(self, prepared_state: PreparedTxnState | str) -> None:
        """Commit the prepared transaction if `prepared_state` is its token, else abort it (KIP-939).

        After a restart, call ``init_transactions(keep_prepared=True)`` first.

        Raises:
            ValueError: the text is no token.
            FatalTransactionError: the producer has failed.
        """
        manager = self._started("complete_transaction")
        if isinstance(prepared_state, str):
            prepared_state = PreparedTxnState.parse(prepared_state)
        await self._wait(manager.begin_completion(prepared_state))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """Begin a transaction for an ``async with`` block and commit at its end; abort after an exception.

        A transaction that the block prepares stays prepared. After a `RequestTimedOutError` of the commit the
        outcome is open: call `commit_transaction` again.
        """
        await self.begin_transaction()
        try:
            yield
        except BaseException as error:
            await self._leave_block(error)
            raise
        await self._leave_block(None)

    async def _leave_block(self, failure: BaseException | None) -> None:
        """End the transaction of a ``with`` block: commit, or abort after an exception.

        One that the block has prepared stays prepared. A failure to abort becomes a note of `failure`.
        """
        if failure is not None:
            await self._abort_after(failure)
        elif self._manager("transaction").state is not TransactionState.PREPARED_TRANSACTION:
            try:
                await self.commit_transaction()
            except TransactionError as error:
                await self._abort_after(error)
                raise

    async def _abort_after(self, failure: BaseException) -> None:
        manager = self._manager("transaction")
        is_prepared = manager.state is TransactionState.PREPARED_TRANSACTION
        if not (manager.has_ongoing_transaction or is_prepared):
            return
        try:
            await self.abort_transaction()
        except ClientError as error:
            failure.add_note(f"the transaction could not be aborted: {error}")

    def _started(self, operation: str) -> TransactionManager:
        self._begin()
        return self._manager(operation)

    def _manager(self, operation: str) -> TransactionManager:
        manager = self._core.transactions
        if manager is None or not manager.is_transactional:
            raise IllegalStateError(f"{operation} needs a producer with transactional_id")
        return manager

    async def _wait(self, result: TransactionResult) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def completed(_: TransactionResult) -> None:
            if not done.done():
                done.set_result(None)

        result.add_done_callback(completed)
        self._core.sender.wakeup()
        try:
            async with asyncio.timeout(self._core.max_block_s):
                await done
        except TimeoutError:
            raise self._timed_out(result.operation) from None
        result.is_acked = True
        error = result.error
        if isinstance(error, TransactionError):
            # The manager keeps its own; each raise adds to an exception's traceback.
            raise type(error)(str(error), error.code) from error
        if error is not None:
            raise error

    def _timed_out(self, operation: str) -> RequestTimedOutError:
        return RequestTimedOutError(
            f"{operation} was not done within `max.block.ms`={self._core.max_block_s * 1000:g}; "
            f"it goes on: call {operation} again to wait for its end, or close the producer"
        )


class LoopTransactions(AsyncTransactionalProducer):
    """The transactions of a `Producer`, for its loop thread."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core

    def _begin(self) -> None:
        """Do nothing: a `Producer` is started when it is made."""

    async def leave_block(self, failure: BaseException | None) -> None:
        """End the transaction of a ``with`` block."""
        await self._leave_block(failure)


class TransactionalProducer(BlockingClient[AsyncTransactionalProducer]):
    """The methods of transactions of `Producer`. All block up to `max.block.ms`.

    All raise `IllegalStateError` out of turn or without `transactional_id`, and `RequestTimedOutError` after
    `max.block.ms`; the call goes on then, and calling it again waits for its end.
    """

    _inner: LoopTransactions
    _thread: LoopThread

    init_transactions = blocking(AsyncTransactionalProducer.init_transactions)
    begin_transaction = blocking(AsyncTransactionalProducer.begin_transaction)
    send_offsets_to_transaction = blocking(AsyncTransactionalProducer.send_offsets_to_transaction)
    commit_transaction = blocking(AsyncTransactionalProducer.commit_transaction)
    abort_transaction = blocking(AsyncTransactionalProducer.abort_transaction)
    prepare_transaction = blocking(AsyncTransactionalProducer.prepare_transaction)
    complete_transaction = blocking(AsyncTransactionalProducer.complete_transaction)

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
            if self._thread.is_usable:
                # Not in a fork, which may end by `sys.exit`: the transaction is the parent's.
                self._run(self._inner.leave_block(error))
            raise
        self._run(self._inner.leave_block(None))

"""Runs the calls of the transactional API on the producer's loop; both facades use it.

Each call asks the transaction manager and waits for the result up to `max.block.ms`. A call that timed out
goes on in the background; calling it again waits for the same result.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from kalda.clients.errors import ClientError, IllegalStateError, RequestTimedOutError, TransactionError
from kalda.clients.metrics.producer_metrics import ProducerMetrics
from kalda.clients.producer.flush import await_results
from kalda.clients.producer.producer_identity import PreparedTxnState
from kalda.clients.producer.record_accumulator import RecordAccumulator
from kalda.clients.producer.sender import Sender
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.clients.producer.transaction_requests import TransactionResult
from kalda.clients.producer.transaction_state import TransactionState
from kalda.clients.values import ConsumerGroupMetadata, OffsetAndMetadata
from kalda.common.types import TopicPartition

Offsets = Mapping[TopicPartition, int | OffsetAndMetadata]
"""The position of each partition: the offset of the next record to process, alone or with metadata."""


class TransactionCalls:
    """The transactional API of one producer; its methods run on the producer's loop."""

    def __init__(
        self,
        transactions: TransactionManager | None,
        accumulator: RecordAccumulator,
        sender: Sender,
        metrics: ProducerMetrics,
        max_block_s: float,
    ) -> None:
        self._metrics: Final = metrics
        self._transactions: Final = transactions
        self._accumulator: Final = accumulator
        self._sender: Final = sender
        self._max_block_s: Final = max_block_s

    async def initialize(self, *, keep_prepared: bool) -> PreparedTxnState:
        """Get a producer id; return the token of the transaction that was kept, if any."""
        manager = self._manager("init_transactions")
        with self._metrics.timing("txn-init"):
            await self._wait(manager.initialize_transactions(keep_prepared=keep_prepared))
        return manager.prepared_state

    async def begin(self) -> None:
        """Begin a transaction."""
        with self._metrics.timing("txn-begin"):
            self._manager("begin_transaction").begin_transaction()

    async def send_offsets(self, offsets: Offsets, group: ConsumerGroupMetadata | str) -> None:
        """Commit positions with the transaction."""
        manager = self._manager("send_offsets_to_transaction")
        positions = {
            TopicPartition(*partition): OffsetAndMetadata(offset) if isinstance(offset, int) else offset
            for partition, offset in offsets.items()
        }
        for partition, position in positions.items():
            if position.offset < 0:
                raise ValueError(f"offset {position.offset} of {partition} is negative; offsets begin at 0")
        member = ConsumerGroupMetadata(group) if isinstance(group, str) else group
        with self._metrics.timing("txn-send-offsets"):
            await self._wait(manager.send_offsets_to_transaction(positions, member))

    async def prepare(self) -> PreparedTxnState:
        """Wait until all records are written; return the token of the prepared transaction."""
        manager = self._manager("prepare_transaction")
        results = self._accumulator.begin_flush()
        self._sender.wakeup()
        try:
            with self._metrics.timing("txn-prepare"):
                async with asyncio.timeout(self._max_block_s):
                    await await_results(results)
        except TimeoutError:
            raise self._timed_out("prepare_transaction") from None
        finally:
            self._accumulator.end_flush()
        return manager.prepare_transaction()

    async def complete(self, prepared_state: PreparedTxnState | str) -> None:
        """Commit the prepared transaction if the token is its own, else abort it."""
        if isinstance(prepared_state, str):
            prepared_state = PreparedTxnState.parse(prepared_state)
        await self._wait(self._manager("complete_transaction").begin_completion(prepared_state))

    async def commit(self) -> None:
        """Commit; all records are sent first."""
        with self._metrics.timing("txn-commit"):
            await self._wait(self._manager("commit_transaction").begin_commit())

    async def abort(self) -> None:
        """Abort; records that were not sent are dropped."""
        with self._metrics.timing("txn-abort"):
            await self._wait(self._manager("abort_transaction").begin_abort())

    async def leave_block(self, failure: BaseException | None) -> None:
        """End the transaction of a ``with`` block: commit, or abort after an exception.

        One that the block has prepared stays prepared. A failure to abort becomes a note of `failure`.
        """
        manager = self._manager("transaction")
        if failure is None:
            if manager.state is TransactionState.PREPARED_TRANSACTION:
                return
            try:
                await self.commit()
            except TransactionError as error:
                await self._abort_after(error)
                raise
        else:
            await self._abort_after(failure)

    async def _abort_after(self, failure: BaseException) -> None:
        manager = self._manager("transaction")
        is_prepared = manager.state is TransactionState.PREPARED_TRANSACTION
        if not (manager.has_ongoing_transaction or is_prepared):
            return
        try:
            await self.abort()
        except ClientError as error:
            failure.add_note(f"the transaction could not be aborted: {error}")

    def _manager(self, operation: str) -> TransactionManager:
        if self._transactions is None or not self._transactions.is_transactional:
            raise IllegalStateError(f"{operation} needs a producer with transactional_id")
        return self._transactions

    async def _wait(self, result: TransactionResult) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def completed(_: TransactionResult) -> None:
            if not done.done():
                done.set_result(None)

        result.add_done_callback(completed)
        self._sender.wakeup()
        try:
            async with asyncio.timeout(self._max_block_s):
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
            f"{operation} was not done within `max.block.ms`={self._max_block_s * 1000:g}; "
            f"it goes on: call {operation} again to wait for its end, or close the producer"
        )

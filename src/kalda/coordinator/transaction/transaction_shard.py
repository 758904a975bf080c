"""Keeps the transactional ids of one partition of ``__transaction_state``.

State changes only in `replay`, so that loading and running are one path. The shard hands a prepared
transaction to the coordinator when its record is replicated, also after loading: no other recovery of a
half-finished commit is needed. Kafka's counterpart is ``TransactionStateManager``.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord, NewerRecordError
from kalda.coordinator.runtime.coordinator_shard import Result, ShardContext
from kalda.coordinator.transaction import transaction_log
from kalda.coordinator.transaction.transaction_metadata import TransactionMetadata, check_step
from kalda.coordinator.transaction.transaction_state import TransactionState
from kalda.protocol.protocol_errors import ProtocolError
from kalda.runtime.clock import Clock

logger: Final = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""The pause before a failed write is repeated."""


class ShardOwner(Protocol):
    """The coordinator, which a shard notifies."""

    def on_shard_loaded(self, shard: "TransactionShard") -> None:
        """The shard is loaded, and this broker coordinates it."""
        ...

    def on_shard_unloaded(self, shard: "TransactionShard") -> None:
        """This broker does not coordinate the shard any more."""
        ...

    def on_prepared(self, shard: "TransactionShard", metadata: TransactionMetadata) -> None:
        """The outcome of a transaction is replicated: its markers may be written."""
        ...


class TransactionShard:
    """A `kalda.coordinator.runtime.coordinator_shard.CoordinatorShard`."""

    def __init__(
        self, partition: int, owner: ShardOwner, clock: Clock, transaction_version: Callable[[], int]
    ) -> None:
        self.partition: Final = partition
        self._owner: Final = owner
        self._clock: Final = clock
        self._transaction_version: Final = transaction_version
        self._transactions: Final[dict[str, TransactionMetadata]] = {}
        self._ongoing: Final[dict[str, float]] = {}
        """When each open transaction began, in monotonic seconds, because the wall clock may jump."""
        self._step: TransactionMetadata | None = None
        """The step whose record is about to be appended; it has values that the record has no field for."""
        self._context: ShardContext | None = None

    @property
    def transactions(self) -> Mapping[str, TransactionMetadata]:
        """All transactional ids of the partition."""
        return self._transactions

    def open_ms(self, transactional_id: str) -> int:
        """Return for how long the transaction of an id has been open, 0 if it is not open."""
        now = self._clock.monotonic()
        return round((now - self._ongoing.get(transactional_id, now)) * 1000)

    def timed_out(self) -> list[str]:
        """Return the ids whose transactions have timed out."""
        return [name for name in self._ongoing if self._transactions[name].is_timed_out(self.open_ms(name))]

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of an id, None for an id that is unknown or deleted."""
        return self._transactions.get(transactional_id)

    def record(self, after: TransactionMetadata) -> CoordinatorRecord:
        """Return the record of a step from the current state; it must be appended in this turn, or never."""
        check_step(self._transactions.get(after.transactional_id), after)
        self._step = after
        return transaction_log.encode(after, self._transaction_version())

    def write_complete(self, transactional_id: str, operation: Callable[[], Result[None]]) -> None:
        """Write a record, and retry until the log accepts it."""
        context = self._context
        if context is None:
            return

        def done(pending: Pending[None]) -> None:
            error = pending.error
            if error is None or self._context is not context:
                return
            if not _is_lost(error):
                text = 'the end of the transaction of "%s" is not written yet: %s'
                logger.warning(text, transactional_id, error)
                context.schedule(f"complete-{transactional_id}", RETRY_MS, operation)

        context.write(operation).add_done(done)

    # The interface `CoordinatorShard`.

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Apply one record; skip and log it if it cannot be read.

        Raises:
            NewerRecordError: a newer release wrote it.
        """
        step, self._step = self._step, None
        try:
            decoded = transaction_log.decode(record)
        except NewerRecordError as error:
            raise error.at("__transaction_state", self.partition, offset) from None
        except ProtocolError as error:
            logger.error("__transaction_state-%d at offset %d: %s", self.partition, offset, error)
            return
        if decoded is None:
            return
        transactional_id, metadata = decoded
        if metadata is None:
            self._transactions.pop(transactional_id, None)
            self._ongoing.pop(transactional_id, None)
            return
        if (
            step is not None
            and step.transactional_id == transactional_id
            and step.identity == metadata.identity
        ):
            metadata = replace(
                metadata,
                last_producer_epoch=step.last_producer_epoch,
                previous_producer_id=step.previous_producer_id,
            )
            # The record holds everything that was decided: another broker loads the same state.
            assert metadata == step, f"{step} was decided, {metadata} is replayed"
        self._transactions[transactional_id] = metadata
        if metadata.state is TransactionState.ONGOING:
            if transactional_id not in self._ongoing:
                self._ongoing[transactional_id] = self._began(metadata)
        else:
            self._ongoing.pop(transactional_id, None)
            if metadata.state.is_prepared and self._context is not None:
                self._announce(self._context, [metadata])

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        """Do nothing: no transaction writes to this topic."""

    def on_loaded(self, context: ShardContext) -> None:
        """Complete the transactions whose outcome was decided."""
        self._context = context
        self._step = None
        prepared = [each for each in self._transactions.values() if each.state.is_prepared]
        logger.info(
            "__transaction_state-%d: %d transactional ids loaded, %d transactions to complete",
            self.partition,
            len(self._transactions),
            len(prepared),
        )
        self._owner.on_shard_loaded(self)
        if prepared:
            self._announce(context, prepared)

    def on_unloaded(self) -> None:
        """Drop everything; the next coordinator continues."""
        self._context = None
        self._owner.on_shard_unloaded(self)

    def check_invariants(self, records: Iterable[CoordinatorRecord] | None = None) -> None:
        """Assert that exactly the open transactions have a start, and the states that `records` hold."""
        ongoing = {
            name for name, each in self._transactions.items() if each.state is TransactionState.ONGOING
        }
        assert ongoing == self._ongoing.keys(), f"{ongoing} are ongoing, {self._ongoing.keys()} have a start"
        for record in records or ():
            decoded = transaction_log.decode(record)
            if decoded is not None and (current := self._transactions.get(decoded[0])) is not None:
                current.check_invariants()

    def _began(self, metadata: TransactionMetadata) -> float:
        """Return when a transaction began by the monotonic clock.

        A loaded record has the wall-clock time of another process, which is compared once. If the clock was
        set back since, the transaction begins now.
        """
        return self._clock.monotonic() - max(self._clock.time_ms() - metadata.start_ms, 0) / 1000

    def _announce(self, context: ShardContext, prepared: list[TransactionMetadata]) -> None:
        """Notify the owner of prepared transactions as soon as their records are replicated."""

        def committed(pending: Pending[None]) -> None:
            if self._context is not context:
                return
            if pending.error is not None:
                if _is_lost(pending.error):
                    return
                # The wait timed out, but the record is in the log and may still be replicated.
                context.schedule(f"announce-{prepared[0].transactional_id}", RETRY_MS, again)
                return
            for each in prepared:
                current = self._transactions.get(each.transactional_id)
                if current is not None and current.state is each.state and current.identity == each.identity:
                    self._owner.on_prepared(self, current)

        def again() -> Result[None]:
            self._announce(context, prepared)
            return NOTHING

        context.write(_nothing).add_done(committed)


def _is_lost(error: Exception) -> bool:
    """Return whether the error means that this broker lost the leadership."""
    return isinstance(error, ApiError) and error.code is ErrorCode.NOT_COORDINATOR


NOTHING: Final[Result[None]] = Result((), None)


def _nothing() -> Result[None]:
    return NOTHING

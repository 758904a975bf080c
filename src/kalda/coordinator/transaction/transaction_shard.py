"""The transactions of one partition of ``__transaction_state``.

State changes only in `replay`, so that loading and running are one path. A prepared transaction is handed to
the owner once its record is replicated, after loading as well: that is all there is to the recovery of a
half-done commit.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from kalda.common.clock import Clock
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.coordinator_shard import Result, ShardContext
from kalda.coordinator.transaction import transaction_log
from kalda.coordinator.transaction.transaction_metadata import TransactionMetadata, check_step
from kalda.coordinator.transaction.transaction_state import TransactionState
from kalda.protocol.protocol_errors import ProtocolError

logger: Final = logging.getLogger(__name__)

RETRY_MS: Final = 100
"""Pause before a record is written again that could not be."""


class ShardOwner(Protocol):
    """The coordinator, as a shard sees it."""

    def on_shard_loaded(self, shard: "TransactionShard") -> None:
        """The shard's state is complete, and this broker coordinates it."""
        ...

    def on_shard_unloaded(self, shard: "TransactionShard") -> None:
        """It is no longer coordinated here."""
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
        """When each open transaction began, in monotonic seconds: the wall clock may jump."""
        self._step: TransactionMetadata | None = None
        """The step whose record is about to be appended: it knows what the record has no field for."""
        self._context: ShardContext | None = None

    @property
    def transactions(self) -> Mapping[str, TransactionMetadata]:
        """Every transactional id of the partition."""
        return self._transactions

    def open_ms(self, transactional_id: str) -> int:
        """Return for how long the transaction of an id has been open, 0 if none is."""
        now = self._clock.monotonic()
        return round((now - self._ongoing.get(transactional_id, now)) * 1000)

    def timed_out(self) -> list[str]:
        """Return the ids whose transactions have been open for too long."""
        return [name for name in self._ongoing if self._transactions[name].is_timed_out(self.open_ms(name))]

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        """Return the state of an id, None for one that was never seen or is forgotten."""
        return self._transactions.get(transactional_id)

    def record(self, after: TransactionMetadata) -> CoordinatorRecord:
        """Return the record of a step from the present state; it must be appended in this turn, or never.

        A step that is not allowed is a bug, and none may be written.
        """
        check_step(self._transactions.get(after.transactional_id), after)
        self._step = after
        return transaction_log.encode(after, self._transaction_version())

    def write_complete(self, transactional_id: str, operation: Callable[[], Result[None]]) -> None:
        """Write a record that must be written in the end, however often the log refuses."""
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

    # What the runtime calls.

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        """Take one record in; one that cannot be read is logged and left out."""
        step, self._step = self._step, None
        try:
            decoded = transaction_log.decode(record)
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
            # The record says all that was decided: another broker would go on from the same state.
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
        """Nothing: the topic is never written in a transaction."""

    def on_loaded(self, context: ShardContext) -> None:
        """Go on with what was decided and not completed."""
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
        """Let go; whoever coordinates next goes on."""
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

        What is loaded has the time of another run, so that the wall clock decides, once. If that was set back
        since, the transaction counts as one that begins now.
        """
        return self._clock.monotonic() - max(self._clock.time_ms() - metadata.start_ms, 0) / 1000

    def _announce(self, context: ShardContext, prepared: list[TransactionMetadata]) -> None:
        """Have the markers of transactions written as soon as their records are replicated."""

        def committed(pending: Pending[None]) -> None:
            if self._context is not context:
                return
            if pending.error is not None:
                if _is_lost(pending.error):
                    return
                # A wait that was too long says nothing: the record is in the log, and counts.
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
    """Whether the leadership is gone, and with it all that was to be done."""
    return isinstance(error, ApiError) and error.code is ErrorCode.NOT_COORDINATOR


NOTHING: Final[Result[None]] = Result((), None)


def _nothing() -> Result[None]:
    return NOTHING

"""Keeps a producer's identity and state, and decides what failed batches and expired ones mean for it.

The base of `TransactionManager`, which adds the requests to coordinators. It knows the error states and the
epochs; which sequence a batch gets is in `producer_sequences`.

Invariant: `last_error` is set exactly in the two error states, so that a sender can test it without a lock.
"""

import logging
from typing import Final

from kalda.clients.errors import (
    ClientError,
    FatalTransactionError,
    IllegalStateError,
    ProducerFencedError,
    TransactionAbortableError,
    UnsupportedApiError,
)
from kalda.clients.producer.producer_identity import (
    EPOCH_MAX,
    NO_PRODUCER,
    NO_PRODUCER_ID,
    ProducerIdAndEpoch,
)
from kalda.clients.producer.producer_sequences import ProducerSequences, Retry
from kalda.clients.producer.transaction_state import TransactionState, is_transition_valid
from kalda.clients.producer.txn_partition_map import SequencedBatch
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_FATAL_CODES: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
"""Errors of batches after which the producer cannot continue."""
_State = TransactionState
_REMEDIES: Final = {
    _State.UNINITIALIZED: "call init_transactions first",
    _State.INITIALIZING: "wait until init_transactions has returned",
    _State.READY: "call begin_transaction first",
    _State.IN_TRANSACTION: "commit or abort the transaction first",
    _State.PREPARED_TRANSACTION: "complete the prepared transaction first",
    _State.COMMITTING_TRANSACTION: "wait until commit_transaction has returned",
    _State.ABORTING_TRANSACTION: "wait until abort_transaction has returned",
    _State.ABORTABLE_ERROR: "call abort_transaction first",
    _State.FATAL_ERROR: "close the producer",
}
"""The advice for a call that the state does not allow."""


class ProducerState:
    """The identity and state of one producer, transactional or only idempotent (`transactional_id` None)."""

    def __init__(self, transactional_id: str | None) -> None:
        self.transactional_id: Final = transactional_id
        self.sequences: Final = ProducerSequences()
        self.state = _State.UNINITIALIZED
        """Changed by `_transition` only."""
        self.identity = NO_PRODUCER
        """The producer's id and epoch; a partition's may lag behind until it has drained."""
        self.is_transaction_v2 = False
        """Whether the present transaction follows KIP-890; constant from begin to end."""
        self.last_error: TransactionAbortableError | FatalTransactionError | None = None
        self._epoch_bump_required = False
        self._coordinator_bumps_epochs = False
        """Whether the coordinator knows InitProducerId version 3, with which a producer raises its epoch."""

    @property
    def is_transactional(self) -> bool:
        """Whether the producer has a transactional id."""
        return self.transactional_id is not None

    @property
    def has_producer_id(self) -> bool:
        """Whether a broker gave the producer an id; without it no batch gets a sequence."""
        return self.identity.producer_id > NO_PRODUCER_ID

    @property
    def has_error(self) -> bool:
        """Whether the producer is in one of the error states."""
        return self.last_error is not None

    @property
    def has_fatal_error(self) -> bool:
        """Whether the producer can only be closed."""
        return self.state is _State.FATAL_ERROR

    @property
    def has_abortable_error(self) -> bool:
        """Whether the transaction can only be aborted."""
        return self.state is _State.ABORTABLE_ERROR

    @property
    def is_completing(self) -> bool:
        """Whether a commit or an abort is under way."""
        return self.state in (_State.COMMITTING_TRANSACTION, _State.ABORTING_TRANSACTION)

    @property
    def is_aborting(self) -> bool:
        """Whether an abort is under way: batches that were not sent are dropped."""
        return self.state is _State.ABORTING_TRANSACTION

    @property
    def has_ongoing_transaction(self) -> bool:
        """Whether closing the producer now would leave a transaction open."""
        return self.state is _State.IN_TRANSACTION or self.is_completing or self.has_abortable_error

    def fail_if_error(self) -> None:
        """Raise the error of the present error state.

        Raises:
            TransactionAbortableError: the transaction has to be aborted.
            FatalTransactionError: the producer has to be closed; `ProducerFencedError` if replaced.
        """
        error = self.last_error
        if error is not None:
            raise type(error)(str(error), error.code) from error

    # Batches.

    def handle_completed_batch(self, batch: SequencedBatch, base_offset: int) -> None:
        """Record an acknowledged batch; `base_offset` is -1 where the broker no longer knows it."""
        self.sequences.completed(batch, base_offset)

    def handle_failed_batch(
        self, batch: SequencedBatch, error: ClientError, *, adjusts_sequences: bool
    ) -> None:
        """Record a batch that failed permanently; `adjusts_sequences` if the broker did not append it."""
        self.maybe_transition_to_error_state(error)
        self.sequences.remove_in_flight(batch)
        partition = batch.topic_partition
        if self.has_fatal_error:
            return
        if error.code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.is_transactional:
            logger.error("%s: %s", partition, error)
            self._request_idempotent_epoch_bump(partition)
        elif error.code is ErrorCode.UNKNOWN_PRODUCER_ID:
            # The broker has no state of this producer and accepts sequence 0 only.
            self.sequences.forget(partition)
        elif adjusts_sequences:
            if self.is_transactional:
                self.sequences.close_gap(batch)
            else:
                self._request_idempotent_epoch_bump(partition)

    def can_retry(self, code: ErrorCode, batch: SequencedBatch, log_start_offset: int = -1) -> bool:
        """Return whether a batch is sent again after `code`; sequences are renumbered where that needs it."""
        retry = self.sequences.retry(code, batch, log_start_offset, is_transactional=self.is_transactional)
        if retry is Retry.AFTER_EPOCH_BUMP:
            self._request_idempotent_epoch_bump(batch.topic_partition)
        elif retry is Retry.FROM_SEQUENCE_0:
            self.sequences.entry(batch.topic_partition).start_sequences_at_beginning(self.identity)
        return retry is not Retry.NO

    def maybe_transition_to_error_state(self, error: ClientError) -> None:
        """Go to the error state that follows from a failed batch; an idempotent producer mostly continues."""
        if error.code is ErrorCode.PRODUCER_FENCED:
            self._become_fenced(error)
        elif error.code in _FATAL_CODES or isinstance(error, UnsupportedApiError | FatalTransactionError):
            self._become_fatal(str(error), error.code, error)
        elif self.is_transactional:
            if self._bumps_epoch_itself and not self.is_completing:
                self._epoch_bump_required = True
            self._become_abortable(str(error), error.code, error)

    def maybe_update_identity(self, partition: TopicPartition) -> None:
        """Give a drained partition the producer's present identity; its sequences start again at 0."""
        if self.has_fatal_error:
            return
        entry = self.sequences.entry(partition)
        if entry.identity != self.identity and not entry.has_in_flight:
            entry.start_sequences_at_beginning(self.identity)

    def maybe_resolve_sequences(self) -> None:
        """Continue, or give up, where batches expired whose outcome is unknown; called before each drain."""
        for partition in self.sequences.resolve():
            what = (
                f"records for {partition} expired that had been sent but not acknowledged; "
                "whether the broker has them is unknown"
            )
            if not self.is_transactional:
                logger.info("%s: the producer's epoch is raised", what)
                self._request_idempotent_epoch_bump(partition)
            elif self._can_continue_after_abort:
                self._epoch_bump_required |= self._bumps_epoch_itself
                self._become_abortable(what, None, None)
            else:
                self._become_fatal(what, None, None)

    def _request_idempotent_epoch_bump(self, partition: TopicPartition) -> None:
        self._epoch_bump_required = True
        self.sequences.rewrite_with_next_epoch(partition)

    def _bump_idempotent_epoch(self) -> None:
        if self.identity.epoch == EPOCH_MAX:
            self._set_identity(NO_PRODUCER)
            self._transition(_State.UNINITIALIZED)
        else:
            self._set_identity(ProducerIdAndEpoch(self.identity.producer_id, self.identity.epoch + 1))
        self.sequences.epoch_raised(self.identity)
        self._epoch_bump_required = False

    # States.

    @property
    def _bumps_epoch_itself(self) -> bool:
        """Whether the producer raises its epoch by InitProducerId after an abort; in V2 EndTxn does it."""
        return self._coordinator_bumps_epochs and not self.is_transaction_v2

    @property
    def _can_continue_after_abort(self) -> bool:
        """Whether lost batches of an aborted transaction can be fenced off by another epoch."""
        return self._coordinator_bumps_epochs or self.is_transaction_v2

    def _set_identity(self, identity: ProducerIdAndEpoch) -> None:
        is_routine = self.is_transaction_v2 and identity.producer_id == self.identity.producer_id
        level = logging.DEBUG if is_routine else logging.INFO
        logger.log(level, "%sthe producer has %s", self._prefix, identity)
        self.identity = identity

    @property
    def _prefix(self) -> str:
        return "" if self.transactional_id is None else f"transactional id {self.transactional_id}: "

    def _require(self, operation: str, target: TransactionState) -> None:
        """Refuse a call of the API that the state does not allow."""
        if not is_transition_valid(self.state, target):
            raise self._illegal(operation, _REMEDIES[self.state])

    def _illegal(self, operation: str, remedy: str) -> IllegalStateError:
        return IllegalStateError(f"{self._prefix}{operation} in state {self.state.name}: {remedy}")

    def _transition(self, target: TransactionState) -> None:
        assert is_transition_valid(self.state, target), f"no way from {self.state} to {target}"
        logger.debug("%s%s follows %s", self._prefix, target.name, self.state.name)
        self.state = target
        self.last_error = None

    def _become_abortable(self, what: str, code: ErrorCode | None, cause: Exception | None) -> None:
        if self.state is _State.ABORTING_TRANSACTION or self.has_fatal_error:
            return
        error = TransactionAbortableError(
            f"{self._prefix}the transaction cannot be committed: {what}; call abort_transaction", code
        )
        if self.state is _State.ABORTABLE_ERROR:
            # What follows from the first failure would hide it.
            logger.info("%s", error)
            return
        error.__cause__ = cause
        logger.info("%s", error)
        self._transition(_State.ABORTABLE_ERROR)
        self.last_error = error

    def _become_fatal(self, what: str, code: ErrorCode | None, cause: Exception | None) -> None:
        self._enter_fatal(
            FatalTransactionError(
                f"{self._prefix}the producer cannot continue: {what}; close it and create another", code
            ),
            cause,
        )

    def _become_fenced(self, cause: Exception) -> None:
        self._enter_fatal(
            ProducerFencedError(
                f"{self._prefix}another producer uses the transactional id, or the coordinator ended the "
                f"transaction after its time-out ({self.identity} is fenced); close this producer",
                ErrorCode.PRODUCER_FENCED,
            ),
            cause,
        )

    def _enter_fatal(self, error: FatalTransactionError, cause: Exception | None) -> None:
        if self.has_fatal_error:
            return
        error.__cause__ = cause
        logger.error("%s", error)
        self._transition(_State.FATAL_ERROR)
        self.last_error = error
        self._on_fatal(error)

    def _on_fatal(self, error: FatalTransactionError) -> None:
        """Called once, when the state becomes FATAL_ERROR."""

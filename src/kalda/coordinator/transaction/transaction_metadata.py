"""Defines the state of one transactional id, and its transitions.

A `TransactionMetadata` is immutable; each step returns the next one, which is written to
``__transaction_state``. A record is appended and replayed in one turn of the loop, so Kafka's pending states
do not exist: the next step already sees this one, and its response waits until both are replicated.

What must not break: (id, epoch) never goes back, and a prepared state is followed only by the matching
complete state. `check_step` asserts this for every step that is written.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.transaction_state import VALID_PREVIOUS, TransactionState
from kalda.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, PRODUCER_EPOCH_MAX

EPOCH_MAX: Final = PRODUCER_EPOCH_MAX
TIMEOUT_NEVER: Final = 2**31 - 1
"""The timeout of a producer in a two-phase commit (KIP-939): only its owner ends the transaction."""
EPOCH_BUMP_FROM: Final = 2
"""The transaction version from which every end raises the epoch (KIP-890, part 2)."""
NO_TIME: Final = -1


@dataclass(frozen=True, slots=True)
class Identity:
    """A producer id and the epoch that goes with it."""

    producer_id: int
    epoch: int

    @property
    def is_exhausted(self) -> bool:
        """Whether the producer gets no higher epoch: the highest one is reserved for fencing it."""
        return self.epoch >= EPOCH_MAX - 1


NO_IDENTITY: Final = Identity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    """When the first partition was added; -1 before the first transaction."""
    update_ms: int = NO_TIME
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The previous epoch, if the producer raised it itself: it may retry (KIP-360). Not written."""
    previous_producer_id: int = NO_PRODUCER_ID
    """The producer id before this step, so that a producer whose epoch was exhausted may retry."""
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id after the transaction is complete; -1: the same id."""
    next_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch of `next_producer_id`. While ongoing: of the producer that took over (KIP-939)."""
    client_version: int = 0
    """The transaction version of the last end."""

    @property
    def identity(self) -> Identity:
        """The producer whose batches are in the transaction."""
        return Identity(self.producer_id, self.producer_epoch)

    @property
    def next_identity(self) -> Identity | None:
        """The producer that took the transaction over, or continues after its end; None: the same."""
        if self.next_producer_id == NO_PRODUCER_ID:
            return None
        # Kafka writes no epoch for an id that follows an exhausted one: the epoch is 0.
        return Identity(self.next_producer_id, max(self.next_producer_epoch, 0))

    @property
    def owner(self) -> Identity:
        """The last identity that a producer was given."""
        return self.next_identity or self.identity

    @property
    def raises_epochs(self) -> bool:
        """Whether the last end raised the epoch."""
        return self.client_version >= EPOCH_BUMP_FROM

    @property
    def is_commit(self) -> bool:
        """Whether the decision is to commit."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    def is_timed_out(self, open_ms: int) -> bool:
        """Return whether a transaction that has been open for `open_ms` has timed out."""
        return (
            self.state is TransactionState.ONGOING
            and self.timeout_ms != TIMEOUT_NEVER
            and self.timeout_ms < open_ms
        )

    def is_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Return whether the id was idle for `expiration_ms`."""
        return self.state.may_expire and self.update_ms <= now_ms - expiration_ms

    def check_invariants(self) -> None:
        """Assert what holds in every state, whichever broker has written it."""
        is_open = self.state is TransactionState.ONGOING or self.state.is_prepared
        assert is_open or not self.partitions, f"{self} is closed and has partitions"
        assert not is_open or self.start_ms >= 0, f"{self} is open and has no start"
        assert self.update_ms >= 0, f"{self} was written at no time"
        assert is_open or self.next_identity is None, f"{self} is closed and has a next producer id"

    # The steps.

    def begun(
        self, identity: Identity, last_epoch: int, timeout_ms: int, now_ms: int
    ) -> "TransactionMetadata":
        """Return the state after a producer starts with an identity."""
        return TransactionMetadata(
            self.transactional_id,
            identity.producer_id,
            identity.epoch,
            timeout_ms,
            TransactionState.EMPTY,
            update_ms=now_ms,
            last_producer_epoch=last_epoch,
            previous_producer_id=self.producer_id,
        )

    def with_partitions(
        self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int
    ) -> "TransactionMetadata":
        """Return the state with more partitions; the first one begins the transaction."""
        is_first = self.state is not TransactionState.ONGOING
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=self.partitions.union(partitions),
            start_ms=now_ms if is_first else self.start_ms,
            update_ms=now_ms,
            client_version=client_version,
            previous_producer_id=self.producer_id,
        )

    def taken_over(self, identity: Identity, timeout_ms: int, now_ms: int) -> "TransactionMetadata":
        """Return the state after another producer took the open transaction over (KIP-939)."""
        return replace(
            self,
            previous_producer_id=self.producer_id,
            next_producer_id=identity.producer_id,
            next_producer_epoch=_written_epoch(identity),
            timeout_ms=timeout_ms,
            update_ms=now_ms,
        )

    def fenced(self, transaction_version: int, now_ms: int) -> "TransactionMetadata":
        """Return the state that aborts a transaction and fences its producer with a higher epoch.

        Where every end raises the epoch, the producer can still get that epoch, if no other producer begins
        before: then its transaction has ended as if it had requested the abort.
        """
        assert self.producer_epoch < EPOCH_MAX, f"{self.transactional_id} cannot be fenced at {EPOCH_MAX}"
        # A producer that took the transaction over is fenced as well, by an epoch above its own.
        taken = self.next_identity
        successor = None if taken is None else Identity(taken.producer_id, taken.epoch + 1)
        raises = transaction_version >= EPOCH_BUMP_FROM
        return replace(
            self,
            state=TransactionState.PREPARE_ABORT,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.owner.epoch if raises else NO_PRODUCER_EPOCH,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID if successor is None else successor.producer_id,
            next_producer_epoch=NO_PRODUCER_EPOCH if successor is None else _written_epoch(successor),
            update_ms=now_ms,
            client_version=transaction_version,
        )

    def ended(
        self, *, is_commit: bool, client_version: int, new_producer_id: int, now_ms: int
    ) -> "TransactionMetadata":
        """Return the state after the decision to commit or abort; in version 2 it has the next epoch.

        `new_producer_id` follows if the owner's epoch is exhausted.
        """
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        successor = self.next_identity
        if client_version >= EPOCH_BUMP_FROM:
            epoch, last_epoch = epoch + 1, self.owner.epoch
            if self.owner.is_exhausted:
                successor = Identity(new_producer_id, 0)
            elif successor is not None:
                successor = Identity(successor.producer_id, successor.epoch + 1)
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        return replace(
            self,
            state=state,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID if successor is None else successor.producer_id,
            next_producer_epoch=NO_PRODUCER_EPOCH if successor is None else _written_epoch(successor),
            start_ms=self.start_ms if self.state is TransactionState.ONGOING else now_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> "TransactionMetadata":
        """Return the state after all markers are written."""
        owner = self.owner
        return replace(
            self,
            state=(
                TransactionState.COMPLETE_COMMIT
                if self.state is TransactionState.PREPARE_COMMIT
                else TransactionState.COMPLETE_ABORT
            ),
            partitions=frozenset(),
            producer_id=owner.producer_id,
            producer_epoch=owner.epoch,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            next_producer_epoch=NO_PRODUCER_EPOCH,
            update_ms=now_ms,
        )


def _written_epoch(identity: Identity) -> int:
    """Return the epoch to write: Kafka writes none for an id that begins at epoch 0."""
    return identity.epoch or NO_PRODUCER_EPOCH


def check_step(before: TransactionMetadata | None, after: TransactionMetadata) -> None:
    """Assert that `after` may follow `before`: no wrong step may be written."""
    assert after.producer_id >= 0, f"{after} has no producer id"
    assert 0 <= after.producer_epoch <= EPOCH_MAX, f"{after} has an epoch that does not exist"
    if before is None:
        assert after.state is TransactionState.EMPTY, f"an id begins empty, not as {after}"
        return
    assert before.state in VALID_PREVIOUS[after.state], f"{after} cannot follow {before}"
    if after.producer_id == before.producer_id:
        assert after.producer_epoch >= before.producer_epoch, f"the epoch goes back from {before} to {after}"
    if after.state is TransactionState.ONGOING or after.state.is_prepared:
        assert after.partitions >= before.partitions, f"{after} has lost partitions of {before}"
        if before.state is TransactionState.ONGOING:
            assert after.start_ms == before.start_ms, f"{after} began at another time than {before}"
    else:
        assert not after.partitions, f"{after} is closed and has partitions"

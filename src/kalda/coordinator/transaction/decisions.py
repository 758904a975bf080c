"""Decides the requests to the transaction coordinator: pure functions of the state and the request.

A `Decision` is an error, a response without a change, a step to write, or the request for a new producer id.
Codes are those of Kafka 4.1; handlers convert them for older versions of a request.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.transaction_metadata import (
    EPOCH_BUMP_FROM,
    EPOCH_MAX,
    NO_IDENTITY,
    Identity,
    TransactionMetadata,
)
from kalda.coordinator.transaction.transaction_state import TransactionState
from kalda.records.batch import NO_PRODUCER_EPOCH

NO_NEW_ID: Final = -1


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision on a request: write `after`, if set, and respond when it is replicated."""

    code: ErrorCode = ErrorCode.NONE
    after: TransactionMetadata | None = None
    identity: Identity = NO_IDENTITY
    """The identity with which the producer continues."""
    ongoing: Identity = NO_IDENTITY
    """The producer whose transaction was kept open (KIP-939)."""
    needs_producer_id: bool = False
    """Whether the decision must be repeated with a new producer id."""


NEEDS_PRODUCER_ID: Final = Decision(needs_producer_id=True)


@dataclass(frozen=True, slots=True)
class Begin:
    """An InitProducerId with a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: Identity | None = None
    """The identity that the producer sends if it continues after an error (KIP-360)."""
    keeps_prepared: bool = False
    """Whether an open transaction stays open, for this producer to end (KIP-939)."""


def begin(
    current: TransactionMetadata | None,
    request: Begin,
    *,
    new_producer_id: int,
    now_ms: int,
    transaction_version: int = EPOCH_BUMP_FROM,
) -> Decision:
    """Give a producer its identity; first abort an open transaction, unless it is kept.

    `transaction_version` is the finalised level.
    """
    if current is None:
        if new_producer_id == NO_NEW_ID:
            return NEEDS_PRODUCER_ID
        blank = TransactionMetadata(
            request.transactional_id,
            new_producer_id,
            NO_PRODUCER_EPOCH,
            request.timeout_ms,
            TransactionState.EMPTY,
        )
        identity = Identity(new_producer_id, 0)
        after = blank.begun(identity, NO_PRODUCER_EPOCH, request.timeout_ms, now_ms)
        return Decision(after=after, identity=identity)
    expected = request.expected
    if expected is not None and not _is_plausible(current, expected):
        return Decision(ErrorCode.PRODUCER_FENCED)
    if current.state.is_prepared:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TransactionState.ONGOING:
        if request.keeps_prepared:
            if expected not in (None, current.owner):
                # A producer of an earlier epoch must not take the transaction from its owner.
                return Decision(ErrorCode.PRODUCER_FENCED)
            return _take_over(current, request, new_producer_id, now_ms)
        if current.next_identity is not None and expected not in (None, current.owner):
            # The producer before the takeover must not abort the transaction.
            return Decision(ErrorCode.PRODUCER_FENCED)
        # The producer retries until the abort is complete.
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS, current.fenced(transaction_version, now_ms))
    if _needs_new_id(current, expected):
        if new_producer_id == NO_NEW_ID:
            return NEEDS_PRODUCER_ID
        identity = Identity(new_producer_id, 0)
        last_epoch = NO_PRODUCER_EPOCH if expected is None else current.producer_epoch
        return Decision(
            after=current.begun(identity, last_epoch, request.timeout_ms, now_ms), identity=identity
        )
    return _raise_epoch(current, request, now_ms)


def _is_plausible(current: TransactionMetadata, expected: Identity) -> bool:
    """Return whether the producer's id is the current one, or the previous one after a lost response."""
    return expected.producer_id == current.owner.producer_id or (
        expected.producer_id == current.previous_producer_id and expected.is_exhausted
    )


def _needs_new_id(current: TransactionMetadata, expected: Identity | None) -> bool:
    """Return whether epochs are exhausted, and this is not a retry of the last one."""
    if not current.identity.is_exhausted:
        return False
    if expected is None or expected == current.identity:
        return True
    # The highest epoch has fenced the producer, and no producer gets it.
    return current.producer_epoch == EPOCH_MAX and expected.epoch == current.last_producer_epoch


def _raise_epoch(current: TransactionMetadata, request: Begin, now_ms: int) -> Decision:
    expected, epoch = request.expected, current.producer_epoch
    if expected is None:
        raised, last_epoch = epoch + 1, NO_PRODUCER_EPOCH
    elif expected.epoch == epoch:
        raised, last_epoch = epoch + 1, epoch
    elif expected.epoch == current.last_producer_epoch:
        # A retry after a lost response; if another producer had begun, the last epoch would be -1.
        raised, last_epoch = epoch, current.last_producer_epoch
    else:
        return Decision(ErrorCode.PRODUCER_FENCED)
    identity = Identity(current.producer_id, raised)
    return Decision(after=current.begun(identity, last_epoch, request.timeout_ms, now_ms), identity=identity)


def _take_over(current: TransactionMetadata, request: Begin, new_producer_id: int, now_ms: int) -> Decision:
    """Keep the transaction open, to be ended by this producer only."""
    owner = current.owner
    if owner.is_exhausted:
        if new_producer_id == NO_NEW_ID:
            return NEEDS_PRODUCER_ID
        identity = Identity(new_producer_id, 0)
    else:
        identity = Identity(owner.producer_id, owner.epoch + 1)
    after = current.taken_over(identity, request.timeout_ms, now_ms)
    return Decision(after=after, identity=identity, ongoing=current.identity)


def check_producer(current: TransactionMetadata | None, producer: Identity) -> ErrorCode:
    """Return the error for a producer that claims the transaction, or NONE."""
    if current is None or current.owner.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.owner.epoch != producer.epoch or producer.epoch == EPOCH_MAX:
        # The highest epoch fences producers; a transaction with it could not be fenced any more.
        return ErrorCode.PRODUCER_FENCED
    return ErrorCode.NONE


def add_partitions(
    current: TransactionMetadata | None,
    producer: Identity,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> Decision:
    """Add partitions to the transaction; the first one begins it."""
    code = check_producer(current, producer)
    if code is not ErrorCode.NONE:
        return Decision(code)
    assert current is not None, "a producer without an id was refused"
    if current.state.is_prepared:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TransactionState.ONGOING:
        if current.next_identity is not None:
            # A transaction that was taken over may only be ended (KIP-939).
            return Decision(ErrorCode.INVALID_TXN_STATE)
        if current.partitions.issuperset(partitions):
            return Decision()
    return Decision(after=current.with_partitions(partitions, client_version, now_ms))


def verify_partitions(
    current: TransactionMetadata | None, producer: Identity, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Return for each partition whether it is in the producer's transaction (KIP-890, part 1)."""
    code = check_producer(current, producer)
    if code is ErrorCode.NONE:
        assert current is not None, "a producer without an id was refused"
        if current.state.is_prepared:
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif current.next_identity is not None:
            code = ErrorCode.INVALID_TXN_STATE
    if code is not ErrorCode.NONE:
        return dict.fromkeys(partitions, code)
    assert current is not None, "a producer without an id was refused"
    return {
        each: ErrorCode.NONE if each in current.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for each in partitions
    }


def end(
    current: TransactionMetadata | None,
    producer: Identity,
    *,
    is_commit: bool,
    client_version: int,
    new_producer_id: int,
    now_ms: int,
) -> Decision:
    """Commit or abort, as the producer requests."""
    if current is None:
        return Decision(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    raises_epochs = client_version >= EPOCH_BUMP_FROM
    is_retry = raises_epochs and _is_retry(current, producer)
    if not is_retry:
        code = check_producer(current, producer)
        if code is not ErrorCode.NONE:
            return Decision(code)
    state = current.state
    if state.is_prepared:
        # A retry of the same end, or in version 2 the end of the next transaction. Both are decided when this
        # transaction is complete, and clients retry until then.
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state is not TransactionState.ONGOING:
        if state.is_complete and current.is_commit == is_commit and (is_retry or not raises_epochs):
            return Decision(identity=current.owner)
        # In version 2 an abort needs no transaction: the coordinator may not have seen its partitions.
        if is_retry or is_commit or not raises_epochs:
            return Decision(ErrorCode.INVALID_TXN_STATE)
    if raises_epochs and current.owner.is_exhausted and new_producer_id == NO_NEW_ID:
        return NEEDS_PRODUCER_ID
    after = current.ended(
        is_commit=is_commit, client_version=client_version, new_producer_id=new_producer_id, now_ms=now_ms
    )
    return Decision(after=after, identity=after.owner)


def _is_retry(current: TransactionMetadata, producer: Identity) -> bool:
    """Return whether a producer retries an end that raised its epoch, after a lost response."""
    if not current.raises_epochs or not (current.state.is_prepared or current.state.is_complete):
        return False
    owner = current.owner
    if owner.producer_id == producer.producer_id:
        return owner.epoch == producer.epoch + 1 and owner.epoch < EPOCH_MAX
    replaced = current.producer_id if current.state.is_prepared else current.previous_producer_id
    return owner.epoch == 0 and producer.producer_id == replaced and producer.is_exhausted


def time_out(
    current: TransactionMetadata | None,
    *,
    open_ms: int,
    now_ms: int,
    transaction_version: int = EPOCH_BUMP_FROM,
) -> Decision:
    """Abort a transaction that has timed out, and fence its producer."""
    if current is None or not current.is_timed_out(open_ms) or current.producer_epoch >= EPOCH_MAX:
        return Decision()
    return Decision(after=current.fenced(transaction_version, now_ms))


def complete(current: TransactionMetadata | None, prepared: TransactionMetadata, *, now_ms: int) -> Decision:
    """Complete `prepared`, whose markers are written; an error if the transaction is another one."""
    if (
        current is None
        or current.state is not prepared.state
        or current.identity != prepared.identity
        or not current.state.is_prepared
    ):
        return Decision(ErrorCode.INVALID_TXN_STATE)
    return Decision(after=current.completed(now_ms))

"""What each request to the transaction coordinator leads to: pure functions of the state and the request.

A `Decision` is a refusal, an answer that changes nothing, a step to write, or the word that a new producer id
is needed to decide. Codes are those of Kafka 4.1; handlers translate them for versions that know less.
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
    """What to do: write `after` if there is one, and answer once that is replicated."""

    code: ErrorCode = ErrorCode.NONE
    after: TransactionMetadata | None = None
    identity: Identity = NO_IDENTITY
    """What the producer is told to go on with."""
    ongoing: Identity = NO_IDENTITY
    """Whose transaction was kept open for the producer (KIP-939)."""
    needs_producer_id: bool = False
    """Nothing can be decided without a new id; ask again with one."""


NEEDS_PRODUCER_ID: Final = Decision(needs_producer_id=True)


@dataclass(frozen=True, slots=True)
class Begin:
    """An InitProducerId with a transactional id."""

    transactional_id: str
    timeout_ms: int
    expected: Identity | None = None
    """What the producer believes to be, if it goes on after an error (KIP-360)."""
    keeps_prepared: bool = False
    """Whether a transaction that is open stays so, for this producer to end (KIP-939)."""


def begin(
    current: TransactionMetadata | None,
    request: Begin,
    *,
    new_producer_id: int,
    now_ms: int,
    transaction_version: int = EPOCH_BUMP_FROM,
) -> Decision:
    """Give a producer its identity; a transaction that was left open is aborted first, unless it is kept.

    `transaction_version` is the level that is finalised.
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
            return _take_over(current, request, new_producer_id, now_ms)
        if current.next_identity is not None and expected not in (None, current.owner):
            # Whoever had it before it was taken over must not abort what others count on.
            return Decision(ErrorCode.PRODUCER_FENCED)
        # The producer asks again until the abort is complete.
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
    """Whether the id that a producer believes to have is its own, or the one before a change it missed."""
    return expected.producer_id == current.owner.producer_id or (
        expected.producer_id == current.previous_producer_id and expected.is_exhausted
    )


def _needs_new_id(current: TransactionMetadata, expected: Identity | None) -> bool:
    """Whether the epochs are used up, and the producer is not one that only lost the answer to the last."""
    if not current.identity.is_exhausted:
        return False
    if expected is None or expected == current.identity:
        return True
    # The last epoch of all shut the producer out, and is never given to one.
    return current.producer_epoch == EPOCH_MAX and expected.epoch == current.last_producer_epoch


def _raise_epoch(current: TransactionMetadata, request: Begin, now_ms: int) -> Decision:
    expected, epoch = request.expected, current.producer_epoch
    if expected is None:
        raised, last_epoch = epoch + 1, NO_PRODUCER_EPOCH
    elif expected.epoch == epoch:
        raised, last_epoch = epoch + 1, epoch
    elif expected.epoch == current.last_producer_epoch:
        # It asks again, since the answer was lost; nobody else began, or the last epoch would be -1.
        raised, last_epoch = epoch, current.last_producer_epoch
    else:
        return Decision(ErrorCode.PRODUCER_FENCED)
    identity = Identity(current.producer_id, raised)
    return Decision(after=current.begun(identity, last_epoch, request.timeout_ms, now_ms), identity=identity)


def _take_over(current: TransactionMetadata, request: Begin, new_producer_id: int, now_ms: int) -> Decision:
    """Keep the transaction open and let this producer, and no other, end it."""
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
    """Tell what is wrong with a producer that says it is in a transaction."""
    if current is None or current.owner.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if current.owner.epoch != producer.epoch or producer.epoch == EPOCH_MAX:
        # The highest epoch shuts producers out; a transaction under it could never be ended for its producer.
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
    """Take partitions into the transaction, which begins with the first."""
    code = check_producer(current, producer)
    if code is not ErrorCode.NONE:
        return Decision(code)
    assert current is not None, "a producer without an id was refused"
    if current.state.is_prepared:
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if current.state is TransactionState.ONGOING:
        if current.next_identity is not None:
            # What was prepared may only be ended (KIP-939).
            return Decision(ErrorCode.INVALID_TXN_STATE)
        if current.partitions.issuperset(partitions):
            return Decision()
    return Decision(after=current.with_partitions(partitions, client_version, now_ms))


def verify_partitions(
    current: TransactionMetadata | None, producer: Identity, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Tell for each partition whether it is in the producer's transaction (KIP-890, part 1)."""
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
    """Decide the outcome, as the producer asks."""
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
        # Either the same end, asked for again, or with epochs that grow the end of the next transaction. Both
        # are decided once this one is complete, and clients retry until then.
        return Decision(ErrorCode.CONCURRENT_TRANSACTIONS)
    if state is not TransactionState.ONGOING:
        if state.is_complete and current.is_commit == is_commit and (is_retry or not raises_epochs):
            return Decision(identity=current.owner)
        # With epochs that grow, an abort need not have a transaction: what was written may be unknown here.
        if is_retry or is_commit or not raises_epochs:
            return Decision(ErrorCode.INVALID_TXN_STATE)
    if raises_epochs and current.owner.is_exhausted and new_producer_id == NO_NEW_ID:
        return NEEDS_PRODUCER_ID
    after = current.ended(
        is_commit=is_commit, client_version=client_version, new_producer_id=new_producer_id, now_ms=now_ms
    )
    return Decision(after=after, identity=after.owner)


def _is_retry(current: TransactionMetadata, producer: Identity) -> bool:
    """Whether a producer asks for an end again that raised its epoch, and whose answer it never got."""
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
    """Abort a transaction that has been open for too long, and fence its producer."""
    if current is None or not current.is_timed_out(open_ms) or current.producer_epoch >= EPOCH_MAX:
        return Decision()
    return Decision(after=current.fenced(transaction_version, now_ms))


def complete(current: TransactionMetadata | None, prepared: TransactionMetadata, *, now_ms: int) -> Decision:
    """Note that every marker of `prepared` is written; nothing if the transaction is no longer that one."""
    if (
        current is None
        or current.state is not prepared.state
        or current.identity != prepared.identity
        or not current.state.is_prepared
    ):
        return Decision(ErrorCode.INVALID_TXN_STATE)
    return Decision(after=current.completed(now_ms))

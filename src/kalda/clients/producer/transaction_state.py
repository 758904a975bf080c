"""Defines the states of the transaction manager and which state may follow which.

The table is the whole rule; nothing else decides whether a transition is allowed. FATAL_ERROR has no way out:
the producer has to be closed.
"""

from enum import Enum, auto
from typing import Final


class TransactionState(Enum):
    """Where a producer is between `init_transactions` and its end."""

    UNINITIALIZED = auto()
    """Without a producer id."""
    INITIALIZING = auto()
    """InitProducerId is pending or in flight."""
    READY = auto()
    """With a producer id, outside a transaction."""
    IN_TRANSACTION = auto()
    PREPARED_TRANSACTION = auto()
    """The first phase of a two-phase commit is done; nothing but the end is allowed (KIP-939)."""
    COMMITTING_TRANSACTION = auto()
    ABORTING_TRANSACTION = auto()
    ABORTABLE_ERROR = auto()
    """The transaction cannot be committed; after an abort the producer can continue (KIP-1050)."""
    FATAL_ERROR = auto()
    """The producer cannot continue."""


_State = TransactionState
_PREDECESSORS: Final[dict[TransactionState, frozenset[TransactionState]]] = {
    _State.UNINITIALIZED: frozenset({_State.INITIALIZING, _State.READY}),
    _State.INITIALIZING: frozenset(
        {_State.UNINITIALIZED, _State.COMMITTING_TRANSACTION, _State.ABORTING_TRANSACTION}
    ),
    _State.READY: frozenset(
        {_State.INITIALIZING, _State.COMMITTING_TRANSACTION, _State.ABORTING_TRANSACTION}
    ),
    _State.IN_TRANSACTION: frozenset({_State.READY}),
    _State.PREPARED_TRANSACTION: frozenset({_State.IN_TRANSACTION, _State.INITIALIZING}),
    _State.COMMITTING_TRANSACTION: frozenset({_State.IN_TRANSACTION, _State.PREPARED_TRANSACTION}),
    _State.ABORTING_TRANSACTION: frozenset(
        {_State.IN_TRANSACTION, _State.PREPARED_TRANSACTION, _State.ABORTABLE_ERROR}
    ),
    _State.ABORTABLE_ERROR: frozenset(
        {
            _State.INITIALIZING,
            _State.IN_TRANSACTION,
            _State.COMMITTING_TRANSACTION,
            _State.ABORTABLE_ERROR,
        }
    ),
    _State.FATAL_ERROR: frozenset(_State),
}


def is_transition_valid(source: TransactionState, target: TransactionState) -> bool:
    """Return whether the manager may go from one state to another."""
    return source in _PREDECESSORS[target]

"""Defines the states of a transaction, with Kafka's numbers and the names in its tools."""

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The state of a transactional id; the numbers are those in ``__transaction_state``."""

    EMPTY = 0
    """The producer has begun no transaction."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """The commit is decided and cannot be taken back; its markers are being written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id has expired and its record is about to be deleted. Never written."""
    PREPARE_EPOCH_FENCE = 7
    """The producer is about to be fenced. Never written: here the same step aborts."""

    @property
    def title(self) -> str:
        """The name in Kafka's tools, e.g. ``PrepareCommit``."""
        return _TITLES[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and some markers are not written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Whether the last transaction has ended."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def may_expire(self) -> bool:
        """Whether an idle id may expire in this state."""
        return self is TransactionState.EMPTY or self.is_complete


_TITLES: Final = {
    state: "".join(word.capitalize() for word in state.name.split("_")) for state in TransactionState
}

STATES_BY_TITLE: Final = {title: state for state, title in _TITLES.items()}

VALID_PREVIOUS: Final = {
    TransactionState.EMPTY: frozenset(
        (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    ),
    TransactionState.ONGOING: frozenset(
        (
            TransactionState.ONGOING,
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )
    ),
    TransactionState.PREPARE_COMMIT: frozenset((TransactionState.ONGOING,)),
    TransactionState.PREPARE_ABORT: frozenset(
        (
            TransactionState.ONGOING,
            TransactionState.PREPARE_EPOCH_FENCE,
            # In version 2 a producer may abort a transaction that the coordinator has not seen.
            TransactionState.EMPTY,
            TransactionState.COMPLETE_COMMIT,
            TransactionState.COMPLETE_ABORT,
        )
    ),
    TransactionState.COMPLETE_COMMIT: frozenset((TransactionState.PREPARE_COMMIT,)),
    TransactionState.COMPLETE_ABORT: frozenset((TransactionState.PREPARE_ABORT,)),
    TransactionState.DEAD: frozenset(
        (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    ),
    TransactionState.PREPARE_EPOCH_FENCE: frozenset((TransactionState.ONGOING,)),
}
"""The states from which each state can be reached."""

"""The states of a transaction, with the numbers and names that Kafka writes and shows."""

from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """Where a transactional id stands; the numbers are those in ``__transaction_state``."""

    EMPTY = 0
    """Nothing was written since the producer began."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided; the markers are on their way. There is no way back from here."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    """Expired: the id's record is about to be deleted. Never written."""
    PREPARE_EPOCH_FENCE = 7
    """The producer is about to be fenced. Never written: here the abort follows in the same step."""

    @property
    def title(self) -> str:
        """The name in Kafka's tools, e.g. ``PrepareCommit``."""
        return _TITLES[self]

    @property
    def is_prepared(self) -> bool:
        """Whether the outcome is decided and its markers are not all written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        """Whether the last transaction has ended."""
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def may_expire(self) -> bool:
        """Whether an id that was idle for long may be forgotten in this state."""
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
            # With epochs that grow at every end, a producer aborts what it never told the coordinator of.
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
"""From which states each can be reached."""

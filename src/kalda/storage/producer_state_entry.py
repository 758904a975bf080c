"""Keeps the state of one producer in one log: its epoch, its last five batches, its open transaction."""

from collections import deque
from typing import Final, NamedTuple

from kalda.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

# As many batches as an idempotent producer may have in flight: each of them may come again (KIP-98).
BATCHES_MAX: Final = 5
NO_TRANSACTION: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1


class BatchMetadata(NamedTuple):
    """A batch that was appended: enough to answer its duplicate."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """The sequence number of the first record; numbers wrap from 2147483647 to 0."""
        return decrement_sequence(self.last_sequence, self.offset_delta)

    @property
    def first_offset(self) -> int:
        """The offset of the first record."""
        return self.last_offset - self.offset_delta


def decrement_sequence(sequence: int, decrement: int) -> int:
    """Go back in sequence numbers: 0 follows 2147483647, so ``decrement_sequence(1, 3)`` is 2147483646."""
    return sequence - decrement if sequence >= decrement else SEQUENCE_MAX - (decrement - sequence) + 1


def is_next_sequence(last: int, following: int) -> bool:
    """Return whether `following` comes right after `last`."""
    return following == last + 1 or (following == 0 and last == SEQUENCE_MAX)


_NOWHERE: Final = 2**63 - 1
"""Above every offset."""


class ProducerStateEntry:
    """One producer in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_timestamp",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        coordinator_epoch: int = -1,
        last_timestamp: int = NO_TIMESTAMP,
        current_transaction_first_offset: int = NO_TRANSACTION,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.coordinator_epoch = coordinator_epoch
        self.last_timestamp = last_timestamp
        # First offset of the open transaction, -1 without one.
        self.current_transaction_first_offset = current_transaction_first_offset
        # The last batches of the current epoch, oldest first.
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_MAX)

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record, -1 if the epoch has none."""
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        """Offset of the last record, -1 if the epoch has none."""
        return self.batches[-1].last_offset if self.batches else -1

    @property
    def last_offset_delta(self) -> int:
        """Offset delta of the last batch, 0 if the epoch has none."""
        return self.batches[-1].offset_delta if self.batches else 0

    def find_duplicate(self, epoch: int, first_sequence: int, last_sequence: int) -> BatchMetadata | None:
        """Return the remembered batch with exactly these sequence numbers, unless its transaction is over.

        A producer that was told that a batch was not appended, as when a leader loses its place, may give its
        sequence numbers to other records after it aborted. If the batch is in the log all the same, those are
        no duplicates of it: to say so would lose them.
        """
        if epoch != self.producer_epoch:
            return None
        oldest = self._oldest_repeatable_offset
        for batch in self.batches:
            if (
                batch.last_sequence == last_sequence
                and batch.first_sequence == first_sequence
                and batch.last_offset >= oldest
            ):
                return batch
        return None

    @property
    def _oldest_repeatable_offset(self) -> int:
        """Where the batches begin that may still be sent again: all of them before the first marker."""
        if self.coordinator_epoch < 0:
            return 0
        first = self.current_transaction_first_offset
        return first if first != NO_TRANSACTION else _NOWHERE

    def set_epoch(self, epoch: int) -> None:
        """Begin a new epoch, which knows nothing of the old one's batches."""
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.batches.clear()

    def add_batch(
        self, epoch: int, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
    ) -> None:
        """Remember an appended batch."""
        if epoch != self.producer_epoch:
            self.set_epoch(epoch)
        self.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
        self.last_timestamp = timestamp

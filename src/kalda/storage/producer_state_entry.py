"""Keeps the state of one producer in one log: its epoch, its last five batches, its open transaction."""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from kalda.records.batch import NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP

# An idempotent producer has at most this many batches in flight and may retry each (KIP-98).
BATCHES_MAX: Final = 5
NO_TRANSACTION: Final = -1
SEQUENCE_MAX: Final = 2**31 - 1


class BatchMetadata(NamedTuple):
    """An appended batch: the values needed to respond to its duplicate."""

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
    """Subtract from a sequence number, which wraps: ``decrement_sequence(1, 3)`` is 2147483646."""
    return sequence - decrement if sequence >= decrement else SEQUENCE_MAX - (decrement - sequence) + 1


def is_next_sequence(last: int, following: int) -> bool:
    """Return whether `following` is the sequence number after `last`."""
    return following == last + 1 or (following == 0 and last == SEQUENCE_MAX)


_NOWHERE: Final = 2**63 - 1
"""Above every offset."""


@dataclass(slots=True, eq=False)
class ProducerStateEntry:
    """The state of one producer in one partition."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    coordinator_epoch: int = -1
    last_timestamp: int = NO_TIMESTAMP
    current_transaction_first_offset: int = NO_TRANSACTION
    """First offset of the open transaction, -1 without one."""
    batches: list[BatchMetadata] = field(init=False, default_factory=list)
    """The last batches of the current epoch, oldest first. A `deque` takes 0.6 KB, and a client may make as
    many producers as it likes.
    """

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
        """Return the recent batch with exactly these sequence numbers, unless its transaction has ended.

        A producer whose batch was refused, for example by a leader that was replaced, may reuse its sequence
        numbers for other records after an abort. If the batch was appended nevertheless, those records are
        not duplicates of it: treating them as such would lose them.
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
        """The offset from which batches may be retried: 0 before the first marker."""
        if self.coordinator_epoch < 0:
            return 0
        first = self.current_transaction_first_offset
        return first if first != NO_TRANSACTION else _NOWHERE

    def set_epoch(self, epoch: int) -> None:
        """Begin a new epoch and drop the batches of the old one."""
        if epoch != self.producer_epoch:
            self.producer_epoch = epoch
            self.batches.clear()

    def add_batch(
        self, epoch: int, last_sequence: int, last_offset: int, offset_delta: int, timestamp: int
    ) -> None:
        """Record an appended batch."""
        if epoch != self.producer_epoch:
            self.set_epoch(epoch)
        if len(self.batches) == BATCHES_MAX:
            del self.batches[0]
        self.batches.append(BatchMetadata(last_sequence, last_offset, offset_delta, timestamp))
        self.last_timestamp = timestamp

"""Decides the sequence number of the next batch, and which failed batches are sent again and how.

It serves idempotent and transactional producers (KIP-98, KIP-360, KIP-480's order guarantees) and belongs to
the `TransactionManager`, which owns the producer's identity. Pure; the event loop owns it.

Invariants: while a partition has unresolved sequences (a batch that was sent at least once has expired), no
new batch of it gets a sequence number: the broker may hold the expired batch or not, and a guess would lose
or double records. Nor does one while the first batch of an identity is not acknowledged.
"""

from enum import Enum, auto
from typing import Final

from kalda.clients.producer.producer_identity import (
    ProducerIdAndEpoch,
    increment_sequence,
    is_later_sequence,
)
from kalda.clients.producer.txn_partition_map import (
    NO_LAST_ACKED_OFFSET,
    NO_LAST_ACKED_SEQUENCE,
    SequencedBatch,
    TxnPartitionEntry,
    TxnPartitionMap,
    last_sequence,
)
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, ZERO_UUID, TopicPartition

UNKNOWN_LOG_START_OFFSET: Final = -1


class Retry(Enum):
    """Whether a batch that a broker refused is sent again."""

    NO = auto()
    YES = auto()
    AFTER_EPOCH_BUMP = auto()
    """The sequences of the partition start again at 0 with the next epoch."""
    FROM_SEQUENCE_0 = auto()
    """The sequences of the partition start again at 0 with the present epoch."""


class ProducerSequences:
    """The sequences of all partitions of one producer."""

    def __init__(self) -> None:
        self._partitions: Final = TxnPartitionMap()
        self._unresolved: Final[dict[TopicPartition, int]] = {}
        """By partition, the sequence after the last batch that expired after it was sent."""
        self._to_rewrite: Final[set[TopicPartition]] = set()
        """The partitions whose batches in flight are renumbered when the epoch is raised."""

    def entry(self, partition: TopicPartition) -> TxnPartitionEntry:
        """Return the state of a partition, new if there is none."""
        return self._partitions.get_or_create(partition)

    def find(self, partition: TopicPartition) -> TxnPartitionEntry | None:
        """Return the state of a partition, None if there is none."""
        return self._partitions.get(partition)

    def has_in_flight(self, partition: TopicPartition) -> bool:
        """Whether a batch of the partition was drained and is not complete."""
        entry = self._partitions.get(partition)
        return entry is not None and entry.has_in_flight

    def awaits_first_acknowledgement(self, partition: TopicPartition) -> bool:
        """Whether batches are in flight and none was acknowledged yet since the sequences began at 0.

        A broker accepts any sequence from a producer that it does not know. If it refused the first batch, as
        one that does not lead a new topic yet, and then accepted the second, the first would never be
        written.
        """
        entry = self._partitions.get(partition)
        return (
            entry is not None and entry.has_in_flight and entry.last_acked_sequence == NO_LAST_ACKED_SEQUENCE
        )

    def next_in_flight(self, partition: TopicPartition) -> SequencedBatch | None:
        """Return the batch in flight that is retried next, None if nothing is in flight.

        It is the first of those whose last answer was not OUT_OF_ORDER_SEQUENCE_NUMBER after an attempt that
        may have written them: the answers to the others show what that one means.
        """
        entry = self._partitions.get(partition)
        batches = () if entry is None else entry.in_flight
        for batch in batches:
            if not (batch.may_be_written and batch.is_out_of_order):
                return batch
        return batches[0] if batches else None

    def reset(self) -> None:
        """Forget all partitions: the producer has another identity and nothing is in flight."""
        self._partitions.clear()
        self._unresolved.clear()

    def forget(self, partition: TopicPartition) -> None:
        """Start the partition at sequence 0 again."""
        self._partitions.remove(partition)
        self._unresolved.pop(partition, None)

    def follow_topic(self, partition: TopicPartition, topic_id: UUID) -> bool:
        """Renumber if the topic was deleted and created again; return whether batches may go now.

        Batches of the deleted topic are renumbered, so none of them may be in a request any more. A broker
        that serves topic ids has appended none of them to the new topic.
        """
        entry = self._partitions.get(partition)
        if entry is None or topic_id in (ZERO_UUID, entry.topic_id):
            return True
        if entry.topic_id == ZERO_UUID:
            entry.topic_id = topic_id
            return True
        if any(batch.is_in_request for batch in entry.in_flight):
            return False
        self._unresolved.pop(partition, None)
        if not entry.change_topic(topic_id):
            self._unresolved[partition] = entry.next_sequence
        return True

    def completed(self, batch: SequencedBatch, base_offset: int) -> None:
        """Record an acknowledged batch; `base_offset` is -1 where the broker no longer knows it."""
        entry = self._partitions.get(batch.topic_partition)
        if entry is None or entry.identity != (batch.producer_id, batch.producer_epoch):
            # A batch that had expired, answered late: its sequences are not those of the present epoch.
            return
        entry.update_last_acked_sequence(last_sequence(batch))
        if base_offset >= 0:
            last_offset = base_offset + batch.record_count - 1
            entry.last_acked_offset = max(entry.last_acked_offset, last_offset)
        entry.remove_in_flight(batch)

    def is_surely_written(self, batch: SequencedBatch) -> bool:
        """Return whether a broker acknowledged a later batch with the same identity.

        A broker accepts the sequences of a producer that it knows only in order, and it got no second batch
        before it knew the producer (`awaits_first_acknowledgement`). So it has this batch too, although it
        may have forgotten so: it remembers the last five batches. It then answers
        OUT_OF_ORDER_SEQUENCE_NUMBER, for ever.
        """
        entry = self._partitions.get(batch.topic_partition)
        return (
            entry is not None
            and entry.identity == (batch.producer_id, batch.producer_epoch)
            and entry.last_acked_sequence != NO_LAST_ACKED_SEQUENCE
            and is_later_sequence(entry.last_acked_sequence, last_sequence(batch))
        )

    def remove_in_flight(self, batch: SequencedBatch) -> None:
        """Stop tracking a batch that failed or that was split."""
        entry = self._partitions.get(batch.topic_partition)
        if entry is not None:
            entry.remove_in_flight(batch)

    def close_gap(self, failed: SequencedBatch) -> None:
        """Renumber the batches after one that the broker refused permanently."""
        entry = self._partitions.get(failed.topic_partition)
        if entry is not None:
            entry.close_gap(failed)

    # Expired batches.

    def is_unresolved(self, partition: TopicPartition) -> bool:
        """Whether the partition waits for the outcome of a batch that expired."""
        return partition in self._unresolved

    def mark_unresolved(self, batch: SequencedBatch) -> None:
        """Record that a batch that was sent at least once has expired."""
        following = increment_sequence(last_sequence(batch), 1)
        known = self._unresolved.get(batch.topic_partition)
        if known is None or is_later_sequence(following, known):
            self._unresolved[batch.topic_partition] = following

    def resolve(self) -> list[TopicPartition]:
        """Look at the unresolved partitions that have drained; return those whose expired batches were lost.

        Where a later batch was acknowledged, the expired one had arrived too, and the partition continues.
        """
        lost = []
        for partition in [each for each in self._unresolved if not self.has_in_flight(each)]:
            entry = self.entry(partition)
            if not entry.is_next_sequence(entry.next_sequence):
                lost.append(partition)
            del self._unresolved[partition]
        return lost

    # Epochs.

    def rewrite_with_next_epoch(self, partition: TopicPartition) -> None:
        """Renumber the partition's batches in flight when the epoch is raised."""
        self._to_rewrite.add(partition)

    def epoch_raised(self, identity: ProducerIdAndEpoch) -> None:
        """Renumber the partitions that asked for it."""
        for partition in self._to_rewrite:
            self.entry(partition).start_sequences_at_beginning(identity)
            self._unresolved.pop(partition, None)
        self._to_rewrite.clear()

    def is_on(self, partition: TopicPartition, identity: ProducerIdAndEpoch) -> bool:
        """Whether the partition's batches carry this identity."""
        entry = self._partitions.get(partition)
        return entry is not None and entry.identity == identity

    # Errors of Produce.

    def retry(
        self, code: ErrorCode, batch: SequencedBatch, log_start_offset: int, *, is_transactional: bool
    ) -> Retry:
        """Return whether a batch that a broker answered with `code` is sent again.

        `log_start_offset` is that of the response, -1 if it has none.
        """
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            return self._retry_unknown_producer(batch, log_start_offset, is_transactional)
        if code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
            return self._retry_out_of_order(batch, is_transactional)
        return Retry.YES if code.retriable else Retry.NO

    def _retry_unknown_producer(
        self, batch: SequencedBatch, log_start_offset: int, is_transactional: bool
    ) -> Retry:
        """The broker lost the producer's state, mostly since retention removed all its records."""
        if log_start_offset == UNKNOWN_LOG_START_OFFSET or batch.sequence_has_been_reset:
            # The leader may just have changed; or an earlier batch in flight has already led to a reset.
            return Retry.YES
        if not is_transactional:
            return Retry.AFTER_EPOCH_BUMP
        entry = self._partitions.get(batch.topic_partition)
        last_acked_offset = NO_LAST_ACKED_OFFSET if entry is None else entry.last_acked_offset
        return Retry.FROM_SEQUENCE_0 if last_acked_offset < log_start_offset else Retry.NO

    def _retry_out_of_order(self, batch: SequencedBatch, is_transactional: bool) -> Retry:
        partition = batch.topic_partition
        unresolved = self._unresolved.get(partition)
        entry = self._partitions.get(partition)
        last_acked = NO_LAST_ACKED_SEQUENCE if entry is None else entry.last_acked_sequence
        is_next = batch.base_sequence == increment_sequence(last_acked, 1)
        if unresolved is None and (batch.sequence_has_been_reset or not is_next):
            # An earlier batch has not arrived yet; this one has its turn after it.
            return Retry.YES
        if is_transactional:
            return Retry.NO
        # There is a gap in the log, unless the batch only waits for another that has expired.
        # Before an earlier batch is complete there is nothing to conclude: the broker may be appending it,
        # and renumbering it now would write it twice.
        is_first = entry is None or entry.first_in_flight is batch
        is_gap = is_first and (unresolved is None or batch.base_sequence == unresolved)
        if is_gap and batch.may_be_written and _may_have_later(batch, entry):
            # Or the broker has this batch and later ones, and remembers the last of them only since it
            # started again. The answers to those show it; renumbered now, the batch would be written twice.
            return Retry.YES
        return Retry.AFTER_EPOCH_BUMP if is_gap else Retry.YES


def _may_have_later(batch: SequencedBatch, entry: TxnPartitionEntry | None) -> bool:
    """Whether a broker may have a batch in flight that was numbered after this one."""
    return any(
        each is not batch and (each.is_in_request or (each.may_be_written and not each.is_out_of_order))
        for each in (() if entry is None else entry.in_flight)
    )

"""Keeps what idempotence needs to know of each partition: identity, next sequence, batches in flight.

The counterpart of Java's `TxnPartitionMap` and `TxnPartitionEntry`. It decides nothing about errors; that is
`TransactionManager`. Sequences of batches in flight must stay in order without a gap: a broker refuses the
first batch after a gap.
"""

from bisect import insort
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from kalda.clients.producer.producer_identity import (
    NO_PRODUCER,
    NO_SEQUENCE,
    ProducerIdAndEpoch,
    decrement_sequence,
    increment_sequence,
    is_later_sequence,
)
from kalda.common.types import UUID, ZERO_UUID, TopicPartition

NO_LAST_ACKED_SEQUENCE: Final = -1
NO_LAST_ACKED_OFFSET: Final = -1
_FORMER_TOPICS_MAX: Final = 4
"""Topics of the same name whose sequences are kept, for brokers whose metadata lags behind."""


class SequencedBatch(Protocol):
    """The part of `ProducerBatch` that the transaction manager uses."""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition the batch goes to."""
        ...

    @property
    def record_count(self) -> int:
        """The number of records; fixed once the batch has a sequence."""
        ...

    @property
    def producer_id(self) -> int:
        """The producer id in the batch header, -1 before it has one."""
        ...

    @property
    def producer_epoch(self) -> int:
        """The epoch in the batch header, -1 before it has one."""
        ...

    @property
    def base_sequence(self) -> int:
        """The sequence number of the first record, -1 before it has one."""
        ...

    @property
    def sequence_has_been_reset(self) -> bool:
        """Whether `reset_producer_state` was called."""
        ...

    @property
    def is_in_request(self) -> bool:
        """Whether it was drained and the result of that attempt is not known."""
        ...

    @property
    def may_be_written(self) -> bool:
        """Whether an attempt ended without the certainty that no broker appended the batch."""
        ...

    @property
    def is_out_of_order(self) -> bool:
        """Whether the last answer was OUT_OF_ORDER_SEQUENCE_NUMBER."""
        ...

    def reset_producer_state(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Write another identity and base sequence into the batch before it is sent again."""
        ...


def last_sequence(batch: SequencedBatch) -> int:
    """Return the sequence number of the last record of a batch that has one."""
    return increment_sequence(batch.base_sequence, batch.record_count - 1)


class _FormerTopic(NamedTuple):
    """Where the sequences of a topic ended when the metadata named another of the same name."""

    identity: ProducerIdAndEpoch
    in_flight: Sequence[SequencedBatch]
    first_sequence: int
    """That of the first batch in flight, or of the next batch without one."""
    next_sequence: int
    last_acked_sequence: int
    last_acked_offset: int


class TxnPartitionEntry:
    """The state of one partition."""

    __slots__ = (
        "_former",
        "_in_flight",
        "identity",
        "last_acked_offset",
        "last_acked_sequence",
        "next_sequence",
        "topic_id",
    )

    def __init__(self) -> None:
        self.identity = NO_PRODUCER
        """The identity that the next batch carries; the producer's, once the partition has drained."""
        self.topic_id = ZERO_UUID
        """The id of the topic that the sequences belong to; zero while it is not known."""
        self.next_sequence = 0
        """The base sequence of the next batch."""
        self.last_acked_sequence = NO_LAST_ACKED_SEQUENCE
        """The last sequence that a broker acknowledged; if nothing is in flight, the next is one more."""
        self.last_acked_offset = NO_LAST_ACKED_OFFSET
        """Compared with the log start offset, it shows whether retention removed the producer's state."""
        self._former: dict[UUID, _FormerTopic] = {}
        self._in_flight: list[SequencedBatch] = []
        """Ordered by identity, then sequence; at most ``max.in.flight.requests.per.connection`` batches."""

    @property
    def has_in_flight(self) -> bool:
        """Whether a batch was drained and is not complete."""
        return bool(self._in_flight)

    @property
    def first_in_flight(self) -> SequencedBatch | None:
        """The batch in flight with the lowest sequence."""
        return self._in_flight[0] if self._in_flight else None

    @property
    def in_flight(self) -> Sequence[SequencedBatch]:
        """The batches that were drained and are not complete, in order."""
        return self._in_flight

    def increment_sequence(self, increment: int) -> None:
        """Reserve sequence numbers for a batch of `increment` records."""
        self.next_sequence = increment_sequence(self.next_sequence, increment)

    def add_in_flight(self, batch: SequencedBatch) -> None:
        """Track a batch that has been drained with a sequence."""
        assert batch.base_sequence != NO_SEQUENCE, f"a batch for {batch.topic_partition} has no sequence"
        insort(self._in_flight, batch, key=self._order)

    def remove_in_flight(self, batch: SequencedBatch) -> None:
        """Stop tracking a batch; one that is not tracked is ignored."""
        self._in_flight = [each for each in self._in_flight if each is not batch]

    def start_sequences_at_beginning(self, identity: ProducerIdAndEpoch) -> None:
        """Give the batches in flight the identity and sequences from 0 on, and continue after them."""
        self._start_sequences_at(0, identity)
        self.last_acked_sequence = NO_LAST_ACKED_SEQUENCE

    def change_topic(self, topic_id: UUID) -> bool:
        """Continue in a recreated topic of the same name; return whether its sequences are certain.

        The log of a new topic has no sequences yet, so they start at 0. A broker that lags behind may name a
        former topic again, or make the new one a former one. Its log has the sequences that were written to
        it: a batch that began at 0 again would pass for one of those, and be acknowledged but not written.
        They are not certain where a batch that may have been written to it has ended meanwhile.
        """
        in_flight = tuple(self._in_flight)
        first_sequence = in_flight[0].base_sequence if in_flight else self.next_sequence
        self._former[self.topic_id] = _FormerTopic(
            self.identity,
            in_flight,
            first_sequence,
            self.next_sequence,
            self.last_acked_sequence,
            self.last_acked_offset,
        )
        if len(self._former) > _FORMER_TOPICS_MAX:
            del self._former[next(iter(self._former))]
        self.topic_id = topic_id
        former = self._former.pop(topic_id, None)
        if former is None or former.identity != self.identity:
            self.start_sequences_at_beginning(self.identity)
            self.last_acked_offset = NO_LAST_ACKED_OFFSET
            return True
        are_certain = former.in_flight == in_flight[: len(former.in_flight)]
        self._start_sequences_at(
            former.first_sequence if are_certain else former.next_sequence, self.identity
        )
        self.last_acked_sequence = former.last_acked_sequence
        self.last_acked_offset = former.last_acked_offset
        return are_certain

    def _start_sequences_at(self, sequence: int, identity: ProducerIdAndEpoch) -> None:
        for batch in self._in_flight:
            batch.reset_producer_state(identity, sequence)
            sequence = increment_sequence(sequence, batch.record_count)
        self.identity = identity
        self.next_sequence = sequence

    def update_last_acked_sequence(self, sequence: int) -> None:
        """Store an acknowledged sequence; one before the last is ignored."""
        last = self.last_acked_sequence
        if last == NO_LAST_ACKED_SEQUENCE or is_later_sequence(sequence, last):
            self.last_acked_sequence = sequence

    def is_next_sequence(self, sequence: int) -> bool:
        """Return whether `sequence` directly follows the last acknowledged one."""
        return sequence == increment_sequence(self.last_acked_sequence, 1)

    def close_gap(self, failed: SequencedBatch) -> None:
        """Renumber the batches after one that a broker has finally rejected, so that no sequence is missing.

        In flight [0, 4], failed [5, 9], in flight [10, 14]: the last becomes [5, 9], the next base is 10.
        """
        self.next_sequence = decrement_sequence(self.next_sequence, failed.record_count)
        for batch in self._in_flight:
            if is_later_sequence(batch.base_sequence, failed.base_sequence):
                sequence = decrement_sequence(batch.base_sequence, failed.record_count)
                identity = ProducerIdAndEpoch(batch.producer_id, batch.producer_epoch)
                batch.reset_producer_state(identity, sequence)

    def _order(self, batch: SequencedBatch) -> tuple[int, int, int]:
        """Every batch in flight lies before `next_sequence`; the farther, the earlier, also around 0."""
        distance = decrement_sequence(self.next_sequence, batch.base_sequence)
        return batch.producer_id, batch.producer_epoch, -distance


class TxnPartitionMap:
    """The entries of all partitions that the producer has written to with its identity."""

    def __init__(self) -> None:
        self._entries: Final[dict[TopicPartition, TxnPartitionEntry]] = {}

    def get(self, partition: TopicPartition) -> TxnPartitionEntry | None:
        """Return the entry of a partition, None if it has none."""
        return self._entries.get(partition)

    def get_or_create(self, partition: TopicPartition) -> TxnPartitionEntry:
        """Return the entry of a partition; the first time with sequence 0 and no identity."""
        entry = self._entries.get(partition)
        if entry is None:
            entry = self._entries[partition] = TxnPartitionEntry()
        return entry

    def remove(self, partition: TopicPartition) -> None:
        """Forget a partition."""
        self._entries.pop(partition, None)

    def clear(self) -> None:
        """Forget all partitions."""
        self._entries.clear()

"""Defines `ProducerBatch`: records that go to one partition together, from append to result.

The counterpart of Java's `ProducerBatch`. It decides neither when it is sent nor what follows an error;
that is `RecordAccumulator` and `Sender`. The accumulator's lock guards it until it is drained, afterwards
it belongs to the loop's thread.

A built batch is sent again as the same bytes. Brokers recognise a duplicate by producer id and sequence, so
another number of records under the same sequence would be lost or refused.
"""

import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from kalda.clients.producer.producer_identity import ProducerIdAndEpoch
from kalda.clients.producer.record_future import BatchResult, Delivery, RecordFuture
from kalda.common.types import TopicPartition
from kalda.records.batch import (
    HEADER_SIZE,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    Buffer,
    increment_sequence,
    read_header,
    set_producer_state,
)
from kalda.records.record import Header, RecordBatchBuilder, iter_records, record_bytes
from kalda.records.varint import VARINT_BYTES_MAX, VARLONG_BYTES_MAX
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

RECORD_OVERHEAD_MAX: Final = 1 + 5 * VARINT_BYTES_MAX + VARLONG_BYTES_MAX
"""Most bytes of a record beside key, value and headers: attributes, four lengths, two deltas."""


def record_size_max(key: Buffer | None, value: Buffer | None, headers: Sequence[Header]) -> int:
    """Return a bound of a record's size in a batch, at most 30 bytes above the exact one."""
    size = RECORD_OVERHEAD_MAX
    if key is not None:
        size += len(key)
    if value is not None:
        size += len(value)
    for name, content in headers:
        # A character of a name is up to four bytes in UTF-8.
        size += 2 * VARINT_BYTES_MAX + 4 * len(name) + (0 if content is None else len(content))
    return size


class ProducerBatch:
    """A batch; see the module.

    Args:
        topic_partition: Where it goes.
        builder: Empty, with the codec; None for a batch that is already encoded.
        now: Monotonic seconds; `delivery.timeout.ms` counts from here.
        reserved: Bytes of the buffer pool that the batch holds, which bound its size.
    """

    __slots__ = (
        "_builder",
        "_bytes",
        "attempts",
        "base_sequence",
        "created",
        "deliveries",
        "is_closed",
        "is_in_request",
        "is_out_of_order",
        "is_split",
        "is_transactional",
        "last_failure",
        "leader_epoch",
        "may_be_written",
        "producer_epoch",
        "producer_id",
        "record_count",
        "reserved",
        "result",
        "retry_at",
        "room",
        "sequence_has_been_reset",
        "topic_partition",
        "uncompressed_bytes",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        builder: RecordBatchBuilder | None,
        now: float,
        reserved: int,
    ) -> None:
        self.topic_partition: Final = topic_partition
        self.result: Final = BatchResult(topic_partition.topic, topic_partition.partition)
        self.created = now
        self.retry_at = now
        """The end of the back-off after the last failed attempt."""
        self.attempts = 0
        """The number of times that it was sent and has to be sent again."""
        self.last_failure = ""
        """Why it has to be sent again; empty before the first failure."""
        self.leader_epoch = -1
        """The leader epoch of the last attempt; to a newer leader the batch goes without back-off."""
        self.is_in_request = False
        """Whether it was drained and the result of that attempt is not known."""
        self.may_be_written = False
        """Whether an attempt ended without the certainty that no broker appended the batch."""
        self.is_out_of_order = False
        """Whether the last answer was OUT_OF_ORDER_SEQUENCE_NUMBER."""
        self.reserved = reserved
        self.room = reserved - HEADER_SIZE
        """Bytes of records that may still be added."""
        self.record_count = 0
        self.uncompressed_bytes = 0
        """The size before compression of a batch that was closed, for metrics; 0 where it is not known."""
        self.is_closed = False
        """Whether it takes no more records."""
        self.is_split = False
        """Whether it is a part of a batch that was too large."""
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self.is_transactional = False
        self.sequence_has_been_reset = False
        """Whether the identity or sequence changed after the batch was built."""
        self.deliveries: list[Delivery | None] = []
        """`on_delivery` by index, up to the last record that has one."""
        self._builder = builder
        self._bytes: bytearray | None = None

    @classmethod
    def encoded(
        cls, topic_partition: TopicPartition, batch: bytearray, record_count: int, now: float, reserved: int
    ) -> "ProducerBatch":
        """Make a closed batch of encoded records, as `send_arrow` has them."""
        made = cls(topic_partition, None, now, reserved)
        made._bytes = batch
        made.record_count = record_count
        made.is_closed = True
        return made

    @property
    def has_sequence(self) -> bool:
        """Whether it was drained with a sequence number."""
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record."""
        return increment_sequence(self.base_sequence, self.record_count - 1)

    @property
    def is_done(self) -> bool:
        """Whether its records were written or have failed."""
        return self.result.is_done

    @property
    def uncompressed_size(self) -> int:
        """Bytes of an open batch before compression."""
        return self.reserved - self.room

    @property
    def size(self) -> int:
        """Bytes in a request; before `close`, without compression."""
        if self._bytes is not None:
            return len(self._bytes)
        assert self._builder is not None, "a batch that is not built has a builder"
        return self._builder.close() if self.is_closed else self._builder.size

    def try_append(
        self,
        key: Buffer | None,
        value: Buffer | None,
        timestamp_ms: int,
        headers: Sequence[Header],
        on_delivery: Delivery | None,
    ) -> RecordFuture | None:
        """Add a record and return its future, or None where it might not fit. The first record always fits.

        Raises:
            ValueError: no batch can hold the timestamp.
        """
        key_size = -1 if key is None else len(key)
        value_size = -1 if value is None else len(value)
        needed = key_size + value_size + _OVERHEAD_WITH_NULLS
        if headers:
            needed = record_size_max(key, value, headers)
        index = self.record_count
        builder = self._builder
        if self.is_closed or builder is None:
            return None
        # The bound decides nearly always; only the last record of a batch is worth the exact size.
        if (
            needed > self.room
            and index
            and builder.size_of_next(key, value, timestamp_ms, headers) > self.room
        ):
            return None
        try:
            self.room -= builder.append_next(key, value, timestamp_ms, headers)
            self.record_count = index + 1
            result = self.result
            result.add_record(timestamp_ms, key_size, value_size)
            if on_delivery is not None:
                self._add_delivery(index, on_delivery)
            return RecordFuture(result, index)
        except BaseException:
            # A signal handler may raise between any two steps; the count of records decides about sequence
            # numbers.
            if self.record_count == index:
                builder.truncate(index, self.reserved - self.room)
            else:
                self.result.complete_record(index, timestamp_ms, key_size, value_size)
            raise

    def close(self) -> int:
        """Take no more records, compress them, and return the size of the batch."""
        if not self.is_closed:
            self.is_closed = True
            self.uncompressed_bytes = self.uncompressed_size
        return self.size

    def set_producer_state(
        self, identity: ProducerIdAndEpoch, base_sequence: int, *, is_transactional: bool
    ) -> None:
        """Set identity and sequence number when the batch is drained for the first time."""
        assert not self.has_sequence, f"a batch of {self.topic_partition} has sequence {self.base_sequence}"
        self.producer_id, self.producer_epoch = identity
        self.base_sequence = base_sequence
        self.is_transactional = is_transactional
        if self._bytes is not None:
            # In place: no connection sends the bytes of a batch without a sequence number.
            set_producer_state(self._bytes, *identity, base_sequence, is_transactional=is_transactional)
        elif self._builder is not None:
            self._builder.set_producer_state(*identity, base_sequence, is_transactional=is_transactional)

    def reset_producer_state(self, identity: ProducerIdAndEpoch, base_sequence: int) -> None:
        """Write another identity and sequence into the batch before it is sent again."""
        self.producer_id, self.producer_epoch = identity
        self.base_sequence = base_sequence
        self.sequence_has_been_reset = True
        self.is_out_of_order = False
        # A copy, because a connection may still be sending the old bytes.
        self._bytes = bytearray(self.build())
        set_producer_state(self._bytes, *identity, base_sequence, is_transactional=self.is_transactional)

    def build(self) -> bytearray:
        """Return the bytes of the batch; the first call ends the appends."""
        if self._bytes is None:
            assert self._builder is not None, "a batch that is not built has a builder"
            self.is_closed = True
            self._bytes = self._builder.build()
            self._builder = None
        return self._bytes

    def complete(self, base_offset: int, log_append_time_ms: int) -> None:
        """Give futures the offsets from `base_offset` on, run the callbacks, and wake waiting threads."""
        self.result.complete(base_offset, log_append_time_ms, self._run_callbacks)

    def fail(self, error: Exception, record_errors: Mapping[int, Exception] | None = None) -> None:
        """Give the records' futures an error, single ones their own; otherwise as `complete`."""
        self.result.fail(error, record_errors, self._run_callbacks)

    def split(self, new_builder: Callable[[], RecordBatchBuilder], size_max: int) -> "list[ProducerBatch]":
        """Return batches with the same records in order, each up to `size_max` uncompressed bytes.

        Where the whole batch is not larger than that, the parts are half as large as the batch. A record
        that is larger is a part of its own.
        They continue this batch's sequence numbers, their results take the place of its result, and its share
        of the pool's memory is divided among them.
        """
        batch = self.build()
        uncompressed = HEADER_SIZE + len(record_bytes(batch, 0, read_header(batch)))
        if uncompressed <= size_max:
            size_max = uncompressed // 2
        parts: list[ProducerBatch] = []
        first_indexes: list[int] = []
        for index, record in enumerate(iter_records(batch)):
            arguments = record.key, record.value, record.timestamp, record.headers, None
            if parts and parts[-1].try_append(*arguments) is not None:
                continue
            part = ProducerBatch(self.topic_partition, new_builder(), self.created, size_max)
            part.is_split = True
            part.attempts = self.attempts
            part.last_failure = self.last_failure
            part.may_be_written = self.may_be_written
            part.try_append(*arguments)
            parts.append(part)
            first_indexes.append(index)
        share, rest = divmod(self.reserved, len(parts))
        for number, part in enumerate(parts):
            part.close()
            part.reserved = share + (rest if number == 0 else 0)
            if self.has_sequence:
                sequence = increment_sequence(self.base_sequence, first_indexes[number])
                identity = ProducerIdAndEpoch(self.producer_id, self.producer_epoch)
                part.set_producer_state(identity, sequence, is_transactional=self.is_transactional)
        for index, on_delivery in enumerate(self.deliveries):
            if on_delivery is not None:
                number = _last_at_most(first_indexes, index)
                parts[number]._add_delivery(index - first_indexes[number], on_delivery)
        self.deliveries = []
        self.reserved = 0
        self.result.split(first_indexes, [part.result for part in parts])
        return parts

    def _add_delivery(self, index: int, on_delivery: Delivery) -> None:
        deliveries = self.deliveries
        if len(deliveries) < index:
            deliveries.extend([None] * (index - len(deliveries)))
        deliveries.append(on_delivery)

    def _run_callbacks(self) -> None:
        deliveries, self.deliveries = self.deliveries, []
        for index, on_delivery in enumerate(deliveries):
            if on_delivery is None:
                continue
            try:
                on_delivery(self.result.metadata_of(index), self.result.error_of(index))
            except BaseException as error:
                is_exit = not isinstance(error, Exception)
                if is_exit and threading.current_thread() is threading.main_thread():
                    raise
                logger.exception(
                    "on_delivery of a record of %s raised an exception; it is ignored", self.topic_partition
                )


_OVERHEAD_WITH_NULLS: Final = RECORD_OVERHEAD_MAX + 2
"""`try_append` counts absent keys and values as -1 bytes each."""


def _last_at_most(sorted_numbers: Sequence[int], number: int) -> int:
    return bisect_right(sorted_numbers, number) - 1

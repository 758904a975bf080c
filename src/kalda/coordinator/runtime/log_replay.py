"""Replays the log of a partition into its shard: every record from the log's start to its end, in order.

The end is the log's end, not the high watermark: this broker leads, so what is in its log will be committed,
and responses wait for that (`kalda.coordinator.runtime.commit_queue`).

What must not break: the steps stay small, because the loop that loads also answers all other requests.
"""

from collections.abc import Iterator
from typing import Final

from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.coordinator_shard import CoordinatorShard, InternalLog
from kalda.records.batch import NO_PRODUCER_ID, BatchHeader, iter_headers
from kalda.records.control import ControlRecordType, read_end_transaction_marker
from kalda.records.key_values import iter_key_values

READ_BYTES_MAX: Final = 256 * 1024
"""The most that is read at a time: a cold disk delivers this in about a millisecond."""

RECORDS_PER_STEP: Final = 32
"""Records between two looks at the clock, in many small batches or in one: some 0.1 ms."""


class LogReplay:
    """The replay of one partition; iterating over `steps` performs it."""

    def __init__(self, log: InternalLog, partition: int, shard: CoordinatorShard, buffer_bytes: int) -> None:
        """Reads `buffer_bytes` at a time, but never more than `READ_BYTES_MAX`."""
        self._log: Final = log
        self._partition: Final = partition
        self._shard: Final = shard
        self._buffer_bytes: Final = min(buffer_bytes, READ_BYTES_MAX)
        self.record_count = 0
        """Records replayed so far."""
        self.byte_count = 0
        """Bytes read so far."""
        self._until_step = RECORDS_PER_STEP

    def steps(self) -> Iterator[None]:
        """Replay the log; each item is an opportunity to serve other work.

        Raises:
            ApiError: the log cannot be read, or this broker does not lead it any more.
            RecordsError: a batch is not readable.
        """
        log, partition = self._log, self._partition
        position = log.start_offset(partition)
        while position < log.end_offset(partition):
            data = log.read(partition, position, self._buffer_bytes)
            before = position
            for at, header in iter_headers(data):
                if header.next_offset > position:
                    yield from self._batch(data, at, header)
                    position = header.next_offset
            if position == before:
                # Nothing follows: compaction removed the last records, or the log was truncated.
                return
            self.byte_count += len(data)
            yield None

    def _batch(self, data: bytes, at: int, header: BatchHeader) -> Iterator[None]:
        shard = self._shard
        # A batch counts as a record, because reading it takes time even if it holds only a marker.
        left = self._until_step - 1
        if header.is_control:
            marker = read_end_transaction_marker(data, at, header)
            if marker is not None:
                shard.replay_end_transaction(
                    header.producer_id,
                    header.producer_epoch,
                    marker.control_type is ControlRecordType.COMMIT,
                )
            self._until_step = left
            if left <= 0:
                self._until_step = RECORDS_PER_STEP
                yield None
            return
        producer_id = header.producer_id if header.is_transactional else NO_PRODUCER_ID
        epoch = header.producer_epoch
        replay = shard.replay
        count = 0
        for offset, key, value in iter_key_values(data, at, header):
            if key is None:
                # No coordinator has written this: compacted topics refuse records without a key.
                continue
            replay(offset, producer_id, epoch, CoordinatorRecord(key, value))
            count += 1
            left -= 1
            if left <= 0:
                left = RECORDS_PER_STEP
                yield None
        self._until_step = left
        self.record_count += count

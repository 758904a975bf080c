"""Fills a shard from its log: every record from the log's start to its end, in order.

The end is the log's, not the high watermark: this broker leads, so what is in its log will be committed, and
answers wait for that (`kalda.coordinator.runtime.commit_queue`).

What must not break: the steps stay small. The loop that loads also answers every other request.
"""

from collections.abc import Iterator
from typing import Final

from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.coordinator_shard import CoordinatorShard, InternalLog
from kalda.records.batch import NO_PRODUCER_ID, BatchHeader, iter_headers
from kalda.records.control import ControlRecordType, read_end_transaction_marker
from kalda.records.key_values import iter_key_values

READ_BYTES_MAX: Final = 256 * 1024
"""Read at a time at most: a cold disk gives so much in about a millisecond."""

RECORDS_PER_STEP: Final = 32
"""Between two looks at the clock, in many small batches or in one; some 0.1 ms."""


class LogReplay:
    """The loading of one partition; `steps` does it."""

    def __init__(self, log: InternalLog, partition: int, shard: CoordinatorShard, buffer_bytes: int) -> None:
        """`buffer_bytes` are read at a time, but never more than `READ_BYTES_MAX`."""
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
        """Load; every item is an opportunity to do something else.

        Raises:
            ApiError: the log cannot be read, or is not led here any more.
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
                # Nothing is there: compaction took what was at the end, or the log was truncated.
                return
            self.byte_count += len(data)
            yield None

    def _batch(self, data: bytes, at: int, header: BatchHeader) -> Iterator[None]:
        shard = self._shard
        # A batch costs something itself, if only a marker is in it.
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
                # Keyless records are refused in compacted topics; no coordinator wrote this.
                continue
            replay(offset, producer_id, epoch, CoordinatorRecord(key, value))
            count += 1
            left -= 1
            if left <= 0:
                left = RECORDS_PER_STEP
                yield None
        self._until_step = left
        self.record_count += count

"""Describes batches that are ready to be appended at once, and checks those that a follower fetched.

A follower's batches are compared with the end of its own log, all of them before the first one is written, so
an append that fails leaves nothing behind. This module writes and patches nothing.
"""

from typing import Final, NamedTuple

from kalda.common.types import TopicPartition
from kalda.records.batch import (
    COMPRESSION_MASK,
    MAGIC,
    BatchHeader,
    WritableBuffer,
    iter_headers,
    validate,
)
from kalda.records.control import EndTransactionMarker, read_end_transaction_marker
from kalda.storage.errors import UnexpectedAppendOffsetError
from kalda.storage.log_types import LogAppendInfo

OFFSET_MAX: Final = 2**63 - 1
"""The largest offset that a request or a file can name."""


class LogEnd(NamedTuple):
    """The end of a log, which the next batch must follow."""

    topic_partition: TopicPartition
    offset: int
    latest_epoch: int
    """-1 if the log has none."""


class CheckedBatches(NamedTuple):
    """At least one batch to append, with the values that a segment needs."""

    headers: list[tuple[int, BatchHeader]]
    """Each header with its position in the buffer."""
    first_offset: int
    last_offset: int
    size: int
    record_count: int
    timestamp: int
    """The largest timestamp, and the last offset of its batch."""
    timestamp_offset: int

    def read_markers(self, records: WritableBuffer) -> dict[int, EndTransactionMarker | None]:
        """Return what the control batches in `records` contain, by position.

        Raises:
            RecordsError: a subclass for a marker that is not whole.
        """
        return {
            position: read_end_transaction_marker(records, position, header)
            for position, header in self.headers
            if header.producer_id >= 0 and header.is_control
        }

    def appended(self, append_time_ms: int, log_start_offset: int) -> LogAppendInfo:
        """Return the result of their append."""
        first, last = self.first_offset, self.last_offset
        return LogAppendInfo(
            first, last, append_time_ms, log_start_offset, False, self.size, self.record_count
        )


def read_follower_batches(
    records: WritableBuffer, end: LogEnd, leader_epoch: int | None
) -> CheckedBatches | None:
    """Check that the whole batches in `records` continue the log; return ``None`` if there are none.

    `leader_epoch` is the epoch of the leader that sent them, if a leader did: no batch has a later one. A
    batch may follow a gap, which compaction leaves, or damage on the leader's disk that no replica could
    repair.

    Raises:
        UnexpectedAppendOffsetError: a batch lies below the end, or its epoch cannot follow.
        RecordsError: a subclass for invalid bytes.
    """
    headers: list[tuple[int, BatchHeader]] = []
    expected, epoch = end.offset, end.latest_epoch
    first = end.offset
    for position, header in iter_headers(records):
        validate(records, position, header)
        # Only the messages in a wrapper of an old format contain its first offset; its header has the last.
        is_wrapper = header.magic != MAGIC and bool(header.attributes & COMPRESSION_MASK)
        base = expected if is_wrapper else header.base_offset
        if base < expected or header.last_offset < expected:
            raise UnexpectedAppendOffsetError(
                f"{end.topic_partition}: batch [{base}, {header.last_offset}] does not follow offset "
                f"{expected - 1}"
            )
        if header.last_offset >= OFFSET_MAX:
            raise UnexpectedAppendOffsetError(
                f"{end.topic_partition}: batch [{base}, {header.last_offset}] leaves no offset for the next"
            )
        if header.partition_leader_epoch != epoch:
            epoch = _check_epoch(end.topic_partition, header, epoch, leader_epoch)
        if not headers:
            first = base
        expected = header.next_offset
        headers.append((position, header))
    if not headers:
        return None
    return describe(headers, first, sum(header.record_count for _, header in headers))


def describe(headers: list[tuple[int, BatchHeader]], first_offset: int, record_count: int) -> CheckedBatches:
    """Return the values of batches at these positions of one buffer."""
    position, last = headers[-1]
    latest = max((header for _, header in headers), key=_max_timestamp)
    return CheckedBatches(
        headers,
        first_offset,
        last.last_offset,
        position + last.size,
        record_count,
        latest.max_timestamp,
        latest.last_offset,
    )


def _check_epoch(
    topic_partition: TopicPartition, header: BatchHeader, before: int, newest: int | None
) -> int:
    """Return the epoch of a batch that follows a batch of epoch `before`; -1 means none."""
    epoch = header.partition_leader_epoch
    if epoch < 0:
        return before
    if epoch < before or (newest is not None and epoch > newest):
        raise UnexpectedAppendOffsetError(
            f"{topic_partition}: batch [{header.base_offset}, {header.last_offset}] of leader epoch "
            f"{epoch} follows one of epoch {before}, from a leader of epoch {newest}"
        )
    return epoch


def _max_timestamp(header: BatchHeader) -> int:
    return header.max_timestamp

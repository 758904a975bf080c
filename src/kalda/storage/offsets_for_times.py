"""Finds offsets of a log by timestamp, for ListOffsets requests."""

from collections.abc import Sequence
from typing import Final

from kalda.records.batch import BatchHeader
from kalda.records.compression import Checkpoint
from kalda.records.errors import DecompressedSizeError
from kalda.records.validation import search_batch
from kalda.storage.errors import HeavyBatchError
from kalda.storage.log_segment import BatchSearch
from kalda.storage.log_types import TimestampAndOffset
from kalda.storage.log_validator import OPENED_BYTES_MAX, PACKED_BYTES_MAX, PLAIN_BYTES_MAX
from kalda.storage.unified_log import UnifiedLog

SEARCHES_MAX: Final = 64
"""Batches that are searched at once for one request: headers can claim later times than the records have."""


def offset_for_timestamp(
    log: UnifiedLog, timestamp: int, start_offset: int = 0, search: BatchSearch = search_batch
) -> TimestampAndOffset | None:
    """Return the first record from `start_offset` on with `timestamp` or a later one, or None.

    Raises:
        HeavyBatchError: `search` raises it.
        LogStorageError: the disk failed.
    """
    start_offset = max(start_offset, log.log_start_offset)
    with log.disk_errors.raised("read"):
        for segment in log.segments:
            if segment.largest.timestamp >= timestamp:
                found = segment.find_timestamp(timestamp, start_offset, search)
                if found is not None:
                    return TimestampAndOffset(*found)
    return None


def offset_for_max_timestamp(
    log: UnifiedLog, start_offset: int = 0, search: BatchSearch = search_batch
) -> TimestampAndOffset | None:
    """Return the first record with the largest timestamp of the log (KIP-734), from `start_offset` on.

    Raises:
        HeavyBatchError: `search` raises it.
        LogStorageError: the disk failed.
    """
    with log.disk_errors.raised("read"):
        newest = max(log.segments, key=lambda segment: segment.largest.timestamp)
        found = newest.find_largest_timestamp(start_offset, search)
    return None if found is None else TimestampAndOffset(*found)


class TimestampSearch:
    """Searches batches for a record at once if that takes little time, else where `run` is called.

    A search raises `HeavyBatchError` for a batch that takes long. After `run`, `found` is the record in that
    batch, or the search of the log goes on from `start_offset`.
    """

    __slots__ = ("_heavy", "_left", "found", "start_offset")

    def __init__(self) -> None:
        self.start_offset = 0
        self.found: tuple[int, int] | None = None
        self._left = SEARCHES_MAX
        self._heavy: tuple[bytes, BatchHeader, int, int] | None = None

    def __call__(
        self, batch: bytes, header: BatchHeader, timestamp: int, start_offset: int
    ) -> tuple[int, int] | None:
        """Return timestamp and offset of the record, None if it is not in this batch."""
        self._left -= 1
        size_max = PACKED_BYTES_MAX if header.compression else PLAIN_BYTES_MAX
        if self._left >= 0 and header.size <= size_max:
            try:
                bytes_max = OPENED_BYTES_MAX if header.compression else PLAIN_BYTES_MAX
                return search_batch(batch, header, timestamp, start_offset, size_max=bytes_max)
            except DecompressedSizeError:
                pass
        self._heavy = batch, header, timestamp, start_offset
        raise HeavyBatchError

    @property
    def heavy_bytes(self) -> int:
        """The size of the batch that takes long."""
        return 0 if self._heavy is None else len(self._heavy[0])

    def forget(self) -> None:
        """Forget the batch that takes long; the next search raises `HeavyBatchError` for it again."""
        self._heavy = None

    def run(self, checkpoint: Checkpoint) -> None:
        """Search the batch that takes long; callable from any thread."""
        assert self._heavy is not None, "a batch takes long"
        batch, header, timestamp, start_offset = self._heavy
        self.found = search_batch(batch, header, timestamp, start_offset, checkpoint=checkpoint)
        self._heavy = None
        self.start_offset = header.next_offset
        self._left = SEARCHES_MAX


def offsets_before(log: UnifiedLog, timestamp: int, now_ms: int, count_max: int) -> list[int]:
    """Return the base offsets of segments written at `timestamp` or before, newest first.

    ListOffsets version 0 uses this: -1 means up to the log end offset, -2 the log start offset.
    """
    starts = [(max(each.base_offset, log.log_start_offset), each.modified_ms) for each in log.segments]
    if log.segments[-1].size:
        starts.append((log.log_end_offset, now_ms))
    return _starts_until(starts, timestamp, count_max)


def _starts_until(starts: Sequence[tuple[int, int]], timestamp: int, count_max: int) -> list[int]:
    """Return the offsets that were written at `timestamp` or before, newest first.

    `starts` are offsets with their times, both ascending. Starts 0, 30, 70 at 1, 2, 3 ms: for 2 ms, 30 and 0.
    """
    if timestamp == -1:
        chosen = starts
    elif timestamp == -2:
        chosen = starts[:1]
    else:
        last = max((at for at, (_, written_ms) in enumerate(starts) if written_ms <= timestamp), default=-1)
        chosen = starts[: last + 1]
    return sorted((offset for offset, _ in chosen), reverse=True)[:count_max]

"""Copies a log to its future log, in steps that the caller paces.

`next_records` makes the future log a prefix of the current one and returns the records that come next, and
`append` appends them:

    current [20,90)  future empty   ->  starts it at 20, returns records from 20
    current [20,90)  future [20,90) ->  returns None: both have the same records
    current [20,60)  future [20,90) ->  truncates it to 60, returns None
    current [80,90)  future [20,50) ->  starts it again at 80, returns records from 80

Between two steps the current log may be appended to, truncated, and lose its oldest records. Two logs with
the same leader epoch have the same records of it (KIP-101), so the epochs show what must be truncated, also
after a crash. Truncations are noted besides (`FutureLogs.note_truncation`), because records in the formats 0
and 1 have no epochs.
"""

from collections.abc import Sequence
from typing import Final

from kalda.records.batch import iter_headers
from kalda.records.message_set import first_offset
from kalda.storage.file_records import FileSlice
from kalda.storage.future_logs import FutureLogs
from kalda.storage.log_types import FetchIsolation
from kalda.storage.unified_log import UnifiedLog

COPY_BYTES: Final = 128 * 1024
"""Bytes of one step, of which appending is the part on the event loop."""

Epochs = Sequence[tuple[int, int]]


class FutureLogCopy:
    """The copying of one log; all calls are on the owner's thread."""

    def __init__(self, logs: FutureLogs, current: UnifiedLog, future: UnifiedLog) -> None:
        self._logs: Final = logs
        self.current: Final = current
        self.future: Final = future

    @property
    def lag(self) -> int:
        """The records that the future log lacks."""
        return max(self.current.log_end_offset - self.future.log_end_offset, 0)

    def next_records(self) -> FileSlice | None:
        """Truncate or restart the future log where needed; return what it lacks, ``None`` if nothing.

        Raises:
            StorageError: a disk failed, or other replicas are asked for damaged records.
        """
        current, future = self.current, self.future
        self._truncate()
        while future.log_end_offset < current.log_end_offset:
            start = future.log_end_offset
            records = current.read(start, COPY_BYTES, FetchIsolation.LOG_END).records
            if records.size:
                return records
            # The last records were damaged on disk, or compaction has removed them.
            self._skip(start, current.log_end_offset)
            future.roll(current.log_end_offset)
        self._follow_offsets()
        return None

    def append(self, data: bytes) -> int:
        """Append what was read from the slice; return the bytes of whole batches in it.

        Raises:
            StorageError, RecordsError: the disk failed, or the data is not what follows; nothing was
                appended.
        """
        future = self.future
        records = memoryview(data)
        if future.log_end_offset == future.log_start_offset:
            self._align_empty_log(records)
        start = future.log_end_offset
        info = future.append_as_follower(records)
        if info.size:
            self._skip(start, info.first_offset)
            self._follow_offsets()
        return info.size

    def _truncate(self) -> None:
        current, future = self.current, self.future
        name = current.topic_partition
        offset = common_end(
            current.leader_epochs.entries,
            current.log_end_offset,
            future.leader_epochs.entries,
            future.log_end_offset,
        )
        truncated = self._logs.truncation(name)
        if truncated is not None:
            offset = min(offset, truncated)
        for each in future.missing.ranges:
            # The current log got these records back after the future log had skipped them.
            first = max(each.first, current.log_start_offset)
            if first < each.end and not current.missing.covers(first, each.end):
                offset = min(offset, first)
        if offset < future.log_end_offset:
            future.truncate_to(offset)
        self._logs.truncated(name)
        if future.log_end_offset < current.log_start_offset:
            future.truncate_fully_and_start_at(current.log_start_offset)

    def _align_empty_log(self, records: memoryview) -> None:
        """Start an empty log at the first batch: the log start offset may be inside it (DeleteRecords)."""
        position, header = next(iter_headers(records), (0, None))
        if header is not None:
            first = first_offset(records, position, header)
            if first < self.future.log_end_offset <= header.last_offset:
                self.future.truncate_fully_and_start_at(first)

    def _skip(self, first: int, end: int) -> None:
        """Note which of the offsets without records are missing, not removed by compaction."""
        future = self.future
        missing = [
            (max(first, each.first), min(end, each.end))
            for each in self.current.missing.ranges
            if each.first < end and first < each.end
        ]
        if missing:
            with future.disk_errors.raised("note missing offsets of"):
                future.missing.add(missing)

    def _follow_offsets(self) -> None:
        current, future = self.current, self.future
        future.advance_high_watermark(current.high_watermark)
        start = min(current.log_start_offset, future.high_watermark)
        if start > future.log_start_offset:
            future.delete_records_before(start)
            # The current log decides what has expired.
            future.delete_old_segments(keep_expired=True)


def common_end(current: Epochs, current_end: int, future: Epochs, future_end: int) -> int:
    """Return the end of the records that two logs have in common, by their leader epochs.

    Current log 3 [10,20) 5 [20,30), future log 3 [10,20) 4 [20,25): both have epoch 3 up to 20.
    """
    if not current or not future or current[-1][0] == future[-1][0]:
        end = min(current_end, future_end)
        if future and not current:
            end = min(end, future[0][1])
        return end
    ends_of_current = _ends(current, current_end)
    for epoch, end in reversed(_ends(future, future_end).items()):
        if epoch in ends_of_current:
            return min(end, ends_of_current[epoch])
    return min(current_end, future[0][1], current[0][1])


def _ends(entries: Epochs, log_end: int) -> dict[int, int]:
    """Return where each epoch ends."""
    starts = [start for _, start in entries[1:]]
    return dict(zip((epoch for epoch, _ in entries), (*starts, log_end), strict=True))

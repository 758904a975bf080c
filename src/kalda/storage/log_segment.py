"""Holds one segment: a ``.log`` file with its indexes, for the offsets from `base_offset` on.

The log decides when to roll and keeps segments in order. Appends come in log order from the log's owner, and
readers use only what lies below `size`.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeAlias

from kalda.records.batch import BatchHeader, read_header, validate
from kalda.records.errors import CorruptRecordError, RecordsError
from kalda.records.message_set import first_offset
from kalda.records.validation import search_batch
from kalda.runtime.filesystem import Buffer
from kalda.storage.errors import CorruptIndexError
from kalda.storage.file_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from kalda.storage.file_records import BatchPosition, FileRecords
from kalda.storage.log_config import INT32_MAX, LogConfig
from kalda.storage.log_resources import LogResources
from kalda.storage.offset_index import OffsetIndex
from kalda.storage.time_index import NO_TIMESTAMP, TimeIndex, TimestampOffset
from kalda.storage.transaction_index import AbortedTransaction, TransactionIndex

BatchSearch: TypeAlias = Callable[[bytes, BatchHeader, int, int], tuple[int, int] | None]
"""As `kalda.records.validation.search_batch`, which looks into one batch."""

logger: Final = logging.getLogger(__name__)


class Recovered(NamedTuple):
    """The result of recovering a segment."""

    end_offset: int
    """The offset after the last good batch."""
    removed: int
    """Bytes removed from the end."""
    lost_aborts: list[AbortedTransaction]
    """Entries of the transaction index whose markers were removed: records before them may be left."""


class LogSegment:
    """A part of the log; `last_offset - base_offset` fits an int32, and so does every position."""

    __slots__ = (
        "_bytes_since_index_entry",
        "_entries_max",
        "_file_system",
        "_index_interval_bytes",
        "_largest",
        "_roll_timestamp",
        "_roll_wait_ms",
        "base_offset",
        "created_ms",
        "directory",
        "modified_ms",
        "offset_index",
        "records",
        "time_index",
        "transaction_index",
    )

    def __init__(
        self,
        directory: str,
        base_offset: int,
        sizes: dict[str, int],
        config: LogConfig,
        resources: LogResources,
        *,
        file_suffix: str = "",
    ) -> None:
        """Describe the segment's files without opening them; `sizes` maps existing suffixes to bytes.

        `file_suffix` is appended to the names of all files, e.g. ``.swap`` during compaction.
        """

        def path(suffix: str) -> str:
            return os.path.join(directory, offset_file_name(base_offset, suffix + file_suffix))

        file_system, caches = resources.file_system, resources.caches
        self._file_system = file_system
        self.directory = directory
        self.base_offset = base_offset
        self.created_ms = self.modified_ms = resources.clock.time_ms()
        self.records = FileRecords(file_system, path(LOG_SUFFIX), sizes.get(LOG_SUFFIX, 0), caches.files)
        self.offset_index = OffsetIndex(
            file_system,
            path(OFFSET_INDEX_SUFFIX),
            base_offset,
            sizes.get(OFFSET_INDEX_SUFFIX, 0),
            caches.indexes,
        )
        self.time_index = TimeIndex(
            file_system,
            path(TIME_INDEX_SUFFIX),
            base_offset,
            sizes.get(TIME_INDEX_SUFFIX, 0),
            caches.indexes,
        )
        self.transaction_index = TransactionIndex(
            file_system, path(TRANSACTION_INDEX_SUFFIX), sizes.get(TRANSACTION_INDEX_SUFFIX, 0)
        )
        self._bytes_since_index_entry = 0
        # The largest timestamp and its offset; None between a load and the first use.
        self._largest: TimestampOffset | None = None if self.records.size else self._no_timestamp()
        # Largest timestamp of the first append, the base of time-based rolling; None until read.
        self._roll_timestamp: int | None = None
        self.configure(config, resources.random_fraction())

    @classmethod
    def create(
        cls, directory: str, base_offset: int, config: LogConfig, resources: LogResources
    ) -> "LogSegment":
        """Create an empty segment on disk; raises `OSError`."""
        segment = cls(directory, base_offset, {}, config, resources)
        try:
            segment.create_files(config.segment_bytes if config.preallocate else 0)
        except OSError:
            # A later start would take an empty segment for the log's end.
            segment.remove_files()
            raise
        return segment

    def configure(self, config: LogConfig, random_fraction: float) -> None:
        """Apply the settings that appends and rolling use; the fraction is that of the roll's jitter."""
        self._index_interval_bytes = config.index_interval_bytes
        self._entries_max = min(
            config.segment_index_bytes // self.offset_index.entry.size,
            config.segment_index_bytes // self.time_index.entry.size - 1,
        )
        # The jitter keeps many logs from rolling at the same time.
        jitter_ms = int(random_fraction * min(config.segment_jitter_ms, config.max_segment_ms))
        self._roll_wait_ms = config.max_segment_ms - jitter_ms

    @property
    def size(self) -> int:
        """Bytes of records."""
        return self.records.size

    @property
    def largest(self) -> TimestampOffset:
        """The largest timestamp and the last offset of its batch.

        After a load the time index has it. The index is compared with the log on the first use, because a
        start must not open the files of thousands of partitions.
        """
        largest = self._largest
        if largest is None:
            largest = self.time_index.last()
            if not self._has_largest(largest):
                logger.warning("%s does not fit the log and is rebuilt", self.time_index.path)
                largest = self._rebuild_time_index()
            self._largest = largest
        return largest

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 if it has none, or if there is no batch."""
        first = self._roll_timestamp
        if first is None:
            first = self._first_timestamp()
            if self.records.size:
                self._roll_timestamp = first
        return first

    @property
    def largest_timestamp(self) -> int:
        """The largest timestamp, or the file's last write if no record has one; used by retention."""
        timestamp = self.largest.timestamp
        return timestamp if timestamp >= 0 else self.modified_ms

    def create_files(self, preallocate_bytes: int = 0) -> None:
        """Create the empty files; files of an earlier failed attempt are emptied."""
        self.records.create(preallocate_bytes)
        self.offset_index.reset()
        self.time_index.reset()

    def append(
        self,
        data: Buffer,
        size: int,
        last_offset: int,
        timestamp: int,
        timestamp_offset: int,
        batches: Sequence[tuple[int, BatchHeader]] = (),
    ) -> int:
        """Append whole batches of `size` bytes and return their position.

        `timestamp` is their largest timestamp, `timestamp_offset` the last offset of its batch. `batches` has
        the positions in `data` and the headers of several batches: each may be due for an index entry.

        Raises:
            OSError: nothing was appended.
        """
        largest = self._largest
        if largest is None:
            # Before the write, because the time index does not have the new batch yet.
            largest = self.largest
        position = self.records.append(data, size)
        if position == 0:
            self._roll_timestamp = timestamp
        if len(batches) > 1 and self._bytes_since_index_entry + size > self._index_interval_bytes:
            self._index_batches(position, batches, largest)
            return position
        if timestamp > largest.timestamp:
            largest = self._largest = TimestampOffset(timestamp, timestamp_offset)
        if self._bytes_since_index_entry > self._index_interval_bytes:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(largest.timestamp, largest.offset)
            self._bytes_since_index_entry = 0
        self._bytes_since_index_entry += size
        return position

    def _index_batches(
        self, start: int, batches: Sequence[tuple[int, BatchHeader]], largest: TimestampOffset
    ) -> None:
        """Do what an append of each batch by itself does; `start` is the position of the first one."""
        waiting, interval = self._bytes_since_index_entry, self._index_interval_bytes
        for position, header in batches:
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
            # The segment rolls before the next append if the index has become full.
            if waiting > interval and self.offset_index.entries < self._entries_max:
                self.offset_index.append(header.last_offset, start + position)
                self.time_index.maybe_append(largest.timestamp, largest.offset)
                waiting = 0
            waiting += header.size
        self._bytes_since_index_entry, self._largest = waiting, largest

    def should_roll(
        self, size: int, last_offset: int, timestamp: int, now_ms: int, segment_bytes: int
    ) -> bool:
        """Return whether an append of `size` bytes up to `last_offset` must go to a new segment."""
        held = self.records.size
        if not held:
            return last_offset - self.base_offset > INT32_MAX
        if held + size > segment_bytes or last_offset - self.base_offset > INT32_MAX:
            return True
        first = self._roll_timestamp
        if first is None:
            first = self.first_timestamp
        # In the records' time, or in the clock's if they have no timestamps.
        age_ms = timestamp - first if first >= 0 else now_ms - self.created_ms
        return age_ms > self._roll_wait_ms or self.offset_index.entries >= self._entries_max

    def find_batch(self, offset: int) -> BatchPosition | None:
        """Find the batch with `offset`, or the first one after it; ``None`` behind the last batch.

        Raises:
            CorruptRecordError: the header of a batch before it is damaged.
        """
        records = self.records
        if not records.size:
            # Its files may be gone: a segment with missing records is about to replace it.
            return None
        position = self.offset_index.lookup(offset).position
        if position <= 0:
            return records.search_offset(offset, 0)
        try:
            found = records.search_offset(offset, position)
        except CorruptRecordError:
            # The batches, or only the index, are damaged; nothing but the batches decides.
            return records.search_offset(offset, 0)
        if found is not None and found.base_offset > offset and found.position == position:
            # The batch of an entry begins at or below the entry's offset: a bit of the entry has flipped.
            return records.search_offset(offset, 0)
        return found

    def find_timestamp(
        self, timestamp: int, start_offset: int, search: BatchSearch = search_batch
    ) -> tuple[int, int, int] | None:
        """Find the first record at `start_offset` or later whose time is `timestamp` or later.

        `search` finds it in its batch. Returns its timestamp, its offset and the leader epoch of its batch.
        """
        hint = max(self.time_index.lookup(timestamp).offset, start_offset)
        position = self.offset_index.lookup(hint).position
        for at, header in self.records.iter_headers(position):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            found = search(self.records.read_batch(at, header.size), header, timestamp, start_offset)
            if found is not None:
                return *found, header.partition_leader_epoch
        return None

    def find_largest_timestamp(
        self, start_offset: int = 0, search: BatchSearch = search_batch
    ) -> tuple[int, int, int] | None:
        """Find the first record that has the segment's largest timestamp, as `find_timestamp` does."""
        largest = self.largest
        if largest.timestamp < 0:
            return None
        position = self.offset_index.lookup(largest.offset).position
        for at, header in self.records.iter_headers(position):
            if header.max_timestamp != largest.timestamp or header.last_offset < start_offset:
                continue
            found = search(self.records.read_batch(at, header.size), header, largest.timestamp, start_offset)
            if found is not None:
                return *found, header.partition_leader_epoch
        return None

    def read_next_offset(self) -> int:
        """Return the offset after the last batch, walking from the last index entry to the end.

        Raises:
            CorruptIndexError: the entry does not point at a batch, or the file does not end with one.
        """
        next_offset = self.base_offset
        entry = self.offset_index.last()
        end = entry.position
        for found in self.records.iter_positions(end):
            if end == entry.position > 0 and found.base_offset > entry.offset:
                break
            next_offset, end = found.last_offset + 1, found.position + found.size
        if end != self.records.size:
            raise CorruptIndexError(
                f"{self.records.path}: batches end at byte {end}, the file at {self.records.size}"
            )
        return next_offset

    def read_largest(self) -> None:
        """Update the largest timestamp from the batches after the last index entry."""
        largest = self.time_index.last()
        position = self.offset_index.lookup(largest.offset).position
        for _, header in self.records.iter_headers(position):
            if header.max_timestamp > largest.timestamp:
                largest = TimestampOffset(header.max_timestamp, header.last_offset)
        self._largest = largest

    def truncate_to(self, offset: int) -> int:
        """Drop the batches that end at `offset` or later; return the bytes that went.

        Batches [0,9][10,19]: `truncate_to(10)` keeps [0,9], and so does `truncate_to(15)`, because a batch is
        never split.
        """
        found = self.find_batch(offset)
        self.offset_index.truncate_to(found.base_offset if found else offset)
        self.time_index.truncate_to(found.base_offset if found else offset)
        self.transaction_index.truncate_to(offset)
        removed = self.records.truncate_to(found.position) if found else 0
        if not self.records.size:
            self._roll_timestamp = None
        self._bytes_since_index_entry = 0
        if self.records.size:
            self.read_largest()
        else:
            self._largest = self._no_timestamp()
        return removed

    def recover(
        self,
        on_batch: Callable[["LogSegment", BatchHeader, memoryview], None],
        limit: int | None = None,
        keep_rest: Callable[[int, int], None] | None = None,
    ) -> Recovered:
        """Check every batch, truncate the file at the first bad one, and rebuild the indexes.

        `on_batch` is called with each good batch, in order, before the next is read. A batch at or above
        `limit`, where the next segment begins, is bad. If good batches follow a bad one, `keep_rest` is
        called with position and base offset of the first of them before the file is truncated.
        """
        self.offset_index.reset()
        self.time_index.reset()
        aborted = self._reset_transaction_index()
        largest = self._no_timestamp()
        self._largest = largest
        last_offset_max = self.base_offset + INT32_MAX if limit is None else limit - 1
        valid, last_entry, next_offset = 0, 0, self.base_offset
        try:
            for position, header, batch in self.records.iter_batches():
                validate(batch, 0, header)
                if header.base_offset < next_offset or header.last_offset > last_offset_max:
                    break
                if header.max_timestamp > largest.timestamp:
                    largest = self._largest = TimestampOffset(header.max_timestamp, header.last_offset)
                if position - last_entry > self._index_interval_bytes:
                    self.offset_index.append(header.last_offset, position)
                    self.time_index.maybe_append(largest.timestamp, largest.offset)
                    last_entry = position
                on_batch(self, header, batch)
                valid, next_offset = position + header.size, header.next_offset
        except RecordsError as error:
            logger.warning("%s: bad batch at byte %d: %s", self.records.path, valid, error)
        if keep_rest is not None and valid < self.records.size:
            rest = self._next_good_batch(valid, next_offset, last_offset_max)
            if rest is not None:
                keep_rest(rest.position, rest.base_offset)
        removed = self.records.truncate_to(valid)
        self._bytes_since_index_entry = valid - last_entry
        self.finish_indexes()
        return Recovered(
            next_offset, removed, [entry for entry in aborted if entry.last_offset >= next_offset]
        )

    def _reset_transaction_index(self) -> list[AbortedTransaction]:
        """Empty the transaction index; return its entries, or none if it cannot be read."""
        try:
            aborted = self.transaction_index.entries()
        except CorruptIndexError:
            aborted = []
        self.transaction_index.reset()
        return aborted

    def _next_good_batch(self, position: int, next_offset: int, last_offset_max: int) -> BatchPosition | None:
        """Find the first valid batch behind a bad one that can follow `next_offset`, by the sizes in headers.

        Without this, one flipped bit would cost all records to the end of the segment.
        """
        for found in self.records.iter_positions(position):
            if next_offset <= found.base_offset and found.last_offset <= last_offset_max:
                batch = self.records.read_batch(found.position, found.size)
                with contextlib.suppress(RecordsError):
                    header = read_header(batch)
                    validate(batch, 0, header)
                    return found._replace(base_offset=first_offset(batch, 0, header))
        return None

    def finish_indexes(self) -> None:
        """Complete the indexes and trim their files, as for a segment without further appends."""
        largest = self._largest
        # None means that nothing was appended since the load: the last entry exists already.
        if largest is not None and self.records.size:
            self.time_index.maybe_append(largest.timestamp, largest.offset)
        self.offset_index.trim()
        self.time_index.trim()
        self.transaction_index.write_pending()

    def write_pending(self) -> None:
        """Write the index entries that are only in memory; raises `OSError`."""
        self.offset_index.write_pending()
        self.time_index.write_pending()
        self.transaction_index.write_pending()

    def prepare_sync(self) -> Callable[[], None]:
        """Return a function that syncs the files; it uses no state of the segment and may run anywhere."""
        file = self.records.file()
        indexes = (self.offset_index, self.time_index, self.transaction_index)

        def sync() -> None:
            file.sync()
            for index in indexes:
                index.sync()

        return sync

    def check(self) -> None:
        """Check that the indexes can belong to the log; raises `CorruptIndexError`."""
        self.offset_index.check(self.records.size)
        self.time_index.check(self.records.size)
        self.transaction_index.entries()

    def check_invariants(self, end_offset: int) -> None:
        """Assert that the state in memory lies below `end_offset`, where the next segment begins."""
        size, largest = self.records.size, self._largest
        assert size or not self.offset_index.entries, f"{self} has {self.offset_index.entries} index entries"
        if largest is not None and largest.timestamp >= 0:
            assert self.base_offset <= largest.offset < end_offset, f"{self} ends at {end_offset}: {largest}"
        self.offset_index.check_invariants(end_offset, size)
        self.time_index.check_invariants(end_offset)

    def mark_deleted(self) -> list[str]:
        """Rename the files to ``.deleted`` and return their new names; reads in flight continue.

        The caller removes the files later, which frees their space.
        """
        stem = self.records.path[: -len(LOG_SUFFIX)]
        marked = []
        for suffix in (LOG_SUFFIX, *INDEX_SUFFIXES):
            if self._file_system.exists(stem + suffix):
                self._file_system.rename(stem + suffix, stem + suffix + DELETED_SUFFIX)
                marked.append(stem + suffix + DELETED_SUFFIX)
        self.forget()
        return marked

    def drop_file_suffix(self, file_suffix: str) -> None:
        """Rename the files to names without `file_suffix`; calling again continues after a failure.

        The log is first: once it has its own name, a start uses the indexes that belong to it.

        Raises:
            OSError: some files still have the suffix; all can be read.
        """
        for part in (self.records, self.offset_index, self.time_index, self.transaction_index):
            if part.path.endswith(file_suffix):
                target = part.path.removesuffix(file_suffix)
                if self._file_system.exists(part.path):
                    self._file_system.rename(part.path, target)
                part.path = target

    def relocate(self, directory: str) -> None:
        """Note that the files' directory was renamed to `directory`; open files stay open."""
        self.directory = directory
        for part in (self.records, self.offset_index, self.time_index, self.transaction_index):
            part.path = os.path.join(directory, os.path.basename(part.path))

    def remove_files(self) -> None:
        """Remove the files at once."""
        self.remove_offset_indexes()
        self._file_system.remove(self.transaction_index.path)
        self._file_system.remove(self.records.path)

    def remove_offset_indexes(self) -> None:
        """Close all files and remove the indexes that a start rebuilds from the log."""
        self.forget()
        self._file_system.remove(self.offset_index.path)
        self._file_system.remove(self.time_index.path)

    def forget(self) -> None:
        """Release descriptors and caches without writing."""
        self.records.close()
        self.offset_index.forget()
        self.time_index.forget()

    def close(self) -> None:
        """Write the pending index entries and release descriptors and caches."""
        try:
            self.finish_indexes()
        finally:
            self.forget()

    def _has_largest(self, entry: TimestampOffset) -> bool:
        """Return whether `entry`, the last of the time index, is the largest timestamp; reads a few batches.

        The last entry of a closed segment is its largest timestamp. The batch that the entry names must
        therefore have it, batches behind the last entry of the offset index must not exceed it, and without
        an entry the first batch must have no timestamp.
        """
        try:
            if entry.timestamp < 0:
                if self._first_timestamp() >= 0:
                    return False
            elif self._timestamp_at(entry.offset) != entry.timestamp:
                return False
            tail = self.records.iter_headers(self.offset_index.last().position)
            return all(header.max_timestamp <= entry.timestamp for _, header in tail)
        except RecordsError:
            return False

    def _timestamp_at(self, offset: int) -> int | None:
        """Return the largest timestamp of the batch that holds `offset`."""
        for _, header in self.records.iter_headers(self.offset_index.lookup(offset).position):
            if header.last_offset >= offset:
                return header.max_timestamp if header.base_offset <= offset else None
        return None

    def _rebuild_time_index(self) -> TimestampOffset:
        """Write the time index again from the headers of all batches; return the largest timestamp."""
        self.time_index.reset()
        largest, last_entry = self._no_timestamp(), 0
        try:
            for position, header in self.records.iter_headers():
                if header.max_timestamp > largest.timestamp:
                    largest = TimestampOffset(header.max_timestamp, header.last_offset)
                if position - last_entry > self._index_interval_bytes:
                    self.time_index.maybe_append(largest.timestamp, largest.offset)
                    last_entry = position
        except RecordsError as error:
            logger.warning("%s: time index ends at a bad batch: %s", self.records.path, error)
        self.time_index.maybe_append(largest.timestamp, largest.offset)
        # On a full disk the entries stay in memory, and the next start rebuilds the index again.
        with contextlib.suppress(OSError):
            self.time_index.write_pending()
        return largest

    def _first_timestamp(self) -> int:
        for _, header in self.records.iter_headers():
            return header.max_timestamp
        return NO_TIMESTAMP

    def _no_timestamp(self) -> TimestampOffset:
        return TimestampOffset(NO_TIMESTAMP, self.base_offset)

    def __repr__(self) -> str:
        return f"LogSegment(base_offset={self.base_offset}, size={self.records.size})"

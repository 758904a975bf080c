"""One cleaning of one log: read the dirty part for its keys, then write every segment again without what is
superseded. Blocks, and touches nothing but the files of the job.

What is kept, as in Kafka 3.9: of the records with a key the last one; what lies above the last offset that
the table of keys covers; tombstones until the delete horizon in their batch's header has passed, which is set
when they are first cleaned; markers of transactions that still have batches, and then as long as tombstones;
the last batch of each known producer, empty if need be. Offsets never change.

What the table saves: which offsets survive is known when the dirty part was read, so that a batch of it that
survives whole, or not at all, is never opened again, and whole ones are copied many at a time.
"""

import os
import time
from collections.abc import Iterator
from typing import Final

from kalda.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
    validate,
)
from kalda.records.control import read_end_transaction_marker
from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.record import record_bytes
from kalda.storage.cleaner.batch_rewriter import empty_batch, keep_records, set_delete_horizon
from kalda.storage.cleaner.cleaned_segment import CleanedSegment
from kalda.storage.cleaner.grouping import group_segments
from kalda.storage.cleaner.job import CleanedGroup, CleaningJob, CleaningResult, SourceSegment
from kalda.storage.cleaner.offset_map import ENTRY_BYTES, OffsetMap, Survivors, is_long, shorten
from kalda.storage.cleaner.record_fields import offset_deltas, record_starts, scan_keys
from kalda.storage.cleaner.throttle import Throttle
from kalda.storage.cleaner.transactions import CleanedTransactions
from kalda.storage.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from kalda.storage.file_records import FileRecords
from kalda.storage.filesystem import FileSystem
from kalda.storage.handles import Handles
from kalda.storage.offset_index import OffsetIndex
from kalda.storage.transaction_index import AbortedTransaction, TransactionIndex

_CHUNK_BYTES_MIN: Final = 64 * 1024

Section = tuple[bytes, int, int]
"""Uncompressed records: bytes, and where in them the batch's records begin and end."""


class Cleaning:
    """The steps of one job, which share what is here."""

    def __init__(self, job: CleaningJob, file_system: FileSystem, throttle: Throttle | None = None) -> None:
        self._job: Final = job
        self._file_system: Final = file_system
        self._throttle: Final = throttle or Throttle(job.bytes_per_second)
        self._handles: Final = Handles()
        self._map: Final = OffsetMap(max(job.map_bytes, ENTRY_BYTES))
        self._last_records: Final = {pid: (offset, epoch) for pid, offset, epoch in job.last_records}
        self._chunk_bytes: Final = max(job.io_buffer_bytes, _CHUNK_BYTES_MIN)
        self._survivors: Survivors = self._map.survivors()
        # By base offset, when each log file was last written.
        self._modified_ms: dict[int, int] = {}
        self._bytes_read = self._bytes_written = 0
        self._records_read = self._records_written = self._records_without_key = 0

    def run(self) -> Iterator[CleanedGroup | CleaningResult]:
        """Yield each group when its replacement is complete, then how it all went.

        Raises:
            OSError: the disk failed.
            RecordsError, StorageError: the log holds what no log should; it cannot be cleaned.
        """
        job, table = self._job, self._map
        started = time.monotonic()
        self._remove_leftovers()
        aborted = self._read_aborted()
        self._fill_map(CleanedTransactions(aborted))
        table.finish()
        self._survivors = table.survivors()
        map_bytes_read, self._bytes_read = self._bytes_read, 0
        map_seconds = time.monotonic() - started
        end_offset = max(table.latest_offset + 1, job.first_dirty_offset)
        transactions = CleanedTransactions(aborted)
        cleanable = [segment for segment in job.segments if segment.base_offset < end_offset]
        for group in group_segments(cleanable, job.segment_bytes, job.segment_index_bytes):
            yield self._clean_group(group, transactions)
        yield CleaningResult(
            end_offset,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            records_read=self._records_read,
            records_written=self._records_written,
            records_without_key=self._records_without_key,
            map_bytes_read=map_bytes_read,
            map_seconds=map_seconds,
            seconds=time.monotonic() - started,
            map_utilization=table.utilization,
        )

    # Reading.

    def _path(self, base_offset: int, suffix: str) -> str:
        return os.path.join(self._job.directory, offset_file_name(base_offset, suffix))

    def _remove_leftovers(self) -> None:
        """Remove what a cleaning that was aborted has left.

        It must not be there when a replacement is put in place: a start after a crash would take it for a
        sign that the renaming had not come to its end.
        """
        for entry in self._file_system.list_directory(self._job.directory):
            if entry.name.endswith(CLEANED_SUFFIX):
                self._file_system.remove(os.path.join(self._job.directory, entry.name))
            elif (parsed := parse_offset_file_name(entry.name)) and parsed[1:] == (LOG_SUFFIX, ""):
                self._modified_ms[parsed[0]] = entry.modified_ms

    def _read_aborted(self) -> list[AbortedTransaction]:
        aborted = [AbortedTransaction(*entry) for entry in self._job.aborted]
        for segment in self._job.segments:
            if segment.transaction_index_size:
                path = self._path(segment.base_offset, TRANSACTION_INDEX_SUFFIX)
                index = TransactionIndex(self._file_system, path, segment.transaction_index_size)
                aborted += index.entries()
        return aborted

    def _batches(
        self, segment: SourceSegment, position: int = 0
    ) -> Iterator[tuple[bytes, list[tuple[int, BatchHeader]]]]:
        """Yield chunks of the segment's log with the positions and headers of the whole batches in them."""
        path = self._path(segment.base_offset, LOG_SUFFIX)
        records = FileRecords(self._file_system, path, segment.size, self._handles.files)
        file = records.file()
        wanted = self._chunk_bytes
        while position < segment.size:
            chunk = file.read_at(min(wanted, segment.size - position), position)
            self._throttle.take(len(chunk))
            headers, consumed = _read_headers(chunk)
            if not headers:
                size = read_header(chunk).size if len(chunk) >= HEADER_SIZE else segment.size
                if position + size > segment.size or size <= wanted:
                    raise CorruptRecordError(
                        f"{path}: the batch at byte {position} does not end within the log's "
                        f"{segment.size} bytes"
                    )
                # Larger than a chunk; the next one is of the usual size again.
                wanted = size
                continue
            wanted = self._chunk_bytes
            self._bytes_read += consumed
            position += consumed
            yield chunk, headers
        records.close()

    def _fill_map(self, transactions: CleanedTransactions) -> None:
        job = self._job
        for segment in job.segments:
            if segment.end_offset <= job.first_dirty_offset:
                continue
            if segment.base_offset >= job.first_uncleanable_offset:
                break
            if not self._map_segment(segment, transactions):
                return
            # Offsets at the segment's end may be gone; there is nothing in them.
            self._map.latest_offset = max(self._map.latest_offset, segment.end_offset - 1)

    def _map_segment(self, segment: SourceSegment, transactions: CleanedTransactions) -> bool:
        """Add a segment's keys to the table; returns False when that is full."""
        first_dirty, table = self._job.first_dirty_offset, self._map
        for chunk, headers in self._batches(segment, self._find_position(segment)):
            for position, header in headers:
                last_offset = header.base_offset + header.last_offset_delta
                if last_offset < first_dirty:
                    continue
                validate(chunk, position, header)
                if header.attributes & CONTROL_FLAG:
                    self._on_marker(transactions, chunk, position, header)
                elif not transactions.on_data(
                    header.producer_id, last_offset, header.attributes & TRANSACTIONAL_FLAG != 0
                ) and not self._map_batch(chunk, position, header):
                    return False
                if last_offset > table.latest_offset:
                    table.latest_offset = last_offset
        return True

    def _find_position(self, segment: SourceSegment) -> int:
        if segment.base_offset >= self._job.first_dirty_offset:
            return 0
        path = self._path(segment.base_offset, OFFSET_INDEX_SUFFIX)
        index = OffsetIndex(
            self._file_system, path, segment.base_offset, segment.offset_index_size, self._handles.indexes
        )
        return index.lookup(self._job.first_dirty_offset).position

    def _map_batch(self, chunk: bytes, position: int, header: BatchHeader) -> bool:
        if not header.record_count:
            return True
        data, start, end = _section(chunk, position, header)
        scanned = scan_keys(data, start, end, header.record_count)
        offsets = _offsets(data, scanned.starts, header)
        keys = _table_keys(scanned.keys)
        if None in keys:
            self._records_without_key += keys.count(None)
            offsets = [offset for key, offset in zip(keys, offsets, strict=True) if key is not None]
        present = [key for key in keys if key is not None] if None in keys else keys
        return self._map.add(present, offsets, header.base_offset, bool(scanned.tombstones))  # type: ignore[arg-type]

    # Writing.

    def _clean_group(self, group: list[SourceSegment], transactions: CleanedTransactions) -> CleanedGroup:
        job = self._job
        cleaned = CleanedSegment(
            self._file_system, job.directory, group[0].base_offset, job.index_interval_bytes
        )
        for segment in group:
            for chunk, headers in self._batches(segment):
                self._clean_chunk(chunk, headers, cleaned, transactions)
        self._wrote(cleaned.finish(transactions.retained, self._modified_ms.get(group[-1].base_offset)))
        transactions.retained = []
        size, offset_index_size, time_index_size, transaction_index_size = cleaned.sizes
        return CleanedGroup(
            cleaned.base_offset,
            tuple(segment.base_offset for segment in group),
            size,
            offset_index_size,
            time_index_size,
            transaction_index_size,
        )

    def _clean_chunk(
        self,
        chunk: bytes,
        headers: list[tuple[int, BatchHeader]],
        cleaned: CleanedSegment,
        transactions: CleanedTransactions,
    ) -> None:
        """Write what stays of a chunk; neighbours that stay whole go as one piece."""
        whole_from = whole_to = 0
        view = memoryview(chunk)
        for position, header in headers:
            size = header.size
            self._records_read += header.record_count
            replacement = self._clean_batch(chunk, position, header, transactions)
            if replacement is None:
                if whole_to != position:
                    if whole_to > whole_from:
                        self._wrote(cleaned.write(view[whole_from:whole_to]))
                    whole_from = position
                whole_to = position + size
                self._records_written += header.record_count
                cleaned.note(header, size, header.max_timestamp)
            elif replacement:
                if whole_to > whole_from:
                    self._wrote(cleaned.write(view[whole_from:whole_to]))
                whole_from = whole_to = 0
                changed = read_header(replacement)
                self._records_written += changed.record_count
                cleaned.note(changed, len(replacement), changed.max_timestamp)
                self._wrote(cleaned.write(replacement))
        if whole_to > whole_from:
            self._wrote(cleaned.write(view[whole_from:whole_to]))

    def _wrote(self, size: int) -> None:
        if size:
            self._bytes_written += size
            self._throttle.take(size)

    # Deciding.

    def _clean_batch(
        self, chunk: bytes, position: int, header: BatchHeader, transactions: CleanedTransactions
    ) -> bytearray | None:
        """Return what replaces a batch: empty bytes if it goes, ``None`` if it stays as it is."""
        if header.attributes & CONTROL_FLAG:
            return self._clean_marker(chunk, position, header, transactions)
        last_offset = header.base_offset + header.last_offset_delta
        is_dirty = self._job.first_dirty_offset <= last_offset <= self._map.latest_offset
        # Taken in any case: the walk through the survivors goes on behind this batch.
        survivors = self._survivors.take(last_offset) if is_dirty else []
        if transactions.on_data(header.producer_id, last_offset, header.attributes & TRANSACTIONAL_FLAG != 0):
            return self._without_records(header)
        if last_offset > self._map.latest_offset:
            return None
        count = header.record_count
        if not count:
            return None if self._is_last_of_producer(header) else bytearray()
        if not is_dirty:
            return self._clean_again(chunk, position, header)
        has_tombstones = self._survivors.has_tombstones(header.base_offset)
        if len(survivors) == count and not has_tombstones:
            return None
        if not survivors:
            return self._without_records(header)
        return self._clean_dirty(chunk, position, header, survivors, has_tombstones)

    def _clean_dirty(
        self, chunk: bytes, position: int, header: BatchHeader, survivors: list[int], has_tombstones: bool
    ) -> bytearray | None:
        """Decide on a batch of the dirty part, some of whose records survive."""
        data, start, end = _section(chunk, position, header)
        tombstones: list[int] = []
        if has_tombstones:
            _, starts, tombstones = scan_keys(data, start, end, header.record_count)
        else:
            starts = record_starts(data, start, end, header.record_count)
        base_offset = header.base_offset
        if header.record_count == header.last_offset_delta + 1:
            kept = [offset - base_offset for offset in survivors]
        else:
            alive = set(survivors)
            offsets = _offsets(data, starts, header)
            kept = [index for index, offset in enumerate(offsets) if offset in alive]
        return self._keep(header, data, end, starts, tombstones, kept)

    def _clean_again(self, chunk: bytes, position: int, header: BatchHeader) -> bytearray | None:
        """Decide on a batch below the dirty part: its keys are unique there, unless they came again since."""
        validate(chunk, position, header)
        data, start, end = _section(chunk, position, header)
        scanned = scan_keys(data, start, end, header.record_count)
        keys, superseding = _table_keys(scanned.keys), self._map.keys
        if not scanned.tombstones and None not in keys and superseding.isdisjoint(keys):
            return None
        kept = [index for index, key in enumerate(keys) if key is not None and key not in superseding]
        self._records_without_key += keys.count(None)
        return self._keep(header, data, end, scanned.starts, scanned.tombstones, kept)

    def _keep(
        self,
        header: BatchHeader,
        data: bytes,
        end: int,
        starts: list[int],
        tombstones: list[int],
        kept: list[int],
    ) -> bytearray | None:
        """Return the batch with the records `kept` but for tombstones whose time has come."""
        horizon_ms = header.delete_horizon_ms
        if tombstones:
            deletes = set(tombstones)
            if horizon_ms is not None and horizon_ms <= self._job.now_ms:
                kept = [index for index in kept if index not in deletes]
            elif horizon_ms is None and not deletes.isdisjoint(kept):
                horizon_ms = self._job.now_ms + self._job.delete_retention_ms
                return set_delete_horizon(header, data, starts, end, kept, horizon_ms)
        if not kept:
            return self._without_records(header)
        if len(kept) == header.record_count:
            return None
        return keep_records(header, data, starts, end, kept)

    def _clean_marker(
        self, chunk: bytes, position: int, header: BatchHeader, transactions: CleanedTransactions
    ) -> bytearray | None:
        """Decide on a control batch: it goes a while after its transaction's last batch went."""
        validate(chunk, position, header)
        is_ended = self._on_marker(transactions, chunk, position, header)
        horizon_ms = header.delete_horizon_ms
        if not header.record_count:
            return None if self._is_last_of_producer(header) else bytearray()
        if not is_ended:
            return None
        if horizon_ms is None:
            data, start, end = _section(chunk, position, header)
            starts = scan_keys(data, start, end, header.record_count).starts
            horizon_ms = self._job.now_ms + self._job.delete_retention_ms
            return set_delete_horizon(header, data, starts, end, range(len(starts)), horizon_ms)
        return self._without_records(header) if horizon_ms <= self._job.now_ms else None

    @staticmethod
    def _on_marker(
        transactions: CleanedTransactions, chunk: bytes, position: int, header: BatchHeader
    ) -> bool:
        return transactions.on_marker(
            header.producer_id,
            header.last_offset,
            read_end_transaction_marker(chunk, position, header),
            is_empty=not header.record_count,
        )

    def _without_records(self, header: BatchHeader) -> bytearray:
        return empty_batch(header) if self._is_last_of_producer(header) else bytearray()

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        """Tell whether a producer goes on from this batch: its sequence numbers, or its epoch alone."""
        if header.producer_id < 0:
            return False
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        last_data_offset, epoch = last
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.attributes & CONTROL_FLAG != 0 and header.producer_epoch == epoch


def _read_headers(chunk: bytes) -> tuple[list[tuple[int, BatchHeader]], int]:
    """Return position and header of each whole batch, and where the last one ends."""
    headers = []
    position, size = 0, len(chunk)
    try:
        while True:
            header = read_header(chunk, position)
            end = position + header.size
            if end > size:
                break
            headers.append((position, header))
            position = end
    except NeedMoreBytes:
        pass
    return headers, position


def _section(chunk: bytes, position: int, header: BatchHeader) -> Section:
    if not header.attributes & COMPRESSION_MASK:
        return chunk, position + HEADER_SIZE, position + header.size
    data = record_bytes(chunk, position, header)
    return data, 0, len(data)


def _offsets(data: bytes, starts: list[int], header: BatchHeader) -> "range | list[int]":
    base_offset, count = header.base_offset, header.record_count
    if count == header.last_offset_delta + 1:
        return range(base_offset, base_offset + count)
    return [base_offset + delta for delta in offset_deltas(data, starts)]


def _table_keys(keys: list[bytes | None]) -> list[bytes | None]:
    """Return what stands for the keys in the table."""
    if not is_long(keys):
        return keys
    return [None if key is None else shorten(key) for key in keys]

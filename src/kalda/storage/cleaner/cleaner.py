"""Cleans one log: maps the keys of its dirty part, then rewrites every segment without superseded records.

It blocks, and it uses nothing but the files of its job.

Records are retained as in Kafka 3.9: the last record of each key; everything above the last offset that the
offset map covers; tombstones until the delete horizon in their batch's header has passed, which the first
cleaning sets; markers of transactions that still have batches, and then as long as tombstones; the last batch
of each known producer, empty if need be. Offsets never change.

The offset map also records which dirty records survive and where they begin. A dirty batch that survives
whole, or not at all, is therefore never opened again, whole batches are copied many at a time, and only the
surviving records of the others are copied.
"""

import os
from collections.abc import Callable, Iterator
from typing import Final

from kalda.records.batch import (
    COMPRESSION_MASK,
    CONTROL_FLAG,
    HEADER_SIZE,
    MAGIC,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    read_header,
    validate,
)
from kalda.records.compression import DECOMPRESSED_SIZE_MAX
from kalda.records.control import read_end_transaction_marker
from kalda.records.decompression_buffer import DecompressionBuffer
from kalda.records.errors import CorruptRecordError, NeedMoreBytes
from kalda.records.format_conversion import up_convert
from kalda.records.message_set import iter_messages
from kalda.records.message_set_builder import MessageSetBuilder
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.system.clock import monotonic
from kalda.storage.cleaner.batch_rewriter import (
    empty_batch,
    keep_places,
    keep_records,
    set_delete_horizon,
    spans_of_indices,
)
from kalda.storage.cleaner.cleaned_segment import CleanedSegment
from kalda.storage.cleaner.cleaned_transaction_metadata import CleanedTransactionMetadata
from kalda.storage.cleaner.grouping import group_segments
from kalda.storage.cleaner.job import CleanedGroup, CleaningJob, CleaningResult, SourceSegment
from kalda.storage.cleaner.offset_map import (
    ENTRY_BYTES,
    PLACES_PER_OFFSET,
    OffsetMap,
    Places,
    Survivors,
    is_long,
    shorten,
)
from kalda.storage.cleaner.plain_batches import PlainBatchFilter, map_plain
from kalda.storage.cleaner.record_fields import note_keys, offset_deltas, record_starts, scan_keys
from kalda.storage.cleaner.throttler import Throttler
from kalda.storage.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from kalda.storage.file_records import FileRecords
from kalda.storage.log_caches import LogCaches
from kalda.storage.offset_index import OffsetIndex
from kalda.storage.transaction_index import AbortedTransaction, TransactionIndex

_CHUNK_BYTES_MIN: Final = 64 * 1024
_ENOUGH: Final = -1

Section = tuple[bytes, int, int]
"""Uncompressed records: bytes, and where the batch's records begin and end in them."""


class Cleaner:
    """Runs one job."""

    def __init__(self, job: CleaningJob, file_system: FileSystem, throttle: Throttler | None = None) -> None:
        self._job: Final = job
        self._file_system: Final = file_system
        self._throttle: Final = throttle or Throttler(job.bytes_per_second)
        self._caches: Final = LogCaches()
        self._map: Final = OffsetMap(max(job.map_bytes, ENTRY_BYTES))
        self._last_records: Final = {pid: (offset, epoch) for pid, offset, epoch in job.last_records}
        self._chunk_bytes: Final = max(job.io_buffer_bytes, _CHUNK_BYTES_MIN)
        self._survivors: Survivors = self._map.survivors()
        self._is_full = False
        # Tombstones of formats 0 and 1 in segments written before this time are removed, as in Kafka.
        self._old_delete_horizon_ms = 0
        self._keeps_old_tombstones = True
        # Base offset -> the last write of the log file.
        self._modified_ms: dict[int, int] = {}
        self._decompressed: Final = DecompressionBuffer()
        self._bytes_read = self._bytes_written = self._records_without_key = 0
        self._filter = self._new_filter()

    def run(self) -> Iterator[CleanedGroup | CleaningResult]:
        """Yield each group when its replacement is complete, then the result.

        Raises:
            OSError: the disk failed.
            RecordsError, StorageError: the log has invalid content and cannot be cleaned.
        """
        job, table = self._job, self._map
        started = monotonic()
        self._remove_leftovers()
        aborted = self._read_aborted()
        self._fill_map(CleanedTransactionMetadata(aborted))
        table.finish()
        self._survivors = table.survivors()
        self._filter = self._new_filter()
        map_bytes_read, self._bytes_read = self._bytes_read, 0
        map_seconds = monotonic() - started
        end_offset = max(table.latest_offset + 1, job.first_dirty_offset)
        transactions = CleanedTransactionMetadata(aborted)
        clean = [segment for segment in job.segments if segment.end_offset <= job.first_dirty_offset]
        if clean:
            last_modified_ms = self._modified_ms.get(clean[-1].base_offset, 0)
            self._old_delete_horizon_ms = last_modified_ms - job.delete_retention_ms
        cleanable = [segment for segment in job.segments if segment.base_offset < end_offset]
        for group in group_segments(cleanable, job.segment_bytes, job.segment_index_bytes):
            yield self._clean_group(group, transactions)
        yield CleaningResult(
            end_offset,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
            records_read=self._filter.records_read,
            records_written=self._filter.records_written,
            records_without_key=self._records_without_key,
            map_bytes_read=map_bytes_read,
            map_seconds=map_seconds,
            seconds=monotonic() - started,
            map_utilization=table.utilization,
        )

    def _new_filter(self) -> PlainBatchFilter:
        job = self._job
        return PlainBatchFilter(
            self._survivors, job.first_dirty_offset, self._map.latest_offset, self._last_records
        )

    # Reading.

    def _path(self, base_offset: int, suffix: str) -> str:
        return os.path.join(self._job.directory, offset_file_name(base_offset, suffix))

    def _remove_leftovers(self) -> None:
        """Remove the files of an aborted cleaning.

        They must be gone before a replacement is put in place: after a crash, a start would take them for a
        sign that the renaming was not complete.
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

    def _read(self, segment: SourceSegment, position: int, take: Callable[[bytes], int]) -> None:
        """Read the segment's log in chunks; `take` gets each and returns where its last whole batch ends.

        `take` returns `_ENOUGH` to stop.
        """
        path = self._path(segment.base_offset, LOG_SUFFIX)
        records = FileRecords(self._file_system, path, segment.size, self._caches.files)
        file = records.file()
        wanted = self._chunk_bytes
        while position < segment.size:
            chunk = file.read_at(min(wanted, segment.size - position), position)
            self._throttle.take(len(chunk))
            consumed = take(chunk)
            if consumed == _ENOUGH:
                break
            if not consumed:
                size = read_header(chunk).size if len(chunk) >= HEADER_SIZE else segment.size
                if position + size > segment.size or size <= wanted:
                    raise CorruptRecordError(
                        f"{path}: the batch at byte {position} does not end within the log's "
                        f"{segment.size} bytes"
                    )
                # A batch larger than a chunk; the next chunk has the usual size again.
                wanted = size
                continue
            wanted = self._chunk_bytes
            self._bytes_read += consumed
            position += consumed
        records.close()

    def _fill_map(self, transactions: CleanedTransactionMetadata) -> None:
        job = self._job
        for segment in job.segments:
            if segment.end_offset <= job.first_dirty_offset:
                continue
            if segment.base_offset >= job.first_uncleanable_offset:
                break
            self._read(
                segment, self._find_position(segment), lambda chunk: self._map_chunk(chunk, transactions)
            )
            if self._is_full:
                return
            # Offsets at the segment's end may have no records any more.
            self._map.latest_offset = max(self._map.latest_offset, segment.end_offset - 1)

    def _map_chunk(self, chunk: bytes, transactions: CleanedTransactionMetadata) -> int:
        """Add the keys of a chunk's batches to the offset map until it is full; see `_read`."""
        first_dirty, table = self._job.first_dirty_offset, self._map
        position = 0
        while True:
            position, keyless = map_plain(table, chunk, position, first_dirty)
            self._records_without_key += keyless
            header = _whole_batch(chunk, position)
            if header is None:
                return position
            last_offset = header.last_offset
            if last_offset >= first_dirty:
                validate(chunk, position, header)
                if header.is_barrier:
                    transactions.on_data(header.producer_id, last_offset, True)
                elif header.attributes & CONTROL_FLAG:
                    self._on_marker(transactions, chunk, position, header)
                elif not transactions.on_data(
                    header.producer_id, last_offset, header.attributes & TRANSACTIONAL_FLAG != 0
                ) and not self._map_batch(chunk, position, header):
                    self._is_full = True
                    return _ENOUGH
                if last_offset > table.latest_offset:
                    table.latest_offset = last_offset
            position += header.size

    def _find_position(self, segment: SourceSegment) -> int:
        if segment.base_offset >= self._job.first_dirty_offset:
            return 0
        path = self._path(segment.base_offset, OFFSET_INDEX_SUFFIX)
        index = OffsetIndex(
            self._file_system, path, segment.base_offset, segment.offset_index_size, self._caches.indexes
        )
        return index.lookup(self._job.first_dirty_offset).position

    def _map_batch(self, chunk: bytes, position: int, header: BatchHeader) -> bool:
        if header.magic != MAGIC:
            # As the batch that a client would make of it: a message, or those that one wraps.
            message = memoryview(chunk)[position : position + header.size]
            chunk, position = up_convert(message, check_crc=False).batches, 0
            header = read_header(chunk)
        count = header.record_count
        if not count:
            return True
        data, start, end = self._section(chunk, position, header)
        first_dirty = self._job.first_dirty_offset
        if header.base_offset >= first_dirty and count == header.last_offset_delta + 1 <= self._map.room:
            place = (header.base_offset - first_dirty) * PLACES_PER_OFFSET
            noted = note_keys(self._map.places, data, start, end, count, place)
            self._records_without_key += noted.keyless
            if noted.has_tombstones:
                self._map.note_tombstones(header.base_offset)
            return True
        scanned = scan_keys(data, start, end, count)
        offsets = _offsets(data, scanned.starts, header)
        places = [
            (offset - first_dirty) * PLACES_PER_OFFSET + at - start
            for offset, at in zip(offsets, scanned.starts, strict=True)
        ]
        keys = _table_keys(scanned.keys)
        if None in keys:
            self._records_without_key += keys.count(None)
            places = [place for key, place in zip(keys, places, strict=True) if key is not None]
        present = [key for key in keys if key is not None]
        return self._map.add(present, places, header.base_offset, bool(scanned.tombstones))

    # Writing.

    def _clean_group(
        self, group: list[SourceSegment], transactions: CleanedTransactionMetadata
    ) -> CleanedGroup:
        job = self._job
        cleaned = CleanedSegment(
            self._file_system, job.directory, group[0].base_offset, job.index_interval_bytes
        )
        for segment in group:
            modified_ms = self._modified_ms.get(segment.base_offset, self._job.now_ms)
            self._keeps_old_tombstones = modified_ms > self._old_delete_horizon_ms
            self._read(segment, 0, lambda chunk: self._clean_chunk(chunk, cleaned, transactions))
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
        self, chunk: bytes, cleaned: CleanedSegment, transactions: CleanedTransactionMetadata
    ) -> int:
        """Write the retained batches of a chunk; unchanged neighbours in one write. See `_read`."""
        view = memoryview(chunk)
        batch_filter = self._filter
        whole_from = whole_to = position = 0
        while True:
            position, spans = batch_filter.filter(chunk, position, cleaned)
            for start, end in spans:
                if start != whole_to:
                    self._wrote(cleaned.write(view[whole_from:whole_to]))
                    whole_from = start
                whole_to = end
            header = _whole_batch(chunk, position)
            if header is None:
                break
            size = header.size
            batch_filter.records_read += header.record_count
            replacement = self._clean_batch(chunk, position, header, transactions)
            if replacement is None:
                if position != whole_to:
                    self._wrote(cleaned.write(view[whole_from:whole_to]))
                    whole_from = position
                whole_to = position + size
                batch_filter.records_written += header.record_count
                cleaned.note(header.last_offset, size, header.max_timestamp)
            elif replacement:
                self._wrote(cleaned.write(view[whole_from:whole_to]))
                whole_from = whole_to = position + size
                changed = read_header(replacement)
                batch_filter.records_written += changed.record_count
                cleaned.note(changed.last_offset, len(replacement), changed.max_timestamp)
                self._wrote(cleaned.write(replacement))
            position += size
        self._wrote(cleaned.write(view[whole_from:whole_to]))
        return position

    def _wrote(self, size: int) -> None:
        if size:
            self._bytes_written += size
            self._throttle.take(size)

    # Deciding.

    def _clean_batch(
        self, chunk: bytes, position: int, header: BatchHeader, transactions: CleanedTransactionMetadata
    ) -> bytearray | None:
        """Return the replacement of a batch: empty bytes to drop it, ``None`` to keep it unchanged."""
        if header.attributes & CONTROL_FLAG and not header.is_barrier:
            return self._clean_marker(chunk, position, header, transactions)
        last_offset = header.base_offset + header.last_offset_delta
        is_dirty = self._job.first_dirty_offset <= last_offset <= self._map.latest_offset
        # Taken in any case, so that the walk through the survivors continues behind this batch.
        survivors = self._survivors.take(self._place_behind(last_offset) - 1) if is_dirty else []
        if transactions.on_data(header.producer_id, last_offset, header.attributes & TRANSACTIONAL_FLAG != 0):
            return self._without_records(header)
        if last_offset > self._map.latest_offset:
            return None
        if header.magic != MAGIC:
            return self._clean_messages(chunk, position, header, survivors if is_dirty else None)
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

    def _clean_messages(
        self, chunk: bytes, position: int, header: BatchHeader, survivors: Places | None
    ) -> bytearray | None:
        """Clean a message of format 0 or 1 with those that it wraps; no `survivors` is below the dirty part.

        These formats have no place for a delete horizon. Tombstones go with the age of the segment.
        """
        records = list(iter_messages(chunk, position, header))
        if survivors is None:
            superseding = self._map.keys
            keys = _table_keys([record.key for record in records])
            self._records_without_key += keys.count(None)
            kept = [
                record
                for record, key in zip(records, keys, strict=True)
                if key is not None and key not in superseding
            ]
        else:
            first_dirty = self._job.first_dirty_offset
            alive = {first_dirty + place // PLACES_PER_OFFSET for place in survivors}
            kept = [record for record in records if record.offset in alive]
        if not self._keeps_old_tombstones:
            kept = [record for record in kept if record.value is not None]
        if len(kept) == len(records):
            return None
        if not kept:
            return bytearray()
        builder = MessageSetBuilder(
            header.magic,
            base_offset=kept[0].offset,
            compression=header.compression,
            timestamp_type=header.timestamp_type,
            log_append_time=header.max_timestamp,
        )
        for record in kept:
            builder.append(record.key, record.value, record.timestamp, offset=record.offset)
        return builder.build()

    def _section(self, chunk: bytes, position: int, header: BatchHeader) -> Section:
        if not header.attributes & COMPRESSION_MASK:
            return chunk, position + HEADER_SIZE, position + header.size
        # In memory that is used again: to clear new memory for each batch costs half of what lz4 does.
        self._decompressed.clear()
        compressed = memoryview(chunk)[position + HEADER_SIZE : position + header.size]
        start, end = self._decompressed.append(header.compression, compressed, DECOMPRESSED_SIZE_MAX)
        return bytes(self._decompressed.view()), start, end

    def _place_behind(self, offset: int) -> int:
        return (offset + 1 - self._job.first_dirty_offset) * PLACES_PER_OFFSET

    def _clean_dirty(
        self, chunk: bytes, position: int, header: BatchHeader, survivors: Places, has_tombstones: bool
    ) -> bytearray | None:
        """Clean a batch of the dirty part of which some records survive."""
        data, start, end = self._section(chunk, position, header)
        if not has_tombstones:
            return keep_places(header, data, start, end, survivors)
        scanned = scan_keys(data, start, end, header.record_count)
        alive = {start + place % PLACES_PER_OFFSET for place in survivors}
        kept = [index for index, at in enumerate(scanned.starts) if at in alive]
        return self._keep(header, data, end, scanned.starts, scanned.tombstones, kept)

    def _clean_again(self, chunk: bytes, position: int, header: BatchHeader) -> bytearray | None:
        """Clean a batch below the dirty part: its records survive unless the dirty part has their keys."""
        validate(chunk, position, header)
        data, start, end = self._section(chunk, position, header)
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
        """Return the batch with the records `kept`, without tombstones whose delete horizon has passed."""
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
        spans = spans_of_indices(starts, end, kept)
        return keep_records(header, data, spans, len(kept), (starts[index] for index in reversed(kept)))

    def _clean_marker(
        self, chunk: bytes, position: int, header: BatchHeader, transactions: CleanedTransactionMetadata
    ) -> bytearray | None:
        """Clean a control batch: it is dropped some time after its transaction's last batch."""
        validate(chunk, position, header)
        is_ended = self._on_marker(transactions, chunk, position, header)
        horizon_ms = header.delete_horizon_ms
        if not header.record_count:
            return None if self._is_last_of_producer(header) else bytearray()
        if not is_ended:
            return None
        if horizon_ms is None:
            data, start, end = self._section(chunk, position, header)
            starts = record_starts(data, start, end, header.record_count)
            horizon_ms = self._job.now_ms + self._job.delete_retention_ms
            return set_delete_horizon(header, data, starts, end, range(len(starts)), horizon_ms)
        return self._without_records(header) if horizon_ms <= self._job.now_ms else None

    @staticmethod
    def _on_marker(
        transactions: CleanedTransactionMetadata, chunk: bytes, position: int, header: BatchHeader
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
        """Return whether a producer's state needs this batch, for its sequence numbers or its epoch."""
        if header.producer_id < 0:
            return False
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        last_data_offset, epoch = last
        if last_data_offset >= 0:
            return header.last_offset == last_data_offset
        return header.attributes & CONTROL_FLAG != 0 and header.producer_epoch == epoch


def _whole_batch(chunk: bytes, position: int) -> BatchHeader | None:
    """Read the header at `position`; ``None`` if the chunk ends before its batch."""
    try:
        header = read_header(chunk, position)
    except NeedMoreBytes:
        return None
    return header if position + header.size <= len(chunk) else None


def _offsets(data: bytes, starts: list[int], header: BatchHeader) -> "range | list[int]":
    base_offset, count = header.base_offset, header.record_count
    if count == header.last_offset_delta + 1:
        return range(base_offset, base_offset + count)
    return [base_offset + delta for delta in offset_deltas(data, starts)]


def _table_keys(keys: list[bytes | None]) -> list[bytes | None]:
    """Return the keys as the offset map has them: long keys are shortened."""
    if not is_long(keys):
        return keys
    return [None if key is None else shorten(key) for key in keys]

"""Ties together the parts of one partition's log: appends, reads, truncation, retention, offsets.

It combines the segments (`local_log`), producer state, leader epochs and validation, and owns the offsets
that bound readers. All calls come from one thread, the event loop's. Two things run elsewhere: fsync and
unlink, on the executor of `LogResources`, and `validator.prepare`, on the conversion pool.

Invariants: an append checks, then writes, then changes state, so a failed one leaves nothing behind. Between
calls ``log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset``.
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Sequence
from typing import Final

from kalda.common import invariants
from kalda.common.types import UUID, TopicPartition
from kalda.events.event import EventKind, Plain
from kalda.records.batch import CONTROL_FLAG, BatchHeader, read_header, set_base_offset_and_leader_epoch
from kalda.records.control import EndTransactionMarker, read_end_transaction_marker
from kalda.runtime.error_text import error_text
from kalda.storage import retention
from kalda.storage.checked_batches import CheckedBatches, LogEnd, read_follower_batches
from kalda.storage.checkpoints import write_partition_metadata
from kalda.storage.directory_failures import is_out_of_space
from kalda.storage.disk_errors import DiskErrors
from kalda.storage.errors import (
    InconsistentTopicIdError,
    LogStorageError,
    OffsetOutOfRangeError,
    RecordsMissingError,
)
from kalda.storage.file_records import EMPTY_SLICE
from kalda.storage.leader_epoch_cache import LeaderEpochFileCache
from kalda.storage.local_log import LocalLog
from kalda.storage.log_config import LogConfig
from kalda.storage.log_flusher import LogFlusher
from kalda.storage.log_resources import LogResources
from kalda.storage.log_segment import LogSegment
from kalda.storage.log_types import FetchDataInfo, FetchIsolation, LogAppendInfo, TimestampAndOffset
from kalda.storage.log_validator import LogValidator, Prepared, WritableBuffer
from kalda.storage.missing_offsets import MissingOffsets
from kalda.storage.producer_state_manager import AppendOrigin, ProducerStateManager
from kalda.storage.producer_state_rebuild import (
    rebuild_producer_state,
    replay_batches,
    update_producers,
)

# The types in a log's signatures, so that callers import one module.
__all__ = ["FetchDataInfo", "FetchIsolation", "LogAppendInfo", "TimestampAndOffset", "UnifiedLog"]

logger: Final = logging.getLogger(__name__)

# Python 3.11 looks a member of an enum up in a function, at thirty times the cost of a global.
_CLIENT: Final = AppendOrigin.CLIENT
_HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
_TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED


class UnifiedLog:
    """The log of one partition; `LogLoader` creates it."""

    __slots__ = (
        "_flusher",
        "_is_dirty",
        "_is_moved",
        "_local",
        "_resources",
        "disk_errors",
        "high_watermark",
        "is_being_cleaned",
        "leader_epochs",
        "log_start_offset",
        "missing",
        "producer_state",
        "topic_id",
        "topic_partition",
        "validator",
    )

    def __init__(
        self,
        local: LocalLog,
        resources: LogResources,
        *,
        topic_id: UUID | None,
        log_start_offset: int,
        high_watermark: int,
        leader_epochs: LeaderEpochFileCache,
        producer_state: ProducerStateManager,
        missing: MissingOffsets,
    ) -> None:
        self.topic_partition: Final[TopicPartition] = local.topic_partition
        self.topic_id = topic_id
        # Reports disk errors of this log.
        self.disk_errors: Final = DiskErrors(local.topic_partition, local.directory, resources)
        # Readers cannot read below, though the segment may still exist.
        self.log_start_offset = log_start_offset
        # All in-sync replicas have the records below; the partition's leader or fetches from it raise it.
        self.high_watermark = min(max(high_watermark, log_start_offset), local.log_end_offset)
        self.leader_epochs: Final = leader_epochs
        self.producer_state: Final = producer_state
        # Offsets whose records were damaged on disk; readers skip them.
        self.missing: Final = missing
        self._resources: Final = resources
        self._local: Final = local
        self.validator = self._make_validator()
        self._is_dirty = False
        self._is_moved = False
        # Set by the log cleaner: retention skips the log meanwhile.
        self.is_being_cleaned = False
        self._flusher: Final = LogFlusher(local, resources, leader_epochs, self._mark_clean, self._mark_moved)
        producer_state.on_high_watermark(self.high_watermark)
        self._check()

    @property
    def config(self) -> LogConfig:
        """The current settings."""
        return self._local.config

    @property
    def directory(self) -> str:
        """The directory of the log's files."""
        return self._local.directory

    @property
    def log_end_offset(self) -> int:
        """The offset that the next record gets."""
        return self._local.log_end_offset

    @property
    def recovery_point(self) -> int:
        """The offset below which everything is on the device."""
        return self._local.recovery_point

    @property
    def last_stable_offset(self) -> int:
        """The bound of read_committed reads: the high watermark or the first undecided offset."""
        unstable = self.producer_state.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def size(self) -> int:
        """Bytes of records in all segments."""
        return self._local.segments.size

    @property
    def segments(self) -> tuple[LogSegment, ...]:
        """The segments, oldest first, as an immutable value."""
        return self._local.segments.items

    @property
    def failure(self) -> str | None:
        """Why the log refuses appends, or ``None``; a failed sync leaves the disk's content unknown."""
        return self._flusher.failure

    @property
    def is_writable(self) -> bool:
        """Whether appends may succeed: the log directory is not full, and no sync of this log failed."""
        failures = self._resources.failures
        return self.failure is None and os.path.dirname(self.directory) not in failures.full

    @property
    def last_flush(self) -> float:
        """When the last flush began, in seconds of the monotonic clock."""
        return self._flusher.last_flush

    def append_as_leader(
        self,
        records: WritableBuffer,
        leader_epoch: int,
        prepared: Prepared | None = None,
        origin: AppendOrigin = AppendOrigin.CLIENT,
    ) -> LogAppendInfo:
        """Append one batch at the log's end; its base offset and leader epoch are patched in `records`.

        What a client sends in another format is converted. `prepared` is what the validator's `prepare` made
        of `records`; with `PUT_OFF`, what would take long is refused instead.
        A duplicate of one of the producer's last five batches is not appended; the result is its first copy.

        Raises:
            HeavyBatchError: `prepared` is given, and it is to be prepared (again).
            StorageError, RecordsError: a subclass with the response's `code`; nothing was appended.
        """
        # After a failed sync nobody knows which pages are on the disk, so nothing is appended behind them.
        if self._flusher.failure is not None:
            raise LogStorageError(self._flusher.failure)
        now_ms = self._resources.clock.time_ms()
        validator = self.validator
        # Validation comes first, because it may replace `records`, and offsets are patched into the result.
        header: BatchHeader | None = None
        marker: EndTransactionMarker | None = None
        untouched = validator.read_untouched(records) if origin is _CLIENT else None
        if untouched is not None:
            last_offset_delta, timestamp, producer_id = untouched
            record_count, append_time_ms = last_offset_delta + 1, -1
            if producer_id >= 0:
                header = read_header(records)
        else:
            if origin is _CLIENT and validator.converts(records):
                batches = validator.convert(records, now_ms, self.log_end_offset, leader_epoch, prepared)
                info = self._append_batches(*batches[:2], validator.append_time_ms(now_ms))
                return info.as_converted(*batches[2:])
            header, records = validator.validate(records, origin, now_ms, prepared)
            last_offset_delta, timestamp = header.last_offset_delta, header.max_timestamp
            record_count, append_time_ms = header.record_count, validator.append_time_ms(now_ms)
        # Only reads the producer state. It is the last check that may refuse the batch, and a duplicate must
        # not consume offsets.
        if header is not None and header.producer_id >= 0:
            if header.attributes & CONTROL_FLAG and not header.is_barrier:
                marker = read_end_transaction_marker(records, 0, header)
                if marker is not None:
                    self.producer_state.check_marker(header, marker, origin)
            else:
                duplicate = self.producer_state.check_append(header, origin)
                if duplicate is not None:
                    first, last = duplicate.first_offset, duplicate.last_offset
                    return LogAppendInfo(
                        first, last, duplicate.timestamp, self.log_start_offset, True, 0, last - first + 1
                    )
        # No await from here to the write, so no other append gets the same offsets.
        first_offset = self._local.log_end_offset
        last_offset = first_offset + last_offset_delta
        size = len(records)
        set_base_offset_and_leader_epoch(records, 0, first_offset, leader_epoch)
        try:
            # The epoch is stored before its first record: loading a log removes an epoch without records, but
            # records of an epoch that is not stored would make followers truncate at the wrong offset.
            if leader_epoch != self.leader_epochs.latest_epoch and leader_epoch >= 0:
                self.leader_epochs.assign(leader_epoch, first_offset)
            self._write(records, size, first_offset, last_offset, timestamp, last_offset, now_ms)
        except OSError as error:
            raise self.disk_errors.error("append to", error) from error
        # After the write: a roll in it stores a snapshot of the producers, which ends before this batch. A
        # failed write leaves the state as it was, so that the producer can send the batch again.
        if header is not None and header.producer_id >= 0:
            self._update_producer(header, marker, first_offset, last_offset)
        # Records are durable by replication; this syncs them only where `flush.messages` demands it.
        self._note_appended()
        start = self.log_start_offset
        return LogAppendInfo(first_offset, last_offset, append_time_ms, start, False, size, record_count)

    def append_as_follower(self, records: WritableBuffer, leader_epoch: int | None = None) -> LogAppendInfo:
        """Append batches with the leader's offsets and epochs; a partial last batch is left out.

        `leader_epoch` is the epoch of the leader that sent them, if a leader did: no batch has a later one.

        Raises:
            UnexpectedAppendOffsetError: a batch lies below the log's end, or its leader epoch cannot follow.
            StorageError, RecordsError: a subclass with an error `code`; nothing was appended.
        """
        if self._flusher.failure is not None:
            raise LogStorageError(self._flusher.failure)
        end = self._local.log_end_offset
        batches = read_follower_batches(
            records,
            LogEnd(self.topic_partition, end, self.leader_epochs.latest_epoch),
            leader_epoch,
        )
        if batches is None:
            return LogAppendInfo(end, end - 1, -1, self.log_start_offset, False, 0, 0)
        return self._append_batches(memoryview(records)[: batches.size], batches)

    def _append_batches(
        self, records: memoryview, batches: CheckedBatches, append_time_ms: int = -1
    ) -> LogAppendInfo:
        """Append batches that have their offsets and leader epochs."""
        markers = batches.read_markers(records)
        try:
            for _, header in batches.headers:
                epoch = header.partition_leader_epoch
                if epoch >= 0 and epoch != self.leader_epochs.latest_epoch:
                    self.leader_epochs.assign(epoch, header.base_offset)
            self._write(
                records,
                batches.size,
                batches.first_offset,
                batches.last_offset,
                batches.timestamp,
                batches.timestamp_offset,
                self._resources.clock.time_ms(),
                batches.headers,
            )
        except OSError as error:
            raise self.disk_errors.error("append to", error) from error
        for position, header in batches.headers:
            if header.producer_id >= 0:
                self._update_producer(header, markers.get(position), header.base_offset, header.last_offset)
        self._note_appended()
        return batches.appended(append_time_ms, self.log_start_offset)

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK,
        min_one_batch: bool = True,
    ) -> FetchDataInfo:
        """Return records from the batch that holds `offset` on, inside one segment and below the bound.

        Raises:
            OffsetOutOfRangeError: `offset` is outside [log_start_offset, log_end_offset].
            LogStorageError: the disk failed, or the records are being fetched from other replicas.
        """
        local = self._local
        if offset < self.log_start_offset or offset > local.log_end_offset:
            raise OffsetOutOfRangeError(
                f"offset {offset} of {self.topic_partition} is outside "
                f"[{self.log_start_offset}, {local.log_end_offset}]"
            )
        if isolation is _HIGH_WATERMARK:
            bound = self.high_watermark
        elif isolation is FetchIsolation.LOG_END:
            bound = local.log_end_offset
        else:
            bound = self.last_stable_offset
        if self.missing.is_withheld and self.missing.holds(offset):
            raise RecordsMissingError(
                f"{self.topic_partition}: offset {offset} is being fetched from other replicas"
            )
        records, upper = EMPTY_SLICE, offset
        if offset < bound:
            try:
                is_committed = isolation is _TXN_COMMITTED
                records, upper = local.read(offset, max_bytes, bound, min_one_batch, is_committed)
            except OSError as error:
                raise self.disk_errors.error("read", error) from error
        if isolation is not _TXN_COMMITTED:
            return FetchDataInfo(records, offset, self.high_watermark)
        aborted = local.collect_aborted(offset, upper) if records.size else []
        return FetchDataInfo(records, offset, self.high_watermark, aborted)

    def assign_leader_epoch(self, leader_epoch: int) -> None:
        """Record that the leader of this epoch begins at the log's end; a new leader does this first.

        On a full disk the entry stays in memory until the epoch's first append, so the leader serves reads.

        Raises:
            LogStorageError: the disk failed.
        """
        try:
            self.leader_epochs.assign(leader_epoch, self.log_end_offset)
        except OSError as error:
            failure = self.disk_errors.error("write a leader epoch of", error)
            if not is_out_of_space(error):
                raise failure from error
            self.leader_epochs.assign_unwritten(leader_epoch, self.log_end_offset)

    def check_writable(self) -> None:
        """Try the first write of a new leader again, after the disk refused one.

        Raises:
            LogStorageError: the disk still refuses.
        """
        with self.disk_errors.raised("write again in"):
            self.leader_epochs.rewrite()

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch at or below `epoch` and its end offset; (-1, -1) if unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        """Raise the high watermark to `offset` (at most the log end offset); return whether it moved."""
        end = self._local.log_end_offset
        if offset > end:
            offset = end
        if offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.producer_state.on_high_watermark(offset)
        if not self._is_moved:
            self._mark_moved()
        if invariants.enabled:
            self.check_invariants()
        return True

    def delete_records_before(self, offset: int) -> int:
        """Raise the log start offset to `offset`; -1 means the high watermark. Returns the log start offset.

        The next retention pass deletes the segments below.

        Raises:
            OffsetOutOfRangeError: `offset` is above the high watermark.
            LogStorageError: the disk failed.
        """
        if offset == -1:
            offset = self.high_watermark
        if offset > self.high_watermark or offset < 0:
            raise OffsetOutOfRangeError(
                f"cannot delete records of {self.topic_partition} before {offset}: "
                f"the high watermark is {self.high_watermark}"
            )
        self._advance_start(offset)
        self._check()
        return self.log_start_offset

    def roll(self, base_offset: int | None = None) -> None:
        """Begin a new segment at the log's end, or above it: then no record has an offset in between.

        Raises:
            LogStorageError: the disk failed.
        """
        with self.disk_errors.raised("roll"):
            self._roll(self.log_end_offset if base_offset is None else base_offset)
        self._check()

    def flush(self, done: Callable[[], None] | None = None) -> None:
        """Sync everything appended so far in the background, then call `done`.

        `done` is called after a failed sync too: `recovery_point` shows what was synced.

        Raises:
            LogStorageError: an index could not be written; the recovery point stays.
        """
        try:
            self._flusher.flush(self.log_end_offset, done)
        except OSError as error:
            raise self.disk_errors.error("flush", error) from error

    def delete_old_segments(self, *, keep_expired: bool = False) -> int:
        """Delete the segments that exceed retention; return how many.

        With `keep_expired` only those below the log start offset are deleted.

        Raises:
            LogStorageError: the disk failed; the next call deletes the rest.
        """
        rules = retention.rules(
            self.config, self.log_start_offset, self.high_watermark, self._resources.clock.time_ms()
        )
        is_full = os.path.dirname(self.directory) in self._resources.failures.full
        # Readers in place have to make way where there is no room.
        leases = None if is_full else self._resources.read_leases
        count = 0
        with self.disk_errors.raised("delete segments of"):
            for expired, reason in rules[:1] if keep_expired else rules:
                facts = retention.facts_of(self.segments, self.log_end_offset)
                found = retention.unleased(facts, expired(facts), self.topic_partition, leases)
                count += self._drop(found, reason)
        self._check()
        return count

    def truncate_to(self, offset: int) -> bool:
        """Truncate the log to end at `offset`; return whether it was longer.

        Log [10,50): `truncate_to(30)` → [10,30), `truncate_to(60)` → unchanged, `truncate_to(5)` → [5,5).

        Raises:
            LogStorageError: the disk failed; call again.
        """
        assert offset >= 0, f"offsets are not negative, got {offset}"
        with self.disk_errors.raised("truncate"):
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(self.log_end_offset)
                return False
            if offset < self._local.segments.items[0].base_offset:
                self._restart_at(offset)
                return True
            if self._resources.cleaner is not None:
                self._resources.cleaner.on_truncation(self.topic_partition, offset)
            logger.info("%s: truncating from %d to %d", self.topic_partition, self.log_end_offset, offset)
            self._emit(EventKind.RECORDS_TRUNCATED, offset, self.log_end_offset)
            self._resources.before_truncation(self.topic_partition, self.directory, offset)
            self._break_leases(offset)
            self._flusher.disown_running()
            gone = self._local.truncate_to(offset)
            # Before the steps that may fail: no reader may look above the log end offset.
            self.log_start_offset = min(self.log_start_offset, offset)
            self.high_watermark = min(self.high_watermark, offset)
            self.producer_state.remove_snapshots_of([segment.base_offset for segment in gone])
            self.leader_epochs.truncate_from_end(offset)
            self.missing.keep_between(0, offset)
            now_ms = self._resources.clock.time_ms()
            rebuild_producer_state(self.producer_state, self.segments, offset, now_ms)
            self.producer_state.on_high_watermark(self.high_watermark)
        self._mark_dirty()
        self._mark_moved()
        self._resources.on_truncation(self.topic_partition)
        self._check()
        return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Delete all records and start empty at `offset`, as a follower behind its leader's log start does.

        Raises:
            LogStorageError: the disk failed; call again.
        """
        with self.disk_errors.raised("truncate"):
            self._restart_at(offset)

    def replace_segments(self, segment: LogSegment, base_offsets: Collection[int]) -> list[LogSegment]:
        """Replace the segments that begin at `base_offsets` with a compacted one; return the old segments.

        The caller removes their files.
        """
        gone = self._local.replace_segments(segment, base_offsets)
        # The next start removes a snapshot that belongs to no segment.
        with contextlib.suppress(OSError):
            self.producer_state.remove_snapshots_of([each.base_offset for each in gone[1:]])
        self._check()
        return gone

    def insert_segment(self, segment: LogSegment, end_offset: int) -> None:
        """Insert a segment with records that were missing, up to `end_offset`.

        Raises `OSError`: the log is unchanged, and the caller removes the segment's files.
        """
        if self._resources.cleaner is not None:
            # The segment may have records that compaction removed elsewhere.
            self._resources.cleaner.on_truncation(self.topic_partition, segment.base_offset)
        self.missing.remove(segment.base_offset, end_offset)
        self._local.insert(segment, end_offset)
        self._check()

    def replay_transactions(self, first: int, end: int) -> None:
        """Rebuild producers and aborted transactions from `first` on, after the gap [first, end) was filled.

        What is behind the gap was replayed without its records: there a transaction that the gap ends seemed
        to be open, and one that the gap begins seemed to begin later or with an earlier transaction's offset.

        Raises `OSError`: the disk failed.
        """
        log_end_offset, state = self.log_end_offset, self.producer_state
        behind = [segment.transaction_index for segment in self.segments if segment.base_offset >= end]
        kept = [
            (index, aborted)
            for index in behind
            for aborted in index.entries()
            if self.missing.holds(aborted.last_offset)
        ]
        for index in behind:
            index.remove_between(end, log_end_offset)
        state.rewind(self.segments[0].base_offset, first, self._resources.clock.time_ms())
        replay_batches(state, self.segments, log_end_offset)
        for index, aborted in kept:
            index.append(aborted)
        state.on_high_watermark(self.high_watermark)
        self._check()

    def update_config(self, config: LogConfig) -> None:
        """Apply new settings."""
        self._local.configure(config)
        self.validator = self._make_validator()
        self.producer_state.expiration_ms = config.producer_id_expiration_ms

    def _make_validator(self) -> LogValidator:
        config = self._local.config
        return LogValidator(config, self._resources.inspection(self.topic_partition.topic, config))

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Write the topic id of the directory, once.

        Raises:
            InconsistentTopicIdError: the directory belongs to another topic.
            LogStorageError: the disk failed.
        """
        if self.topic_id not in (None, topic_id):
            raise InconsistentTopicIdError(
                f"{self.directory} belongs to topic id {self.topic_id}, not to {topic_id}"
            )
        with self.disk_errors.raised("write the topic id of"):
            write_partition_metadata(self._resources.file_system, self.directory, topic_id)
        self._flusher.sync_topic_id()
        self.topic_id = topic_id

    def on_checkpoint(self) -> None:
        """Note that a checkpoint has the offsets, so that the next move is reported again."""
        self._is_moved = False

    def take_producer_snapshot(self) -> None:
        """Write the producer state at the log's end, so that a start need not replay; raises `OSError`."""
        path = self.producer_state.take_snapshot()
        if path is not None:
            self._flusher.add_snapshot(path)

    def close(self) -> Callable[[], None] | None:
        """Complete and close all files; return a function that syncs them, or ``None`` if they are synced.

        The recovery point moves at once: the caller must run the function before it checkpoints.

        Raises:
            LogStorageError: the disk failed; the next start recovers this log.
        """
        try:
            if self._resources.cleaner is not None:
                self._resources.cleaner.abort(self.topic_partition)
            self.take_producer_snapshot()
            is_synced = self.log_end_offset <= self.recovery_point
            sync = None if is_synced else self._flusher.prepare()
            self._local.close()
            self._local.recovery_point = self.log_end_offset
        except OSError as error:
            raise self.disk_errors.error("close", error) from error
        finally:
            self.forget("the log is closed")
        return sync

    def detach(self, reason: str) -> LocalLog:
        """Refuse appends with `reason` from now on; return the files, which another log may take over."""
        self._flusher.failure = reason
        self._flusher.disown_running()
        return self._local

    def forget(self, reason: str) -> None:
        """Close all files without writing; later appends are refused with `reason`."""
        if self._resources.cleaner is not None:
            # A failed directory cannot be tidied up now; its next start does that.
            with contextlib.suppress(OSError):
                self._resources.cleaner.abort(self.topic_partition)
        if self._resources.read_leases is not None:
            self._resources.read_leases.on_removal(self.topic_partition)
        self._resources.dirty.discard(self.topic_partition)
        self._resources.moved.discard(self.topic_partition)
        self.detach(f"{self.topic_partition}: {reason}").forget()

    def check_invariants(self) -> None:
        """Assert that the offsets and the parts of the log agree; see `kalda.common.invariants`."""
        local, start, high_watermark = self._local, self.log_start_offset, self.high_watermark
        end, first, stable = local.log_end_offset, local.segments.items[0], self.last_stable_offset
        assert first.base_offset <= start, f"log start offset {start} lies below {first}"
        assert start <= high_watermark, f"log start offset {start} > high watermark {high_watermark}"
        assert high_watermark <= end, f"high watermark {high_watermark} > log end offset {end}"
        assert start <= stable <= high_watermark, f"last stable offset {stable} not in {self}"
        local.check_invariants()
        self.producer_state.check_invariants(end, high_watermark)
        self.leader_epochs.check_invariants(end)
        self.missing.check_invariants(end)

    def _check(self) -> None:
        if invariants.enabled:
            self.check_invariants()

    def _write(
        self,
        records: WritableBuffer,
        size: int,
        first_offset: int,
        last_offset: int,
        timestamp: int,
        timestamp_offset: int,
        now_ms: int,
        batches: Sequence[tuple[int, BatchHeader]] = (),
    ) -> None:
        """Append to the active segment, after a roll if one is due; raises `OSError`."""
        local = self._local
        if local.segments.active.should_roll(
            size, last_offset, timestamp, now_ms, local.config.segment_bytes
        ):
            self._roll(first_offset)
        local.append(records, size, first_offset, last_offset, timestamp, timestamp_offset, batches)

    def _note_appended(self) -> None:
        local = self._local
        end = local.log_end_offset
        self.producer_state.end_offset = end
        if not self._is_dirty:
            self._mark_dirty()
        if end - local.recovery_point >= local.config.flush_messages:
            self.flush()
        if invariants.enabled:
            self.check_invariants()

    def _update_producer(
        self, header: BatchHeader, marker: EndTransactionMarker | None, first_offset: int, last_offset: int
    ) -> None:
        index = self._local.segments.active.transaction_index
        update_producers(self.producer_state, index, header, marker, first_offset, last_offset)

    def _roll(self, base_offset: int) -> None:
        self.producer_state.end_offset = max(self.producer_state.end_offset, base_offset)
        self.take_producer_snapshot()
        self._local.roll(base_offset)
        try:
            self._flusher.flush(base_offset, None)
        except OSError as error:
            # The roll is complete; the next flush tries again.
            logger.warning("%s: flush after roll postponed: %s", self.topic_partition, error_text(error))

    def _drop(self, count: int, reason: str) -> int:
        if not count:
            return 0
        if count == len(self._local.segments):
            self._roll(self.log_end_offset)
        base_offset = self._local.segments.items[count].base_offset
        if base_offset > self.log_start_offset:
            # Segments below the start held no record any more.
            newest_ms = max(each.largest_timestamp for each in self._local.segments.items[:count])
            self._emit(
                EventKind.RECORDS_DELETED,
                self.log_start_offset,
                base_offset,
                reason=reason,
                newest_ms=newest_ms,
            )
        # The start moves first: no reader may look for an offset in a deleted segment.
        self._advance_start(base_offset)
        gone = self._local.drop_first(count)
        self.producer_state.remove_snapshots_of([segment.base_offset for segment in gone])
        logger.info("%s: deleted %d segments below %d: %s", self.topic_partition, count, base_offset, reason)
        return count

    def _emit(self, kind: str, start: int, end: int, **details: Plain) -> None:
        """Emit what happened to the offsets from `start` up to before `end`."""
        topic, partition = self.topic_partition
        self._resources.events.emit(
            kind, {"topic": topic, "partition": partition}, {"from": start, "to": end, **details}
        )

    def _advance_start(self, offset: int) -> None:
        if offset <= self.log_start_offset:
            return
        self.log_start_offset = offset
        self._local.recovery_point = max(self.recovery_point, offset)
        self._mark_moved()
        try:
            self.leader_epochs.truncate_from_start(offset)
            self.missing.keep_between(offset, max(offset, self.log_end_offset))
        except OSError as error:
            # Deleting must work on a full disk; the next load drops the entries below the start.
            logger.warning(
                "%s: log start offset %d not written: %s", self.topic_partition, offset, error_text(error)
            )

    def _restart_at(self, offset: int) -> None:
        if self._resources.cleaner is not None:
            self._resources.cleaner.on_truncation(self.topic_partition, offset)
        logger.info("%s: truncating fully, starting at %d", self.topic_partition, offset)
        if self.log_end_offset > self.log_start_offset:
            self._emit(
                EventKind.RECORDS_TRUNCATED, self.log_start_offset, self.log_end_offset, restarted_at=offset
            )
        self._resources.before_truncation(self.topic_partition, self.directory, offset)
        self._break_leases(self._local.segments.items[0].base_offset)
        self._flusher.disown_running()
        self._local.truncate_fully_and_start_at(offset)
        # Before the steps that may fail, as in `truncate_to`.
        self.log_start_offset = self.high_watermark = offset
        self.leader_epochs.clear()
        self.missing.keep_between(offset, offset)
        self.producer_state.reset(offset)
        self._mark_dirty()
        self._mark_moved()
        self._resources.on_truncation(self.topic_partition)
        self._check()

    def _break_leases(self, offset: int) -> None:
        if self._resources.read_leases is not None:
            self._resources.read_leases.on_truncation(self.topic_partition, offset)

    def _mark_dirty(self) -> None:
        self._is_dirty = True
        self._resources.dirty.add(self.topic_partition)

    def _mark_moved(self) -> None:
        self._is_moved = True
        self._resources.moved.add(self.topic_partition)

    def _mark_clean(self) -> None:
        self._is_dirty = False
        self._resources.dirty.discard(self.topic_partition)

    def __repr__(self) -> str:
        return f"UnifiedLog({self.topic_partition}, [{self.log_start_offset}, {self.log_end_offset}))"

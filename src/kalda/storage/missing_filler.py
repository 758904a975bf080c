"""Puts records back that a log has lost, from batches that another replica sent.

The batches carry their offsets and leader epochs, so the log gets the same bytes as the other replica. They
are collected in a segment whose files end in ``.tmp``, which a start removes; the log cleaner, which may work
on the same log meanwhile, removes what ends in ``.cleaned``. The segment is synced before the log shows it,
and only then the offsets stop being missing: a crash in between costs only the work.
"""

import logging
from collections.abc import Callable
from typing import Final

from kalda.records.batch import Buffer, iter_headers, validate
from kalda.records.errors import RecordsError
from kalda.records.message_set import first_offset
from kalda.runtime.error_text import error_text
from kalda.runtime.filesystem import TEMPORARY_SUFFIX
from kalda.storage.errors import (
    CorruptIndexError,
    GapChangedError,
    LogStorageError,
    UnexpectedAppendOffsetError,
)
from kalda.storage.leader_epoch_cache import UNDEFINED_EPOCH
from kalda.storage.log_resources import LogResources
from kalda.storage.log_segment import LogSegment
from kalda.storage.missing_offsets import OffsetRange
from kalda.storage.producer_state_manager import ProducerStateManager
from kalda.storage.producer_state_rebuild import replay_batches
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)

SEGMENT_BYTES_MAX: Final = 1 << 30
"""The largest segment before it is installed: positions in it are int32s."""


class GapFiller:
    """Fills one gap of one log from its beginning; all calls are on the log owner's thread.

    `leader_epoch` is that of the partition, as far as the broker knows. The log may have forgotten its last
    epochs together with the records: the file of the epochs is synced with them.
    """

    def __init__(
        self, log: UnifiedLog, resources: LogResources, gap: OffsetRange, leader_epoch: int = UNDEFINED_EPOCH
    ) -> None:
        self._log: Final = log
        self._resources: Final = resources
        self._first: Final = gap.first
        self._end: Final = gap.end
        self._segment: LogSegment | None = None
        self._has_markers = False
        self._has_transactions = False
        """Whether any record of the gap belongs to a transaction."""
        self.next_offset = gap.first
        """The first offset that is still missing."""
        epochs = log.leader_epochs
        before = epochs.epoch_for_offset(gap.first - 1) if gap.first else None
        self.last_epoch = UNDEFINED_EPOCH if before is None else before
        """The leader epoch of the record before `next_offset`; -1 if it is not known."""
        self._epoch_min: Final = before or 0
        after = epochs.epoch_for_offset(gap.end)
        self._epoch_max: Final = (
            max(epochs.latest_epoch, leader_epoch)
            if after is None or gap.end >= log.log_end_offset
            else after
        )
        self._epochs: Final[dict[int, int]] = {}
        """Where each epoch of the records begins that were appended."""

    @property
    def has_records(self) -> bool:
        """Whether records were appended that are not installed."""
        return self._segment is not None and self._segment.size > 0

    @property
    def is_due(self) -> bool:
        """Whether to install the appended records now: the gap is filled, or the segment is large."""
        segment = self._segment
        return segment is not None and (
            self.next_offset >= self._end
            or segment.size >= min(self._log.config.segment_bytes, SEGMENT_BYTES_MAX)
        )

    def append(self, records: Buffer) -> int | None:
        """Append the whole batches in `records` up to the end of the gap.

        Gap [10,20), batches [10,12] and [15,19] → the first is appended, and the result is 15.

        Returns:
            The offset at which the replica continues after records that it lacks too; ``None`` if it sent no
            gap.

        Raises:
            UnexpectedAppendOffsetError: a batch does not fit into the gap.
            RecordsError: a batch is damaged.
            LogStorageError: the disk failed.
        """
        is_compacted = self._log.config.is_compacted
        try:
            for position, header in iter_headers(records):
                if header.last_offset >= self._end:
                    if is_compacted and first_offset(records, position, header) >= self.next_offset:
                        self.next_offset = self._end
                    break
                validate(records, position, header)
                base, epoch = first_offset(records, position, header), header.partition_leader_epoch
                if base < self.next_offset or not self._epoch_min <= max(epoch, 0) <= max(self._epoch_max, 0):
                    raise UnexpectedAppendOffsetError(
                        f"{self._log.topic_partition}: batch [{base}, {header.last_offset}] of leader epoch "
                        f"{epoch} is not what is missing from {self.next_offset} on"
                    )
                if base > self.next_offset and not is_compacted:
                    return base
                segment = self._segment or self._begin()
                batch = memoryview(records)[position : position + header.size]
                segment.append(
                    batch, header.size, header.last_offset, header.max_timestamp, header.last_offset
                )
                if epoch >= 0:
                    self._epochs.setdefault(epoch, base)
                self.last_epoch = epoch
                self._has_markers |= header.is_control
                self._has_transactions |= header.is_transactional
                self.next_offset = header.next_offset
        except OSError as error:
            raise self._storage_error(error) from error
        return None

    def install(self, done: Callable[[Exception | None], None]) -> None:
        """Sync the appended records in the background and insert them into the log; then call `done`.

        `done` gets the error, or ``None``: a `GapChangedError` if the filler was abandoned or the gap was
        truncated meanwhile.

        Raises:
            LogStorageError: the disk failed.
        """
        segment = self._segment
        assert segment is not None, "nothing was appended"
        try:
            if self._has_markers:
                self._find_aborts(segment)
            self._keep_aborts(segment)
            segment.finish_indexes()
            sync = segment.prepare_sync()
        except OSError as error:
            raise self._storage_error(error) from error

        def synced(error: BaseException | None) -> None:
            try:
                self._check_gap(segment)
                if error is not None:
                    raise error
                self._show(segment)
            except OSError as failed:
                done(self._storage_error(failed))
            except Exception as failed:
                # A bug must reach the waiting caller too.
                done(failed)
            else:
                done(None)

        self._resources.executor.submit(sync, synced)

    def abandon(self) -> None:
        """Remove the records that were appended and not installed."""
        segment, self._segment = self._segment, None
        if segment is not None:
            segment.forget()
            for part in (
                segment.offset_index,
                segment.time_index,
                segment.transaction_index,
                segment.records,
            ):
                try:
                    if part is segment.records and self._has_replaced(segment):
                        self._resources.file_system.open(part.path).truncate(0)
                    elif part is not segment.transaction_index or not self._has_replaced(segment):
                        # An index that replaced another has the other's entries too.
                        self._resources.file_system.remove(part.path)
                except OSError as error:
                    # The next start removes it by its suffix.
                    logger.warning("cannot remove %s: %s", part.path, error_text(error))

    def _has_replaced(self, segment: LogSegment) -> bool:
        """Return whether the file has the name of an empty segment of the log, which must stay."""
        return any(each.records.path == segment.records.path for each in self._log.segments)

    def _begin(self) -> LogSegment:
        log = self._log
        segment = LogSegment(
            log.directory, self.next_offset, {}, log.config, self._resources, file_suffix=TEMPORARY_SUFFIX
        )
        # Assigned before the files are created, so that `abandon` removes those that were.
        self._segment, self._has_markers = segment, False
        segment.create_files()
        return segment

    def _check_gap(self, segment: LogSegment) -> None:
        """Raise `GapChangedError` if the fetched records are no longer missing."""
        is_abandoned = self._segment is not segment
        if is_abandoned or not self._log.missing.covers(segment.base_offset, self.next_offset):
            raise GapChangedError(
                f"{self._log.topic_partition}: offsets {segment.base_offset} to {self.next_offset - 1} were "
                "fetched, but the search was stopped or the log cut meanwhile"
            )

    def _show(self, segment: LogSegment) -> None:
        log, file_system = self._log, self._resources.file_system
        if log.failure is not None:
            raise LogStorageError(log.failure)
        before = [each for each in log.segments if each.base_offset < segment.base_offset]
        for each in log.segments[len(before) :]:
            if each.base_offset >= self.next_offset:
                break
            assert not each.size, f"{each} has records where {segment} has its own"
            if each.base_offset == segment.base_offset:
                # The log file stays until it is replaced: after a crash the partition must still begin there.
                each.remove_offset_indexes()
            else:
                each.remove_files()
        segment.drop_file_suffix(TEMPORARY_SUFFIX)
        if not segment.transaction_index.size:
            file_system.remove(segment.transaction_index.path)
        file_system.sync_directory(log.directory)
        for epoch, start_offset in self._epochs.items():
            log.leader_epochs.insert(epoch, start_offset)
        log.insert_segment(segment, self.next_offset)
        self._segment = None
        if before:
            try:
                before[-1].transaction_index.remove_between(segment.base_offset, self._end)
            except OSError as error:
                # Readers get these aborted transactions twice, which is harmless.
                logger.warning(
                    "%s: aborted transactions are listed twice: %s", log.topic_partition, error_text(error)
                )
        if self.next_offset >= self._end and self._has_transactions:
            log.replay_transactions(self._first, self._end)

    def _keep_aborts(self, segment: LogSegment) -> None:
        """Copy the entries that recovery kept of aborted transactions whose markers are still missing."""
        for each in self._log.segments:
            for aborted in each.transaction_index.entries() if each.base_offset < self._end else ():
                if self.next_offset <= aborted.last_offset < self._end:
                    segment.transaction_index.append(aborted)
        segment.transaction_index.write_pending()

    def _find_aborts(self, segment: LogSegment) -> None:
        """Write the transaction index, starting from the producer state at the gap's beginning."""
        log, resources = self._log, self._resources
        before = tuple(each for each in log.segments if each.base_offset < segment.base_offset)
        first = before[0].base_offset if before else segment.base_offset
        producers = ProducerStateManager(
            resources.file_system,
            log.directory,
            log.topic_partition,
            [each for each in log.producer_state.snapshots if first <= each <= segment.base_offset],
            log.config.producer_id_expiration_ms,
        )
        try:
            producers.truncate_and_load(first, segment.base_offset, resources.clock.time_ms())
            replay_batches(producers, (*before, segment), self.next_offset)
        except (RecordsError, CorruptIndexError) as error:
            logger.warning("%s: aborted transactions unknown: %s", log.topic_partition, error)

    def _storage_error(self, error: OSError) -> LogStorageError:
        return self._log.disk_errors.error("put missing records back in", error)

"""Opens the log in a directory: quickly after a clean shutdown, with recovery after a crash.

After a clean shutdown only the ends of the segments are read. After a crash all bytes that were not synced
are read: torn or garbage tails are cut off, indexes and producer state are rebuilt, and an interrupted
compaction is finished or undone. Loading fails, with the directory's name, only where the directory cannot be
read or belongs to another topic.

Invariant: no offset that may have been acknowledged is given to another record. A damaged segment is
recovered alone, later segments stay, and the log never ends below what a checkpoint names; the records lost
in between are recorded as missing (`missing_offsets`, ADR 18).
"""

import logging
import os
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from kalda.common.types import UUID, ZERO_UUID, TopicPartition
from kalda.records.batch import validate
from kalda.records.errors import RecordsError
from kalda.runtime.filesystem import TEMPORARY_SUFFIX, DirectoryEntry
from kalda.storage.checkpoints import is_torn_partition_metadata, parse_partition_metadata
from kalda.storage.errors import CorruptCheckpointError, CorruptIndexError, NewerFormatError
from kalda.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    INDEX_SUFFIXES,
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    MISSING_OFFSETS_FILE,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA_FILE,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from kalda.storage.leader_epoch_cache import LeaderEpochFileCache
from kalda.storage.local_log import LocalLog
from kalda.storage.log_config import INT64_MAX, LogConfig
from kalda.storage.log_resources import LogResources
from kalda.storage.log_segment import LogSegment
from kalda.storage.log_segments import LogSegments
from kalda.storage.missing_offsets import MissingOffsets
from kalda.storage.producer_state_manager import ProducerStateManager
from kalda.storage.producer_state_rebuild import replay_batches
from kalda.storage.segment_recovery import SegmentRecovery
from kalda.storage.transaction_index import AbortedTransaction
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CheckpointedOffsets:
    """A log's offsets in the checkpoint files; zeros for a new log."""

    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0
    first_dirty_offset: int = 0
    """The log was compacted at least once below this offset."""


class LogLoader:
    """Opens the log in one directory, which exists; an empty directory is an empty log."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        resources: LogResources,
        *,
        had_clean_shutdown: bool,
        offsets: CheckpointedOffsets,
    ) -> None:
        self._directory = directory
        self._topic_partition = topic_partition
        self._config = config
        self._resources = resources
        self._file_system = resources.file_system
        self._is_clean = had_clean_shutdown
        self._offsets = offsets
        self._entries: dict[str, DirectoryEntry] = {}
        self._epochs = LeaderEpochFileCache(resources.file_system, directory)
        self._missing = MissingOffsets(resources.file_system, directory)
        # Base offsets of the segments that must be read in full.
        self._suspect: set[int] = set()
        # Base offsets of segments with an index file and no log file.
        self._orphans: list[int] = []

    def load(self) -> UnifiedLog:
        """Return the open log.

        Raises:
            OSError: the disk failed.
            CorruptCheckpointError: ``partition.metadata`` cannot be read.
            NewerFormatError: a newer release wrote a file that is not made again from the log.
        """
        self._list()
        if any(self._is_leftover(name) for name in self._entries):
            self._clean_up()
        segments = self._open_segments()
        topic_id = self._read_topic_id()
        self._load_epochs(segments)
        recovery = SegmentRecovery(
            self._file_system,
            self._directory,
            self._topic_partition,
            self._resources.clock,
            self._epochs,
            self._producer_state,
            lambda base_offset, size: self._segment(base_offset, {LOG_SUFFIX: size}),
        )
        segments, end_offset = self._find_end(segments, recovery)
        start_offset = max(self._offsets.log_start_offset, segments[0].base_offset)
        producers = None
        if end_offset < start_offset:
            producers = self._producer_state(segments[0].base_offset, INT64_MAX)
            segments, end_offset = self._restart(segments, producers, start_offset), start_offset
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(start_offset)
        self._missing.keep_between(start_offset, end_offset)
        if producers is None:
            producers = self._load_producers(segments, end_offset, recovery)
        # Reading during recovery syncs nothing: the records count as unflushed until the next flush.
        recovery_point = end_offset if self._is_clean else min(self._offsets.recovery_point, end_offset)
        local = LocalLog(
            self._directory,
            self._topic_partition,
            self._config,
            self._resources,
            LogSegments(tuple(segments)),
            end_offset,
            max(recovery_point, start_offset),
        )
        return UnifiedLog(
            local,
            self._resources,
            topic_id=topic_id,
            log_start_offset=start_offset,
            high_watermark=self._offsets.high_watermark,
            leader_epochs=self._epochs,
            producer_state=producers,
            missing=self._missing,
        )

    def _list(self) -> None:
        entries = self._file_system.list_directory(self._directory)
        self._entries = {entry.name: entry for entry in entries if not entry.is_directory}

    def _path(self, name: str) -> str:
        return os.path.join(self._directory, name)

    @staticmethod
    def _is_leftover(name: str) -> bool:
        return name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX))

    def _clean_up(self) -> None:
        """Finish or undo an interrupted deletion or compaction, in the order of Kafka's loader.

        Compaction writes ``.cleaned`` files, renames them to ``.swap`` when they are complete, deletes the
        originals and removes the suffix. ``.cleaned`` files are therefore removed, and ``.swap`` files get
        their names, unless their offset is at or above that of a ``.cleaned`` file: then not all files of the
        group were renamed.
        """
        for name in list(self._entries):
            if name.endswith((DELETED_SUFFIX, TEMPORARY_SUFFIX)):
                self._remove(name)
        cleaned = [name for name in self._entries if name.endswith(CLEANED_SUFFIX)]
        cleaned_from = min(
            (parsed[0] for name in cleaned if (parsed := parse_offset_file_name(name))), default=None
        )
        for name in [name for name in self._entries if name.endswith(SWAP_SUFFIX)]:
            parsed = parse_offset_file_name(name)
            if parsed is None or (cleaned_from is not None and parsed[0] >= cleaned_from):
                self._remove(name)
        for name in cleaned:
            self._remove(name)
        self._finish_swaps()

    def _finish_swaps(self) -> None:
        ranges = []
        for name in [name for name in self._entries if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]:
            parsed = parse_offset_file_name(name)
            if parsed is None:
                continue
            end = self._next_offset_of_swap(parsed[0], name)
            has_original = offset_file_name(parsed[0], LOG_SUFFIX) in self._entries
            # An empty one may have lost its content; where compaction kept no record, it will do so again.
            if end is not None and not (end == parsed[0] and has_original):
                ranges.append((parsed[0], end))
            elif has_original:
                # The originals are retired in the order of their offsets, so all of them are there.
                logger.warning(
                    "%s: %s is damaged or empty; what it replaces stays", self._topic_partition, name
                )
                # The log last: indexes without it would count as a swap that is nearly finished.
                for suffix in (*INDEX_SUFFIXES, LOG_SUFFIX):
                    if (other := offset_file_name(parsed[0], suffix + SWAP_SUFFIX)) in self._entries:
                        self._remove(other)
        swaps = [name for name in self._entries if name.endswith(SWAP_SUFFIX)]
        if not swaps:
            return
        for name in list(self._entries):
            parsed = parse_offset_file_name(name)
            if parsed is not None and not parsed[2] and ranges:
                is_replaced = any(first <= parsed[0] < max(end, first + 1) for first, end in ranges)
                if is_replaced and parsed[1] != PRODUCER_SNAPSHOT_SUFFIX:
                    logger.info("%s: %s was replaced by compaction", self._topic_partition, name)
                    self._remove(name)
        # Logs first: after a kill in between, the next start finds the log in place and keeps the indexes
        # that have their names already.
        for name in sorted(swaps, key=lambda name: not name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
            self._file_system.rename(self._path(name), self._path(name.removesuffix(SWAP_SUFFIX)))
        self._list()

    def _next_offset_of_swap(self, base_offset: int, name: str) -> int | None:
        """Return the offset after the last batch, or ``None`` for a file that is not whole batches."""
        file = self._file_system.open(self._path(name))
        segment = self._segment(base_offset, {LOG_SUFFIX: file.size()})
        segment.records.path = self._path(name)
        next_offset, size = base_offset, 0
        try:
            for position, header, batch in segment.records.iter_batches():
                validate(batch, 0, header)
                if header.base_offset < next_offset:
                    return None
                next_offset, size = header.next_offset, position + header.size
        except RecordsError:
            return None
        finally:
            segment.forget()
        return next_offset if size == segment.size else None

    def _open_segments(self) -> list[LogSegment]:
        sizes: dict[int, dict[str, int]] = defaultdict(dict)
        modified: dict[int, int] = {}
        for name, entry in self._entries.items():
            parsed = parse_offset_file_name(name)
            if parsed is not None and not parsed[2]:
                sizes[parsed[0]][parsed[1]] = entry.size
                if parsed[1] == LOG_SUFFIX:
                    modified[parsed[0]] = entry.modified_ms
        segments = []
        for base_offset in sorted(sizes):
            suffixes = sizes[base_offset]
            if LOG_SUFFIX not in suffixes:
                for suffix in suffixes:
                    if suffix != PRODUCER_SNAPSHOT_SUFFIX:
                        logger.warning(
                            "%s: index %d%s has no log", self._topic_partition, base_offset, suffix
                        )
                        self._remove(offset_file_name(base_offset, suffix))
                        self._orphans.append(base_offset)
                continue
            segment = self._segment(base_offset, suffixes)
            segment.created_ms = segment.modified_ms = modified[base_offset]
            segments.append(segment)
            if OFFSET_INDEX_SUFFIX not in suffixes or TIME_INDEX_SUFFIX not in suffixes:
                logger.warning(
                    "%s: recovering segment %d: an index file is missing", self._topic_partition, base_offset
                )
                self._suspect.add(base_offset)
        if not self._is_clean and segments:
            flushed = [s.base_offset for s in segments if s.base_offset <= self._offsets.recovery_point]
            first = max(flushed, default=segments[0].base_offset)
            self._suspect.update(s.base_offset for s in segments if s.base_offset >= first)
        return segments or [self._create(self._offsets.log_start_offset)]

    def _find_end(self, opened: list[LogSegment], recovery: SegmentRecovery) -> tuple[list[LogSegment], int]:
        """Recover suspect segments; return the remaining segments and the log end offset."""
        segments: list[LogSegment] = []
        ends: list[int] = []
        lost_aborts: list[AbortedTransaction] = []
        damaged: set[int] = set()
        to_do = opened[::-1]
        while to_do:
            segment = to_do.pop()
            limit = to_do[-1].base_offset if to_do else None
            end = self._checked_end(segment, limit)
            if end is None:
                recovered, rest = recovery.recover(segment, segments, limit)
                end = recovered.end_offset
                lost_aborts += recovered.lost_aborts
                if recovered.removed:
                    damaged.add(segment.base_offset)
                if rest is not None:
                    self._suspect.add(rest.base_offset)
                    to_do.append(rest)
            segments.append(segment)
            ends.append(end)
        self._note_missing(segments, ends, damaged)
        self._keep_aborts(segments, lost_aborts)
        return segments, ends[-1]

    def _checked_end(self, segment: LogSegment, limit: int | None) -> int | None:
        """Return the offset after the segment's last batch, or ``None`` if it must be read in full."""
        if segment.base_offset in self._suspect:
            return None
        try:
            segment.check()
            end = segment.read_next_offset()
            if limit is not None and end > limit:
                raise CorruptIndexError(
                    f"{segment.records.path} ends at {end}, the next segment begins at {limit}"
                )
        except CorruptIndexError as error:
            logger.warning("%s: recovering segment %d: %s", self._topic_partition, segment.base_offset, error)
            return None
        return end

    def _note_missing(self, segments: list[LogSegment], ends: list[int], damaged: set[int]) -> None:
        """Record the offsets that the log has lost, and restore the log end offset."""
        if MISSING_OFFSETS_FILE in self._entries:
            try:
                self._missing.load()
            except CorruptCheckpointError as error:
                logger.warning("%s: %s", self._missing.path, error)
        known = self._missing.ranges
        for segment, end in zip(segments, ends, strict=True):
            # A kill may have come between inserting the records and removing their range.
            self._missing.remove(segment.base_offset, end)
        lost: list[tuple[int, int]] = []
        for index, following in enumerate(segments[1:]):
            first, end = ends[index], following.base_offset
            if first < end and (segments[index].base_offset in damaged or self._is_loss(first, end)):
                lost.append((first, end))
        acknowledged = max(self._offsets.recovery_point, self._offsets.high_watermark)
        if self._is_clean:
            # A clean shutdown takes a producer snapshot at the log end offset.
            acknowledged = max([acknowledged, *self._snapshots()])
        if acknowledged > ends[-1]:
            lost.append((ends[-1], acknowledged))
            segments.append(self._create(acknowledged))
            ends.append(acknowledged)
        self._missing.add(lost)
        self._missing.keep_between(max(self._offsets.log_start_offset, segments[0].base_offset), ends[-1])
        for each in self._missing.ranges:
            logger.log(
                logging.WARNING if each in known else logging.ERROR,
                "%s: offsets %s are missing: segment %s in %s is damaged or incomplete; it continues at %d",
                self._topic_partition,
                each,
                self._segment_name(segments, each.first),
                self._directory,
                each.end,
            )

    def _is_loss(self, first: int, end: int) -> bool:
        """Return whether a gap before a segment means lost records; compaction leaves gaps too."""
        if self._is_clean and any(first <= base_offset < end for base_offset in self._orphans):
            return True
        return not self._config.is_compacted and end > self._offsets.first_dirty_offset

    def _segment_name(self, segments: list[LogSegment], offset: int) -> str:
        holder = max((s.base_offset for s in segments if s.base_offset <= offset), default=offset)
        return offset_file_name(holder, LOG_SUFFIX)

    def _keep_aborts(self, segments: list[LogSegment], aborts: list[AbortedTransaction]) -> None:
        """Keep the index entries of aborted transactions whose markers are missing."""
        by_segment = LogSegments(tuple(segments))
        for aborted in aborts:
            if self._missing.holds(aborted.last_offset):
                index = by_segment.items[by_segment.floor_index(aborted.last_offset)].transaction_index
                if index.ends_before(aborted.last_offset):
                    index.append(aborted)

    def _snapshots(self) -> list[int]:
        return [parsed[0] for name in self._entries if (parsed := _parse(name, PRODUCER_SNAPSHOT_SUFFIX))]

    def _producer_state(self, first_offset: int, end_offset: int) -> ProducerStateManager:
        """Create an empty state with the snapshot files in [first_offset, end_offset]."""
        return ProducerStateManager(
            self._file_system,
            self._directory,
            self._topic_partition,
            [offset for offset in self._snapshots() if first_offset <= offset <= end_offset],
            self._config.producer_id_expiration_ms,
        )

    def _load_producers(
        self, segments: list[LogSegment], end_offset: int, recovery: SegmentRecovery
    ) -> ProducerStateManager:
        # Recovery has read every batch, and a snapshot has only the last batch of each producer.
        producers = recovery.producers_at(end_offset) or self._producer_state(0, INT64_MAX)
        producers.know_snapshots(self._snapshots())
        producers.remove_stray_snapshots({segment.base_offset for segment in segments})
        producers.truncate_and_load(segments[0].base_offset, end_offset, self._resources.clock.time_ms())
        replay_batches(producers, tuple(segments), end_offset)
        if not self._is_clean:
            producers.take_snapshot()
        return producers

    def _restart(
        self, segments: list[LogSegment], producers: ProducerStateManager, start_offset: int
    ) -> list[LogSegment]:
        logger.warning(
            "%s: the log ends below its start offset %d; deleting all records",
            self._topic_partition,
            start_offset,
        )
        for segment in segments:
            for path in segment.mark_deleted():
                self._file_system.remove(path)
        self._epochs.clear()
        producers.reset(start_offset)
        return [self._create(start_offset)]

    def _load_epochs(self, segments: list[LogSegment]) -> None:
        if LEADER_EPOCH_CHECKPOINT_FILE not in self._entries:
            return
        try:
            self._epochs.load()
        except CorruptCheckpointError as error:
            logger.warning("%s: rebuilding leader epochs from the log: %s", self._topic_partition, error)
            self._epochs.clear()
            self._suspect.update(segment.base_offset for segment in segments)
            return
        if not self._is_clean and not self._epochs.entries:
            # A loss of power may have left the file empty, as Kafka does where there is no entry.
            self._suspect.update(segment.base_offset for segment in segments)

    def _read_topic_id(self) -> UUID | None:
        if PARTITION_METADATA_FILE not in self._entries:
            return None
        path = self._path(PARTITION_METADATA_FILE)
        data = self._file_system.read(path)
        if not self._is_clean and is_torn_partition_metadata(data):
            # The first flush of the log syncs the file: the log was new when the power failed.
            logger.warning("%s: the topic id in %s is lost", self._topic_partition, path)
            self._remove(PARTITION_METADATA_FILE)
            return None
        try:
            topic_id = parse_partition_metadata(data)
        except NewerFormatError as error:
            raise error.at(path) from None
        except CorruptCheckpointError as error:
            raise CorruptCheckpointError(f"{path}: {error}") from None
        if topic_id == ZERO_UUID:
            # The topic had no id, and may have one now. Kafka does not open a directory with such a file.
            self._remove(PARTITION_METADATA_FILE)
            return None
        return topic_id

    def _segment(self, base_offset: int, sizes: dict[str, int]) -> LogSegment:
        return LogSegment(self._directory, base_offset, sizes, self._config, self._resources)

    def _create(self, base_offset: int) -> LogSegment:
        return LogSegment.create(self._directory, base_offset, self._config, self._resources)

    def _remove(self, name: str) -> None:
        self._file_system.remove(self._path(name))
        del self._entries[name]


def _parse(name: str, suffix: str) -> tuple[int, str, str] | None:
    parsed = parse_offset_file_name(name)
    return parsed if parsed is not None and parsed[1] == suffix and not parsed[2] else None

"""Opening a log directory: after a clean stop by its ends, after a crash by reading what was not synced.

A start never fails for what a crash can leave: torn or nonsense tails are cut, indexes and producer state are
rebuilt, half-done compaction is rolled forward or back. It fails, with the directory's name, where the
directory is not what it should be: unreadable, or of another topic.
"""

import logging
import os
import uuid
from collections import defaultdict
from dataclasses import dataclass
from typing import Final

from kalda.common.types import TopicPartition
from kalda.records.batch import BatchHeader
from kalda.storage.checkpoints import parse_partition_metadata
from kalda.storage.config import LogConfig
from kalda.storage.environment import LogEnvironment
from kalda.storage.errors import CorruptCheckpointError, CorruptIndexError
from kalda.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT_FILE,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    PARTITION_METADATA_FILE,
    PRODUCER_SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    offset_file_name,
    parse_offset_file_name,
)
from kalda.storage.filesystem import TEMPORARY_SUFFIX, DirectoryEntry
from kalda.storage.leader_epochs import LeaderEpochs
from kalda.storage.local_log import LocalLog
from kalda.storage.producer_state import ProducerState
from kalda.storage.replay import replay_batch, replay_producers
from kalda.storage.segment import Segment, create_segment, segment_jitter_ms
from kalda.storage.segments import Segments
from kalda.storage.unified_log import UnifiedLog

_logger: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LoadOffsets:
    """What the checkpoints say of a log; zeros for a new one."""

    recovery_point: int = 0
    log_start_offset: int = 0
    high_watermark: int = 0


def load_log(
    directory: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    environment: LogEnvironment,
    *,
    had_clean_shutdown: bool,
    offsets: LoadOffsets,
) -> UnifiedLog:
    """Open the log in `directory`, which exists; an empty directory is an empty log.

    Raises:
        OSError: the disk failed.
        CorruptCheckpointError: ``partition.metadata`` cannot be read.
    """
    return _Loader(directory, topic_partition, config, environment, had_clean_shutdown, offsets).load()


class _Loader:
    """One load; the steps share the state here."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        environment: LogEnvironment,
        had_clean_shutdown: bool,
        offsets: LoadOffsets,
    ) -> None:
        self._directory = directory
        self._topic_partition = topic_partition
        self._config = config
        self._environment = environment
        self._file_system = environment.file_system
        self._is_clean = had_clean_shutdown
        self._offsets = offsets
        self._entries: dict[str, DirectoryEntry] = {}
        self._epochs = LeaderEpochs(environment.file_system, directory)
        # The first segment that must be read in full; None after a clean stop.
        self._recover_from: int | None = None

    def load(self) -> UnifiedLog:
        self._list()
        if any(self._is_leftover(name) for name in self._entries):
            self._clean_up()
        segments = self._open_segments()
        topic_id = self._read_topic_id()
        self._load_epochs(segments)
        producers = ProducerState(
            self._file_system,
            self._directory,
            self._topic_partition,
            [parsed[0] for name in self._entries if (parsed := _parse(name, PRODUCER_SNAPSHOT_SUFFIX))],
            self._config.producer_id_expiration_ms,
        )
        segments, end_offset = self._find_end(segments, producers)
        start_offset = max(self._offsets.log_start_offset, segments[0].base_offset)
        if end_offset < start_offset:
            segments, end_offset = self._restart(segments, producers, start_offset), start_offset
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(start_offset)
        if producers.end_offset != end_offset or self._recover_from is None:
            producers.remove_stray_snapshots({segment.base_offset for segment in segments})
            now_ms = self._environment.clock.time_ms()
            producers.truncate_and_load(segments[0].base_offset, end_offset, now_ms)
            replay_producers(producers, tuple(segments), end_offset)
        # What recovery read is not synced by that: it counts as unflushed until the next flush.
        recovery_point = end_offset if self._is_clean else min(self._offsets.recovery_point, end_offset)
        local = LocalLog(
            self._directory,
            self._topic_partition,
            self._config,
            self._environment,
            Segments(tuple(segments)),
            end_offset,
            max(recovery_point, start_offset),
        )
        return UnifiedLog(
            local,
            self._environment,
            topic_id=topic_id,
            log_start_offset=start_offset,
            high_watermark=self._offsets.high_watermark,
            leader_epochs=self._epochs,
            producer_state=producers,
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
        """Finish or undo what a crash interrupted, in the order that Kafka's loader has.

        Compaction writes ``.cleaned`` files, renames them to ``.swap`` when they are complete, deletes the
        originals, then drops the suffix. So ``.cleaned`` is undone; ``.swap`` is finished, unless its offset
        lies at or above a ``.cleaned`` file's: then the group's renaming was not complete.
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
        swaps = [name for name in self._entries if name.endswith(SWAP_SUFFIX)]
        if not swaps:
            return
        ranges = []
        for name in swaps:
            parsed = parse_offset_file_name(name)
            if parsed is not None and parsed[1] == LOG_SUFFIX:
                ranges.append((parsed[0], self._next_offset_of_swap(parsed[0], name)))
        for name in list(self._entries):
            parsed = parse_offset_file_name(name)
            if parsed is not None and not parsed[2] and ranges:
                is_replaced = any(first <= parsed[0] < max(end, first + 1) for first, end in ranges)
                if is_replaced and parsed[1] != PRODUCER_SNAPSHOT_SUFFIX:
                    _logger.info("%s: %s was replaced by compaction", self._topic_partition, name)
                    self._remove(name)
        # Logs first: a start that is killed in between finds the log in place, and then keeps the indexes
        # that have their names already.
        for name in sorted(swaps, key=lambda name: not name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
            self._file_system.rename(self._path(name), self._path(name.removesuffix(SWAP_SUFFIX)))
        self._list()

    def _next_offset_of_swap(self, base_offset: int, name: str) -> int:
        file = self._file_system.open(self._path(name))
        segment = self._segment(base_offset, {LOG_SUFFIX: file.size()})
        segment.records.path = self._path(name)
        next_offset = base_offset
        for found in segment.records.iter_positions(0):
            next_offset = found.last_offset + 1
        segment.forget()
        return next_offset

    def _open_segments(self) -> list[Segment]:
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
                        _logger.warning(
                            "%s: index %d%s has no log", self._topic_partition, base_offset, suffix
                        )
                        self._remove(offset_file_name(base_offset, suffix))
                continue
            segment = self._segment(base_offset, suffixes)
            segment.created_ms = segment.modified_ms = modified[base_offset]
            segments.append(segment)
            if OFFSET_INDEX_SUFFIX not in suffixes or TIME_INDEX_SUFFIX not in suffixes:
                self._must_recover(base_offset, "an index file is missing")
        if not self._is_clean and segments:
            unflushed = [s.base_offset for s in segments if s.base_offset <= self._offsets.recovery_point]
            self._must_recover(max(unflushed, default=segments[0].base_offset), None)
        return segments or [self._create(self._offsets.log_start_offset)]

    def _must_recover(self, base_offset: int, reason: str | None) -> None:
        if reason is not None:
            _logger.warning("%s: recovering from segment %d: %s", self._topic_partition, base_offset, reason)
        if self._recover_from is None or base_offset < self._recover_from:
            self._recover_from = base_offset

    def _find_end(self, segments: list[Segment], producers: ProducerState) -> tuple[list[Segment], int]:
        """Return the segments that are left and the log end offset, recovering what must be."""
        for segment in segments:
            try:
                segment.check()
            except CorruptIndexError as error:
                self._must_recover(segment.base_offset, str(error))
                break
        if self._recover_from is None:
            try:
                return segments, segments[-1].read_next_offset()
            except CorruptIndexError as error:
                self._must_recover(segments[-1].base_offset, str(error))
        assert self._recover_from is not None, "recovery has a first segment"
        return self._recover(segments, producers, self._recover_from)

    def _recover(
        self, segments: list[Segment], producers: ProducerState, recover_from: int
    ) -> tuple[list[Segment], int]:
        """Read the segments from `recover_from` on in full; whatever follows a bad batch goes."""
        good = [segment for segment in segments if segment.base_offset < recover_from]
        now_ms = self._environment.clock.time_ms()
        producers.truncate_and_load(segments[0].base_offset, recover_from, now_ms)
        replay_producers(producers, tuple(good), recover_from)

        def on_batch(segment: Segment, header: BatchHeader, batch: memoryview) -> None:
            if header.partition_leader_epoch > self._epochs.latest_epoch:
                self._epochs.assign(header.partition_leader_epoch, header.base_offset)
            replay_batch(producers, segment, header, batch)

        for index, segment in enumerate(segments):
            if segment.base_offset < recover_from:
                continue
            producers.end_offset = max(producers.end_offset, segment.base_offset)
            removed = segment.recover(on_batch)
            good.append(segment)
            if removed:
                gone = segments[index + 1 :]
                _logger.warning(
                    "%s: cut %d bytes off segment %d and dropped %d segments after it; the log ends at %d",
                    self._topic_partition,
                    removed,
                    segment.base_offset,
                    len(gone),
                    producers.end_offset,
                )
                for later in gone:
                    for path in later.mark_deleted(self._file_system):
                        self._file_system.remove(path)
                break
        producers.take_snapshot()
        return good, max(producers.end_offset, good[-1].base_offset)

    def _restart(self, segments: list[Segment], producers: ProducerState, start_offset: int) -> list[Segment]:
        _logger.warning(
            "%s: the log ends below its start offset %d; dropping all of it",
            self._topic_partition,
            start_offset,
        )
        for segment in segments:
            for path in segment.mark_deleted(self._file_system):
                self._file_system.remove(path)
        self._epochs.clear()
        producers.reset(start_offset)
        return [self._create(start_offset)]

    def _load_epochs(self, segments: list[Segment]) -> None:
        if LEADER_EPOCH_CHECKPOINT_FILE not in self._entries:
            return
        try:
            self._epochs.load()
        except CorruptCheckpointError as error:
            _logger.warning("%s: leader epochs read from the log again: %s", self._topic_partition, error)
            self._epochs.clear()
            self._must_recover(segments[0].base_offset, None)

    def _read_topic_id(self) -> uuid.UUID | None:
        if PARTITION_METADATA_FILE not in self._entries:
            return None
        path = self._path(PARTITION_METADATA_FILE)
        try:
            return parse_partition_metadata(self._file_system.read(path))
        except CorruptCheckpointError as error:
            raise CorruptCheckpointError(f"{path}: {error}") from None

    def _segment(self, base_offset: int, sizes: dict[str, int]) -> Segment:
        environment = self._environment
        return Segment(
            self._directory,
            base_offset,
            sizes,
            self._config,
            self._file_system,
            environment.handles,
            created_ms=environment.clock.time_ms(),
            jitter_ms=segment_jitter_ms(self._config, environment.random_fraction()),
        )

    def _create(self, base_offset: int) -> Segment:
        environment = self._environment
        return create_segment(
            self._directory,
            base_offset,
            self._config,
            self._file_system,
            environment.handles,
            environment.clock,
            segment_jitter_ms(self._config, environment.random_fraction()),
        )

    def _remove(self, name: str) -> None:
        self._file_system.remove(self._path(name))
        del self._entries[name]


def _parse(name: str, suffix: str) -> tuple[int, str, str] | None:
    parsed = parse_offset_file_name(name)
    return parsed if parsed is not None and parsed[1] == suffix and not parsed[2] else None

"""Recovers the damaged segments of a log at start, each on its own.

A segment ends at its first bad batch. Good batches behind the bad one move to a segment of their own, and
later segments stay as they are, so an acknowledged offset is never given to another record. The caller finds
the lost offsets by comparing the end of each segment with the base offset of the next.
"""

import logging
import os
from collections.abc import Callable, Sequence
from typing import Final

from kalda.common.types import TopicPartition
from kalda.records.batch import BatchHeader
from kalda.records.errors import RecordsError
from kalda.runtime.clock import Clock
from kalda.runtime.filesystem import TEMPORARY_SUFFIX, FileSystem
from kalda.storage.errors import CorruptIndexError
from kalda.storage.file_names import LOG_SUFFIX, offset_file_name
from kalda.storage.leader_epoch_cache import LeaderEpochFileCache
from kalda.storage.log_segment import LogSegment, Recovered
from kalda.storage.producer_state_manager import ProducerStateManager
from kalda.storage.producer_state_rebuild import replay_batch, replay_batches

logger: Final = logging.getLogger(__name__)

_COPY_BYTES: Final = 1024 * 1024
SPLITS_MAX: Final = 16
"""How often one start moves the rest of a segment. Each move copies up to ``segment.bytes``; more separate
faults in one log mean a broken disk."""


class SegmentRecovery:
    """Recovers segments of one log, in the order of their offsets."""

    def __init__(
        self,
        file_system: FileSystem,
        directory: str,
        topic_partition: TopicPartition,
        clock: Clock,
        epochs: LeaderEpochFileCache,
        new_producers: Callable[[int, int], ProducerStateManager],
        new_segment: Callable[[int, int], LogSegment],
    ) -> None:
        """Store the collaborators.

        `new_producers` creates an empty state with the snapshots between two offsets. `new_segment` creates a
        segment from its base offset and size.
        """
        self._file_system: Final = file_system
        self._directory: Final = directory
        self._topic_partition: Final = topic_partition
        self._clock: Final = clock
        self._epochs: Final = epochs
        self._new_producers: Final = new_producers
        self._new_segment: Final = new_segment
        # The producer state at the end of the last recovered segment.
        self._producers: ProducerStateManager | None = None
        self._splits = 0

    def recover(
        self, segment: LogSegment, before: Sequence[LogSegment], limit: int | None
    ) -> tuple[Recovered, LogSegment | None]:
        """Recover one segment; return the result and the new segment with good batches behind a bad one.

        `before` are the preceding segments, already recovered. `limit` is where the next segment begins.

        Raises:
            OSError: the disk failed, or has no room for a copy of the good batches.
        """
        producers = self._replay_to(segment.base_offset, before)
        rest: list[LogSegment] = []

        def on_batch(segment: LogSegment, header: BatchHeader, batch: memoryview) -> None:
            if header.partition_leader_epoch >= 0:
                self._epochs.recovered(header.partition_leader_epoch, header.base_offset, header.last_offset)
            replay_batch(producers, segment, header, batch)

        def keep_rest(position: int, base_offset: int) -> None:
            if self._splits < SPLITS_MAX and base_offset > segment.base_offset:
                self._splits += 1
                rest.append(self._copy_rest(segment, position, base_offset))

        recovered = segment.recover(on_batch, limit, keep_rest)
        producers.end_offset = recovered.end_offset
        if recovered.removed:
            logger.warning(
                "%s: %s was damaged at byte %d: removed %d bytes%s",
                self._topic_partition,
                os.path.basename(segment.records.path),
                segment.records.size,
                recovered.removed,
                f", moved {rest[0].size} of them to {os.path.basename(rest[0].records.path)}" if rest else "",
            )
        return recovered, rest[0] if rest else None

    def producers_at(self, end_offset: int) -> ProducerStateManager | None:
        """Return the producer state if it covers the log up to `end_offset`; else ``None``."""
        producers = self._producers
        return None if producers is None or producers.end_offset != end_offset else producers

    def _replay_to(self, offset: int, before: Sequence[LogSegment]) -> ProducerStateManager:
        """Return the producer state at `offset`, from which the transaction index is rebuilt."""
        producers = self._producers
        if producers is None or producers.end_offset != offset:
            first = before[0].base_offset if before else offset
            producers = self._producers = self._new_producers(first, offset)
            producers.truncate_and_load(first, offset, self._clock.time_ms())
            try:
                replay_batches(producers, tuple(before), offset)
            except (RecordsError, CorruptIndexError) as error:
                logger.warning(
                    "%s: producer state unknown up to %d: %s", self._topic_partition, offset, error
                )
                producers.end_offset = offset
        return producers

    def _copy_rest(self, segment: LogSegment, position: int, base_offset: int) -> LogSegment:
        """Copy a segment from `position` on to a new one that begins at `base_offset`."""
        path = os.path.join(self._directory, offset_file_name(base_offset, LOG_SUFFIX))
        source, size = segment.records.file(), segment.records.size - position
        target = self._file_system.open(path + TEMPORARY_SUFFIX, create=True)
        target.truncate(0)
        copied = 0
        while copied < size:
            chunk = memoryview(source.read_at(min(_COPY_BYTES, size - copied), position + copied))
            if not chunk:
                raise OSError(f"{segment.records.path} has less than {segment.records.size} bytes")
            while chunk:
                taken = target.write_at(chunk, copied)
                chunk, copied = chunk[taken:], copied + taken
        target.sync()
        self._file_system.rename(path + TEMPORARY_SUFFIX, path)
        return self._new_segment(base_offset, size)

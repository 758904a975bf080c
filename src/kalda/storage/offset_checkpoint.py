"""One offset checkpoint file of a log directory, kept as lines that change only for logs that moved.

With thousands of partitions, most of them idle, a checkpoint then costs what changed since the last one and
one join; without a change it costs nothing.
"""

import logging
import threading
from collections.abc import Callable, Iterable
from typing import Final

from kalda.common.types import TopicPartition
from kalda.storage.background import BackgroundExecutor
from kalda.storage.checkpoints import format_offset_checkpoint_lines, offset_checkpoint_line
from kalda.storage.filesystem import FileSystem
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)

OffsetOf = Callable[[UnifiedLog], int | None]


class OffsetCheckpointFile:
    """The file and what it should hold."""

    __slots__ = (
        "_file_system",
        "_is_changed",
        "_is_writing",
        "_lines",
        "_lock",
        "_offset_of",
        "_stale",
        "_version",
        "path",
    )

    def __init__(self, file_system: FileSystem, path: str, offset_of: OffsetOf) -> None:
        """Describe the file at `path`; `offset_of` gives a log's offset, or ``None`` for no line."""
        self._file_system = file_system
        self._offset_of = offset_of
        self.path = path
        self._lines: dict[TopicPartition, bytes] = {}
        self._is_changed = True
        self._is_writing = False
        # Partitions of which the file may still have a line.
        self._stale: set[TopicPartition] = set()
        # Counts the contents handed out for writing: the clean stop overtakes a write that still waits in
        # the pool, which must then not put back older offsets.
        self._version = 0
        self._lock = threading.Lock()

    def note(self, log: UnifiedLog) -> None:
        """Take over a log's offset."""
        offset = self._offset_of(log)
        if offset is None:
            self.forget(log.topic_partition)
            return
        self.keep(log.topic_partition, offset)

    def keep(self, topic_partition: TopicPartition, offset: int | None) -> None:
        """Have an offset written; ``None`` changes nothing."""
        if offset is None:
            return
        line = offset_checkpoint_line(topic_partition, offset)
        if self._lines.get(topic_partition) != line:
            self._lines[topic_partition] = line
            self._is_changed = True

    def forget(self, topic_partition: TopicPartition) -> None:
        """Leave a partition out."""
        if self._lines.pop(topic_partition, None) is not None:
            self._is_changed = True
            self._stale.add(topic_partition)

    def note_stale(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Take note of partitions that the file names and that have no log."""
        self._stale.update(topic_partitions)

    def settle(self, topic_partition: TopicPartition) -> None:
        """See that the file has no line of an earlier log of this name: a new one is about to be made.

        A start after a crash would hold the old offset against the new log. Raises `OSError`.
        """
        if topic_partition in self._stale:
            self.write_now()

    def write_now(self) -> None:
        """Replace the file on this thread, whatever changed: the clean stop. Raises `OSError`."""
        self._version += 1
        self._replace(format_offset_checkpoint_lines(list(self._lines.values())), self._version)
        self._is_changed = False
        self._stale.clear()

    def write(
        self, executor: BackgroundExecutor, on_error: Callable[[BaseException], object] | None = None
    ) -> None:
        """Replace the file if its content changed, synced; one write at a time, the next call catches up.

        `on_error` is told what a write failed with.
        """
        if not self._is_changed or self._is_writing:
            return
        data = format_offset_checkpoint_lines(list(self._lines.values()))
        self._is_changed = False
        self._is_writing = True
        self._version += 1
        version = self._version
        stale = self._stale.difference(self._lines)

        def finished(error: BaseException | None) -> None:
            self._is_writing = False
            if error is not None:
                self._is_changed = True
                logger.warning("checkpoint %s not written: %s", self.path, error)
                if on_error is not None:
                    on_error(error)
            else:
                self._stale -= stale

        executor.submit(lambda: self._replace(data, version), finished)

    def _replace(self, data: bytes, version: int) -> None:
        """Write unless a newer content was handed out meanwhile; on any thread."""
        with self._lock:
            if version == self._version:
                self._file_system.replace(self.path, data, sync=True)

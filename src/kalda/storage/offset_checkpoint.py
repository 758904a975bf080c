"""Keeps one offset checkpoint file of a log directory as lines that change only for logs that moved.

With thousands of partitions, most of them idle, a checkpoint costs only the lines that changed since the last
one and one join. Without a change it costs nothing.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from kalda.common.types import TopicPartition
from kalda.runtime.background import BackgroundExecutor
from kalda.runtime.error_text import error_text
from kalda.runtime.filesystem import FileSystem
from kalda.storage.checkpoints import format_offset_checkpoint_lines, offset_checkpoint_line

logger: Final = logging.getLogger(__name__)

Lines = Mapping[TopicPartition, bytes]


class OffsetCheckpointFile:
    """The file and the lines that it should contain."""

    def __init__(self, file_system: FileSystem, path: str) -> None:
        """Describe the file at `path`, which `write` replaces."""
        self._file_system = file_system
        self.path = path
        self._lines: dict[TopicPartition, bytes] = {}
        self._is_changed = True
        self._is_writing = False
        self._is_requested = False
        """Whether `write` was called during a write; what changed since it began is written after it."""
        self._on_disk: Lines | None = None
        """The content of the file; ``None`` before the first write and after one that failed."""
        self._in_flight: Lines = {}
        # Partitions without a log that may still have a line in the file.
        self._stale: set[TopicPartition] = set()
        # Counts the contents passed on for writing: a clean shutdown overtakes a write that still waits in
        # the pool, and that write must not restore older offsets.
        self._version = 0
        self._lock = threading.Lock()

    def update(self, topic_partition: TopicPartition, offset: int | None) -> None:
        """Set a partition's offset; ``None`` removes its line."""
        line = None if offset is None else offset_checkpoint_line(topic_partition, offset)
        if self._lines.get(topic_partition) == line:
            return
        self._is_changed = True
        if line is None:
            del self._lines[topic_partition]
            self._stale.add(topic_partition)
        else:
            self._lines[topic_partition] = line

    def mark_stale(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Record that the file on disk names these partitions, which have no log."""
        self._stale.update(topic_partitions)

    def remove_stale_line(self, topic_partition: TopicPartition) -> None:
        """Rewrite the file if it has a line of an earlier log with this name; called before one is created.

        A start after a crash would apply the old offset to the new log. Raises `OSError`.
        """
        if topic_partition in self._stale:
            self.write_now()

    def lower(self, topic_partition: TopicPartition, offset: int) -> None:
        """Return when the file has no higher offset of a partition than `offset`; raises `OSError`.

        Called before a log is truncated, because a start after a crash takes an offset above the log end for
        lost records. The file is written only if it may have a higher one, which is rare: logs are seldom
        truncated below their recovery point or high watermark.
        """
        line = self._lines.get(topic_partition)
        if line is not None and _offset_of(line) > offset:
            self.update(topic_partition, offset)
        elif self._on_disk is not None:
            found = (self._on_disk.get(topic_partition), self._in_flight.get(topic_partition))
            if all(each is None or _offset_of(each) <= offset for each in found):
                return
        self.write_now()

    def write_now(self) -> None:
        """Replace the file on this thread, changed or not. Raises `OSError`."""
        self._version += 1
        lines = dict(self._lines)
        self._on_disk = None
        self._replace(format_offset_checkpoint_lines(list(lines.values())), self._version)
        self._on_disk, self._in_flight = lines, {}
        self._is_changed = False
        self._stale.clear()

    def write(
        self, executor: BackgroundExecutor, on_error: Callable[[BaseException], object] | None = None
    ) -> None:
        """Replace and sync the file if its lines changed.

        One write runs at a time; a call during one has what changed since it began written after it.
        `on_error` is called with the error of a write that failed.
        """
        if not self._is_changed:
            return
        if self._is_writing:
            self._is_requested = True
            return
        lines = self._in_flight = dict(self._lines)
        data = format_offset_checkpoint_lines(list(lines.values()))
        self._is_changed = self._is_requested = False
        self._is_writing = True
        self._version += 1
        version = self._version
        stale = self._stale.difference(lines)

        def finished(error: BaseException | None) -> None:
            self._is_writing = False
            is_latest = version == self._version
            if is_latest:
                self._on_disk, self._in_flight = (lines if error is None else None), {}
            if error is not None:
                self._is_changed = True
                logger.warning("checkpoint %s not written: %s", self.path, error_text(error))
                if on_error is not None:
                    on_error(error)
                return
            self._stale -= stale
            if self._is_requested:
                self.write(executor, on_error)

        executor.submit(lambda: self._replace(data, version), finished)

    def _replace(self, data: bytes, version: int) -> None:
        """Write unless a newer content was passed on meanwhile; runs on any thread."""
        with self._lock:
            if version == self._version:
                self._file_system.replace(self.path, data, sync=True)


def _offset_of(line: bytes) -> int:
    return int(line[line.rindex(b" ") + 1 :])

"""Keeps the offset checkpoints of all log directories: recovery points, log start offsets, high watermarks.

`LogManager` notes the offsets of logs that changed and decides when the files are written. The checkpoint of
the log cleaner is its own.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

from kalda.common.types import TopicPartition
from kalda.runtime.error_text import error_text
from kalda.storage.checkpoints import read_offset_checkpoint
from kalda.storage.errors import CorruptCheckpointError
from kalda.storage.file_names import (
    CLEANER_OFFSET_CHECKPOINT_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
)
from kalda.storage.log_loader import CheckpointedOffsets
from kalda.storage.log_resources import LogResources
from kalda.storage.offset_checkpoint import OffsetCheckpointFile
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)

Offsets = Mapping[str, Mapping[TopicPartition, int]]
"""The content of a directory's checkpoints, by file name."""


class LogCheckpoints:
    """The checkpoint files of all log directories."""

    def __init__(self, directories: Sequence[str], resources: LogResources) -> None:
        """Describe the files of `directories`; `write` and `write_now` replace them."""
        self._resources: Final = resources
        self._files: Final = {
            directory: {
                name: OffsetCheckpointFile(resources.file_system, os.path.join(directory, name))
                for name in _VALUES
            }
            for directory in directories
        }

    def read(self, directory: str) -> Offsets:
        """Return what the files of a directory contain; one that cannot be read counts as empty."""
        return {name: self._read(directory, name) for name in (*_VALUES, CLEANER_OFFSET_CHECKPOINT_FILE)}

    def note(self, log: UnifiedLog) -> None:
        """Set the lines of a log in the files of its directory."""
        for name, file in self._files[os.path.dirname(log.directory)].items():
            offset = _VALUES[name](log)
            assert offset is None or offset <= log.log_end_offset, f"{name}: {offset} lies above {log}"
            file.update(log.topic_partition, offset)

    def lower(self, directory: str, topic_partition: TopicPartition, offset: int) -> None:
        """Return when no file of a directory has a higher offset of a log than `offset`; raises `OSError`."""
        for name in (RECOVERY_POINT_CHECKPOINT_FILE, REPLICATION_OFFSET_CHECKPOINT_FILE):
            self._files[directory][name].lower(topic_partition, offset)

    def keep(self, directory: str, topic_partition: TopicPartition, found: Offsets) -> None:
        """Keep the lines of a log that could not be opened."""
        for name, file in self._files[directory].items():
            file.update(topic_partition, found[name].get(topic_partition))

    def forget(self, directory: str, topic_partition: TopicPartition) -> None:
        """Remove the lines of a log that has left a directory."""
        for file in self._files[directory].values():
            file.update(topic_partition, None)

    def mark_stale(self, directory: str, found: Offsets, here: Iterable[TopicPartition]) -> None:
        """Note which lines that were read belong to no log."""
        known = set(here)
        for name, file in self._files[directory].items():
            file.mark_stale(found[name].keys() - known)

    def remove_stale_lines(self, directory: str, topic_partition: TopicPartition) -> None:
        """Rewrite the files that have a line of an earlier log with this name; raises `OSError`."""
        for file in self._files[directory].values():
            file.remove_stale_line(topic_partition)

    def write(self, name: str, directory: str) -> None:
        """Replace one file in the background, if it changed."""
        self._files[directory][name].write(
            self._resources.executor, partial(self._resources.failures.note, directory)
        )

    def write_all(self, directory: str) -> None:
        """Replace all files of a directory in the background that changed."""
        for name in _VALUES:
            self.write(name, directory)

    def write_now(self, directory: str) -> None:
        """Replace all files of a directory on this thread; raises `OSError`."""
        for file in self._files[directory].values():
            file.write_now()

    def _read(self, directory: str, name: str) -> dict[TopicPartition, int]:
        path = os.path.join(directory, name)
        try:
            return read_offset_checkpoint(self._resources.file_system, path)
        except (OSError, CorruptCheckpointError) as error:
            # Zeros are safe: more is recovered than needed, and deleted records may reappear.
            logger.warning("checkpoint ignored: %s", error_text(error))
            return {}


def offsets_of(found: Offsets, topic_partition: TopicPartition) -> CheckpointedOffsets:
    """Return a log's offsets in the checkpoints of its directory."""
    return CheckpointedOffsets(
        found[RECOVERY_POINT_CHECKPOINT_FILE].get(topic_partition, 0),
        found[LOG_START_OFFSET_CHECKPOINT_FILE].get(topic_partition, 0),
        found[REPLICATION_OFFSET_CHECKPOINT_FILE].get(topic_partition, 0),
        found[CLEANER_OFFSET_CHECKPOINT_FILE].get(topic_partition, 0),
    )


def _recovery_point(log: UnifiedLog) -> int:
    return log.recovery_point


def _high_watermark(log: UnifiedLog) -> int:
    return log.high_watermark


def _log_start_offset(log: UnifiedLog) -> int | None:
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None


_VALUES: Final[dict[str, Callable[[UnifiedLog], int | None]]] = {
    RECOVERY_POINT_CHECKPOINT_FILE: _recovery_point,
    LOG_START_OFFSET_CHECKPOINT_FILE: _log_start_offset,
    REPLICATION_OFFSET_CHECKPOINT_FILE: _high_watermark,
}

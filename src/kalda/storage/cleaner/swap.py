"""Puts a cleaned segment in the place of the segments that it replaces; a crash at any step is harmless.

Kafka's file names show a start how far the swap came:

1. ``.cleaned`` -> ``.swap`` for each file, then the names are synced. A start removes both kinds if a
   ``.cleaned`` file is left, and finishes the swap otherwise.
2. The log shows the new segment, whose files are read under their ``.swap`` names. Readers in flight keep the
   old files open.
3. The old files become ``.deleted`` and are removed ``file.delete.delay.ms`` later.
4. ``.swap`` -> no suffix, and the names are synced.

Every method is a short step for the event loop. Appends, rolls and reads go on between two steps; code that
changes closed segments calls `abort` first.
"""

import os
from typing import Final

from kalda.storage.cleaner.job import CleanedGroup
from kalda.storage.file_names import (
    CLEANED_SUFFIX,
    INDEX_SUFFIXES,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    offset_file_name,
)
from kalda.storage.log_resources import LogResources
from kalda.storage.log_segment import LogSegment
from kalda.storage.unified_log import UnifiedLog

RETIRED_PER_STEP: Final = 8
"""Segments whose files one step renames: up to 32 renames, half a millisecond."""


class SegmentSwap:
    """The swap of one group; the caller calls the methods in their order."""

    def __init__(self, log: UnifiedLog, group: CleanedGroup, resources: LogResources) -> None:
        self._log: Final = log
        self._group: Final = group
        self._resources: Final = resources
        self._segment: LogSegment | None = None
        self._to_retire: list[LogSegment] = []
        self._is_over = False

    def prepare(self) -> None:
        """Rename to ``.swap``, the log first. Raises `OSError`; `abort` then undoes it."""
        file_system = self._resources.file_system
        for suffix in self._suffixes():
            path = self._path(suffix)
            file_system.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)

    def sync_names(self) -> None:
        """Sync the directory; runs in the background pool."""
        self._resources.file_system.sync_directory(self._log.directory)

    def install(self) -> None:
        """Replace the old segments in the log with the new one."""
        group, log, resources = self._group, self._log, self._resources
        assert self._segment is None, "a segment is installed once"
        replaced = set(group.replaced)
        old = [segment for segment in log.segments if segment.base_offset in replaced]
        segment = self._segment = LogSegment(
            log.directory,
            group.base_offset,
            {
                LOG_SUFFIX: group.size,
                OFFSET_INDEX_SUFFIX: group.offset_index_size,
                TIME_INDEX_SUFFIX: group.time_index_size,
                TRANSACTION_INDEX_SUFFIX: group.transaction_index_size,
            },
            log.config,
            resources,
            file_suffix=SWAP_SUFFIX,
        )
        segment.created_ms, segment.modified_ms = old[-1].created_ms, old[-1].modified_ms
        self._to_retire = old
        log.replace_segments(segment, replaced)

    def retire_some(self) -> bool:
        """Mark the files of a few old segments as deleted; return whether all are. Raises `OSError`."""
        for segment in self._to_retire[:RETIRED_PER_STEP]:
            for path in segment.mark_deleted():
                self._resources.delete_later(path, self._log.config.file_delete_delay_ms)
            self._to_retire.remove(segment)
        return not self._to_retire

    def complete(self) -> None:
        """Remove the suffix ``.swap``. Raises `OSError`; calling again continues."""
        assert self._segment is not None, "nothing is installed"
        assert not self._to_retire, f"{self._to_retire} still have the names"
        self._segment.drop_file_suffix(SWAP_SUFFIX)
        self._is_over = True

    def abort(self) -> None:
        """End the swap now: undo it if the log does not have the new segment yet, else finish it.

        Raises:
            OSError: a file could not be renamed or removed; calling again continues.
        """
        if self._is_over:
            return
        if self._segment is None:
            file_system = self._resources.file_system
            # The log last: a start would take an index without a log for part of a swap that is nearly
            # finished.
            for suffix in reversed(self._suffixes()):
                file_system.remove(self._path(suffix) + SWAP_SUFFIX)
                file_system.remove(self._path(suffix) + CLEANED_SUFFIX)
            self._is_over = True
            return
        while not self.retire_some():
            pass
        self.complete()

    def _suffixes(self) -> tuple[str, ...]:
        has_aborts = self._group.transaction_index_size > 0
        return (
            LOG_SUFFIX,
            *(each for each in INDEX_SUFFIXES if has_aborts or each != TRANSACTION_INDEX_SUFFIX),
        )

    def _path(self, suffix: str) -> str:
        return os.path.join(self._log.directory, offset_file_name(self._group.base_offset, suffix))

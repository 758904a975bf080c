"""Syncs one log to the device in the background, one sync at a time, and moves its recovery point.

The recovery point follows the syncs that succeed. After a failed sync the log refuses appends until a restart
has recovered it: the kernel may have dropped the dirty pages, so the device's content is unknown.
"""

import logging
import os
from collections.abc import Callable
from typing import Final

from kalda.events.event import EventKind, Plain
from kalda.runtime.error_text import error_text
from kalda.storage.file_names import PARTITION_METADATA_FILE
from kalda.storage.leader_epoch_cache import LeaderEpochFileCache
from kalda.storage.local_log import LocalLog
from kalda.storage.log_resources import LogResources

logger: Final = logging.getLogger(__name__)

SLOW_SYNC_SECONDS: Final = 2.0
"""From when on a sync is an event. A disk under load takes some 100 ms."""


class LogFlusher:
    """Flushes one log; everything but the syncs runs on the owner's thread."""

    __slots__ = (
        "_generation",
        "_is_parent_synced",
        "_is_running",
        "_leader_epochs",
        "_local",
        "_on_end",
        "_on_start",
        "_resources",
        "_snapshots",
        "_waiters",
        "failure",
        "last_flush",
    )

    def __init__(
        self,
        local: LocalLog,
        resources: LogResources,
        leader_epochs: LeaderEpochFileCache,
        on_start: Callable[[], None],
        on_end: Callable[[], None],
    ) -> None:
        """Flush `local` when called.

        `on_start` is called when a flush of everything appended so far begins, `on_end` when the recovery
        point has moved.
        """
        self._local = local
        self._resources = resources
        self._leader_epochs = leader_epochs
        self._on_start = on_start
        self._on_end = on_end
        # Why the log refuses appends, or None.
        self.failure: str | None = None
        self.last_flush = resources.clock.monotonic()
        # Counts truncations: a sync that a truncation overlapped must not move the recovery point.
        self._generation = 0
        self._is_running = False
        self._waiters: list[Callable[[], None]] = []
        self._snapshots: list[str] = []
        # Whether the directory's name, and the topic id in it, are on the device.
        self._is_parent_synced = local.recovery_point > 0 and not local.is_renamed

    def flush(self, offset: int, done: Callable[[], None] | None) -> None:
        """Sync everything below `offset`, then call `done`, after a failed sync too.

        Raises:
            OSError: an index could not be written; no sync was started.
        """
        local = self._local
        if offset <= local.recovery_point:
            if done is not None:
                done()
            return
        if self._is_running:
            # One sync at a time: callers that come meanwhile share the next one.
            self._waiters.append(done or _nothing)
            return
        work = self.prepare()
        self._is_running = True
        generation = self._generation
        began = self.last_flush = self._resources.clock.monotonic()
        if offset == local.log_end_offset:
            self._on_start()

        def finished(error: BaseException | None) -> None:
            self._is_running = False
            seconds = self._resources.clock.monotonic() - began
            if seconds > SLOW_SYNC_SECONDS:
                details: dict[str, Plain] = {
                    "reason": os.path.dirname(local.directory),
                    "seconds": round(seconds, 1),
                    "log": os.path.basename(local.directory),
                }
                self._resources.events.emit_seldom(EventKind.SLOW_SYNC, {}, details)
            if error is not None:
                self._on_failure(error)
            elif generation == self._generation:
                assert offset <= local.log_end_offset, f"synced to {offset} of {local.log_end_offset}"
                local.recovery_point = max(local.recovery_point, offset)
                self._on_end()
            if done is not None:
                done()
            self._flush_for_waiters()

        self._resources.executor.submit(work, finished)

    def prepare(self) -> Callable[[], None]:
        """Write pending index entries; return a function that syncs everything above the recovery point.

        The function uses no state of the log and may run on any thread.

        Raises:
            OSError: an index could not be written.
        """
        syncs = []
        for segment in self._local.segments.following(self._local.recovery_point):
            segment.write_pending()
            syncs.append(segment.prepare_sync())
        file_system, directory = self._resources.file_system, self._local.directory
        epochs, snapshots = self._leader_epochs, tuple(self._snapshots)
        self._snapshots = []
        parent = None if self._is_parent_synced else os.path.dirname(directory)
        self._is_parent_synced = True

        def work() -> None:
            for sync in syncs:
                sync()
            for path in snapshots:
                file_system.sync_file(path)
            epochs.sync()
            if parent is not None:
                file_system.sync_file(os.path.join(directory, PARTITION_METADATA_FILE))
            file_system.sync_directory(directory)
            if parent is not None:
                file_system.sync_directory(parent)

        return work

    def add_snapshot(self, path: str) -> None:
        """Add a producer snapshot to the next flush."""
        self._snapshots.append(path)

    def sync_topic_id(self) -> None:
        """Sync the topic id of the log's directory with the next flush."""
        self._is_parent_synced = False

    def disown_running(self) -> None:
        """Keep a running sync from moving the recovery point, because the log was truncated."""
        self._generation += 1

    def _flush_for_waiters(self) -> None:
        waiters, self._waiters = self._waiters, []
        if not waiters:
            return

        def done() -> None:
            for waiter in waiters:
                waiter()

        if self.failure is not None:
            done()
            return
        try:
            self.flush(self._local.log_end_offset, done)
        except OSError as error:
            logger.warning("%s: flush postponed: %s", self._local.topic_partition, error_text(error))
            done()

    def _on_failure(self, error: BaseException) -> None:
        self._resources.failures.note(os.path.dirname(self._local.directory), error)
        if isinstance(error, FileNotFoundError):
            # The directory was deleted during the flush; no caller needs the outcome.
            return
        topic_partition = self._local.topic_partition
        self.failure = (
            f"{topic_partition}: sync failed ({error_text(error)}); restart the broker to recover the log"
        )
        logger.error("%s", self.failure)


def _nothing() -> None:
    """Do nothing: the `done` of a flush without a waiter."""

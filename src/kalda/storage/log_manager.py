"""Opens, creates, deletes and maintains all logs of a broker, in one or several log directories.

The broker's periodic task calls the maintenance steps here. Each step looks only at logs that changed, so
thousands of idle partitions cost nothing. fsync and unlink run on the executor.

A directory whose device fails goes out of service, at start or later, and the other directories go on
(`kalda.storage.directory_failures`). A log that cannot be recovered at start because the disk is full stays
closed, and is opened when it is next requested and there is room.

A log that is being moved to another log directory has a future log there (`future_logs`).
"""

import contextlib
import logging
import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Final

from kalda.common.types import UUID, ZERO_UUID, TopicPartition
from kalda.runtime.background import Background, BackgroundExecutor, InlineExecutor
from kalda.runtime.clock import Clock
from kalda.runtime.error_text import error_text
from kalda.runtime.filesystem import DirectoryLock, FileSystem
from kalda.runtime.random import Random
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.storage.checkpoints import put_back_clean_shutdown, take_clean_shutdown, write_clean_shutdown
from kalda.storage.conversions import Conversions
from kalda.storage.directory_failures import is_out_of_space, remedy
from kalda.storage.errors import (
    CorruptCheckpointError,
    LogDirectoryError,
    LogDirectoryLockedError,
    LogStorageError,
    NewerFormatError,
    StorageError,
)
from kalda.storage.file_names import (
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    META_PROPERTIES_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    delete_directory_name,
    is_delete_directory,
    parse_future_directory_name,
    parse_partition_directory_name,
    partition_directory_name,
    stray_directory_name,
)
from kalda.storage.future_logs import FutureLogs
from kalda.storage.log_caches import LogCaches
from kalda.storage.log_checkpoints import LogCheckpoints, Offsets, offsets_of
from kalda.storage.log_config import INT64_MAX, LogConfig
from kalda.storage.log_loader import CheckpointedOffsets, LogLoader
from kalda.storage.log_resources import LogResources
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)

# Logs per retention step: well under a millisecond, so that requests do not wait for maintenance.
RETENTION_STEP_LOGS: Final = 50

# What a clean shutdown syncs in parallel; each log has one open file.
_CLOSE_LOGS: Final = 128

ConfigForTopic = Callable[[str], LogConfig]


@dataclass(frozen=True, slots=True)
class _ClosedLog:
    """A log that could not be recovered because the disk is full, with its checkpointed offsets."""

    directory: str
    is_clean: bool
    offsets: CheckpointedOffsets


_DELETED_AT_ONCE: Final = 500
"""Files and directories that one step removes on a thread that syncs wait for, too: 0.1 s, seldom 2 s."""

_DELETION_SECONDS_AT_STOP: Final = 0.5
"""A client may have deleted tens of thousands of partitions, and removing each directory takes up to 5 ms."""


class LogManager:
    """The logs of one process, in one or several log directories."""

    def __init__(
        self,
        directories: Sequence[str],
        config_for_topic: ConfigForTopic,
        clock: Clock,
        file_system: FileSystem | None = None,
        executor: Background | None = None,
        caches: LogCaches | None = None,
        conversions: Conversions | None = None,
        cordoned: Callable[[], Collection[str]] = tuple,
        random: Random = SYSTEM_RANDOM,
    ) -> None:
        """Store the directories; `load` opens them.

        `cordoned` returns the absolute paths of those that get no new logs (KIP-1066).
        """
        assert directories, "a broker has at least one log directory"
        self.directories: Final = tuple(os.path.abspath(directory) for directory in directories)
        self.resources: Final = LogResources(
            file_system or OsFileSystem(),
            clock,
            executor or InlineExecutor(),
            caches,
            conversions,
            random=random,
        )
        self.cordoned_directories: Final = cordoned
        self._config_for_topic = config_for_topic
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._closed: dict[TopicPartition, _ClosedLog] = {}
        """Logs whose recovery needs more space than the disk has. Invariant: none of them is in `_logs`."""
        self._locks: dict[str, DirectoryLock] = {}
        self._offline: dict[str, str] = {}
        self._clean_marks: dict[str, bytes] = {}
        """The clean-shutdown markers that this start has removed, by directory."""
        self.unclean_directories: Final[list[str]] = []
        """The directories with logs that were not closed by a clean shutdown, as `load` found them."""
        self._is_deleting = False
        self._retention_pass: Iterator[UnifiedLog] | None = None
        self._expiration_pass: Iterator[UnifiedLog] | None = None
        self.resources.before_truncation = self._before_truncation
        self.resources.on_truncation = self._checkpoint_truncation
        self._checkpoints: Final = LogCheckpoints(self.directories, self.resources)
        self.futures: Final = FutureLogs(self.resources, self._checkpoints, config_for_topic)
        self.preferred: Final[dict[TopicPartition, str]] = {}
        """The log directories that were requested for partitions without a log (KIP-113)."""

    def load(self) -> None:
        """Lock the directories and open their logs; a directory whose device fails stays out of service.

        Raises:
            LogDirectoryLockedError: another process uses a directory; the message has its name and the pid.
            LogDirectoryError: no directory, or one of its partitions, can be opened; the message has the
            cause.
            NewerFormatError: a newer release wrote a checkpoint.
        """
        try:
            for step in (self._lock, self._load_directory):
                for directory in self.live_directories:
                    try:
                        step(directory)
                    except LogDirectoryError as error:
                        self._skip(directory, error, of_a_log=step == self._load_directory)
            self.futures.forget_replaced(self._logs.values(), self.live_directories)
        except BaseException as error:
            if isinstance(error.__cause__ or error, NewerFormatError):
                self._put_marks_back()
            self._unlock()
            raise
        self._clean_marks.clear()

    def _put_marks_back(self) -> None:
        """Let the newer release, which has to start now, find the clean shutdown that this start found."""
        for directory, mark in self._clean_marks.items():
            try:
                put_back_clean_shutdown(self.resources.file_system, directory, mark)
            except OSError as error:
                logger.warning("%s: the clean-shutdown marker is lost: %s", directory, error_text(error))

    def _skip(self, directory: str, error: LogDirectoryError, *, of_a_log: bool) -> None:
        """Take a directory that cannot be used out of service, or raise the error if it is the last one.

        A single log that cannot be opened is no reason to give up its directory, unless the device failed.
        """
        cause = error.__cause__
        failures = self.resources.failures
        if cause is None or len(self.live_directories) == 1:
            raise error
        if not failures.note(directory, cause):
            if of_a_log or not isinstance(cause, OSError):
                raise error
            failures.give_up(directory, cause)
        logger.error("log directory %s is out of service: %s", directory, error_text(error))
        self.take_offline(directory)

    @property
    def live_directories(self) -> tuple[str, ...]:
        """The directories in service."""
        return tuple(directory for directory in self.directories if directory not in self._offline)

    @property
    def offline_directories(self) -> Mapping[str, str]:
        """The directories out of service, each with its error."""
        return self._offline

    def take_offline(self, directory: str) -> list[TopicPartition]:
        """Close a directory that failed and drop its logs; return their partitions."""
        if directory in self._offline:
            return []
        reason = self.resources.failures.failed.get(directory, "taken out of service")
        self._offline[directory] = reason
        self.futures.take_offline(directory)
        gone = [name for name, log in self._logs.items() if os.path.dirname(log.directory) == directory]
        for topic_partition in gone:
            self._logs.pop(topic_partition).forget(f"log directory {directory} is offline: {reason}")
        for name in [
            name for name, log in self._closed.items() if os.path.dirname(log.directory) == directory
        ]:
            del self._closed[name]
            gone.append(name)
        lock = self._locks.pop(directory, None)
        if lock is not None:
            with contextlib.suppress(OSError):
                lock.release()
        return gone

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """Return the partition's log, or ``None`` if this broker has none."""
        return self._logs.get(topic_partition)

    def has(self, topic_partition: TopicPartition) -> bool:
        """Return whether this broker has the partition's log, open or closed because the disk is full."""
        return topic_partition in self._logs or topic_partition in self._closed

    def create_future(self, topic_partition: TopicPartition, log_directory: str) -> UnifiedLog:
        """Create the future log that is to replace the partition's log.

        Raises:
            LogStorageError: the disk failed, or a directory that may have another future log is offline.
        """
        log = self._logs[topic_partition]
        offline = {**self._offline, **self.resources.failures.failed}
        if offline:
            raise LogStorageError(
                f"cannot move {topic_partition} to {log_directory} while log directories are offline: "
                f"{', '.join(offline)}"
            )
        if self.resources.cleaner is not None:
            with log.disk_errors.raised("stop cleaning"):
                self.resources.cleaner.abort(topic_partition)
        return self.futures.create(topic_partition, log_directory, log.topic_id)

    def replace_with_future(self, topic_partition: TopicPartition) -> UnifiedLog:
        """Put the future log in place of the partition's log, which has the same records; return it.

        Raises:
            LogStorageError: the disk failed; nothing was replaced.
        """
        log = self._logs[topic_partition] = self.futures.replace(self._logs[topic_partition])
        return log

    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """Return all logs, as a live view."""
        return self._logs

    def get_or_create(self, topic_partition: TopicPartition, topic_id: UUID | None = None) -> UnifiedLog:
        """Return the partition's log; create it if there is none.

        A topic without an id (None or `ZERO_UUID`) gets the log that is there, whatever its id.
        A new log is created in the directory that was requested for it, else in the one with the fewest logs.

        Raises:
            InconsistentTopicIdError: the existing log belongs to another topic id.
            LogStorageError: the disk failed.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            log = self._reopen(topic_partition) or self._create(topic_partition)
        if topic_id not in (None, ZERO_UUID, log.topic_id):
            log.assign_topic_id(topic_id)
        return log

    def delete(self, topic_partition: TopicPartition) -> bool:
        """Drop the partition's log and rename its directory; return whether there was one.

        The files are removed ``file.delete.delay.ms`` later. Reads in flight continue.

        Raises:
            LogStorageError: the disk failed; the log is still here.
        """
        self.futures.delete(topic_partition)
        log = self._logs.get(topic_partition)
        name = delete_directory_name(topic_partition, self.resources.new_name_suffix())
        if log is not None:
            target = self._rename(topic_partition, log, name)
            log.forget("the partition was deleted")
            config = log.config
        elif topic_partition in self._closed:
            target = self._rename(topic_partition, None, name)
            config = self._config_for_topic(topic_partition.topic)
        else:
            return False
        self.resources.delete_later(target, config.file_delete_delay_ms, is_directory=True)
        return True

    def set_aside(self, topic_partition: TopicPartition, reason: str) -> None:
        """Drop the partition's log but keep its files, under a name that no start opens.

        `reason` is a clause for the log.

        Raises:
            LogStorageError: the disk failed; the log is still here.
        """
        log = self._logs[topic_partition]
        self.futures.delete(topic_partition)
        target = self._rename(
            topic_partition, log, stray_directory_name(topic_partition, self.resources.new_name_suffix())
        )
        log.forget(f"the log was moved aside: {reason}")
        logger.warning("%s is not served any more, but kept as %s: %s", log.directory, target, reason)

    def _rename(self, topic_partition: TopicPartition, log: UnifiedLog | None, name: str) -> str:
        """Drop an open or closed log by renaming its directory; return the new path."""
        source = log.directory if log is not None else self._closed[topic_partition].directory
        parent = os.path.dirname(source)
        target = os.path.join(parent, name)
        try:
            if log is not None and self.resources.cleaner is not None:
                self.resources.cleaner.on_removal(topic_partition)
            self.futures.finish(topic_partition)
            self.resources.file_system.rename(source, target)
        except OSError as error:
            self.resources.failures.note(parent, error)
            raise LogStorageError(f"cannot delete {source}: {error_text(error)}") from error
        self._logs.pop(topic_partition, None)
        self._closed.pop(topic_partition, None)
        self._checkpoints.forget(parent, topic_partition)
        return target

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Apply new settings to all logs of a topic."""
        for topic_partition, log in chain(self._logs.items(), self.futures.logs().items()):
            if topic_partition.topic == topic:
                log.update_config(config)

    def retention_step(self) -> bool:
        """Apply retention to the next few logs; return whether the pass over all logs is complete."""
        logs = self._retention_pass
        if logs is None:
            logs = self._retention_pass = iter(tuple(self._logs.values()))
        for _ in range(RETENTION_STEP_LOGS):
            log = next(logs, None)
            if log is None:
                self._retention_pass = None
                return True
            if self._logs.get(log.topic_partition) is not log:
                # Deleted, or replaced by its future log.
                continue
            if log.is_being_cleaned:
                # The cleaner applies retention itself when it has finished the log.
                continue
            try:
                log.delete_old_segments()
            except StorageError as error:
                logger.warning("retention of %s postponed: %s", log.topic_partition, error_text(error))
        return False

    def producer_expiration_step(self) -> bool:
        """Expire idle producers of the next few logs; return whether the pass over all logs is complete."""
        logs = self._expiration_pass
        if logs is None:
            logs = self._expiration_pass = iter(tuple(self._logs.values()))
        now_ms = self.resources.clock.time_ms()
        for _ in range(RETENTION_STEP_LOGS):
            log = next(logs, None)
            if log is None:
                self._expiration_pass = None
                return True
            if self._logs.get(log.topic_partition) is log:
                log.producer_state.remove_expired(now_ms)
        return False

    def flush_step(self) -> None:
        """Flush the dirty logs whose last flush is ``flush.ms`` ago."""
        now = self.resources.clock.monotonic()
        dirty = [self._logs.get(name) for name in self.resources.dirty]
        dirty += [self.futures.get(name) for name in self.futures.resources.dirty]
        for log in [each for each in dirty if each is not None]:
            flush_ms = log.config.flush_ms
            if flush_ms != INT64_MAX and (now - log.last_flush) * 1000 >= flush_ms:
                try:
                    log.flush()
                except StorageError as error:
                    logger.warning("flush of %s postponed: %s", log.topic_partition, error_text(error))

    def deletion_step(self) -> None:
        """Remove files whose delay is over, on the executor, unless it still removes those of before."""
        if not self._is_deleting:
            self._delete_files(self.resources.clock.monotonic(), self.resources.executor)

    def checkpoint_recovery_points(self) -> None:
        """Write ``recovery-point-offset-checkpoint`` of each directory, in the background, if it changed."""
        self._checkpoint(RECOVERY_POINT_CHECKPOINT_FILE)

    def checkpoint_log_start_offsets(self) -> None:
        """Write ``log-start-offset-checkpoint``: log start offsets above the first segment's base."""
        self._checkpoint(LOG_START_OFFSET_CHECKPOINT_FILE)

    def checkpoint_high_watermarks(self) -> None:
        """Write ``replication-offset-checkpoint`` of each directory, in the background, if it changed."""
        self._checkpoint(REPLICATION_OFFSET_CHECKPOINT_FILE)

    def close(self, broker_epoch: int = -1) -> None:
        """Sync and close everything, write the checkpoints, then the clean-shutdown markers. Blocks.

        Work that is queued on the executor may continue meanwhile. A directory in which anything fails gets
        no marker, so its next start recovers.
        """
        logs = [*self._logs.values(), *self.futures.logs().values()]
        failed = self._close_logs(logs)
        self._delete_files_at_stop()
        for log in logs:
            # A failed log keeps its lines: they must not name offsets that were not synced.
            if log not in failed:
                self._checkpoints.note(log)
        for directory in self.live_directories:
            try:
                self._checkpoints.write_now(directory)
                unclean = (
                    *(log.directory for log in failed),
                    *(log.directory for log in self._closed.values()),
                )
                if not any(path.startswith(directory + os.sep) for path in unclean):
                    write_clean_shutdown(self.resources.file_system, directory, broker_epoch)
            except OSError as error:
                logger.error(
                    "log directory %s has no clean shutdown, its next start recovers: %s",
                    directory,
                    error_text(error),
                )
        self._logs, self._closed = {}, {}
        self.futures.clear()
        self._unlock()

    def _close_logs(self, logs: Sequence[UnifiedLog]) -> set[UnifiedLog]:
        """Close logs, syncing several in parallel; return those that failed."""
        failed: set[UnifiedLog] = set()
        # Each log in the pool has one file open, so the bound on open files applies.
        group_size = min(_CLOSE_LOGS, self.resources.caches.files.cost_max)
        remaining = iter(logs)
        while group := tuple(islice(remaining, group_size)):
            closed, syncs = [], []
            for log in group:
                try:
                    sync = log.close()
                except StorageError as error:
                    logger.error("%s not closed cleanly: %s", log.topic_partition, error_text(error))
                    failed.add(log)
                else:
                    if sync is not None:
                        closed.append(log)
                        syncs.append(sync)
            for log, error_of_sync in zip(closed, self.resources.executor.run_all(syncs), strict=True):
                if error_of_sync is not None:
                    logger.error("%s not closed cleanly: %s", log.topic_partition, error_text(error_of_sync))
                    failed.add(log)
        return failed

    def _lock(self, directory: str) -> None:
        try:
            # The operator may name a log directory by a link; what is in it are files and directories.
            self.resources.file_system.make_directory(os.path.realpath(directory))
            lock = self.resources.file_system.lock(os.path.join(directory, LOCK_FILE))
        except OSError as error:
            raise LogDirectoryError(f"cannot use log directory {directory}: {error_text(error)}") from error
        if isinstance(lock, int):
            holder = f"process {lock}" if lock else "another process"
            raise LogDirectoryLockedError(
                f"log directory {directory} is in use by {holder}; stop it or choose another directory"
            )
        self._locks[directory] = lock

    def _unlock(self) -> None:
        for lock in self._locks.values():
            lock.release()
        self._locks = {}

    def _load_directory(self, directory: str) -> None:
        file_system = self.resources.file_system
        try:
            mark = take_clean_shutdown(file_system, directory)
            if mark is not None:
                self._clean_marks[directory] = mark
            entries = file_system.list_directory(directory)
        except OSError as error:
            raise LogDirectoryError(f"cannot read log directory {directory}: {error_text(error)}") from error
        found = self._checkpoints.read(directory)
        if mark is None and any(entry.name == META_PROPERTIES_FILE for entry in entries):
            self.unclean_directories.append(directory)
        for entry in entries:
            path = os.path.join(directory, entry.name)
            if not entry.is_directory:
                if parse_partition_directory_name(entry.name):
                    logger.error(
                        "%s is not opened: it is a link or a file, not a partition's directory", path
                    )
                continue
            if is_delete_directory(entry.name):
                self.resources.deletions.add(path, 0, is_directory=True)
            elif topic_partition := parse_partition_directory_name(entry.name):
                self._load_log(path, topic_partition, found, is_clean=mark is not None)
            elif topic_partition := parse_future_directory_name(entry.name):
                self._load_future(path, topic_partition, found, entry.modified_ms, is_clean=mark is not None)
        logs: Iterator[tuple[TopicPartition, UnifiedLog | _ClosedLog]] = chain(
            self._logs.items(), self._closed.items(), self.futures.logs().items()
        )
        here = [name for name, log in logs if os.path.dirname(log.directory) == directory]
        self._checkpoints.mark_stale(directory, found, here)

    def _load_log(
        self, path: str, topic_partition: TopicPartition, found: Offsets, *, is_clean: bool
    ) -> None:
        if not self._is_current(path, topic_partition):
            return
        config, offsets = self._config_for_topic(topic_partition.topic), offsets_of(found, topic_partition)
        try:
            log = self._open(path, topic_partition, config, self.resources, offsets, is_clean=is_clean)
        except LogDirectoryError as error:
            if error.__cause__ is None or not is_out_of_space(error.__cause__):
                raise
            logger.error(
                "%s stays closed until its disk has room: %s", topic_partition, error_text(error.__cause__)
            )
            self._closed[topic_partition] = _ClosedLog(path, is_clean, offsets)
            self._checkpoints.keep(os.path.dirname(path), topic_partition, found)
        else:
            self._add(topic_partition, log)

    def _is_current(self, path: str, topic_partition: TopicPartition) -> bool:
        """Return whether to open a log; discard the log of another directory that it has replaced."""
        other = self._logs.get(topic_partition) or self._closed.get(topic_partition)
        if other is None:
            return True
        try:
            replaced = self.futures.replaced_of(path, other.directory)
            if replaced == path:
                self.futures.discard(path, topic_partition)
                return False
            if replaced == other.directory:
                if isinstance(other, UnifiedLog):
                    other.forget(f"the log was moved to {path}")
                del (self._logs if topic_partition in self._logs else self._closed)[topic_partition]
                self._checkpoints.forget(os.path.dirname(other.directory), topic_partition)
                self.futures.discard(other.directory, topic_partition)
                return True
        except (OSError, CorruptCheckpointError) as error:
            raise LogDirectoryError(f"cannot read {path}: {error_text(error)}") from error
        raise LogDirectoryError(
            f"{topic_partition} is in two log directories, {other.directory} and {path}; remove one"
        )

    def _load_future(
        self, path: str, topic_partition: TopicPartition, found: Offsets, modified_ms: int, *, is_clean: bool
    ) -> None:
        """Open a future log; one that cannot be recovered because the disk is full is removed.

        Of two, the newer one stays: a power failure has undone the removal of the other.
        """
        try:
            if not self.futures.make_way(topic_partition, modified_ms):
                self.futures.discard(path, topic_partition)
                return
        except (OSError, LogStorageError) as error:
            cause = error.__cause__ or error
            raise LogDirectoryError(f"cannot open {path}: {error_text(error)}") from cause
        config = self._config_for_topic(topic_partition.topic)
        # What it lost is copied again, so the log may end below what was committed.
        offsets = replace(offsets_of(found, topic_partition), high_watermark=0)
        resources = self.futures.resources
        try:
            log = self._open(path, topic_partition, config, resources, offsets, is_clean=is_clean)
        except LogDirectoryError as error:
            if error.__cause__ is None or not is_out_of_space(error.__cause__):
                raise
            logger.error("the move of %s is cancelled: %s", topic_partition, error_text(error))
            self.resources.deletions.add(path, 0, is_directory=True)
        else:
            self.futures.add(log, modified_ms)

    def _add(self, topic_partition: TopicPartition, log: UnifiedLog) -> None:
        assert topic_partition not in self._closed, f"{topic_partition} is open and closed for want of space"
        self._logs[topic_partition] = log
        self._checkpoints.note(log)

    def _reopen(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """Open a log that stayed closed at start because the disk was full; ``None`` if there is none.

        Raises:
            LogStorageError: the disk is still full, or the log cannot be opened.
        """
        closed = self._closed.get(topic_partition)
        if closed is None:
            return None
        parent = os.path.dirname(closed.directory)
        failures = self.resources.failures
        if parent in failures.full:
            # Recovery reads much before it writes, so it is not tried on a full disk.
            raise LogStorageError(f"cannot open {closed.directory}: {failures.full[parent]}")
        config = self._config_for_topic(topic_partition.topic)
        try:
            log = self._open(
                closed.directory,
                topic_partition,
                config,
                self.resources,
                closed.offsets,
                is_clean=closed.is_clean,
            )
        except LogDirectoryError as error:
            if error.__cause__ is not None:
                failures.note(parent, error.__cause__)
            raise LogStorageError(str(error)) from error
        del self._closed[topic_partition]
        self._add(topic_partition, log)
        return log

    def _open(
        self,
        path: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        resources: LogResources,
        offsets: CheckpointedOffsets,
        *,
        is_clean: bool,
    ) -> UnifiedLog:
        try:
            return LogLoader(
                path, topic_partition, config, resources, had_clean_shutdown=is_clean, offsets=offsets
            ).load()
        except (OSError, StorageError) as error:
            raise LogDirectoryError(
                f"cannot open partition {topic_partition} in {path}: {error_text(error)}; {remedy(error)}"
            ) from error

    def _create(self, topic_partition: TopicPartition) -> UnifiedLog:
        parent = self._directory_for(topic_partition)
        path = os.path.join(parent, partition_directory_name(topic_partition))
        file_system = self.resources.file_system
        try:
            self._checkpoints.remove_stale_lines(parent, topic_partition)
            file_system.make_directory(path)
            log = LogLoader(
                path,
                topic_partition,
                self._config_for_topic(topic_partition.topic),
                self.resources,
                had_clean_shutdown=True,
                offsets=CheckpointedOffsets(),
            ).load()
        except OSError as error:
            # An empty directory left behind would come back as a partition at the next start.
            with contextlib.suppress(OSError):
                file_system.remove_tree(path)
            self.resources.failures.note(parent, error)
            raise LogStorageError(f"cannot create {path}: {error_text(error)}") from error
        self._add(topic_partition, log)
        self.preferred.pop(topic_partition, None)
        return log

    def _directory_for(self, topic_partition: TopicPartition) -> str:
        """Return the log directory for a new log.

        A future log without a current one is the rest of a move whose log is gone, and makes room.
        """
        future = self.futures.get(topic_partition)
        wanted = self.preferred.get(topic_partition)
        if future is not None:
            wanted = wanted or os.path.dirname(future.directory)
            self.futures.delete(topic_partition)
        failed = self.resources.failures.failed
        counts = {each: 0 for each in self.live_directories if each not in failed}
        if wanted in counts:
            return wanted
        if not counts:
            raise LogStorageError(f"cannot create {topic_partition}: every log directory is offline")
        full = self.resources.failures.full
        # With every directory full, the small files of a new log may still fit.
        counts = {each: 0 for each in counts if each not in full} or counts
        cordoned = self.cordoned_directories()
        counts = {each: 0 for each in counts if each not in cordoned} or counts
        if len(counts) > 1:
            for log in self._logs.values():
                parent = os.path.dirname(log.directory)
                if parent in counts:
                    counts[parent] += 1
        return min(counts, key=lambda directory: counts[directory])

    def _delete_files(
        self, now: float | None, executor: BackgroundExecutor, count_max: int = _DELETED_AT_ONCE
    ) -> None:
        due = self.resources.deletions.take_due(now, count_max)
        if not due:
            return
        file_system = self.resources.file_system

        def work() -> None:
            for path, is_directory in due:
                try:
                    if is_directory:
                        file_system.remove_tree(path)
                    else:
                        file_system.remove(path)
                except OSError as error:
                    # The next start finds the file by its suffix and tries again.
                    logger.warning("cannot remove %s: %s", path, error_text(error))

        def done(error: BaseException | None) -> None:
            self._is_deleting = False
            if error is not None:
                logger.error("deleted files cannot be removed: %s", error_text(error))

        self._is_deleting = True
        executor.submit(work, done)

    def _delete_files_at_stop(self) -> None:
        """Remove files whose deletion waits, for a short time."""
        clock, deletions = self.resources.clock, self.resources.deletions
        end = clock.monotonic() + _DELETION_SECONDS_AT_STOP
        while deletions and clock.monotonic() < end:
            self._delete_files(None, InlineExecutor(), 1)
        if deletions:
            logger.info("%d deleted files and directories are left to the next start", len(deletions))

    def _checkpoint(self, name: str) -> None:
        self._note_moved()
        for directory in self.live_directories:
            if directory in self.resources.failures.full:
                # The write would fail, and log it, every few seconds; it is made when there is room.
                continue
            self._checkpoints.write(name, directory)

    def _before_truncation(self, topic_partition: TopicPartition, directory: str, offset: int) -> None:
        self._checkpoints.lower(os.path.dirname(directory), topic_partition, offset)

    def _checkpoint_truncation(self, topic_partition: TopicPartition) -> None:
        """Write the checkpoints of a truncated log soon, and truncate its future log as well."""
        log = self._logs.get(topic_partition)
        if log is None:
            return
        self.futures.note_truncation(topic_partition, log.log_end_offset)
        self._checkpoints.note(log)
        self._checkpoints.write_all(os.path.dirname(log.directory))

    def _note_moved(self) -> None:
        for moved, find in (
            (self.resources.moved, self._logs.get),
            (self.futures.resources.moved, self.futures.get),
        ):
            while moved:
                log = find(moved.pop())
                if log is not None:
                    self._checkpoints.note(log)
                    log.on_checkpoint()

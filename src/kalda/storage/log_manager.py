"""Opens, creates, deletes and maintains all logs of a broker, in one or several log directories.

The broker's periodic task calls the maintenance steps here. Each step looks only at logs that changed, so
thousands of idle partitions cost nothing. fsync and unlink run on the executor.

A directory whose device fails goes out of service, at start or later, and the other directories go on
(`kalda.storage.directory_failures`). A log that cannot be recovered at start because the disk is full stays
closed, and is opened when it is next requested and there is room.
"""

import contextlib
import errno
import logging
import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Final

from kalda.common.clock import Clock
from kalda.common.error_text import error_text
from kalda.common.types import TopicPartition
from kalda.storage.background import BackgroundExecutor, InlineExecutor
from kalda.storage.checkpoints import (
    read_offset_checkpoint,
    take_clean_shutdown,
    write_clean_shutdown,
)
from kalda.storage.directory_failures import is_out_of_space
from kalda.storage.errors import (
    CorruptCheckpointError,
    LogDirectoryError,
    LogDirectoryLockedError,
    LogStorageError,
    StorageError,
)
from kalda.storage.file_names import (
    CLEANER_OFFSET_CHECKPOINT_FILE,
    LOCK_FILE,
    LOG_START_OFFSET_CHECKPOINT_FILE,
    RECOVERY_POINT_CHECKPOINT_FILE,
    REPLICATION_OFFSET_CHECKPOINT_FILE,
    delete_directory_name,
    is_delete_directory,
    parse_partition_directory_name,
    partition_directory_name,
    stray_directory_name,
)
from kalda.storage.filesystem import DirectoryLock, FileSystem, OsFileSystem
from kalda.storage.log_caches import LogCaches
from kalda.storage.log_config import INT64_MAX, LogConfig
from kalda.storage.log_loader import CheckpointedOffsets, LogLoader
from kalda.storage.log_resources import LogResources
from kalda.storage.offset_checkpoint import OffsetCheckpointFile
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)

# Logs per retention step: well under a millisecond, so that requests do not wait for maintenance.
RETENTION_STEP_LOGS: Final = 50

# A clean shutdown syncs in parallel, because file systems merge such syncs; each log has one open file.
_CLOSE_LOGS: Final = 128
_CLOSE_THREADS: Final = 8

ConfigForTopic = Callable[[str], LogConfig]


@dataclass(frozen=True, slots=True)
class _ClosedLog:
    """A log that could not be recovered because the disk is full, with its checkpointed offsets."""

    directory: str
    is_clean: bool
    offsets: CheckpointedOffsets


class LogManager:
    """The logs of one process, in one or several log directories."""

    def __init__(
        self,
        directories: Sequence[str],
        config_for_topic: ConfigForTopic,
        clock: Clock,
        file_system: FileSystem | None = None,
        executor: BackgroundExecutor | None = None,
        caches: LogCaches | None = None,
    ) -> None:
        """Store the directories; `load` opens them."""
        assert directories, "a broker has at least one log directory"
        self.directories: Final = tuple(os.path.abspath(directory) for directory in directories)
        self.resources: Final = LogResources(
            file_system or OsFileSystem(), clock, executor or InlineExecutor(), caches
        )
        self._config_for_topic = config_for_topic
        self._logs: dict[TopicPartition, UnifiedLog] = {}
        self._closed: dict[TopicPartition, _ClosedLog] = {}
        """Logs whose recovery needs more space than the disk has. Invariant: none of them is in `_logs`."""
        self._locks: dict[str, DirectoryLock] = {}
        self._offline: dict[str, str] = {}
        self._retention_pass: Iterator[UnifiedLog] | None = None
        self._expiration_pass: Iterator[UnifiedLog] | None = None
        self.resources.on_truncation = self._checkpoint_truncation
        self._checkpoints: Final = {
            directory: {
                name: OffsetCheckpointFile(self.resources.file_system, os.path.join(directory, name))
                for name in _CHECKPOINTS
            }
            for directory in self.directories
        }

    def load(self) -> None:
        """Lock the directories and open their logs; a directory whose device fails stays out of service.

        Raises:
            LogDirectoryLockedError: another process uses a directory; the message has its name and the pid.
            LogDirectoryError: no directory, or one of its partitions, can be opened; the message has the
            cause.
        """
        try:
            for step in (self._lock, self._load_directory):
                for directory in self.live_directories:
                    try:
                        step(directory)
                    except LogDirectoryError as error:
                        self._skip(directory, error, of_a_log=step == self._load_directory)
        except BaseException:
            self._unlock()
            raise

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

    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """Return all logs, as a live view."""
        return self._logs

    def get_or_create(self, topic_partition: TopicPartition, topic_id: uuid.UUID | None = None) -> UnifiedLog:
        """Return the partition's log; create it in the directory with the fewest logs if there is none.

        Raises:
            InconsistentTopicIdError: the existing log belongs to another topic id.
            LogStorageError: the disk failed.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            log = self._reopen(topic_partition) or self._create(topic_partition)
        if topic_id is not None and log.topic_id != topic_id:
            log.assign_topic_id(topic_id)
        return log

    def delete(self, topic_partition: TopicPartition) -> bool:
        """Drop the partition's log and rename its directory; return whether there was one.

        The files are removed ``file.delete.delay.ms`` later. Reads in flight continue.

        Raises:
            LogStorageError: the disk failed; the log is still here.
        """
        log = self._logs.get(topic_partition)
        name = delete_directory_name(topic_partition, uuid.uuid4().hex)
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

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Drop the partition's log but keep its files, under a name that no start opens.

        Raises:
            LogStorageError: the disk failed; the log is still here.
        """
        log = self._logs[topic_partition]
        target = self._rename(topic_partition, log, stray_directory_name(topic_partition, uuid.uuid4().hex))
        log.forget("the log belongs to an earlier topic of this name")
        logger.warning("%s belongs to another topic id; it is kept as %s", log.directory, target)

    def _rename(self, topic_partition: TopicPartition, log: UnifiedLog | None, name: str) -> str:
        """Drop an open or closed log by renaming its directory; return the new path."""
        source = log.directory if log is not None else self._closed[topic_partition].directory
        parent = os.path.dirname(source)
        target = os.path.join(parent, name)
        try:
            if log is not None and self.resources.cleaner is not None:
                self.resources.cleaner.on_removal(topic_partition)
            self.resources.file_system.rename(source, target)
        except OSError as error:
            self.resources.failures.note(parent, error)
            raise LogStorageError(f"cannot delete {source}: {error_text(error)}") from error
        self._logs.pop(topic_partition, None)
        self._closed.pop(topic_partition, None)
        for checkpoint in self._checkpoints[parent].values():
            checkpoint.update(topic_partition, None)
        return target

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Apply new settings to all logs of a topic."""
        for topic_partition, log in self._logs.items():
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
            if log.topic_partition not in self._logs:
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
            log.producer_state.remove_expired(now_ms)
        return False

    def flush_step(self) -> None:
        """Flush the dirty logs whose last flush is ``flush.ms`` ago."""
        now = self.resources.clock.monotonic()
        for log in tuple(self._logs[name] for name in self.resources.dirty if name in self._logs):
            flush_ms = log.config.flush_ms
            if flush_ms != INT64_MAX and (now - log.last_flush) * 1000 >= flush_ms:
                try:
                    log.flush()
                except StorageError as error:
                    logger.warning("flush of %s postponed: %s", log.topic_partition, error_text(error))

    def deletion_step(self) -> None:
        """Remove the files whose delay is over, on the executor."""
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
        failed = self._close_logs()
        self._delete_files(None, InlineExecutor())
        # A failed log keeps its lines: they must not name offsets that were not synced.
        self.resources.moved.update(self._logs.keys() - failed)
        self._note_moved()
        for directory in self.live_directories:
            try:
                for checkpoint in self._checkpoints[directory].values():
                    checkpoint.write_now()
                unclean = (
                    *(self._logs[name].directory for name in failed),
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
        self._unlock()

    def _close_logs(self) -> set[TopicPartition]:
        """Close all logs, syncing several in parallel; return the partitions that failed."""
        failed: set[TopicPartition] = set()
        # Each log in the pool has one file open, so the bound on open files applies.
        group_size = min(_CLOSE_LOGS, self.resources.caches.files.cost_max)
        remaining = iter(tuple(self._logs.values()))
        with ThreadPoolExecutor(_CLOSE_THREADS, thread_name_prefix="log-close") as pool:
            while group := tuple(islice(remaining, group_size)):
                syncs = []
                for log in group:
                    try:
                        sync = log.close()
                    except StorageError as error:
                        logger.error("%s not closed cleanly: %s", log.topic_partition, error_text(error))
                        failed.add(log.topic_partition)
                    else:
                        if sync is not None:
                            syncs.append((log, pool.submit(sync)))
                for log, future in syncs:
                    error_of_sync = future.exception()
                    if error_of_sync is not None:
                        logger.error(
                            "%s not closed cleanly: %s", log.topic_partition, error_text(error_of_sync)
                        )
                        failed.add(log.topic_partition)
        return failed

    def _lock(self, directory: str) -> None:
        try:
            self.resources.file_system.make_directory(directory)
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
            is_clean = take_clean_shutdown(file_system, directory)
            entries = file_system.list_directory(directory)
        except OSError as error:
            raise LogDirectoryError(f"cannot read log directory {directory}: {error_text(error)}") from error
        checkpoints = {name: self._read_checkpoint(directory, name) for name in _CHECKPOINTS}
        recovery_points = checkpoints[RECOVERY_POINT_CHECKPOINT_FILE]
        start_offsets = checkpoints[LOG_START_OFFSET_CHECKPOINT_FILE]
        high_watermarks = checkpoints[REPLICATION_OFFSET_CHECKPOINT_FILE]
        first_dirty_offsets = self._read_checkpoint(directory, CLEANER_OFFSET_CHECKPOINT_FILE)
        configs: dict[str, LogConfig] = {}
        for entry in entries:
            path = os.path.join(directory, entry.name)
            if not entry.is_directory:
                continue
            if is_delete_directory(entry.name):
                self.resources.deletions.add(path, 0, is_directory=True)
                continue
            topic_partition = parse_partition_directory_name(entry.name)
            if topic_partition is None:
                continue
            other = self._logs.get(topic_partition) or self._closed.get(topic_partition)
            if other is not None:
                raise LogDirectoryError(
                    f"{topic_partition} is in two log directories, {other.directory} and {path}; remove one"
                )
            config = configs.get(topic_partition.topic)
            if config is None:
                config = configs[topic_partition.topic] = self._config_for_topic(topic_partition.topic)
            offsets = CheckpointedOffsets(
                recovery_points.get(topic_partition, 0),
                start_offsets.get(topic_partition, 0),
                high_watermarks.get(topic_partition, 0),
                first_dirty_offsets.get(topic_partition, 0),
            )
            try:
                log = self._open(path, topic_partition, config, is_clean, offsets)
            except LogDirectoryError as error:
                if error.__cause__ is None or not is_out_of_space(error.__cause__):
                    raise
                logger.error(
                    "%s stays closed until its disk has room: %s",
                    topic_partition,
                    error_text(error.__cause__),
                )
                self._closed[topic_partition] = _ClosedLog(path, is_clean, offsets)
                for name, known in checkpoints.items():
                    self._checkpoints[directory][name].update(topic_partition, known.get(topic_partition))
                continue
            self._add(topic_partition, log)
        here = self._logs.keys() | self._closed.keys()
        for name, found in checkpoints.items():
            self._checkpoints[directory][name].mark_stale(found.keys() - here)

    def _add(self, topic_partition: TopicPartition, log: UnifiedLog) -> None:
        assert topic_partition not in self._closed, f"{topic_partition} is open and closed for want of space"
        self._logs[topic_partition] = log
        self._note_offsets(log)

    def _note_offsets(self, log: UnifiedLog) -> None:
        """Update the checkpoints of a log's directory with its offsets."""
        for name, checkpoint in self._checkpoints[os.path.dirname(log.directory)].items():
            offset = _CHECKPOINTS[name](log)
            assert offset is None or offset <= log.log_end_offset, f"{name}: {offset} lies above {log}"
            checkpoint.update(log.topic_partition, offset)

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
            log = self._open(closed.directory, topic_partition, config, closed.is_clean, closed.offsets)
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
        is_clean: bool,
        offsets: CheckpointedOffsets,
    ) -> UnifiedLog:
        try:
            return LogLoader(
                path, topic_partition, config, self.resources, had_clean_shutdown=is_clean, offsets=offsets
            ).load()
        except (OSError, StorageError) as error:
            raise LogDirectoryError(
                f"cannot open partition {topic_partition} in {path}: {error_text(error)}; {_remedy(error)}"
            ) from error

    def _create(self, topic_partition: TopicPartition) -> UnifiedLog:
        failed = self.resources.failures.failed
        counts = {each: 0 for each in self.live_directories if each not in failed}
        if not counts:
            raise LogStorageError(f"cannot create {topic_partition}: every log directory is offline")
        full = self.resources.failures.full
        # With every directory full, the small files of a new log may still fit.
        counts = {each: 0 for each in counts if each not in full} or counts
        if len(counts) > 1:
            for log in self._logs.values():
                parent = os.path.dirname(log.directory)
                if parent in counts:
                    counts[parent] += 1
        parent = min(counts, key=lambda directory: counts[directory])
        path = os.path.join(parent, partition_directory_name(topic_partition))
        file_system = self.resources.file_system
        try:
            for checkpoint in self._checkpoints[parent].values():
                checkpoint.remove_stale_line(topic_partition)
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
        return log

    def _delete_files(self, now: float | None, executor: BackgroundExecutor) -> None:
        due = self.resources.deletions.take_due(now)
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

        executor.submit(work)

    def _read_checkpoint(self, directory: str, name: str) -> dict[TopicPartition, int]:
        path = os.path.join(directory, name)
        try:
            return read_offset_checkpoint(self.resources.file_system, path)
        except (OSError, CorruptCheckpointError) as error:
            # Zeros are safe: more is recovered than needed, and deleted records may reappear.
            logger.warning("checkpoint ignored: %s", error_text(error))
            return {}

    def _checkpoint(self, name: str) -> None:
        self._note_moved()
        for directory in self.live_directories:
            if directory in self.resources.failures.full:
                # The write would fail, and log it, every few seconds; it is made when there is room.
                continue
            self._checkpoints[directory][name].write(
                self.resources.executor, partial(self.resources.failures.note, directory)
            )

    def _checkpoint_truncation(self, topic_partition: TopicPartition) -> None:
        """Write the checkpoints of a truncated log, because the next start trusts them."""
        log = self._logs.get(topic_partition)
        if log is None:
            return
        self._note_offsets(log)
        directory = os.path.dirname(log.directory)
        for checkpoint in self._checkpoints[directory].values():
            checkpoint.write(self.resources.executor, partial(self.resources.failures.note, directory))

    def _note_moved(self) -> None:
        moved = self.resources.moved
        while moved:
            log = self._logs.get(moved.pop())
            if log is not None:
                self._note_offsets(log)
                log.on_checkpoint()


def _remedy(error: Exception) -> str:
    """Return the instruction for an operator whose partition cannot be opened."""
    if is_out_of_space(error):
        return "free space on its volume"
    return _REMEDIES.get(getattr(error, "errno", None), "repair or remove the directory")


_REMEDIES: Final[dict[int | None, str]] = {
    errno.EMFILE: "raise the limit of open files (`ulimit -n`)",
    errno.ENFILE: "raise the system's limit of open files (`fs.file-max`)",
    errno.EACCES: "give the broker's user read and write permission",
    errno.EPERM: "give the broker's user read and write permission",
    errno.EROFS: "mount its volume for writing",
    errno.EIO: "replace the disk, or remove its log directory from `log.dirs`",
}


def _recovery_point(log: UnifiedLog) -> int:
    return log.recovery_point


def _high_watermark(log: UnifiedLog) -> int:
    return log.high_watermark


def _log_start_offset(log: UnifiedLog) -> int | None:
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None


_CHECKPOINTS: Final[dict[str, Callable[[UnifiedLog], int | None]]] = {
    RECOVERY_POINT_CHECKPOINT_FILE: _recovery_point,
    LOG_START_OFFSET_CHECKPOINT_FILE: _log_start_offset,
    REPLICATION_OFFSET_CHECKPOINT_FILE: _high_watermark,
}

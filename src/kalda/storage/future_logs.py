"""Keeps the future logs: copies of logs in another log directory of the broker, which are to replace them.

A future log is in ``<topic>-<partition>.<id>-future`` of its new log directory (KIP-113). `FutureLogCopy`
fills it, and `FutureLogs.replace` puts it in place of the current log, in this order:

1. ``replaced-directories`` in the future log's directory gets the path of the current log, and is synced;
2. the future log's directory gets the name of the partition: from now on it is the current log;
3. when that name is on the device, the old directory is renamed to ``…-delete``;
4. when that is on the device, the file of step 1 is removed, and later the old files.

Between steps 2 and 3 two log directories have the partition, and only the file of step 1 shows the next start
which one is current. The old directory may be on a disk that failed, and come back much later; so may the new
one.
"""

import logging
import os
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import Final

from kalda.common.types import UUID, TopicPartition
from kalda.runtime.error_text import error_text
from kalda.storage.errors import LogStorageError, StorageError
from kalda.storage.file_names import (
    PARTITION_METADATA_FILE,
    REPLACED_DIRECTORIES_FILE,
    delete_directory_name,
    future_directory_name,
    partition_directory_name,
)
from kalda.storage.leader_epoch_cache import LeaderEpochFileCache
from kalda.storage.log_checkpoints import LogCheckpoints
from kalda.storage.log_config import LogConfig
from kalda.storage.log_loader import CheckpointedOffsets, LogLoader
from kalda.storage.log_resources import LogResources
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)


class FutureLogs:
    """The future logs of one process, at most one for each partition."""

    def __init__(
        self,
        resources: LogResources,
        checkpoints: LogCheckpoints,
        config_for_topic: Callable[[str], LogConfig],
    ) -> None:
        self.resources: Final = resources.for_future_logs()
        self._current_resources: Final = resources
        self._checkpoints: Final = checkpoints
        self._config_for_topic: Final = config_for_topic
        self._logs: Final[dict[TopicPartition, UnifiedLog]] = {}
        self._found_ms: Final[dict[TopicPartition, int]] = {}
        self._truncations: Final[dict[TopicPartition, int]] = {}
        """Where current logs were truncated since their future log last looked: the lowest offset."""
        self._replaced: Final[dict[TopicPartition, str]] = {}
        """Directories of replaced logs that are to be renamed, after step 2."""

    # Looking up.

    def get(self, topic_partition: TopicPartition) -> UnifiedLog | None:
        """Return the partition's future log, or ``None``."""
        return self._logs.get(topic_partition)

    def logs(self) -> Mapping[TopicPartition, UnifiedLog]:
        """Return all future logs, as a live view."""
        return self._logs

    def replaced_directory(self, topic_partition: TopicPartition) -> str | None:
        """Return the directory of the partition's replaced log, as long as it has its name."""
        return self._replaced.get(topic_partition)

    # Creation and deletion.

    def add(self, log: UnifiedLog, modified_ms: int) -> None:
        """Add a future log that a start found, with the time of its directory."""
        self._found_ms[log.topic_partition] = modified_ms
        self._add(log)

    def make_way(self, topic_partition: TopicPartition, modified_ms: int) -> bool:
        """Remove an older future log for one that a start found; return False if the found one is older.

        Raises:
            LogStorageError: the disk failed.
        """
        if topic_partition not in self._logs:
            return True
        return self._found_ms[topic_partition] <= modified_ms and self.delete(topic_partition)

    def _add(self, log: UnifiedLog) -> None:
        assert log.topic_partition not in self._logs, f"{log.topic_partition} has two future logs"
        self._logs[log.topic_partition] = log
        self._checkpoints.note(log)

    def create(
        self, topic_partition: TopicPartition, log_directory: str, topic_id: UUID | None
    ) -> UnifiedLog:
        """Create an empty future log in a log directory.

        Raises:
            LogStorageError: the disk failed.
        """
        assert topic_partition not in self._logs, f"{topic_partition} has a future log already"
        path = os.path.join(
            log_directory, future_directory_name(topic_partition, self.resources.new_name_suffix())
        )
        file_system = self.resources.file_system
        try:
            self._checkpoints.remove_stale_lines(log_directory, topic_partition)
            file_system.make_directory(path)
            config = self._config_for_topic(topic_partition.topic)
            log = LogLoader(
                path,
                topic_partition,
                config,
                self.resources,
                had_clean_shutdown=True,
                offsets=CheckpointedOffsets(),
            ).load()
            if topic_id is not None:
                log.assign_topic_id(topic_id)
        except (OSError, StorageError) as error:
            self._remove_later(path, 0)
            if isinstance(error, OSError):
                self.resources.failures.note(log_directory, error)
            raise LogStorageError(f"cannot create {path}: {error_text(error)}") from error
        self._add(log)
        logger.info("%s: the log is being moved to %s", topic_partition, log_directory)
        return log

    def delete(self, topic_partition: TopicPartition) -> bool:
        """Drop a future log and its files; return whether there was one.

        Raises:
            LogStorageError: the disk failed; the future log is still here.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            return False
        directory = os.path.dirname(log.directory)
        target = os.path.join(
            directory, delete_directory_name(topic_partition, self.resources.new_name_suffix())
        )
        with log.disk_errors.raised("delete"):
            self.resources.file_system.rename(log.directory, target)
        log.forget("the move to another log directory was cancelled")
        self._drop(topic_partition)
        self._checkpoints.forget(directory, topic_partition)
        self._remove_later(target, log.config.file_delete_delay_ms)
        return True

    def take_offline(self, log_directory: str) -> None:
        """Drop the future logs in a log directory that failed."""
        for topic_partition, log in tuple(self._logs.items()):
            if os.path.dirname(log.directory) == log_directory:
                log.forget(f"log directory {log_directory} is offline")
                self._drop(topic_partition)

    def clear(self) -> None:
        """Drop all future logs, which are closed; the next start does steps that still wait."""
        self._logs.clear()
        self._replaced.clear()

    # Copying.

    def note_truncation(self, topic_partition: TopicPartition, offset: int) -> None:
        """Note that the current log was truncated to `offset`, and the future log must be too."""
        if topic_partition in self._logs:
            before = self._truncations.get(topic_partition, offset)
            self._truncations[topic_partition] = min(before, offset)

    def truncation(self, topic_partition: TopicPartition) -> int | None:
        """Return the offset to which the future log must be truncated, or ``None``."""
        return self._truncations.get(topic_partition)

    def truncated(self, topic_partition: TopicPartition) -> None:
        """Note that the future log was truncated as far as `truncation` returned."""
        self._truncations.pop(topic_partition, None)

    # Replacing.

    def prepare_replacement(self, topic_partition: TopicPartition, current: UnifiedLog) -> Callable[[], None]:
        """Return a function for the pool that does step 1; it raises `OSError`.

        Raises:
            LogStorageError: the disk of the current log failed.
        """
        log, file_system = self._logs[topic_partition], self.resources.file_system
        with current.disk_errors.raised("read"):
            content = _lines([*self._read_replaced(current.directory), current.directory])
        if current.topic_id is not None and log.topic_id is None:
            # A power failure has taken the file from the copy.
            log.assign_topic_id(current.topic_id)
        path, log_directory = _marker_path(log.directory), os.path.dirname(log.directory)
        topic_id_path = os.path.join(log.directory, PARTITION_METADATA_FILE)

        def work() -> None:
            # The flush that follows syncs nothing if the copy has no new records.
            file_system.sync_file(topic_id_path)
            file_system.replace(path, content, sync=True)
            file_system.sync_directory(log_directory)

        return work

    def replace(self, current: UnifiedLog) -> UnifiedLog:
        """Do step 2: return the future log as the partition's log; the other steps follow by themselves.

        Raises:
            LogStorageError: the disk failed; nothing was replaced.
        """
        topic_partition = current.topic_partition
        future = self._logs[topic_partition]
        source, log_directory = current.directory, os.path.dirname(future.directory)
        target = os.path.join(log_directory, partition_directory_name(topic_partition))
        with future.disk_errors.raised("rename"):
            future.leader_epochs.replace(current.leader_epochs.entries)
            self.resources.file_system.rename(future.directory, target)
        log = _replacement(current, future, target, self._current_resources)
        self._drop(topic_partition)
        self._checkpoints.forget(os.path.dirname(source), topic_partition)
        self._checkpoints.note(log)
        cleaner = self._current_resources.cleaner
        if cleaner is not None:
            cleaner.on_move(topic_partition, os.path.dirname(source), log_directory)
        self._replaced[topic_partition] = source
        self.resources.executor.submit(
            partial(self.resources.file_system.sync_directory, log_directory),
            lambda error: self._on_name_synced(log, source, error),
        )
        return log

    def finish(self, topic_partition: TopicPartition) -> None:
        """Do step 3 at once if it waits, before the log is deleted; a failure is only logged."""
        source = self._replaced.pop(topic_partition, None)
        retired = None if source is None else self._retire(topic_partition, source)
        if retired is not None:
            self._remove_later(retired, 0)

    def _on_name_synced(self, log: UnifiedLog, source: str, error: BaseException | None) -> None:
        topic_partition = log.topic_partition
        if self._replaced.get(topic_partition) != source:
            return
        if error is not None:
            # The next start finds both directories, and the file of step 1.
            self.resources.failures.note(os.path.dirname(log.directory), error)
            logger.warning("%s: %s is kept: %s", topic_partition, source, error_text(error))
            return
        del self._replaced[topic_partition]
        retired = self._retire(topic_partition, source)
        if retired is None:
            return
        marker = _marker_path(log.directory)
        file_system = self.resources.file_system

        def work() -> None:
            file_system.sync_directory(os.path.dirname(source))
            file_system.remove(marker)

        self.resources.executor.submit(work, lambda error: self._on_retired(log, retired, error))

    def _retire(self, topic_partition: TopicPartition, source: str) -> str | None:
        """Rename a replaced log's directory; return its new path, or ``None`` if this fails."""
        log_directory = os.path.dirname(source)
        target = os.path.join(
            log_directory, delete_directory_name(topic_partition, self.resources.new_name_suffix())
        )
        try:
            self.resources.file_system.rename(source, target)
        except OSError as error:
            self.resources.failures.note(log_directory, error)
            logger.warning("%s: cannot remove %s: %s", topic_partition, source, error_text(error))
            return None
        return target

    def _on_retired(self, log: UnifiedLog, directory: str, error: BaseException | None) -> None:
        if error is not None:
            logger.warning("%s: %s is kept: %s", log.topic_partition, directory, error_text(error))
        self._remove_later(directory, log.config.file_delete_delay_ms)

    # A start.

    def replaced_of(self, directory: str, other: str) -> str | None:
        """Return which of two directories of one partition is to be removed, ``None`` if it is not known.

        It is the one that the other has replaced. If that one has a later leader epoch, it was in service
        again while the disk of the other was not there, and the other is removed.

        Raises:
            OSError, CorruptCheckpointError: a directory cannot be read.
        """
        for replaced, by in ((directory, other), (other, directory)):
            if replaced in self._read_replaced(by):
                return by if self._latest_epoch(replaced) > self._latest_epoch(by) else replaced
        return None

    def _latest_epoch(self, directory: str) -> int:
        epochs = LeaderEpochFileCache(self.resources.file_system, directory)
        if self.resources.file_system.exists(epochs.path):
            epochs.load()
        return epochs.latest_epoch

    def discard(self, path: str, topic_partition: TopicPartition) -> None:
        """Remove the directory of a log that is not loaded; raises `OSError`."""
        target = delete_directory_name(topic_partition, self.resources.new_name_suffix())
        target = os.path.join(os.path.dirname(path), target)
        self.resources.file_system.rename(path, target)
        self._remove_later(target, 0)
        logger.info("%s: removing %s, which another directory has replaced", topic_partition, path)

    def forget_replaced(self, logs: Iterable[UnifiedLog], live_directories: Container[str]) -> None:
        """Remove the files of step 1, when all log directories have been loaded."""
        for log in logs:
            try:
                self._forget_replaced(log, live_directories)
            except OSError as error:
                logger.warning("%s: %s", log.topic_partition, error_text(error))

    def _forget_replaced(self, log: UnifiedLog, live_directories: Container[str]) -> None:
        """Remove the file of step 1 if all directories in it are gone; raises `OSError`.

        A directory on a disk that is not there keeps its line: the disk may come back.
        """
        file_system = self.resources.file_system
        replaced = self._read_replaced(log.directory)
        if not replaced:
            return
        kept = [each for each in replaced if os.path.dirname(each) not in live_directories]
        for each in replaced:
            if each not in kept:
                file_system.sync_directory(os.path.dirname(each))
        if kept:
            file_system.replace(_marker_path(log.directory), _lines(kept), sync=True)
        else:
            file_system.remove(_marker_path(log.directory))

    def _read_replaced(self, directory: str) -> list[str]:
        path = _marker_path(directory)
        if not self.resources.file_system.exists(path):
            return []
        return self.resources.file_system.read(path).decode(errors="surrogateescape").splitlines()

    def _drop(self, topic_partition: TopicPartition) -> None:
        del self._logs[topic_partition]
        self._truncations.pop(topic_partition, None)
        self.resources.dirty.discard(topic_partition)
        self.resources.moved.discard(topic_partition)

    def _remove_later(self, directory: str, delay_ms: int) -> None:
        self.resources.delete_later(directory, delay_ms, is_directory=True)


def _replacement(
    current: UnifiedLog, future: UnifiedLog, directory: str, resources: LogResources
) -> UnifiedLog:
    """Return the log of a future log's files, which are now in `directory`.

    Both have the same records. The new log has the offsets and the producers of the current one, which is
    closed; what readers hold of it stays readable.
    """
    end = current.log_end_offset
    assert future.log_end_offset == end, f"{future} cannot replace {current}"
    resources.deletions.move(future.directory, directory)
    local = future.detach(f"{future.topic_partition}: the log has replaced another")
    current.detach(f"{current.topic_partition}: the log was moved to {directory}").forget()
    local.relocate(directory, resources)
    future.leader_epochs.relocate(directory)
    producers, missing = current.producer_state, future.missing
    producers.relocate(directory, future.producer_state.snapshots)
    missing.relocate(directory)
    missing.is_withheld, missing.is_given_up = current.missing.is_withheld, current.missing.is_given_up
    for queue in (resources.dirty, resources.moved):
        queue.add(current.topic_partition)
    return UnifiedLog(
        local,
        resources,
        topic_id=current.topic_id,
        log_start_offset=current.log_start_offset,
        high_watermark=current.high_watermark,
        leader_epochs=future.leader_epochs,
        producer_state=producers,
        missing=missing,
    )


def _marker_path(directory: str) -> str:
    return os.path.join(directory, REPLACED_DIRECTORIES_FILE)


def _lines(directories: list[str]) -> bytes:
    return "".join(f"{each}\n" for each in directories).encode(errors="surrogateescape")

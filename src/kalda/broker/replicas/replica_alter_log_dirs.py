"""Moves replicas to other log directories of this broker (KIP-113), while they are written and read.

A future log in the new log directory is filled from the current one (`kalda.storage.future_log_copy`) and
replaces it when it has the same records (`kalda.storage.future_logs`). This is the work of Kafka's
``ReplicaAlterLogDirsManager`` and its threads:

    alter -> (waits for a worker) -> copies -> marks and syncs the future log -> copies the rest -> replaces
                                 <- an error, a full log directory: tried again later

Copying reads in the background pool and appends on the event loop, a step at a time. After every ``await``
the move looks its logs up again: the partition may have been deleted, its disk may have failed, or the move
may have been cancelled or directed elsewhere. None of these notifies it.

The last records are copied, and the log is replaced, without an ``await`` in between, because an append or a
truncation of the current log would be lost.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from kalda.broker.replicas.partition import Partition
from kalda.broker.replicas.replication_quota import RateQuota
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.runtime.background import run_in_background
from kalda.runtime.clock import Clock
from kalda.runtime.error_text import error_text
from kalda.storage.errors import LOG_ERRORS, LogStorageError, UnexpectedAppendOffsetError
from kalda.storage.file_names import DIRECTORY_NAME_MAX, future_directory_name
from kalda.storage.future_log_copy import FutureLogCopy
from kalda.storage.log_manager import LogManager
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS: Final = 1.0
BACKOFF_SECONDS_MAX: Final = 60.0
"""The pause after an error doubles up to this: a full disk stays full for a while."""
WAIT_SECONDS: Final = 1.0
"""How often to check whether a move that has to wait may continue."""
THROTTLE_SECONDS: Final = 0.1
"""How often to check whether the quota is still exceeded."""
UNSYNCED_BYTES_MAX: Final = 16 * 1024 * 1024
"""The most bytes of a new log that may be unsynced when it replaces the old one. A busy partition would never
be moved if all had to be synced."""
LAST_BYTES_MAX: Final = 64 * 1024
"""The most bytes that are read and appended in one turn of the event loop to catch up."""
LAST_READS_MAX: Final = 4
PREFERRED_MAX: Final = 100_000
"""Partitions without a replica whose log directory is remembered; beyond, the oldest request is forgotten."""

_UNIQUE: Final = "0" * 32


class LogDirMove:
    """The state of one move between two attempts."""

    __slots__ = ("due", "failures", "is_running", "unsynced_bytes")

    def __init__(self) -> None:
        self.due = 0.0
        """When to continue, in monotonic seconds."""
        self.failures = 0
        """Consecutive attempts that ended with an error."""
        self.is_running = False
        self.unsynced_bytes: int | None = None
        """Bytes copied since the future log was marked and synced; None before that."""


class ReplicaAlterLogDirs:
    """The moves of one broker's replicas between its log directories; `run` does the work."""

    def __init__(
        self,
        logs: LogManager,
        clock: Clock,
        quota: RateQuota,
        threads: int,
        *,
        find: Callable[[TopicPartition], Partition | None],
        absence_error: Callable[[TopicPartition], ErrorCode],
        is_repaired: Callable[[TopicPartition], bool],
        on_moved_from_full: Callable[[Partition], None],
    ) -> None:
        """`threads` is the number of replicas that are copied at the same time.

        `find` returns a hosted partition, and `absence_error` the error for one that is not hosted.
        `is_repaired` returns whether records may still be put into the middle of a partition's log.
        `on_moved_from_full` is called with a partition that has left a full log directory.
        """
        self._logs: Final = logs
        self._clock: Final = clock
        self._threads: Final = threads
        self._find: Final = find
        self._absence_error: Final = absence_error
        self._is_repaired: Final = is_repaired
        self._on_moved_from_full: Final = on_moved_from_full
        self._moves: Final[dict[TopicPartition, LogDirMove]] = {}
        self._attention: Final = asyncio.Event()
        self.quota: Final = quota

    # Requests and roles.

    def alter(self, directories: Mapping[TopicPartition, str]) -> dict[TopicPartition, ErrorCode]:
        """Move replicas to these log directories; return the result for each.

        A move to where the log is cancels the current move. For a partition without a replica here the log
        directory is remembered, and the result is REPLICA_NOT_AVAILABLE.
        """
        return {name: self._alter(name, directory) for name, directory in directories.items()}

    def begin(self, partition: Partition) -> None:
        """Continue the move of a partition that this broker hosts from now on, if it has a future log."""
        name = partition.topic_partition
        future = self._logs.futures.get(name)
        if future is None:
            return
        if future.topic_id not in (None, partition.log.topic_id):
            with suppress(LogStorageError):
                self._logs.futures.delete(name)
            return
        logger.info("%s: continuing the move to %s", name, os.path.dirname(future.directory))
        self._schedule(name)

    def _alter(self, name: TopicPartition, directory: str) -> ErrorCode:
        logs = self._logs
        if len(os.fsencode(future_directory_name(name, _UNIQUE))) > DIRECTORY_NAME_MAX:
            return ErrorCode.INVALID_TOPIC_EXCEPTION
        if directory not in logs.directories:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if directory in logs.offline_directories or directory in logs.resources.failures.failed:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if directory in logs.cordoned_directories():
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        partition = self._find(name)
        if partition is None:
            code = self._absence_error(name)
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                return code
            self._prefer(name, directory)
            return ErrorCode.REPLICA_NOT_AVAILABLE if code is ErrorCode.NOT_LEADER_OR_FOLLOWER else code
        try:
            future = logs.futures.get(name)
            if future is not None:
                if os.path.dirname(future.directory) == directory:
                    return ErrorCode.NONE
                logs.futures.delete(name)
                logger.info("%s: the move to %s is cancelled", name, os.path.dirname(future.directory))
            if os.path.dirname(partition.log.directory) != directory:
                logs.create_future(name, directory)
                self._schedule(name)
        except LogStorageError as error:
            logger.warning("%s cannot be moved to %s: %s", name, directory, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _prefer(self, name: TopicPartition, directory: str) -> None:
        preferred = self._logs.preferred
        preferred.pop(name, None)
        if len(preferred) == PREFERRED_MAX:
            del preferred[next(iter(preferred))]
        preferred[name] = directory

    def _schedule(self, name: TopicPartition) -> None:
        move = self._moves.setdefault(name, LogDirMove())
        move.due, move.failures, move.unsynced_bytes = 0.0, 0, None
        self._attention.set()

    # Metrics.

    @property
    def max_lag(self) -> int:
        """The records that the future log lacks that lacks most."""
        return max((copy.lag for copy in map(self._copy_of, self._moves) if copy is not None), default=0)

    @property
    def failed_count(self) -> int:
        """The moves whose last attempt ended with an error."""
        return sum(move.failures > 0 for move in self._moves.values())

    # The work.

    async def run(self) -> None:
        """Copy until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self._threads):
                tasks.create_task(self._work(), name=f"replica alter log dirs {number}")

    async def _work(self) -> None:
        while True:
            name, move = await self._next()
            move.is_running = True
            try:
                await self.advance(name)
            finally:
                move.is_running = False

    async def _next(self) -> tuple[TopicPartition, LogDirMove]:
        """Wait for a move that may continue."""
        while True:
            waiting = [(name, move) for name, move in self._moves.items() if not move.is_running]
            now = self._clock.monotonic()
            for name, move in waiting:
                if move.due <= now:
                    return name, move
            self._attention.clear()
            due = min((move.due for _, move in waiting), default=None)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if due is None else due - now):
                    await self._attention.wait()

    async def advance(self, name: TopicPartition) -> None:
        """Copy until the log is replaced, the move is cancelled, or it has to wait."""
        move = self._moves[name]
        try:
            is_ended = await self._copy(name, move)
        except (OSError, *LOG_ERRORS) as error:
            self._fail(name, move, error_text(error))
        except Exception:
            # A defect that one partition shows must not stop the moves of others or the broker.
            logger.exception("%s: the move to another log directory failed", name)
            self._fail(name, move, "a defect, see the traceback above")
        else:
            if is_ended:
                del self._moves[name]
            else:
                move.due = self._clock.monotonic() + WAIT_SECONDS

    async def _copy(self, name: TopicPartition, move: LogDirMove) -> bool:
        """Copy and replace a log; return whether the move has ended, else it has to wait."""
        executor = self._logs.resources.executor
        while (copy := self._copy_of(name)) is not None:
            if self._must_wait(copy):
                return False
            if self.quota.is_exceeded():
                await asyncio.sleep(THROTTLE_SECONDS)
                continue
            records = copy.next_records()
            if records is not None:
                data = await run_in_background(executor, records.read)
                if self._is_current(copy):
                    self._append(copy, move, data)
            elif await self._sync(copy, move) and self._replace(copy, move):
                return True
        return True

    def _append(self, copy: FutureLogCopy, move: LogDirMove, data: bytes) -> None:
        size = copy.append(data)
        if not size:
            raise UnexpectedAppendOffsetError(
                f"{copy.future.topic_partition}: no whole batch can be read at {copy.future.log_end_offset}"
            )
        move.failures = 0
        if move.unsynced_bytes is not None:
            move.unsynced_bytes += size
        self.quota.record(size)

    async def _sync(self, copy: FutureLogCopy, move: LogDirMove) -> bool:
        """Mark and sync the future log, if much was copied since the last time; return whether to go on."""
        if move.unsynced_bytes is not None and move.unsynced_bytes <= UNSYNCED_BYTES_MAX:
            return True
        futures, future = self._logs.futures, copy.future
        mark = futures.prepare_replacement(future.topic_partition, copy.current)
        await run_in_background(self._logs.resources.executor, mark)
        if not self._is_current(copy):
            return False
        synced: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        move.unsynced_bytes = 0
        future.flush(lambda: None if synced.done() else synced.set_result(None))
        await synced
        if self._is_current(copy) and future.failure is not None:
            raise LogStorageError(future.failure)
        return self._is_current(copy)

    def _replace(self, copy: FutureLogCopy, move: LogDirMove) -> bool:
        """Copy the last records and replace the log; return whether this was done. Never awaits."""
        for _ in range(LAST_READS_MAX):
            if self._must_wait(copy):
                return False
            records = copy.next_records()
            if records is None:
                break
            if records.size > LAST_BYTES_MAX:
                return False
            self._append(copy, move, records.read())
        else:
            return False
        name, source = copy.current.topic_partition, os.path.dirname(copy.current.directory)
        partition = self._find(name)
        assert partition is not None, f"{name} is replaced and not hosted"
        partition.log = self._logs.replace_with_future(name)
        self._flush(partition.log)
        logger.info("%s: moved from %s to %s", name, source, os.path.dirname(partition.log.directory))
        if source in self._logs.resources.failures.full:
            self._on_moved_from_full(partition)
        return True

    @staticmethod
    def _flush(log: UnifiedLog) -> None:
        """Have the new log synced before the files of the old one are removed."""
        try:
            log.take_producer_snapshot()
            log.flush()
        except (OSError, LogStorageError) as error:
            # The periodic flush and the next start do it.
            logger.warning("%s: not synced after a move: %s", log.topic_partition, error_text(error))

    def _copy_of(self, name: TopicPartition) -> FutureLogCopy | None:
        """Return the logs of a move, or None if it was cancelled or the partition is not hosted any more."""
        partition, future = self._find(name), self._logs.futures.get(name)
        if partition is None or future is None:
            return None
        return FutureLogCopy(self._logs.futures, partition.log, future)

    def _is_current(self, copy: FutureLogCopy) -> bool:
        found = self._copy_of(copy.current.topic_partition)
        return found is not None and found.current is copy.current and found.future is copy.future

    def _must_wait(self, copy: FutureLogCopy) -> bool:
        """Return whether the new log directory is full, or the current log may get records in its middle."""
        log_directory = os.path.dirname(copy.future.directory)
        failures = self._logs.resources.failures
        return (
            log_directory in failures.full
            or log_directory in failures.failed
            or self._is_repaired(copy.current.topic_partition)
        )

    def _fail(self, name: TopicPartition, move: LogDirMove, reason: str) -> None:
        """Have a move tried again later; a future log whose sync failed begins again."""
        if name not in self._moves:
            return
        pause = min(FIRST_BACKOFF_SECONDS * 2 ** min(move.failures, 30), BACKOFF_SECONDS_MAX)
        move.failures += 1
        move.due = self._clock.monotonic() + pause
        move.unsynced_bytes = None
        logger.warning("%s: the move is tried again in %.0f s: %s", name, pause, reason)
        future = self._logs.futures.get(name)
        if future is not None and future.failure is not None and self._find(name) is not None:
            with suppress(LogStorageError):
                self._logs.futures.delete(name)
                self._logs.create_future(name, os.path.dirname(future.directory))

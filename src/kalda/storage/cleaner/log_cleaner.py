"""Chooses which log is cleaned next, runs the cleaning, and keeps the cleaner's checkpoints.

Everything here runs on the event loop in short steps: choosing looks at a few logs at a time, a runner does
the work (`runner`), and swaps are renames (`swap`). A log is in `_in_progress` from the choice until the last
file of its cleaning is in place.

Invariant: whatever ends a cleaning early (a truncation, a deletion, a full disk, a bug), the log is as it was
before or as it would have been after, and the other logs are cleaned.
"""

import asyncio
import errno
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from kalda.common.types import TopicPartition
from kalda.events.event import EventKind
from kalda.records.errors import RecordsError
from kalda.runtime.background import run_in_background
from kalda.runtime.error_text import error_text
from kalda.storage.checkpoints import read_offset_checkpoint
from kalda.storage.cleaner.cleaner_config import CleanerConfig
from kalda.storage.cleaner.job import CleanedGroup, CleaningResult
from kalda.storage.cleaner.job_planning import plan_job
from kalda.storage.cleaner.log_to_clean import LogToClean, measure_log
from kalda.storage.cleaner.runner import (
    CleaningAbortedError,
    CleaningError,
    CleaningRunner,
    WorkerDiedError,
)
from kalda.storage.cleaner.swap import SegmentSwap
from kalda.storage.errors import CorruptCheckpointError, StorageError
from kalda.storage.file_names import CLEANED_SUFFIX, CLEANER_OFFSET_CHECKPOINT_FILE
from kalda.storage.log_manager import LogManager
from kalda.storage.offset_checkpoint import OffsetCheckpointFile
from kalda.storage.unified_log import UnifiedLog

logger: Final = logging.getLogger(__name__)

_LOGS_PER_STEP: Final = 50
"""Compacted logs measured per turn of the event loop: about half a millisecond."""

RETRY_MS: Final = 60_000
"""The delay before a log is tried again after a full disk, too few descriptors or a dead process."""

_SWAP_RETRY_SECONDS: Final = 1.0
_DEATHS_MAX: Final = 2
"""Consecutive dead processes after which a log is uncleanable: the first may have been killed by hand."""


class _Cleaning:
    """The cleaning of one log in progress."""

    __slots__ = ("is_aborted", "log", "runner", "swap")

    def __init__(self, log: UnifiedLog, runner: CleaningRunner) -> None:
        self.log = log
        self.runner = runner
        self.swap: SegmentSwap | None = None
        self.is_aborted = False

    def abort(self) -> None:
        """End the cleaning; afterwards the caller may change the closed segments. Raises `OSError`."""
        self.is_aborted = True
        self.runner.abort()
        if self.swap is not None:
            self.swap.abort()

    def check(self) -> None:
        """Raise `CleaningAbortedError` if the cleaning was aborted; called after each await."""
        if self.is_aborted:
            raise CleaningAbortedError


class LogCleaner:
    """Cleans the compacted logs of a log manager."""

    def __init__(
        self,
        logs: LogManager,
        config: Callable[[], CleanerConfig],
        new_runner: Callable[[], CleaningRunner],
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Register with `logs`, which are loaded; `config` returns the current settings.

        From now on truncations and deletions call the cleaner first.
        """
        self._logs: Final = logs
        self._config: Final = config
        self._new_runner: Final = new_runner
        self._pause: Final = pause
        self._resources: Final = logs.resources
        self._in_progress: Final[dict[TopicPartition, _Cleaning]] = {}
        self._postponed: Final[dict[TopicPartition, float]] = {}
        self._deaths: Final[dict[TopicPartition, int]] = {}
        self._clean_offsets: Final[dict[TopicPartition, int]] = {}
        self._checkpoints: Final[dict[str, OffsetCheckpointFile]] = {}
        self._wake: Final = asyncio.Event()
        self.uncleanable: Final[dict[TopicPartition, str]] = {}
        """Logs that are not cleaned until a restart, with the reason."""
        # Values for the metrics, by slot where there are several.
        self.last_results: Final[dict[int, CleaningResult]] = {}
        self.last_delays_ms: Final[dict[int, int]] = {}
        self.max_dirty_ratio = 0.0
        self.last_run_ms = self._resources.clock.time_ms()
        self.dead_workers = 0
        for directory in logs.live_directories:
            self._load_checkpoint(directory)
        self._resources.cleaner = self

    # Lifecycle.

    async def run(self) -> None:
        """Clean until cancelled, up to ``log.cleaner.threads`` logs at a time."""
        slots: dict[int, asyncio.Task[None]] = {}
        async with asyncio.TaskGroup() as tasks:
            while True:
                for slot in range(self._config().threads):
                    if slot not in slots or slots[slot].done():
                        slots[slot] = tasks.create_task(self._run_slot(slot), name=f"log cleaner {slot}")
                self._wake.clear()
                await self._wake.wait()

    def reconfigure(self) -> None:
        """Apply changed settings from the next log on."""
        self._wake.set()

    async def _run_slot(self, slot: int) -> None:
        runner = self._new_runner()
        try:
            while slot < self._config().threads:
                if await self.clean_filthiest(runner, slot):
                    continue
                await runner.rest()
                # A changed backoff applies at once, not after the old one.
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._config().backoff_ms / 1000):
                        await self._wake.wait()
                await self._pause(0)
        finally:
            runner.abort()
            await runner.rest()

    async def clean_filthiest(self, runner: CleaningRunner, slot: int = 0) -> bool:
        """Clean the dirtiest log that is due; return whether one was cleaned."""
        candidate = await self._choose(slot)
        if candidate is None:
            return False
        log = candidate.log
        topic_partition = log.topic_partition
        cleaning = self._in_progress[topic_partition] = _Cleaning(log, runner)
        log.is_being_cleaned = True
        try:
            result = await self._clean(cleaning, candidate)
        except CleaningAbortedError:
            logger.info("%s: cleaning aborted", topic_partition)
        except CleaningError as error:
            self._on_failure(log, error)
        except WorkerDiedError as error:
            self._on_death(log, error)
        except Exception as error:
            # An error with one log must not stop the cleaning of others.
            self._on_failure(log, error)
        else:
            self.last_results[slot] = result
            self._on_cleaned(candidate, result)
            return True
        finally:
            log.is_being_cleaned = False
            del self._in_progress[topic_partition]
            if self._resources.read_leases is not None:
                self._resources.read_leases.end_rewrite(topic_partition)
        await self._remove_leftovers(log.directory)
        return False

    # Calls from logs and the log manager (`kalda.storage.log_resources.CleanerPort`).

    def abort(self, topic_partition: TopicPartition) -> None:
        """Stop cleaning the log, and finish or undo a swap that began; raises `OSError`."""
        cleaning = self._in_progress.get(topic_partition)
        if cleaning is not None:
            cleaning.abort()

    def on_truncation(self, topic_partition: TopicPartition, offset: int) -> None:
        """Abort, and count the log as dirty from `offset` on; raises `OSError`."""
        self.abort(topic_partition)
        log = self._logs.get(topic_partition)
        if log is not None and self._clean_offsets.get(topic_partition, 0) > offset:
            self._note_clean(log, offset)

    def on_removal(self, topic_partition: TopicPartition) -> None:
        """Abort, and forget the log; raises `OSError`."""
        self.abort(topic_partition)
        for known in (self._clean_offsets, self._postponed, self._deaths, self.uncleanable):
            known.pop(topic_partition, None)
        for checkpoint in self._checkpoints.values():
            checkpoint.update(topic_partition, None)
            self._write(checkpoint)

    def on_move(self, topic_partition: TopicPartition, source: str, target: str) -> None:
        """Note that the log moved from one log directory to another."""
        self.uncleanable.pop(topic_partition, None)
        offset = self._clean_offsets.get(topic_partition)
        for directory, moved in ((source, None), (target, offset)):
            checkpoint = self._checkpoints.get(directory)
            if checkpoint is not None:
                checkpoint.update(topic_partition, moved)
                self._write(checkpoint)

    # State for metrics and tests.

    def clean_offset(self, topic_partition: TopicPartition) -> int | None:
        """Return the offset below which a log is clean, or ``None`` if it was never cleaned."""
        return self._clean_offsets.get(topic_partition)

    @property
    def in_progress(self) -> frozenset[TopicPartition]:
        """The logs that are being cleaned."""
        return frozenset(self._in_progress)

    def uncleanable_bytes(self, directory: str) -> int:
        """Return the cleanable bytes of a directory's uncleanable logs."""
        total = 0
        now_ms = self._resources.clock.time_ms()
        for log in self._uncleanable_logs(directory):
            with suppress(OSError):
                found = measure_log(log, self._clean_offsets.get(log.topic_partition), now_ms)
                total += found.cleanable_bytes
        return total

    def uncleanable_count(self, directory: str) -> int:
        """Return the number of uncleanable logs of a directory."""
        return len(self._uncleanable_logs(directory))

    def _uncleanable_logs(self, directory: str) -> list[UnifiedLog]:
        logs = (self._logs.get(topic_partition) for topic_partition in self.uncleanable)
        return [log for log in logs if log is not None and os.path.dirname(log.directory) == directory]

    # Choosing.

    async def _choose(self, slot: int) -> LogToClean | None:
        """Find the dirtiest log that is due and mark it as in progress."""
        now_ms = self.last_run_ms = self._resources.clock.time_ms()
        now = self._resources.clock.monotonic()
        best: LogToClean | None = None
        dirtiest, delay_ms = 0.0, 0
        for count, (topic_partition, log) in enumerate(tuple(self._logs.logs().items()), 1):
            if not count % _LOGS_PER_STEP:
                await asyncio.sleep(0)
            if not log.config.is_compacted or not self._is_free(topic_partition, log, now):
                continue
            if self._clean_offsets.get(topic_partition, 0) > log.log_end_offset:
                logger.warning(
                    "%s: the cleaner checkpoint %d is above the log end offset %d; all of it counts as dirty",
                    topic_partition,
                    self._clean_offsets[topic_partition],
                    log.log_end_offset,
                )
                self._note_clean(log, log.log_start_offset)
            try:
                found = measure_log(log, self._clean_offsets.get(topic_partition), now_ms)
            except Exception as error:
                # Invalid files of one log must not stop the cleaning of others.
                self._on_failure(log, error)
                continue
            delay_ms = max(delay_ms, found.compaction_delay_ms)
            dirtiest = max(dirtiest, found.ratio)
            if found.is_due and (best is None or found.ratio > best.ratio) and not self._is_leased(found):
                best = found
        self.max_dirty_ratio = dirtiest
        self.last_delays_ms[slot] = delay_ms
        for checkpoint in self._checkpoints.values():
            self._write(checkpoint)
        if best is None or not self._is_free(best.log.topic_partition, best.log, now):
            # Another slot took the log, or it was deleted, while this method awaited.
            return None
        # Measured again for the same reason: the log may have been truncated.
        best = measure_log(best.log, self._clean_offsets.get(best.log.topic_partition), now_ms)
        leases = self._resources.read_leases
        if leases is None or leases.begin_rewrite(best.log.topic_partition, best.first_uncleanable_offset):
            return best
        return None

    def _is_leased(self, candidate: LogToClean) -> bool:
        """Return whether clients read segments in place that the cleaning would replace."""
        leases = self._resources.read_leases
        if leases is None:
            return False
        end_offset = candidate.first_uncleanable_offset
        return leases.removable_below(candidate.log.topic_partition, end_offset) < end_offset

    def _is_free(self, topic_partition: TopicPartition, log: UnifiedLog, now: float) -> bool:
        return (
            len(log.segments) > 1
            and log.failure is None
            # A log that is being moved is not cleaned: the copy would have removed records.
            and self._logs.futures.get(topic_partition) is None
            and topic_partition not in self._in_progress
            and topic_partition not in self.uncleanable
            and self._postponed.get(topic_partition, 0.0) <= now
            and self._logs.get(topic_partition) is log
        )

    # Cleaning.

    async def _clean(self, cleaning: _Cleaning, candidate: LogToClean) -> CleaningResult:
        async def on_group(group: CleanedGroup) -> None:
            await self._swap(cleaning, group)

        try:
            job = await plan_job(candidate, self._config(), self._resources.clock.time_ms())
            cleaning.check()
            logger.info(
                "%s: cleaning [%d, %d), %d%% of it dirty",
                cleaning.log.topic_partition,
                candidate.first_dirty_offset,
                candidate.first_uncleanable_offset,
                round(100 * candidate.ratio),
            )
            result = await cleaning.runner.run(job, on_group)
            cleaning.check()
            return result
        except BaseException:
            with suppress(OSError):
                cleaning.abort()
            raise

    async def _swap(self, cleaning: _Cleaning, group: CleanedGroup) -> None:
        """Swap the segments of a group, step by step."""
        cleaning.check()
        swap = cleaning.swap = SegmentSwap(cleaning.log, group, self._resources)
        swap.prepare()
        await run_in_background(self._resources.executor, swap.sync_names)
        cleaning.check()
        swap.install()
        while not await self._step(cleaning, swap.retire_some):
            pass
        await self._step(cleaning, swap.complete)
        cleaning.swap = None
        await run_in_background(self._resources.executor, swap.sync_names)

    async def _step(self, cleaning: _Cleaning, step: Callable[[], object]) -> object:
        """Run one step of a swap that must be finished; retries it after a temporary disk error."""
        while True:
            await asyncio.sleep(0)
            cleaning.check()
            try:
                return step()
            except OSError as error:
                if self._resources.failures.note(os.path.dirname(cleaning.log.directory), error):
                    raise
                logger.warning(
                    "%s: swap of segments postponed: %s", cleaning.log.topic_partition, error_text(error)
                )
            await self._pause(_SWAP_RETRY_SECONDS)

    async def _remove_leftovers(self, directory: str) -> None:
        """Remove the files of an unfinished cleaning, which may have filled the disk."""
        file_system = self._resources.file_system

        def work() -> None:
            for entry in file_system.list_directory(directory):
                if entry.name.endswith(CLEANED_SUFFIX):
                    file_system.remove(os.path.join(directory, entry.name))

        with suppress(OSError):
            await run_in_background(self._resources.executor, work)

    # Outcome.

    def _on_cleaned(self, candidate: LogToClean, result: CleaningResult) -> None:
        log = candidate.log
        self._postponed.pop(log.topic_partition, None)
        self._deaths.pop(log.topic_partition, None)
        self.dead_workers = len(self._deaths)
        assert result.end_offset <= log.log_end_offset, f"cleaned {log} up to {result.end_offset}"
        self._note_clean(log, result.end_offset)
        logger.info(
            "%s: cleaned [%d, %d): kept %d of %d records, %d of %d bytes, in %.1f s (%.1f MB/s)",
            log.topic_partition,
            candidate.first_dirty_offset,
            result.end_offset,
            result.records_written,
            result.records_read,
            result.bytes_written,
            result.bytes_read,
            result.seconds,
            result.bytes_read / 1e6 / max(result.seconds, 1e-3),
        )
        if result.records_written < result.records_read:
            topic, partition = log.topic_partition
            self._resources.events.emit(
                EventKind.RECORDS_COMPACTED,
                {"topic": topic, "partition": partition},
                {
                    "from": log.log_start_offset,
                    "to": result.end_offset,
                    "records_before": result.records_read,
                    "records": result.records_written,
                    "without_key": result.records_without_key,
                },
            )
        if result.records_without_key:
            logger.warning(
                "%s: dropped %d records without a key", log.topic_partition, result.records_without_key
            )
        if log.config.is_deleted:
            try:
                log.delete_old_segments()
            except StorageError as error:
                logger.warning("retention of %s postponed: %s", log.topic_partition, error_text(error))

    def _on_failure(self, log: UnifiedLog, error: Exception) -> None:
        """Postpone the log after a disk error, else count it as uncleanable."""
        topic_partition = log.topic_partition
        cause = (
            OSError(error.errno, str(error)) if isinstance(error, CleaningError) and error.errno else error
        )
        is_disk = isinstance(cause, OSError) and cause.errno not in (errno.ENOENT, errno.ENOTDIR)
        self._resources.failures.note(os.path.dirname(log.directory), cause)
        if is_disk:
            self._postpone(topic_partition)
            logger.warning("%s: cleaning postponed: %s", topic_partition, error_text(error))
            return
        self.uncleanable[topic_partition] = error_text(error)
        if not isinstance(error, CleaningError | OSError | StorageError | RecordsError):
            logger.error("%s: the cleaner has a bug", topic_partition, exc_info=error)
        logger.error("%s cannot be cleaned until a restart: %s", topic_partition, error_text(error))

    def _on_death(self, log: UnifiedLog, error: WorkerDiedError) -> None:
        topic_partition = log.topic_partition
        deaths = self._deaths[topic_partition] = self._deaths.get(topic_partition, 0) + 1
        self.dead_workers = len(self._deaths)
        self._postpone(topic_partition)
        logger.error("%s: cleaning failed: %s", topic_partition, error_text(error))
        if deaths >= _DEATHS_MAX:
            self.uncleanable[topic_partition] = str(error)

    def _postpone(self, topic_partition: TopicPartition) -> None:
        self._postponed[topic_partition] = self._resources.clock.monotonic() + RETRY_MS / 1000

    # Checkpoints.

    def _load_checkpoint(self, directory: str) -> None:
        path = os.path.join(directory, CLEANER_OFFSET_CHECKPOINT_FILE)
        file_system = self._resources.file_system
        checkpoint = self._checkpoints[directory] = OffsetCheckpointFile(file_system, path)
        try:
            offsets = read_offset_checkpoint(file_system, path)
        except (OSError, CorruptCheckpointError) as error:
            # All logs then count as dirty, which costs only time.
            logger.warning("checkpoint ignored: %s", error_text(error))
            return
        for topic_partition, offset in offsets.items():
            log = self._logs.get(topic_partition)
            if log is not None and os.path.dirname(log.directory) == directory:
                self._clean_offsets[topic_partition] = offset
                checkpoint.update(topic_partition, offset)

    def _note_clean(self, log: UnifiedLog, offset: int) -> None:
        self._clean_offsets[log.topic_partition] = offset
        checkpoint = self._checkpoints.get(os.path.dirname(log.directory))
        if checkpoint is not None:
            checkpoint.update(log.topic_partition, offset)
            self._write(checkpoint)

    def _write(self, checkpoint: OffsetCheckpointFile) -> None:
        directory = os.path.dirname(checkpoint.path)
        failures = self._resources.failures
        if directory in self._logs.offline_directories or directory in failures.full:
            # In a full directory the write would fail, and log it, every few seconds.
            return
        checkpoint.write(self._resources.executor, lambda error: failures.note(directory, error))

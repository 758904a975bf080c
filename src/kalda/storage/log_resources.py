"""Holds what all logs of a process share: file system, clock, executor, caches and work queues.

Logs write to the queues (files to delete, logs to flush, offsets to checkpoint) and `LogManager` reads them.
Logs are named by partition here, as in Kafka's LogCleaner and LogManager: this module does not
import `UnifiedLog`.
"""

import os
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from kalda.common.types import TopicPartition
from kalda.events.event import NO_EVENTS, EventSink
from kalda.records.batch import BatchHeader
from kalda.records.compression import Checkpoint
from kalda.runtime.background import Background
from kalda.runtime.clock import Clock
from kalda.runtime.filesystem import FileSystem
from kalda.runtime.random import Random, new_uuid
from kalda.storage.conversions import Conversions, InlineConversions
from kalda.storage.directory_failures import DirectoryFailures
from kalda.storage.log_caches import LogCaches
from kalda.storage.log_config import LogConfig


class DeletionQueue:
    """Files that wait ``file.delete.delay.ms`` before they are removed."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: deque[tuple[float, str, bool]] = deque()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, path: str, due: float, *, is_directory: bool = False) -> None:
        """Add a file, or a directory with its files, to remove at `due` on the monotonic clock (seconds)."""
        self._due.append((due, path, is_directory))

    def move(self, directory: str, target: str) -> None:
        """Note that a directory with files that wait was renamed."""
        self._due = deque(
            (due, os.path.join(target, os.path.basename(path)), is_directory)
            if os.path.dirname(path) == directory
            else (due, path, is_directory)
            for due, path, is_directory in self._due
        )

    def take_due(self, now: float | None, count_max: int) -> list[tuple[str, bool]]:
        """Remove and return some files that are due at `now`, or any if `now` is ``None``."""
        taken: list[tuple[str, bool]] = []
        if now is not None and all(each[0] > now for each in self._due):
            return taken
        kept: deque[tuple[float, str, bool]] = deque()
        while self._due and len(taken) < count_max:
            each = self._due.popleft()
            if now is None or each[0] <= now:
                taken.append(each[1:])
            else:
                kept.append(each)
        self._due.extendleft(reversed(kept))
        return taken


class CleanerPort(Protocol):
    """The calls that a log makes to the log cleaner before a change; all on the owner's thread."""

    def abort(self, topic_partition: TopicPartition) -> None:
        """Stop cleaning the log, and finish or undo a swap that began; raises `OSError`."""
        ...

    def on_truncation(self, topic_partition: TopicPartition, offset: int) -> None:
        """Abort, and count the log as dirty from `offset` on; raises `OSError`."""
        ...

    def on_removal(self, topic_partition: TopicPartition) -> None:
        """Abort, and forget the log; raises `OSError`."""
        ...

    def on_move(self, topic_partition: TopicPartition, source: str, target: str) -> None:
        """Note that the log moved from one log directory to another."""
        ...


class ReadLeasesPort(Protocol):
    """The port that deletion and the log cleaner ask before removing segments that clients read in place."""

    def removable_below(self, topic_partition: TopicPartition, offset: int) -> int:
        """Return up to where segments may be removed now, at most `offset`."""
        ...

    def begin_rewrite(self, topic_partition: TopicPartition, offset: int) -> bool:
        """Return whether the segments below `offset` may be replaced now; no lease covers them meanwhile."""
        ...

    def end_rewrite(self, topic_partition: TopicPartition) -> None:
        """Allow leases again after `begin_rewrite`."""
        ...

    def on_truncation(self, topic_partition: TopicPartition, offset: int) -> None:
        """Note that the log now ends at `offset`."""
        ...

    def on_removal(self, topic_partition: TopicPartition) -> None:
        """Note that the log is gone."""
        ...


class RecordsInspection(Protocol):
    """Looks into the records that clients append to one topic, by rules that the log does not know."""

    def inspect(self, header: BatchHeader, records: bytes, checkpoint: Checkpoint) -> None:
        """Check the records of a batch without compression; callable from any thread.

        Raises:
            InvalidRecordError: Records are refused; names them.
            LookupNeededError: More must be known first.
            InspectionUnavailableError: What must be known cannot be had now.
        """
        ...


def no_inspection(_topic: str, _config: LogConfig) -> RecordsInspection | None:
    """Return None: what the logs of a process without inspections have."""
    return None


class LogResources:
    """The ports and queues that each log gets."""

    def __init__(
        self,
        file_system: FileSystem,
        clock: Clock,
        executor: Background,
        caches: LogCaches | None = None,
        conversions: Conversions | None = None,
        *,
        random: Random,
    ) -> None:
        self.file_system: Final = file_system
        self.clock: Final = clock
        self.executor: Final = executor
        self.caches: Final = caches or LogCaches()
        self.conversions: Conversions = conversions or InlineConversions()
        self.deletions = DeletionQueue()
        self.failures = DirectoryFailures(file_system)
        # Set by the log cleaner, if one runs.
        self.cleaner: CleanerPort | None = None
        # Set by a broker that grants leases on segment files.
        self.read_leases: ReadLeasesPort | None = None
        # Takes the events of logs and directories; set by a broker.
        self.events: EventSink = NO_EVENTS
        # Logs written to since their last flush.
        self.dirty: Final[set[TopicPartition]] = set()
        # Logs whose offsets moved since the last checkpoint.
        self.moved: Final[set[TopicPartition]] = set()
        # Called before a log is truncated, with its directory and its end after it. Raises OSError.
        self.before_truncation: Callable[[TopicPartition, str, int], None] = lambda *_: None
        # Called with a log that was truncated.
        self.on_truncation: Callable[[TopicPartition], None] = lambda _: None
        # Returns what inspects a topic's records by its settings; set by a broker, before it loads logs.
        self.inspection: Callable[[str, LogConfig], RecordsInspection | None] = no_inspection
        self.random: Final = random
        self.random_fraction: Final = random.random

    def for_future_logs(self) -> "LogResources":
        """Return resources for copies that are to replace logs of the same partitions.

        Ports, caches, deletions and failures are the same. The queues are named by partition and are their
        own, and neither the log cleaner nor readers in place know the copies.
        """
        other = LogResources(
            self.file_system, self.clock, self.executor, self.caches, self.conversions, random=self.random
        )
        other.deletions, other.failures = self.deletions, self.failures
        other.before_truncation = self.before_truncation
        return other

    def new_name_suffix(self) -> str:
        """Return 32 random hexadecimal digits, for the name of a directory that is moved aside."""
        return new_uuid(self.random).hex

    def delete_later(self, path: str, delay_ms: int, *, is_directory: bool = False) -> None:
        """Have a file, or a directory with its files, removed after `delay_ms`."""
        self.deletions.add(path, self.clock.monotonic() + delay_ms / 1000, is_directory=is_directory)

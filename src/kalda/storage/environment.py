"""What all logs of a process share: the ports to the world and the queues between logs and log manager."""

import random
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from kalda.common.clock import Clock
from kalda.storage.background import BackgroundExecutor
from kalda.storage.directory_failures import DirectoryFailures
from kalda.storage.filesystem import FileSystem
from kalda.storage.handles import Handles

if TYPE_CHECKING:
    from kalda.storage.unified_log import UnifiedLog


class DeletionQueue:
    """Files that wait ``file.delete.delay.ms`` before their space is given back."""

    __slots__ = ("_due",)

    def __init__(self) -> None:
        self._due: deque[tuple[float, str, bool]] = deque()

    def __len__(self) -> int:
        return len(self._due)

    def add(self, path: str, due: float, *, is_directory: bool = False) -> None:
        """Have a file, or a directory with its files, removed at `due`, in seconds of the monotonic clock."""
        self._due.append((due, path, is_directory))

    def take_due(self, now: float | None) -> list[tuple[str, bool]]:
        """Take out what is due; everything if `now` is ``None``."""
        if now is None:
            taken = [(path, is_directory) for _, path, is_directory in self._due]
            self._due.clear()
            return taken
        taken = [(path, is_directory) for due, path, is_directory in self._due if due <= now]
        if taken:
            self._due = deque(item for item in self._due if item[0] > now)
        return taken


class Compaction(Protocol):
    """What the log cleaner must hear of a log, before it happens; all from the owner's thread."""

    def abort(self, log: "UnifiedLog") -> None:
        """Stop cleaning the log, and finish or undo what was begun; raises `OSError`."""
        ...

    def on_truncation(self, log: "UnifiedLog", offset: int) -> None:
        """Abort, and know that nothing from `offset` on is clean any more; raises `OSError`."""
        ...

    def on_removal(self, log: "UnifiedLog") -> None:
        """Abort, and forget the log; raises `OSError`."""
        ...


class LogEnvironment:
    """The ports and the shared queues, given to each log."""

    __slots__ = (
        "clock",
        "compaction",
        "deletions",
        "dirty",
        "executor",
        "failures",
        "file_system",
        "handles",
        "moved",
        "on_truncation",
        "random_fraction",
    )

    def __init__(
        self,
        file_system: FileSystem,
        clock: Clock,
        executor: BackgroundExecutor,
        handles: Handles | None = None,
    ) -> None:
        self.file_system: Final = file_system
        self.clock: Final = clock
        self.executor: Final = executor
        self.handles: Final = handles or Handles()
        self.deletions: Final = DeletionQueue()
        self.failures: Final = DirectoryFailures(file_system)
        # Set by the log cleaner, where one runs.
        self.compaction: Compaction | None = None
        # Logs written to since their last flush: all that maintenance has to look at.
        self.dirty: Final[set[UnifiedLog]] = set()
        # Logs whose offsets moved since the last checkpoint.
        self.moved: Final[set[UnifiedLog]] = set()
        # Set by the log manager: the checkpoints claim more than a log has that was cut.
        self.on_truncation: Callable[[UnifiedLog], None] = lambda _: None
        self.random_fraction: Final = random.random

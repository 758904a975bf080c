"""Bounds what the logs of a process hold open: descriptors of log files and loaded index bytes.

Both are caches. What is released is opened or read again on its next use.
"""

from typing import Final, Protocol

# A third of the usual limit of 1,024 descriptors, which leaves enough for connections.
OPEN_FILES_MAX_DEFAULT: Final = 340
# Index bytes in memory: at 4 KiB per index, enough for 2,000 segments read at the same time.
INDEX_BYTES_MAX_DEFAULT: Final = 8 * 1024 * 1024


class Releasable(Protocol):
    """An object that can release what it holds and obtain it again later."""

    def release(self) -> None:
        """Drop the cached descriptor or bytes."""
        ...


class FifoCache:
    """Counts what objects hold, and releases the oldest above a bound (first in, first out).

    First in, first out needs no bookkeeping on the hot path. An entry that is in use is opened again, which
    costs some microseconds once per round through the bound.
    """

    def __init__(self, cost_max: int) -> None:
        assert cost_max > 0, f"a cache needs room, got {cost_max}"
        self.cost_max: Final = cost_max
        self.cost = 0
        self._held: dict[Releasable, int] = {}

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, item: Releasable, cost: int = 1) -> None:
        """Register `item` with a cost; may release other items, but not `item`."""
        self.cost += cost - self._held.pop(item, 0)
        self._held[item] = cost
        while self.cost > self.cost_max and len(self._held) > 1:
            oldest = next(iter(self._held))
            self.forget(oldest)
            oldest.release()

    def release_oldest(self) -> bool:
        """Release the oldest item; return whether there was one."""
        oldest = next(iter(self._held), None)
        if oldest is None:
            return False
        self.forget(oldest)
        oldest.release()
        return True

    def forget(self, item: Releasable) -> None:
        """Remove `item` without releasing it, because it holds no resource now."""
        self.cost -= self._held.pop(item, 0)


class LogCaches:
    """The two caches that all logs of a process share."""

    __slots__ = ("files", "indexes")

    def __init__(
        self, open_files_max: int = OPEN_FILES_MAX_DEFAULT, index_bytes_max: int = INDEX_BYTES_MAX_DEFAULT
    ) -> None:
        self.files: Final = FifoCache(open_files_max)
        self.indexes: Final = FifoCache(index_bytes_max)

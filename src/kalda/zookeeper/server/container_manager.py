"""Finds containers and znodes with a time to live that are due for deletion, by ZooKeeper's rules. Sans-IO.

A container is due when it has no children and once had some, so a new container is safe until its first use.
A znode with a time to live is due when it has no children and its data has not changed for that time. The
result is only a list of candidates: the prep processor validates each deletion, so a child that is created in
between keeps its parent.
"""

from collections import deque
from typing import Final

from kalda.zookeeper.server.data_tree import DataTree
from kalda.zookeeper.server.ephemeral_owner import ttl_of

CHECK_INTERVAL_MS: Final = 60_000
"""ZooKeeper's ``znode.container.checkIntervalMs``."""

DELETES_PER_MINUTE_MAX: Final = 10_000
"""ZooKeeper's ``znode.container.maxPerMinute``: a hundred thousand at once would delay all other requests."""

NEVER_USED_MS_MAX: Final = 0
"""ZooKeeper's ``znode.container.maxNeverUsedIntervalMs``; at 0 a container that was never used stays."""

_LOOKS_MAX: Final = 5_000
"""Znodes checked in one call, so that it blocks the event loop for a few milliseconds at most."""

_MINUTE_MS: Final = 60_000


class ContainerManager:
    """Checks the tree periodically and returns due znodes, no faster than the configured rate."""

    def __init__(
        self,
        *,
        check_interval_ms: int = CHECK_INTERVAL_MS,
        deletes_per_minute_max: int = DELETES_PER_MINUTE_MAX,
        never_used_ms_max: int = NEVER_USED_MS_MAX,
    ) -> None:
        assert check_interval_ms > 0, f"checks {check_interval_ms} ms apart never end"
        assert deletes_per_minute_max > 0, f"{deletes_per_minute_max} deletions per minute are none"
        self._check_interval_ms = check_interval_ms
        self._deletion_ms = _MINUTE_MS / deletes_per_minute_max
        self._never_used_ms_max = never_used_ms_max
        self._next_check_ms: float | None = None
        self._next_deletion_ms = 0.0
        self._unseen: deque[str] = deque()
        """The znodes that the current check has not looked at yet."""
        self._due: deque[str] = deque()

    def due(self, tree: DataTree, reading_ms: float, wall_ms: int) -> list[str]:
        """Return the znodes to delete now; the caller passes a monotonic reading and the wall clock.

        The first check comes one interval after the first call, as after the start of a ZooKeeper server.
        """
        if self._next_check_ms is None:
            self._next_check_ms = reading_ms + self._check_interval_ms
        if reading_ms >= self._next_check_ms and not self._unseen and not self._due:
            self._next_check_ms = reading_ms + self._check_interval_ms
            self._next_deletion_ms = max(self._next_deletion_ms, reading_ms)
            self._unseen.extend(sorted(tree.containers))
            self._unseen.extend(sorted(tree.ttl_paths))
        for _ in range(min(_LOOKS_MAX, len(self._unseen))):
            path = self._unseen.popleft()
            if self._is_due(tree, path, wall_ms):
                self._due.append(path)
        return self._release(tree, reading_ms, wall_ms)

    def _release(self, tree: DataTree, reading_ms: float, wall_ms: int) -> list[str]:
        released: list[str] = []
        while self._due and self._next_deletion_ms <= reading_ms:
            path = self._due.popleft()
            if self._is_due(tree, path, wall_ms):
                released.append(path)
                self._next_deletion_ms += self._deletion_ms
        if not self._due:
            # Unused allowance does not accumulate.
            self._next_deletion_ms = max(self._next_deletion_ms, reading_ms)
        return released

    def _is_due(self, tree: DataTree, path: str, wall_ms: int) -> bool:
        node = tree.nodes.get(path)
        if node is None or tree.children(path):
            return False
        elapsed_ms = wall_ms - node.mtime
        ttl_ms = ttl_of(node.ephemeral_owner)
        if ttl_ms is not None:
            return elapsed_ms > ttl_ms > 0
        if path not in tree.containers:
            return False
        if node.created_count:
            return True
        return 0 < self._never_used_ms_max < elapsed_ms

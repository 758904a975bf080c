"""What the group coordinator of one broker counts."""

from dataclasses import dataclass

__all__ = ["GroupStatistics"]


@dataclass(slots=True)
class GroupStatistics:
    """Counters since the broker started."""

    offset_commits: int = 0
    offset_expirations: int = 0
    offset_deletions: int = 0
    completed_rebalances: int = 0

    def completed_rebalance(self) -> None:
        """Count a rebalance of a classic group that ended with an assignment."""
        self.completed_rebalances += 1

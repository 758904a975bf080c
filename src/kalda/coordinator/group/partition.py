"""One partition of ``__consumer_offsets`` with all that acts on it: the protocols and the housekeeping."""

from collections import deque
from collections.abc import Callable
from typing import Final

from kalda.coordinator.group.classic.classic_protocol import ClassicProtocol
from kalda.coordinator.group.consumer.protocol import ConsumerProtocol
from kalda.coordinator.group.group_config import GroupConfig
from kalda.coordinator.group.offset_operations import cleanup
from kalda.coordinator.group.shard import GroupShard
from kalda.coordinator.group.statistics import GroupStatistics
from kalda.coordinator.runtime.coordinator_shard import Result, ShardContext

__all__ = ["GroupPartition"]

_CLEANUP_TIMER: Final = "cleanup"
_NEXT_SLICE_MS: Final = 20
"""The pause between slices: housekeeping has time, requests have not."""


class GroupPartition(GroupShard):
    """The state of a partition and the parts that change it."""

    def __init__(
        self,
        partition: int,
        config: GroupConfig,
        statistics: GroupStatistics,
        new_id: Callable[[], str],
    ) -> None:
        super().__init__(partition, config)
        self.statistics: Final = statistics
        self.consumer: ConsumerProtocol | None = None
        """The consumer protocol (KIP-848), where the broker has it."""
        self.classic: Final = ClassicProtocol(
            self, new_id=new_id, completed_rebalance=statistics.completed_rebalance
        )
        self.parts.extend((self.classic, _Housekeeping(self)))


class _Housekeeping:
    """Looks for expired offsets and unused groups every `offsets.retention.check.interval.ms`, in slices."""

    def __init__(self, shard: GroupPartition) -> None:
        self._shard: Final = shard
        self._to_check: Final[deque[str]] = deque()
        """The groups that this round has not come to yet; empty between rounds."""

    def on_loaded(self, context: ShardContext) -> None:
        """Look for the first time after one interval: members need time to come back after a failover."""
        context.schedule(
            _CLEANUP_TIMER, self._shard.config.offsets_retention_check_interval_ms, self._clean_up
        )

    def on_unloaded(self) -> None:
        """Nothing waits here."""

    def _clean_up(self) -> Result[None]:
        shard = self._shard
        if not self._to_check:
            self._to_check.extend(shard.groups)
        found = cleanup(shard, self._to_check)
        shard.statistics.offset_expirations += found.expired_count
        interval_ms = shard.config.offsets_retention_check_interval_ms
        delay_ms = min(_NEXT_SLICE_MS, interval_ms) if self._to_check else interval_ms
        shard.context.schedule(_CLEANUP_TIMER, delay_ms, self._clean_up)
        return Result(found.records, None)
